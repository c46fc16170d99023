"""``--only``: selected resources and their requirements are applied, and a partial run cannot pass a trial."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host, Publisher


def file(name: str, content: str = "1", **more: Any) -> dict[str, Any]:
    owner = {"owner": os.geteuid(), "group": os.getegid(), "mode": "0644"}
    return {f"{{{{ facts.machine }}}}/{name}": {"content": content, "alias": name, **owner, **more}}


def tell(name: str, **more: Any) -> dict[str, Any]:
    return {name: {"command": f'sh -c "echo {name} >> {{{{ facts.machine }}}}/said"', **more}}


RESOURCES = [
    {
        "file": [
            file("needed"),
            file("also needed"),
            file("wanted", require=["file#needed", "apply#base.yaml"]),
        ]
    },
    {"file": [file("other"), file("last", after=["file#wanted"])]},
    {"apply": [{"base.yaml": {}}]},
    {"exec": [tell("reload", refreshonly=True, subscribe=["file#wanted"])]},
]
BASE = {"resources": [{"file": [file("of base")]}]}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    directory = tmp_path / "web"
    directory.mkdir()
    (tmp_path / "machine").mkdir()
    (directory / "manifest.yaml").write_text(json.dumps({"resources": RESOURCES}))
    (directory / "base.yaml").write_text(json.dumps(BASE))
    return directory


def made(machine: Path) -> set[str]:
    return {path.name for path in machine.iterdir()}


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (["file#wanted"], {"needed", "of base", "wanted"}),
        (["file#*/wanted"], {"needed", "of base", "wanted"}),
        (["apply#base.yaml"], {"of base"}),
        (["file#also needed", "file#other"], {"also needed", "other"}),
        (["file#l*t"], {"last"}),
        (["*"], {"needed", "also needed", "wanted", "other", "last", "of base", "said"}),
    ],
    ids=lambda result: " ".join(sorted(result)),
)
def test_named_resources_and_requirements_are_applied_only(
    bundle: Path, tmp_path: Path, execute: Execute, only: list[str], expected: set[str]
) -> None:
    machine = tmp_path / "machine"
    words = [word for item in only for word in ("--only", item)]
    status, output = execute("apply", str(bundle), "--fact", f"machine={machine}", *words)
    assert status == 0, output
    assert made(machine) == expected
    assert "this was a partial run of " in output


def test_refresh_of_an_omitted_resource_stays_pending(bundle: Path, tmp_path: Path, execute: Execute) -> None:
    machine = tmp_path / "machine"
    facts = ("--fact", f"machine={machine}", "--state-directory", str(tmp_path / "state"))
    status, output = execute("apply", str(bundle), *facts, "--only", "file#wanted")
    assert status == 0
    assert "this was a partial run of 4 of 8 resources. The others were not checked" in output
    assert "said" not in made(machine)
    assert execute("apply", str(bundle), *facts)[0] == 0
    assert (machine / "said").read_text() == "reload\n"


@pytest.mark.parametrize("only", ["file#wante", "file#/etc/*", "nothing"])
def test_unknown_reference_is_refused_before_any_change(
    bundle: Path, tmp_path: Path, execute: Execute, only: str
) -> None:
    machine = tmp_path / "machine"
    status, output = execute(
        "apply", str(bundle), "--fact", f"machine={machine}", "--only", "file#wanted", "--only", only
    )
    assert status == 64
    assert f"--only {only}: matches no resource" in output
    assert made(machine) == set()


def test_a_partial_run_makes_no_bundle_good(host: Host, publisher: Publisher) -> None:
    host.machine.mkdir()
    publisher.publish("1.0.0", json.dumps({"resources": [{"file": [file("a"), file("b")]}]}), files={})
    assert host.run("--only", "file#a").status == 0
    assert made(host.machine) == {"a"}
    assert host.report()["only"] == ["file#a"]
    status = host.status()
    assert status["bundles"][0]["trial"], "it is on trial still"
    assert status["last_run"]["only"] == ["file#a"]
    judged = host.puller("status", "--check")
    assert judged.status == 1
    assert "the last run was limited to file#a, so other resources were not checked" in judged.output
    assert host.run().status == 0
    assert host.status()["bundles"][0].get("trial") is None
    assert host.puller("status", "--check").status == 0


def test_partial_run_adopts_no_unrelated_release(host: Host, publisher: Publisher) -> None:
    host.machine.mkdir()
    for name in ("web", "db"):
        publisher.publish("1.0.0", json.dumps({"resources": [{"file": [file(name)]}]}), name=name, files={})
    host.configure(bundles=[{"name": "web"}, {"name": "db"}])
    assert host.run("--only", "file#db").status == 0
    assert [bundle["enforced"] for bundle in host.status()["bundles"]] == [None, "1.0.0"]
    assert host.report()["bundles"][0]["outcome"] == "not applied: --only selects none of its resources"
    assert host.run().status == 0
    assert made(host.machine) == {"web", "db"}


def test_run_without_selected_resources_is_complete(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0")
    outcome = host.run("--only", "file#none")
    assert outcome.status == 64
    host.assert_told("--only file#none: matches no resource", outcome)
    assert host.status()["cut_short"] in (None, "")
    assert host.enforced is None


def test_failed_partial_trial_is_rolled_back_completely(host: Host, publisher: Publisher) -> None:
    host.machine.mkdir()
    check = {"command": "sh -c 'grep -q good {{ facts.machine }}/a || exit 2'"}

    def release(version: str, a: str, b: str) -> None:
        files = [file("a", a, health_checks=[check]), file("b", b)]
        publisher.publish(version, json.dumps({"resources": [{"file": files}]}), files={})

    release("1.0.0", "good", "1")
    assert host.run().status == 0
    release("1.1.0", "bad", "2")
    (host.machine / "b").write_text("by hand")
    assert host.run("--only", "file#a").status == 7
    assert ((host.machine / "a").read_text(), (host.machine / "b").read_text()) == ("good", "1")
