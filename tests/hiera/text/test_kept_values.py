"""Values of texts that are kept: a kept value is the one that reading gives, and nothing is kept that may not be."""

import contextlib
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.errors import HieraError
from hiera.sealing import names_of, seal, unseal
from hiera.text import kept_values, yaml_reading
from hiera.text.kept_values import kept_in
from hiera.text.yaml_text import load
from puller.state.kept_file import KeptFile


class Memory:
    """A store that keeps everything, and counts what was found."""

    def __init__(self) -> None:
        self.values: dict[bytes, Any] = {}
        self.found = 0
        self.makers: list[bytes] = []

    def opened(self, maker: bytes) -> "Memory":
        self.makers.append(maker)
        return self

    def find(self, digest: bytes) -> Any:
        self.found += digest in self.values
        return self.values.get(digest)

    def keep(self, digest: bytes, result: Any) -> None:
        self.values[digest] = result


def loaded(store: Memory, text: str | bytes, *, keep: bool = True, **options: Any) -> Any:
    """The value of a text in another process, which has the store and nothing in memory."""
    with kept_in(store.opened):
        return load(text, "source", keep=keep, **options)


def outcome(store: Memory, text: str, **options: Any) -> Any:
    """The value with the types in it, or what is said against the text."""
    try:
        return repr(loaded(store, text, **options))
    except HieraError as error:
        return error


TEXTS = st.lists(
    st.sampled_from(
        [
            "a: 1\n",
            "b: &x {c: [1, 2.5, true, null]}\n",
            "d: *x\n",
            "<<: *x\n",
            "1: '01'\n",
            "- a\n",
            "\t",
            "a: 010\n",
        ]
    )
).map("".join)


@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_a_kept_value_is_the_one_that_reading_gives(texts: list[str]) -> None:
    store = Memory()
    for text in [*texts, *texts]:
        assert str(outcome(store, text)) == str(outcome(Memory(), text))


@given(TEXTS)
def test_a_value_comes_back_from_a_file_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("kept") / "texts"
    try:
        value = load(text, "source")
    except HieraError:
        return
    file = KeptFile(path, b"m" * 32)
    file.keep(b"d" * 32, value)
    path.parent.chmod(0o700)
    file.save()
    found = KeptFile(path, b"m" * 32).find(b"d" * 32)
    assert repr(found) == repr(value)


def test_a_text_is_read_once_for_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Memory()
    assert loaded(store, "a: [1, two]\n") == {"a": [1, "two"]}

    def refuse(*arguments: object) -> None:
        raise AssertionError("read")

    monkeypatch.setattr(yaml_reading, "read", refuse)
    assert loaded(store, "a: [1, two]\n") == {"a": [1, "two"]}
    assert loaded(store, b"a: [1, two]\n") == {"a": [1, "two"]}
    assert store.found == 2
    with pytest.raises(AssertionError):
        loaded(store, "a: [1, two]")  # another text


def test_who_changes_a_value_changes_nobody_elses(tmp_path: Path) -> None:
    """Each process has its own; and within one, each that asks."""
    file = KeptFile(tmp_path / "kept/texts", b"m" * 32)
    file.keep(b"d" * 32, {"a": [1]})
    file.save()
    again = KeptFile(tmp_path / "kept/texts", b"m" * 32)
    first: Any = again.find(b"d" * 32)
    first["a"].append(2)
    assert again.find(b"d" * 32) == {"a": [1]}


@given(st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=8))
def test_what_is_kept_shows_nothing_of_the_text(secret: str) -> None:
    store = Memory()
    loaded(store, f"password: {secret}\nlist: [{secret}, {secret}]\n")
    (kept,) = store.values.values()
    assert isinstance(kept, bytes)
    for form in (kept, kept[::-1]):
        assert secret.encode() not in form
        assert b"password" not in form
    with contextlib.suppress(zlib.error):
        assert secret.encode() not in zlib.decompress(kept)


@given(st.binary(max_size=500), st.binary(max_size=50), st.binary(max_size=50))
def test_only_the_key_of_the_same_text_unseals(data: bytes, text: bytes, other: bytes) -> None:
    name, key = names_of(text)
    assert name != key
    sealed = seal(data, key)
    assert unseal(sealed, key) == data
    for wrong in (name, *names_of(other)):
        if wrong != key:
            with pytest.raises(ValueError, match="another key"):
                unseal(sealed, wrong)


def test_a_text_that_nobody_wants_kept_opens_no_store() -> None:
    store = Memory()
    assert loaded(store, "a: 1\n", keep=False) == {"a": 1}
    assert (store.values, store.makers) == ({}, [])


def test_a_limit_holds_for_a_value_that_is_kept() -> None:
    store = Memory()
    loaded(store, "a: 12345\n", limit=100)
    with pytest.raises(HieraError, match="longer than the 5"):
        loaded(store, "a: 12345\n", limit=5)
    aliased = "a: &a 'xxxxxxxxxxxxxxxxxxxx'\nb: [*a, *a, *a, *a, *a]\n"
    assert loaded(store, aliased, limit=1000)["b"][0].startswith("x")
    with pytest.raises(HieraError, match="aliases"):
        loaded(store, aliased, limit=len(aliased) + 10)


@pytest.mark.parametrize("unsound", [1, "text", (), {1}, [1], compile("1", "", "eval"), b"", b"damage"])
def test_what_no_text_means_is_not_believed(unsound: object) -> None:
    store = Memory()
    loaded(store, "a: 1\n")
    store.values = dict.fromkeys(store.values, unsound)
    assert loaded(store, "a: 1\n") == {"a": 1}


def test_another_reader_is_another_maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "yaml"
    package.mkdir()
    (package / "__init__.py").write_text("version = 1\n")
    store = Memory()
    loaded(store, "a: 1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    loaded(store, "a: 1\n")
    (package / "reader.py").write_text("")
    loaded(store, "a: 1\n")
    monkeypatch.setattr(sys, "version", sys.version + "+security1")
    loaded(store, "a: 1\n")
    assert len({*store.makers}) == 4


def test_a_reader_that_was_changed_while_it_read_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    makers = iter([b"before" * 6, b"after." * 6])
    monkeypatch.setattr(kept_values._store, "_find_maker", lambda: next(makers))
    store = Memory()
    assert loaded(store, "a: 1\n") == {"a": 1}
    assert store.values == {}


def test_without_a_store_every_text_is_read() -> None:
    assert load("a: 1\n", "source", keep=True) == {"a": 1}
