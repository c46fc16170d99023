"""``fragment``: parts of one file, in order, written by the file."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from foundation.problems import Problem, ProblemCode
from puller.errors import ManifestError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.resources import registry
from puller.resources.base import Properties
from puller.resources.exec import Exec
from puller.resources.files.content import Bytes, Content, FilePart
from puller.values.common_properties import Reference
from tests.support.stories import execute_here

OWN = {"owner": os.geteuid(), "group": os.getegid(), "mode": "0640"}


class Bundle(NamedTuple):
    """A manifest, and the file that its fragments make."""

    directory: Path
    file: Path

    def declare(self, *resources: dict[str, Any], data: dict[str, Any] | None = None) -> None:
        text = yaml.safe_dump({"data": data or {}, "resources": list(resources)}, sort_keys=False)
        (self.directory / "manifest.yaml").write_text(text)

    def target(self, **more: Any) -> dict[str, Any]:
        return {"file": [{str(self.file): {"fragments": True, **OWN, **more}}]}

    def part(self, name: str, text: str | None, **more: Any) -> dict[str, Any]:
        given = {} if text is None else {"content": text}
        return {"fragment": [{name: {"path": str(self.file), **given, **more}}]}

    def apply(self, *options: str) -> tuple[int, str]:
        manifest, state = str(self.directory / "manifest.yaml"), str(self.directory / "state")
        return execute_here("apply", manifest, "--state-directory", state, *options)

    def problems(self) -> list[Problem]:
        with pytest.raises(ManifestError) as error:
            load_manifest(self.directory / "manifest.yaml", "manifest.yaml", Inputs({}, {}))
        return list(error.value.problems)


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return Bundle(tmp_path, tmp_path / "made.conf")


# Types of other distributions


class RuleProperties(Properties, frozen=True):
    """The properties of a rule."""

    path: str = ""


class Rule(FilePart[RuleProperties]):
    """A type of another distribution."""

    type_name = "rule"
    properties_type = RuleProperties

    @classmethod
    def path(cls, properties: RuleProperties) -> str:
        return properties.path

    def text(self, encoding: str) -> Content:
        return Bytes(f"rule {self.properties.name}".encode(encoding), self.context.system)


def test_types_of_other_distributions_give_parts(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._OWN, "rule", f"{__name__}:Rule")
    rule = {"rule": [{"a": {"path": str(bundle.file)}}]}
    bundle.declare(bundle.target(), rule, bundle.part("b", "fragment b\n"))
    assert bundle.apply()[0] == 0
    assert bundle.file.read_text() == "rule a\nfragment b\n"


def test_part_without_a_text_fails_the_file(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Reference.to("file", str(bundle.file))
    monkeypatch.setattr(Exec, "part_of", classmethod(lambda cls, properties: reference))
    bundle.declare(bundle.target(), bundle.part("a", "a\n"), {"exec": ["true"]})
    status, output = bundle.apply()
    assert status != 0
    assert "exec#true is a part of this file, and its type is no subclass of FilePart" in " ".join(
        output.split()
    )
    assert not bundle.file.exists()


# Content


def test_parts_are_sorted_by_order_and_then_by_name(bundle: Bundle) -> None:
    texts = (("z", 10), ("a", 20), ("c", 10), ("b", None), ("last", 99))
    parts = [bundle.part(name, name, **({} if order is None else {"order": order})) for name, order in texts]
    for resources in ([bundle.target(), *parts], [*reversed(parts), bundle.target()]):
        bundle.declare(*resources)
        assert bundle.apply()[0] == 0
        assert bundle.file.read_text() == "c\nz\na\nb\nlast\n"
    assert "6 resources, 6 stable" in bundle.apply()[1]


def test_a_part_without_a_final_newline_gets_one(bundle: Bundle) -> None:
    bundle.declare(
        bundle.target(), bundle.part("a", "one"), bundle.part("b", ""), bundle.part("c", "two\n\n")
    )
    assert bundle.apply()[0] == 0
    assert bundle.file.read_text() == "one\ntwo\n\n"


def test_parts_come_from_templates_and_files(bundle: Bundle) -> None:
    (bundle.directory / "port.j2").write_text("port={{ data.port }}")
    (bundle.directory / "plain").write_text("plain {{ data.port }}\n")
    bundle.declare(
        bundle.target(),
        bundle.part("a", None, template="port.j2"),
        bundle.part("b", None, template="port.j2", data={"port": 2}),
        bundle.part("c", None, source="plain"),
        data={"port": 1},
    )
    assert bundle.apply()[0] == 0
    assert bundle.file.read_text() == "port=1\nport=2\nplain {{ data.port }}\n"


def test_encoding_of_the_file_applies_to_its_parts(bundle: Bundle) -> None:
    bundle.declare(bundle.target(encoding="latin-1"), bundle.part("a", "ä"))
    assert bundle.apply()[0] == 0
    assert bundle.file.read_bytes() == b"\xe4\n"


def test_a_file_without_fragments_is_empty(bundle: Bundle) -> None:
    bundle.declare(bundle.target())
    assert bundle.apply()[0] == 0
    assert bundle.file.read_bytes() == b""
    assert stat.S_IMODE(bundle.file.stat().st_mode) == 0o640


# Changes


@pytest.mark.parametrize(
    ("second", "content"),
    [
        ([("a", "one"), ("b", "two"), ("c", "three")], "one\ntwo\nthree\n"),
        ([("a", "one")], "one\n"),
        ([], ""),
        ([("a", "one"), ("b", "2")], "one\n2\n"),
    ],
)
def test_dry_run_lists_the_change_of_the_next_run(
    bundle: Bundle, second: list[tuple[str, str]], content: str
) -> None:
    bundle.declare(bundle.target(), bundle.part("a", "one"), bundle.part("b", "two"))
    assert bundle.apply()[0] == 0
    before = bundle.file.stat()
    bundle.declare(bundle.target(), *(bundle.part(name, text) for name, text in second))
    _, predicted = bundle.apply("--noop", "--diff")
    assert "Would have updated the file" in predicted
    assert bundle.file.stat() == before
    _, made = bundle.apply("--diff")
    assert diff_in(predicted) == diff_in(made) != []
    assert bundle.file.read_text() == content
    assert f"{len(second) + 1} stable" in bundle.apply()[1]


def diff_in(output: str) -> list[str]:
    return [line.strip() for line in output.splitlines() if line.startswith("        ")]


def test_absent_and_unmanaged_parts_are_left_out(bundle: Bundle) -> None:
    bundle.declare(
        bundle.target(),
        bundle.part("a", "one"),
        bundle.part("b", "two", ensure="absent"),
        bundle.part("c", "three", control={"if": "false"}),
    )
    assert bundle.apply()[0] == 0
    assert bundle.file.read_text() == "one\n"


def test_whole_content_is_validated_once_before_it_appears(bundle: Bundle) -> None:
    log = bundle.directory / "log"
    validate = f'sh -c \'cat "$0" >> {log}; ! grep -q bad "$0"\' {{}}'
    bundle.declare(bundle.target(validate=validate), bundle.part("a", "one"), bundle.part("b", "two"))
    assert bundle.apply()[0] == 0
    assert log.read_text() == "one\ntwo\n"
    bundle.declare(bundle.target(validate=validate), bundle.part("a", "one"), bundle.part("b", "bad"))
    status, output = bundle.apply()
    assert status == 4
    assert "stays as it was" in output
    assert bundle.file.read_text() == "one\ntwo\n"


def test_subscribers_of_a_part_follow_its_file(bundle: Bundle) -> None:
    log = bundle.directory / "log"
    told = {"command": f"sh -c 'echo told >> {log}'", "refreshonly": True, "subscribe": ["fragment#a"]}
    reader = {"command": f"cat {bundle.file}", "creates": "/", "require": ["fragment#a"]}
    for text in ("one", "two"):
        bundle.declare(
            {"exec": [{"tell": told}, {"read": reader}]},
            bundle.part("a", "constant"),
            bundle.part("b", text),
            bundle.target(),
        )
        assert bundle.apply()[0] == 0
    assert log.read_text() == "told\ntold\n"


def test_a_failed_requirement_of_a_part_stops_the_file(bundle: Bundle) -> None:
    bundle.file.write_text("before\n")
    bundle.declare(
        bundle.target(),
        {"exec": [{"fails": {"command": "false"}}]},
        bundle.part("a", "one"),
        bundle.part("b", "two", require=["exec#fails"]),
    )
    status, output = bundle.apply()
    assert status == 4
    assert f"file#{bundle.file} skipped" in output
    assert bundle.file.read_text() == "before\n"


@pytest.mark.parametrize(
    "part",
    [
        {"content": "{{ data.missing }}"},
        {"template": "missing.j2"},
        {"source": "missing"},
        {"content": "x", "path": "{{ data.missing }}"},
        {"for": "item in data.missing", "content": "x"},
    ],
    ids=["value", "template", "source", "path", "loop"],
)
def test_a_part_that_cannot_be_made_stops_the_file(bundle: Bundle, part: dict[str, Any]) -> None:
    """A file without a part would be valid, and wrong."""
    bundle.file.write_text("before\n")
    name = "{{ item }}" if "for" in part else "b"
    bundle.declare(bundle.target(), bundle.part("a", "one"), bundle.part(name, None, **part))
    for options in (["--noop"], []):
        status, output = bundle.apply(*options)
        assert status in (4, 13), output
        assert f"file#{bundle.file} changed" not in output
        assert f"file#{bundle.file} would change" not in output
        assert bundle.file.read_text() == "before\n"


def test_a_part_from_an_earlier_command_is_unknown_in_noop(bundle: Bundle) -> None:
    bundle.declare(
        {"file": [{f"{bundle.directory}/value": {**OWN, "content": "made"}}]},
        bundle.target(),
        bundle.part("a", f"{{{{ read_file('{bundle.directory}/value') }}}}"),
    )
    bundle.file.write_text("before\n")
    status, output = bundle.apply("--noop")
    assert status == 0, output
    assert f"file#{bundle.file} would change" in output
    status, output = bundle.apply()
    assert status == 0, output
    assert bundle.file.read_text() == "made\n"


def test_only_a_part_means_its_whole_file(bundle: Bundle) -> None:
    bundle.declare(bundle.target(), bundle.part("a", "one"), bundle.part("b", "two"))
    assert bundle.apply("--only", "fragment#a")[0] == 0
    assert bundle.file.read_text() == "one\ntwo\n"


def test_a_secret_part_hides_the_diff_of_the_file(bundle: Bundle) -> None:
    bundle.declare(bundle.target(), bundle.part("a", "one"), bundle.part("b", "canary", sensitive=True))
    for text in ("one", "two"):
        bundle.declare(bundle.target(), bundle.part("a", text), bundle.part("b", "canary", sensitive=True))
        for options in (["--noop", "--diff", "-v"], ["--diff", "-v"]):
            assert "canary" not in bundle.apply(*options)[1]
    assert bundle.file.read_text() == "two\ncanary\n"


def test_both_spellings_of_a_path_are_one_file(bundle: Bundle) -> None:
    """Links that the manifest declares count, as for every type."""
    link, directory = bundle.directory / "link", bundle.directory / "real"
    bundle.declare(
        {"file": [{str(directory): {"ensure": "directory", **OWN, "mode": "0755"}}]},
        {"link": [{str(link): {"target": str(directory)}}]},
        {"file": [{f"{directory}/conf": {"fragments": True, **OWN}}]},
        {"fragment": [{"a": {"path": f"{link}/conf", "content": "a"}}]},
        {"fragment": [{"b": {"path": f"{directory}/conf", "content": "b"}}]},
    )
    status, output = bundle.apply()
    assert status == 0, output
    assert (directory / "conf").read_text() == "a\nb\n"


PAGE = (Path(__file__).parents[4] / "docs/resources/fragment.md").read_text()


def test_the_page_shows_the_resulting_file(bundle: Bundle) -> None:
    first, second = (
        yaml.safe_load(text)["resources"] for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    )
    (text,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    for resources, expected in ((first, text), ([*first, *second], f"{text}/srv/backups 192.0.2.17(ro)\n")):
        written = yaml.safe_dump([each for each in resources if "service" not in each])
        written = written.replace("/etc/exports", str(bundle.file))
        written = re.sub(r"(owner|group): root", lambda match: f"{match[1]}: {OWN[match[1]]}", written)
        bundle.declare(*yaml.safe_load(written))
        status, output = bundle.apply()
        assert status == 0, output
        assert bundle.file.read_text() == expected


# Problems


def test_a_part_requires_a_file_with_fragments(bundle: Bundle) -> None:
    bundle.declare(bundle.part("a", "one"))
    (problem,) = bundle.problems()
    assert problem.code is ProblemCode.UNDECLARED_REFERENCE
    assert (problem.subject, problem.property) == ("fragment#a", "path")
    for more in ({"fragments": False}, {"ensure": "absent"}):
        bundle.declare(bundle.part("a", "one"), bundle.target(**more))
        (problem,) = bundle.problems()
        assert (problem.code, problem.subject) == (ProblemCode.RESOURCE_CONFLICT, "fragment#a")


@pytest.mark.parametrize(
    ("properties", "concerns"),
    [
        ({}, "content"),
        ({"content": "a", "source": "b"}, "source"),
        ({"content": "a", "path": "relative"}, "path"),
        ({"content": "a", "path": ""}, "path"),
        ({"content": "a", "order": "first"}, "order"),
        ({"content": "a", "ensure": "directory"}, "ensure"),
        ({"content": "a", "noop": True}, "noop"),
        ({"content": "a", "removed": "absent"}, "removed"),
        ({"content": "a", "health_checks": [{"command": "true"}]}, "health_checks"),
        ({"content": "a", "data": {"x": 1}}, "data"),
        ({"template": "t", "engine": "none"}, "engine"),
    ],
)
def test_wrong_properties_are_refused_by_name(
    bundle: Bundle, properties: dict[str, Any], concerns: str
) -> None:
    bundle.declare(bundle.target(), bundle.part("a", None, **properties))
    assert concerns in {problem.property for problem in bundle.problems()}


@pytest.mark.parametrize(
    "other",
    [
        {"content": "x"},
        {"fragments": True, "encoding": "utf-16"},
        {"fragments": True, "ensure": "exists"},
        {"fragments": True, "ensure": "directory"},
        {"fragments": True, "create": False},
        {"fragments": True, "source": "x"},
    ],
)
def test_a_file_of_fragments_has_no_other_content(bundle: Bundle, other: dict[str, Any]) -> None:
    resources = [bundle.target()] if "fragments" not in other else []
    bundle.declare(*resources, {"file": [{str(bundle.file): {**OWN, **other}}]})
    assert bundle.problems()


def test_two_parts_of_one_name_must_agree(bundle: Bundle) -> None:
    bundle.declare(bundle.target(), bundle.part("a", "one"), bundle.part("a", "one"))
    assert bundle.apply()[0] == 0
    assert bundle.file.read_text() == "one\n"
    bundle.declare(bundle.target(), bundle.part("a", "one"), bundle.part("a", "two"))
    assert [problem.code for problem in bundle.problems()] == [ProblemCode.DECLARED_TWICE]


@pytest.mark.parametrize("more", [{"mode": "0600"}, {"owner": 12345}])
def test_attributes_of_the_file_must_agree(bundle: Bundle, more: dict[str, Any]) -> None:
    bundle.declare(bundle.target(), bundle.target(**more))
    assert [problem.code for problem in bundle.problems()] == [ProblemCode.DECLARED_TWICE]


def test_edits_of_a_file_of_fragments_are_contradictions(bundle: Bundle) -> None:
    bundle.declare(bundle.target(), {"line": [{"x": {"path": str(bundle.file), "line": "x"}}]})
    assert [problem.code for problem in bundle.problems()] == [ProblemCode.RESOURCE_CONFLICT]


def test_parts_that_wait_for_their_file_are_a_cycle(bundle: Bundle) -> None:
    bundle.declare(bundle.target(), bundle.part("a", "one", require=[f"file#{bundle.file}"]))
    assert [problem.code for problem in bundle.problems()] == [ProblemCode.DEPENDENCY_CYCLE]


def test_parts_of_child_manifests_belong_to_one_file(bundle: Bundle) -> None:
    child = {"resources": [bundle.part("c", "of child")]}
    (bundle.directory / "child.yaml").write_text(yaml.safe_dump(child))
    bundle.declare(bundle.target(), bundle.part("b", "of top"), {"apply": [{"child.yaml": {}}]})
    status, output = bundle.apply()
    assert status == 0, output
    assert bundle.file.read_text() == "of top\nof child\n"


def test_explain_names_the_file_and_its_parts(bundle: Bundle) -> None:
    bundle.declare(bundle.target(), bundle.part("a", "one"))
    status, output = execute_here("explain", f"file#{bundle.file}", str(bundle.directory))
    assert status == 0, output
    assert "fragment#a" in output
    status, output = execute_here("explain", "fragment#a", str(bundle.directory))
    assert status == 0, output
    assert f"file#{bundle.file}" in output


@pytest.fixture
def hostile_link(bundle: Bundle) -> Callable[[], None]:
    """Return a function that replaces the file by a link to a file of the system."""

    def replace() -> None:
        (bundle.directory / "victim").write_text("victim\n")
        bundle.file.unlink()
        bundle.file.symlink_to("victim")

    return replace


def test_a_link_at_the_path_is_replaced(bundle: Bundle, hostile_link: Callable[[], None]) -> None:
    bundle.declare(bundle.target(), bundle.part("a", "one"))
    assert bundle.apply()[0] == 0
    hostile_link()
    assert bundle.apply()[0] == 0
    assert (bundle.directory / "victim").read_text() == "victim\n"
    assert not bundle.file.is_symlink()
    assert bundle.file.read_text() == "one\n"
