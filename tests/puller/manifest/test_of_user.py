"""Manifests for agents of ordinary users: default owners, and resources that require root."""

import os
import pwd
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.errors import ManifestError
from puller.manifest.as_user_rules import WANTS_ROOT
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.resources.registry import type_names

HERE = Inputs({}, {}, as_user=True)
"""An agent of the user who runs the tests."""
MACHINE = Inputs({}, {}, as_user=False)
READER = Inputs({}, {})
OTHER = "daemon"
"""An agent of another user."""


def load(directory: Path, *resources: dict[str, Any], inputs: Inputs, **more: Any) -> Manifest:
    path = directory / "manifest.yaml"
    path.write_text(yaml.safe_dump({**more, "resources": list(resources)}))
    return load_manifest(path, "web/manifest.yaml", inputs)


def refused(directory: Path, *resources: dict[str, Any], inputs: Inputs = HERE, **more: Any) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(directory, *resources, inputs=inputs, **more)
    return [problem.split(": ", 1)[1] for problem in map(str, caught.value.problems)]


def one(type_name: str, name: str, **properties: Any) -> dict[str, Any]:
    return {type_name: [{name: properties}]}


def test_defaults_use_the_owner_and_manager_of_the_user(tmp_path: Path) -> None:
    manifest = load(tmp_path, one("file", "/tmp/x", mode="0644"), one("service", "x"), inputs=HERE)
    file, service = (declaration.properties for declaration in manifest.declarations)
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert (file.owner, service.scope, service.user) == (me, "user", me)  # type: ignore[attr-defined]
    assert file.group  # type: ignore[attr-defined]


def test_uncreated_file_gets_no_default_owner(tmp_path: Path) -> None:
    manifest = load(tmp_path, one("file", "/tmp/x", mode="0644", create=False), inputs=HERE)
    assert manifest.declarations[0].properties.owner is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("type_name", sorted(WANTS_ROOT))
def test_system_wide_type_is_refused_for_users(tmp_path: Path, type_name: str) -> None:
    resource = one(type_name, "/x" if type_name == "mount" else "x", control={"if": False})
    (problem,) = refused(tmp_path, resource, one("file", "/tmp/x", mode="0644"))
    assert f"{type_name} resources require root ({WANTS_ROOT[type_name]})" in problem
    assert problem.startswith("resources[0]")


def test_every_type_states_whether_it_requires_root() -> None:
    no_root = {
        "apply",
        "archive",
        "block",
        "checkout",
        "exec",
        "file",
        "fragment",
        "line",
        "link",
        "scaffold",
        "service",
    }
    assert {*WANTS_ROOT, *no_root, "scaffold", "service", "setting"} == set(type_names())


@pytest.mark.parametrize(
    ("resource", "sentence"),
    [
        (one("file", "/tmp/x", mode="0644", owner=OTHER), f"owner is '{OTHER}', and this agent runs as"),
        (one("file", "/tmp/x", mode="0644", group=54321), "group is 54321, and this agent runs as"),
        (
            one("link", "/tmp/x", target="/tmp/y", owner=OTHER),
            f"owner is '{OTHER}', and this agent runs as",
        ),
        (one("exec", "true", user=OTHER), f"user is '{OTHER}', and this agent runs as"),
        (one("service", "x", scope="user", user=OTHER), f"user is '{OTHER}', and this agent runs as"),
        (one("service", "x", scope="system"), "scope is 'system', which requires root"),
        (
            one("file", "/tmp/x", mode="0644", content="x", validate="true", validate_in_place=True),
            "validate_in_place is true, which requires root",
        ),
    ],
)
def test_a_property_that_wants_root_refuses_the_manifest(
    tmp_path: Path, resource: dict[str, Any], sentence: str
) -> None:
    (problem,) = refused(tmp_path, resource)
    assert sentence in problem


def test_evaluated_values_follow_the_rules_for_users(tmp_path: Path) -> None:
    resource = one("file", "/tmp/x", mode="0644", owner="{{ data.who }}")
    manifest = load(tmp_path, resource, inputs=HERE, data={"who": OTHER})
    assert f"owner is '{OTHER}', and this agent runs as" in manifest.declarations[0].failure


def test_a_child_manifest_is_held_to_the_rules_of_its_parent(tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text(yaml.safe_dump({"resources": [one("package", "curl")]}))
    (problem,) = refused(tmp_path, one("apply", "child.yaml"))
    assert "package resources require root" in problem


def test_user_manifest_is_refused_by_the_system_agent(tmp_path: Path) -> None:
    resource = one("file", "/tmp/x", mode="0644", owner="root", group="root")
    (problem,) = refused(tmp_path, resource, inputs=MACHINE, as_user=True)
    assert (
        problem
        == "as_user is true, so only agents of ordinary users apply this manifest (puller run --as-user)"
    )


def test_authors_read_a_user_manifest_as_any_user(tmp_path: Path) -> None:
    of_somebody = one("file", "/tmp/x", mode="0644", owner=OTHER)
    load(tmp_path, one("file", "/tmp/y", mode="0644"), of_somebody, inputs=READER, as_user=True)
    (problem,) = refused(tmp_path, one("package", "curl"), inputs=READER, as_user=True)
    assert "package resources require root" in problem
    assert refused(tmp_path, one("file", "/tmp/y", mode="0644"), inputs=READER)  # requires owner and group


def test_as_user_is_true_or_false(tmp_path: Path) -> None:
    assert "as_user must be true or false" in refused(tmp_path, inputs=READER, as_user="yes")
