"""Two declarations of one resource: how they are combined, and how contradictions are reported."""

from collections.abc import Callable, Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.data.bundle_data import BundleData
from puller.data.sources import DataSource, Origin
from puller.errors import ManifestError
from puller.manifest.declaration import Declaration, Home
from puller.manifest.declare import declare
from puller.manifest.entries import Entry
from puller.manifest.graph.agreement import Disagreement, agreed
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.manifest.problems import Problems
from tests.support.rows import each_row

Load = Callable[..., Manifest]
Values = Mapping[str, Any]

WHO = {"owner": "root", "group": "root", "mode": "0644"}
SHA = "a" * 64


NAMES = {
    "file": "/a",
    "package": "nginx",
    "repository": "nginx",
    "service": "nginx",
    "exec": "reload",
    "archive": "/a.tar.gz",
    "cron": "backup",
    "scaffold": "/a",
}


def made(kind: str, properties: Values, line: int = 1, directory: Path = Path("/web")) -> Declaration:
    """Return a declaration before the checks that need other declarations of the resource."""
    problems = Problems("web/manifest.yaml", lambda path: (line, 1), lambda path: None)
    own = BundleData(DataSource(Origin.MANIFEST, "web/manifest.yaml", {}), None, ())
    home = Home(BundleFiles.of(directory), Scope({}), own)
    entry = Entry(kind, {**properties, "name": NAMES[kind]}, (0, kind, line))
    declaration = declare(entry, problems, home, Inputs({}, {}), None)
    assert declaration is not None
    assert problems.all() == []
    return declaration


def two(kind: str, first: Values, second: Values) -> tuple[Declaration, Declaration]:
    return made(kind, first, 1), made(kind, second, 2)


JOB = {"schedule": "@daily", "command": "true"}
ARCHIVE = {"url": "https://h/a.tar.gz", "owner": "root", "group": "root"}

AGREE: list[tuple[str, Values, Values, Values]] = [
    ("package", {}, {"ensure": "1.2"}, {"ensure": "1.2"}),
    ("package", {}, {"ensure": "latest"}, {"ensure": "latest"}),
    ("package", {"ensure": "absent"}, {"ensure": "purged"}, {"ensure": "purged"}),
    ("package", {}, {"held": True}, {"held": True}),
    ("repository", {"url": "file:///a"}, {"url": "file:///a", "priority": 7}, {"priority": 7}),
    ("repository", {"key": "a.asc"}, {"key": "./a.asc"}, {}),
    ("package", {}, {"timeout": "9s"}, {"timeout": 9.0}),
    ("service", {"enable": True}, {}, {"enable": True, "ensure": "running"}),
    (
        "service",
        {"subscribe": ["file#/a"]},
        {"subscribe": ["file#/b"]},
        {"subscribe": {"file#/a", "file#/b"}},
    ),
    ("service", {"reload": ["file#/a"]}, {"reload": ["file#/b"]}, {"reload": {"file#/a", "file#/b"}}),
    (
        "service",
        {"reload": ["file#/a"]},
        {"subscribe": ["file#/a"]},
        {"reload": {"file#/a"}, "subscribe": {"file#/a"}},
    ),
    ("cron", JOB, {**JOB, "user": "root"}, {"user": "root"}),
    ("cron", JOB, {**JOB, "environment": {"MAILTO": "a"}}, {"environment": {"MAILTO": "a"}}),
    ("exec", {"user": "app", "stdin": "x"}, {"user": "app", "stdin": "x"}, {"user": "app"}),
    ("file", {**WHO}, {**WHO, "content": "x"}, {"content": "x"}),
    ("file", {**WHO, "mode": "7xx"}, {**WHO, "mode": "xx0"}, {"mode": "7x0"}),
    ("file", {**WHO, "owner": "7"}, {**WHO, "owner": 7}, {}),
    ("file", {**WHO}, {**WHO, "force": True}, {"force": True}),
    ("file", {**WHO, "content": "x"}, {**WHO, "content": "x", "sensitive": True}, {"sensitive": True}),
    (
        "file",
        {**WHO, "template": "a.j2"},
        {**WHO, "template": "a.j2", "engine": "jinja"},
        {"engine": "jinja"},
    ),
    ("file", {**WHO}, {**WHO, "content": "x", "encoding": "latin-1"}, {"encoding": "latin-1"}),
    ("file", {**WHO}, {**WHO, "template": "a.j2", "data": {"port": 1}}, {"data": {"port": 1}}),
    (
        "file",
        {**WHO, "template": "a.j2", "data": {"port": 1}},
        {**WHO, "template": "./a.j2", "data": {"port": 1}},
        {"data": {"port": 1}},
    ),
    ("file", {**WHO}, {**WHO, "ensure": "exists", "content": "x"}, {"ensure": "exists", "content": "x"}),
    ("file", {"ensure": "absent"}, {"ensure": "absent", "force": True}, {"force": True}),
    ("exec", {}, {"command": "reload"}, {}),
    ("exec", {"require": ["exec#b"]}, {"after": ["exec#c"]}, {"require": {"exec#b"}, "after": {"exec#c"}}),
    ("exec", {"removed": "absent"}, {}, {"removed": None}),
    ("package", {"removed": "absent"}, {}, {"removed": None}),
    ("package", {"removed": "absent"}, {"removed": "keep"}, {"removed": "keep"}),
    ("package", {"removed": "keep"}, {}, {"removed": "keep"}),
    ("package", {"removed": "absent"}, {"removed": "absent"}, {"removed": "absent"}),
    ("archive", ARCHIVE, {**ARCHIVE, "checksum": SHA}, {"checksum": SHA}),
    ("scaffold", {"source": "a"}, {"source": "a", "purge": True}, {"purge": True}),
    ("scaffold", {"source": "a"}, {"source": "./a/"}, {}),
]


