"""Declarations that are kept: a manifest is read from them as it is read without, whatever has changed between."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.text import yaml_text
from hiera.values.secrets import Secret
from puller.data.sources import DataSource, Origin
from puller.errors import ManifestError
from puller.manifest import declare, kept_declarations, loader, reading
from puller.manifest.declaration import Declaration
from puller.manifest.kept_store import STORE
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from tests.hiera.text.test_kept_values import Memory

FILE = "owner: root, group: root, mode: '0644'"
PIECES = [
    f"- file: [{{/a: {{{FILE}, content: plain}}}}]",
    f"- file: [{{/b: {{{FILE}, content: 'a is {{{{ data.a }}}}'}}}}]",
    f"- file: [{{'/{{{{ data.name }}}}': {{{FILE}, content: \"{{{{ lookup('facts.os.name', 'none') }}}}\"}}}}]",
    f"- file: [{{/c: {{{FILE}, content: '{{{{ data.a | string | upper }}}}'}}}}]",
    f"- file: [{{/d: {{{FILE}, content: '{{{{ data.secret }}}}'}}}}]",
    f"- file: [{{/e: {{{FILE}, content: '{{{{ environ.HOME }}}}', require: ['{{{{ data.needs }}}}']}}}}]",
    f"- file: [{{/f: {{{FILE}, content: {{{{ data.a }}}}}}}}]",
    f"- file: [{{/a: {{{FILE}, content: '{{{{ data.same }}}}'}}}}]",
    "- file: [{/g: {ensure: absent}}, {/h: {ensure: absent, wrong: 1}}]",
    "- file: [{for: n in data.list, '/i/{{ n }}': {ensure: absent}}]",
    "- exec: [{'true': {returns: '{{ data.list }}', timeout: '{{ data.a }}'}}]",
    "- exec: [{'echo {{ data.a }}': {unless: 'test {{ data.missing }}'}}]",
    "- exec: [{'date {{ facts.uptime }}': {control: {if: \"data.a == 1\"}}}]",
    "- package: [{defaults: {ensure: '{{ data.version }}'}}, curl, jq]",
    "- user: [{joe: {password: '{{ data.name }}'}}]",
    "- strange: [{x: {}}]",
]
SCALARS = st.sampled_from([1, 1.0, True, "1", "one", None, "{{ data.a }}", [1], {"x": 1}, -0.0, 0.0])
DATA = st.fixed_dictionaries(
    {"a": SCALARS, "version": SCALARS, "list": st.lists(st.integers(0, 2), max_size=2)},
    optional={
        "name": st.sampled_from(["a", "x", "y"]),
        "needs": st.sampled_from(["file#/a", "file#/x", "exec#true", "nothing"]),
        "missing": SCALARS,
        "secret": st.sampled_from([Secret("one"), Secret("two"), "plain"]),
        "same": st.sampled_from(["plain", "other"]),
    },
)
FACTS = st.fixed_dictionaries({"os": SCALARS, "uptime": st.integers(0, 3)})


@pytest.fixture(autouse=True, scope="module")
def _short_texts_too() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "SHORTEST", 0)
        yield


class Read(msgspec.Struct, frozen=True):
    """A manifest to be read, and what it is read with."""

    text: str
    data: dict[str, Any]
    facts: dict[str, Any]
    environ: dict[str, str] = {}

    def in_directory(self, directory: Path) -> Manifest:
        (directory / "manifest.yaml").write_text(self.text)
        source = DataSource(Origin.HOST, "data.yaml", self.data)
        inputs = Inputs(self.facts, self.environ, (source,))
        return load_manifest(directory / "manifest.yaml", "web/manifest.yaml", inputs)


def told(declaration: Declaration) -> tuple[object, ...]:
    """All that a declaration is to those who apply it."""
    return (
        repr(msgspec.to_builtins(declaration.properties, enc_hook=repr)),
        declaration.type,
        declaration.path,
        declaration.failure,
        declaration.dynamic,
        declaration.secret,
        declaration.unknown,
        declaration.item,
        declaration.origin,
        None if declaration.late is None else declaration.late.open,
        [told(place) for place in declaration.united],
        declaration.shown(),
    )


def outcome(read: Read, directory: Path) -> object:
    """What is declared, in which order and with which links; or all that is wrong."""
    try:
        manifest = read.in_directory(directory)
    except ManifestError as error:
        return error.problems
    return [told(one) for one in manifest.declarations], manifest.order, manifest.links, manifest.warnings


READS = st.builds(
    Read,
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map(
        lambda pieces: "removed: keep\nresources:\n" + "".join(f"  {piece}\n" for piece in pieces)
    ),
    DATA,
    FACTS,
    st.sampled_from([{}, {"HOME": "/root"}, {"HOME": "/home"}]),
)


@given(st.lists(READS, min_size=1, max_size=2), st.lists(st.tuples(DATA, FACTS), max_size=4))
def test_a_manifest_is_read_from_what_is_kept_as_without(
    tmp_path_factory: pytest.TempPathFactory,
    reads: list[Read],
    others: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    """The same manifests again and again, with other data and facts between."""
    directory, store = tmp_path_factory.mktemp("web"), Memory()
    given_others = [msgspec.structs.replace(read, data=d, facts=f) for d, f in others for read in reads]
    for read in [*reads, *reads, *given_others, *reads, *given_others]:
        wanted = outcome(read, directory)
        with STORE.kept_in(store.opened):
            assert outcome(read, directory) == wanted


MANIFEST = """
resources:
  - file:
      - defaults: {owner: root, group: root, mode: "0644"}
      - /etc/a: {content: "port {{ data.port }}"}
      - /etc/b: {content: plain, alias: b}
      - /etc/{{ facts.name }}: {ensure: absent, require: [file#b]}
"""


def contents(manifest: Manifest) -> list[object]:
    return [getattr(one.properties, "content", None) or one.properties.name for one in manifest.declarations]


def read(store: Memory, directory: Path, text: str = MANIFEST, **data: Any) -> list[object]:
    """A run of its own: the store is all that it has from others."""
    with STORE.kept_in(store.opened):
        return contents(Read(text, {"port": 80, **data}, {"name": "c"}).in_directory(directory))


@pytest.fixture
def undeclared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is declared anew, from now on."""
    names: list[str] = []
    real = declare.declare

    def watched(entry: Any, *rest: Any) -> Any:
        names.append(entry.properties["name"])
        return real(entry, *rest)

    monkeypatch.setattr(loader, "declare", watched)
    return names


def test_what_is_plain_is_not_declared_again(tmp_path: Path, undeclared: list[str]) -> None:
    store = Memory()
    first = read(store, tmp_path)
    assert first == ["port 80", "plain", "/etc/c"]
    assert undeclared == ["/etc/a", "/etc/b", "/etc/{{ facts.name }}"]
    undeclared.clear()
    assert read(store, tmp_path) == first
    assert undeclared == []


def test_what_names_no_data_at_all_is_kept_too(tmp_path: Path, undeclared: list[str]) -> None:
    store, text = Memory(), "resources:\n  - file: [{/a: {ensure: absent}}]\n"
    read(store, tmp_path, text)
    undeclared.clear()
    assert read(store, tmp_path, text) == ["/a"]
    assert undeclared == []


def test_another_value_is_another_declaration_and_so_is_the_way_back(tmp_path: Path) -> None:
    store = Memory()
    for port in (80, 81, 80, 81, 80, 81, 80):
        assert read(store, tmp_path, port=port)[0] == f"port {port}"
        assert read(store, tmp_path, port=port)[0] == f"port {port}"


@pytest.mark.parametrize(
    "values", [(80, "80"), (True, "true"), (1.0, 1), (None, ""), (Secret("x"), Secret("y"))]
)
def test_values_that_look_alike_are_told_apart(tmp_path: Path, values: tuple[Any, ...]) -> None:
    text, store = MANIFEST.replace('"port {{ data.port }}"', "'{{ data.port }}'"), Memory()

    def seen(kept: Memory | None, port: Any) -> object:
        one = Read(text, {"port": port}, {"name": "c"})
        if kept is None:
            return outcome(one, tmp_path)
        with STORE.kept_in(kept.opened):
            return outcome(one, tmp_path)

    for port in (*values, *values):
        assert seen(store, port) == seen(None, port)


def test_a_secret_is_in_nothing_that_is_kept(tmp_path: Path, undeclared: list[str]) -> None:
    """Neither as such, nor sealed: whoever has the text alone could not read it, but it need not be there at all."""
    store = Memory()
    for _ in range(2):
        assert read(store, tmp_path, port=Secret("topsecret"))[0] == "port topsecret"
    assert undeclared.count("/etc/a") == 2
    assert not [value for value in store.values.values() if b"topsecret" in value]


def test_a_password_that_nobody_called_a_secret_is_kept_sealed(tmp_path: Path) -> None:
    store, text = Memory(), MANIFEST.replace("plain", "password-in-text")
    for _ in range(2):
        read(store, tmp_path, text, port="password-in-data")
    assert len(store.values) == 2
    assert not [value for value in store.values.values() if b"password" in value]


def test_a_value_that_is_another_in_every_run_keeps_nothing_else_from_being_kept(
    tmp_path: Path, undeclared: list[str]
) -> None:
    store = Memory()
    for port in range(10):
        undeclared.clear()
        assert read(store, tmp_path, port=port)[0] == f"port {port}"
    assert undeclared == ["/etc/a"]


def test_other_code_keeps_nothing_of_what_was_declared_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers = iter([b"before" * 6, b"after." * 6])
    monkeypatch.setattr(STORE, "_find_maker", lambda: next(makers))
    store = Memory()
    read(store, tmp_path)
    assert store.values == {}


def test_the_maker_is_all_that_declares_and_checks() -> None:
    maker = STORE._find_maker()
    assert maker is not None
    assert STORE._find_maker() == maker
    folders = {str(Path(module.__file__ or "").parent) for module in (declare, kept_declarations)}
    from puller.manifest import kept_store

    found = {
        folder
        for package, names in kept_store._MAKERS
        for name in names
        for folder in kept_store._folders(f"{package.__path__[0]}/{name}")
    }
    assert folders <= found
    assert any(folder.endswith("resources/edits/formats") for folder in found)
    assert not [folder for folder in found if "__pycache__" in folder]


def test_where_all_is_plain_the_list_of_resources_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Memory()
    first = read(store, tmp_path)

    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("read")

    with monkeypatch.context() as patched:
        patched.setattr(yaml_text, "load", refuse)
        assert read(store, tmp_path) == first
        with pytest.raises(AssertionError, match="read"):
            read(store, tmp_path, port=81)
    assert read(store, tmp_path, port=81)[0] == "port 81"


def test_the_data_of_a_text_whose_list_is_not_read_are_its_own(tmp_path: Path) -> None:
    text, store = "data: {port: 8080}\nremoved: absent\n" + MANIFEST.lstrip(), Memory()
    for _ in range(3):
        with STORE.kept_in(store.opened):
            manifest = Read(text, {}, {"name": "c"}).in_directory(tmp_path)
        assert contents(manifest)[0] == "port 8080"
        assert [one.properties.removed for one in manifest.declarations] == ["absent"] * 3


@pytest.mark.parametrize("harm", [lambda data: data[:-1] + b"\0", lambda data: b"", lambda data: data[::-1]])
def test_damage_is_what_was_never_kept(tmp_path: Path, harm: Any) -> None:
    store = Memory()
    first = read(store, tmp_path)
    store.values = {name: harm(value) for name, value in store.values.items()}
    assert read(store, tmp_path) == first


def test_a_mistake_in_one_resource_is_told_in_each_run(tmp_path: Path) -> None:
    text, store = MANIFEST + "      - /etc/d: {ensure: sideways}\n", Memory()
    for _ in range(2):
        with pytest.raises(ManifestError, match="ensure is 'sideways'"):
            read(store, tmp_path, text)
    assert store.values == {}


def test_a_short_text_is_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SHORTEST", len(MANIFEST) + 1)
    store = Memory()
    read(store, tmp_path)
    assert (store.values, store.makers) == ({}, [])