@each_row(("kind", "first", "second", "expected"), AGREE)
def test_equal_declarations_merge_in_either_order(
    kind: str, first: Values, second: Values, expected: Values
) -> None:
    one, other = two(kind, first, second)
    for properties in (agreed(one, other).properties, agreed(other, one).properties):
        assert {
            name: plain(getattr(properties, name), wanted) for name, wanted in expected.items()
        } == expected


def plain(value: Any, wanted: Any) -> Any:
    if isinstance(wanted, set):
        return set(map(str, value))
    return str(value) if isinstance(wanted, str) else value


DISAGREE: list[tuple[str, Values, Values, str]] = [
    ("package", {}, {"ensure": "absent"}, "ensure is 'absent' here and 'present' there"),
    ("package", {"ensure": "1.2"}, {"ensure": "latest"}, "ensure is 'latest' here and '1.2' there"),
    ("service", {}, {"ensure": "stopped"}, "ensure is 'stopped' here and 'running' there"),
    ("service", {"enable": True}, {"enable": False}, "enable is false here and true there"),
    (
        "service",
        {"ensure": "stopped", "enable": "masked"},
        {"ensure": "stopped", "enable": False},
        "enable is false here and 'masked' there",
    ),
    ("service", {}, {"scope": "user", "user": "app"}, "user is 'app' here and not given there"),
    ("cron", JOB, {**JOB, "user": "app"}, "user is 'app' here and 'root' there"),
    ("cron", JOB, {**JOB, "schedule": "@hourly"}, "schedule is '@hourly' here and '@daily' there"),
    ("exec", {}, {"user": "app"}, "user is 'app' here and not given there"),
    ("exec", {"stdin": "x"}, {"stdin": "y"}, "stdin is (sensitive) here and (sensitive) there"),
    ("file", {**WHO}, {"ensure": "absent"}, "ensure is 'absent' here and 'present' there"),
    ("file", {**WHO}, {**WHO, "ensure": "directory"}, "ensure is 'directory' here and 'present' there"),
    (
        "file",
        {**WHO, "ensure": "exists"},
        {**WHO, "content": "x"},
        "ensure is 'present' here and 'exists' there",
    ),
    ("file", {**WHO, "content": "x"}, {**WHO, "content": "y"}, "content is 'y' here and 'x' there"),
    ("file", {**WHO, "content": "x"}, {**WHO, "source": "b"}, "source is 'web/b' here and not given there"),
    ("file", {**WHO, "source": "a"}, {**WHO, "source": "b"}, "source is 'web/b' here and 'web/a' there"),
    ("file", {**WHO, "mode": "77x"}, {**WHO, "mode": "x55"}, "mode is x55 here and 77x there"),
    ("file", {**WHO, "noop": True}, {**WHO}, "noop is false here and true there"),
    ("exec", {"creates": "/x"}, {}, "creates is not given here and '/x' there"),
    ("exec", {"refreshonly": True}, {}, "refreshonly is false here and true there"),
    ("exec", {"provider": "shell"}, {}, "provider is not given here and 'shell' there"),
    ("exec", {"returns": [0, 1]}, {}, "returns is [0] here and [0,1] there"),
    (
        "archive",
        ARCHIVE,
        {**ARCHIVE, "creates": "/x", "extract_parent": "/"},
        "creates is '/x' here and not given there",
    ),
    (
        "file",
        {**WHO, "template": "a.j2", "data": {"port": 1}},
        {**WHO, "template": "a.j2", "data": {"port": 2}},
        'data is {"port":2} here and {"port":1} there',
    ),
    (
        "file",
        {**WHO, "template": "a.j2"},
        {**WHO, "template": "a.j2", "data": {}},
        "data is {} here and not given there",
    ),
    ("package", {"held": True}, {"held": False}, "held is false here and true there"),
    ("package", {}, {"ensure": "purged"}, "ensure is 'purged' here and 'present' there"),
    (
        "repository",
        {"url": "file:///a"},
        {"url": "file:///b"},
        "url is 'file:///b' here and 'file:///a' there",
    ),
    ("repository", {}, {"ensure": "absent"}, "ensure is 'absent' here and 'present' there"),
    ("scaffold", {"source": "a"}, {"source": "a", "data": {}}, "data is {} here and not given there"),
    (
        "scaffold",
        {"source": "a"},
        {"source": "a", "skip_empty": True},
        "skip_empty is true here and false there",
    ),
]


@each_row(("kind", "first", "second", "sentence"), DISAGREE)
def test_two_that_say_different_things_are_told_with_both_values(
    kind: str, first: Values, second: Values, sentence: str
) -> None:
    one, other = two(kind, first, second)
    with pytest.raises(Disagreement) as caught:
        agreed(one, other)
    assert "is declared twice, first at web/manifest.yaml:1, and the two differ: " in str(caught.value)
    assert sentence in str(caught.value)
    assert (caught.value.first_declaration, caught.value.second_declaration) == (one, other)
    with pytest.raises(Disagreement):
        agreed(other, one)


def test_neither_of_two_that_agree_is_changed() -> None:
    first, other = two("file", {**WHO, "alias": "a"}, {**WHO, "content": "x", "alias": "b"})
    before = (first.properties, other.properties, first.united, other.united)
    both = agreed(first, other)
    assert (first.properties, other.properties, first.united, other.united) == before
    assert both.united == (first, other)
    assert list(both.names()) == ["file#/a", "file#a", "file#b"]


def test_of_three_the_two_that_do_not_agree_are_named(load: Load) -> None:
    text = """
        resources:
          - file: {name: /a, owner: root}
          - file: {name: /a, group: root, mode: "0600"}
          - file: {name: /a, mode: "0644"}
    """
    with pytest.raises(ManifestError) as error:
        load(text)
    assert tuple(map(str, error.value.problems)) == (
        "web/manifest.yaml:5: resources[2] file#/a: is declared twice, first at web/manifest.yaml:4, and the two"
        " differ: mode is 0644 here and 0600 there (use the same values in both, or declare it once)",
    )


def test_sensitive_difference_is_masked_on_both_sides() -> None:
    first, other = two("file", {**WHO, "content": "canary", "sensitive": True}, {**WHO, "content": "x"})
    for pair in ((first, other), (other, first)):
        with pytest.raises(Disagreement) as caught:
            agreed(*pair)
        assert "content is (sensitive) here and (sensitive) there" in str(caught.value)
        assert "canary" not in str(caught.value)


def test_unresolved_duplicate_is_a_failure_of_both(load: Load) -> None:
    manifest = load("""
        resources:
          - file: {name: /a, content: "{{ facts.nope }}", owner: root, group: root, mode: "0644"}
          - file: {name: /a, content: x, mode: "0644"}
          - exec: {name: a, timeout: "{{ facts.nope }}"}
          - exec: {name: a, timeout: 9s}
    """)
    failures = [declaration.failure for declaration in manifest.declarations]
    assert len(failures) == 2
    assert all("unknown key 'nope' in facts" in failure for failure in failures)


def in_two_manifests(tmp_path: Path, first: str, second: str, **files: str) -> list[Declaration]:
    """Return the first resource of each of two manifests in directories ``a`` and ``b``."""
    declarations = []
    for name, text in (("a", first), ("b", second)):
        path = tmp_path / name / "manifest.yaml"
        path.parent.mkdir()
        path.write_text(
            f"data: {{port: {1 if 'OTHER' not in text else 2}}}\nresources: [{text.replace('OTHER', '')}]"
        )
    for file, text in files.items():
        (tmp_path / file.replace("_", "/")).write_text(text)
    for name in ("a", "b"):
        path = tmp_path / name / "manifest.yaml"
        declarations.append(load_manifest(path, f"{name}/manifest.yaml", Inputs({}, {})).declarations[0])
    return declarations


COPY = "{file: {name: /x, owner: root, group: root, mode: '0644', source: text}}"
ATTRIBUTES = "{file: {name: /x, owner: root, group: root, mode: '0644'}}"


def test_equal_sources_of_two_directories_agree(tmp_path: Path) -> None:
    first, other = in_two_manifests(tmp_path, COPY, COPY, a_text="same", b_text="same")
    assert agreed(first, other).home is first.home


def test_relative_path_in_two_directories_is_two_files(tmp_path: Path) -> None:
    first, other = in_two_manifests(tmp_path, COPY, COPY, a_text="one", b_text="two")
    with pytest.raises(Disagreement) as caught:
        agreed(first, other)
    assert (caught.value.first, caught.value.second) == ("'a/text'", "'b/text'")


def test_two_paths_to_a_file_agree(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/text").write_text("one")
    children = {"a/one.yaml": COPY, "two.yaml": COPY.replace("text}", "a/text}")}
    applying = ", ".join(f"{{apply: {{name: {name}}}}}" for name in children)
    for name, text in {"manifest.yaml": applying, **children}.items():
        (tmp_path / name).write_text(f"resources: [{text}]")
    manifest = load_manifest(tmp_path / "manifest.yaml", "manifest.yaml", Inputs({}, {}))
    (result,) = (declaration for declaration in manifest.declarations if declaration.properties.name == "/x")
    assert [place.where for place in result.places()] == ["a/one.yaml:1", "two.yaml:1"]


def test_a_relative_path_stays_with_the_manifest_that_says_it(tmp_path: Path) -> None:
    first, other = in_two_manifests(tmp_path, ATTRIBUTES, COPY, b_text="two")
    both = agreed(first, other)
    assert both.home is other.home
    assert both.where == first.where


@pytest.mark.parametrize("kind", ["template", "content"])
def test_templates_in_two_places_agree_with_equal_data_only(tmp_path: Path, kind: str) -> None:
    text = COPY.replace(
        "source: text", "template: ../t.j2" if kind == "template" else "content: '{x}', interpolate: true"
    )
    first, other = in_two_manifests(tmp_path, text, text + "OTHER", t="x")
    with pytest.raises(Disagreement) as caught:
        agreed(first, other)
    assert "the data of the two manifests differ in port" in str(caught.value)


def test_three_that_agree_do_so_in_every_order() -> None:
    three = [made("package", properties) for properties in ({}, {"ensure": "1.2"}, {"timeout": "9s"})]
    results = set()
    for first, second, third in permutations(three):
        properties: Any = agreed(agreed(first, second), third).properties
        results.add((properties.ensure, properties.timeout))
        properties = agreed(first, agreed(second, third)).properties
        results.add((properties.ensure, properties.timeout))
    assert results == {("1.2", 9.0)}


MODES = st.sampled_from(["0644", "0600", "6xx", "x4x", "xx4", "xxx", "0755"])
OPTIONAL = {
    "mode": MODES,
    "owner": st.sampled_from(["root", "daemon", 0, "0"]),
    "content": st.sampled_from(["x", "y"]),
    "force": st.booleans(),
    "ensure": st.sampled_from(["present", "absent", "exists"]),
    "encoding": st.sampled_from(["utf-8", "latin-1"]),
}
DECLARED = st.lists(st.fixed_dictionaries({}, optional=OPTIONAL), min_size=2, max_size=4)


def united(declarations: list[Declaration]) -> tuple[Any, ...] | None:
    """Return the combined properties. None if the declarations contradict each other."""
    first, *remainder = declarations
    for other in remainder:
        try:
            first = agreed(first, other)
        except Disagreement:
            return None
    properties: Any = first.properties
    return tuple(str(getattr(properties, name)) for name in OPTIONAL)


@given(all_properties=DECLARED)
def test_declaration_order_does_not_change_the_result(
    all_properties: list[Values],
) -> None:
    declarations = [made("file", properties) for properties in all_properties]
    assert len({united(list(order)) for order in permutations(declarations)}) == 1
