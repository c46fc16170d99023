"""Keys: splitting, and digging."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.errors import LookupFailure
from hiera.tree import explain
from hiera.tree.explain import ABSENT, SILENT
from tests.support.rows import each_row


@each_row(
    ("text", "segments"),
    [
        ("a", ("a",)),
        ("  lead ", ("  lead ",)),
        ("", ("",)),
        ("123", ("123",)),
        ("a.b.0", ("a", "b", 0)),
        ("a . b", ("a", "b")),
        ("a.+1.-2.007", ("a", 1, -2, 7)),
        ("a.:1", ("a", 0)),
        ("a.'0'.\"b.c\"", ("a", "0", "b.c")),
        (" 'a.b' .c", ("a.b", "c")),
        ('"it\'s"', ("it's",)),
        ("h.'1.5'.x", ("h", "1.5", "x")),
    ],
)
def test_a_key_is_split_at_its_dots(text: str, segments: tuple[str | int, ...]) -> None:
    assert explain.split(text) == segments


@each_row("text", [".", "a.", ".a", "a..b", "''", "a.''", "'a''b'", "'a'b", "a'b'", "a.'b", "it's"])
def test_a_key_that_is_not_well_formed_is_refused(text: str) -> None:
    with pytest.raises(LookupFailure, match="Syntax error in key"):
        explain.parse(text)


def test_a_number_with_something_below_it_cannot_be_a_root() -> None:
    with pytest.raises(LookupFailure, match="cannot begin with the number 123"):
        explain.parse("123.x")


@pytest.mark.parametrize(
    ("text", "module"), [("a", None), ("mod::x", "mod"), ("mod::sub::x.y", "mod"), ("::mod::x", "::mod::x")]
)
def test_module_is_the_part_before_the_first_colons(text: str, module: str | None) -> None:
    assert explain.parse(text).module == module


plain = st.text(min_size=1, max_size=8).filter(
    lambda text: not set(text) & set("'\".") and text.strip() == text
)
segments = st.lists(plain.filter(lambda text: not text.strip(":+-").isdecimal()), min_size=1, max_size=4)


@given(segments)
def test_quoting_every_segment_changes_nothing(parts: list[str]) -> None:
    quoted = ".".join(f"'{part}'" for part in parts)
    assert explain.split(quoted) == tuple(parts)


DATA: dict[str, Any] = {"l": ["zero", {"k": "v"}], "h": {"a": None, 1: "integer", "1": "text"}, "n": None}


@each_row(
    ("path", "value"),
    [
        (("l", 1, "k"), "v"),
        (("l", 2), ABSENT),
        (("l", -1), ABSENT),
        (("h", 1), "integer"),
        (("h", "1"), "text"),
        (("h", "zz"), ABSENT),
        (("h", "a"), None),
        (("n", "x"), ABSENT),
        ((), DATA),
    ],
)
def test_digging(path: tuple[str | int, ...], value: Any) -> None:
    assert explain.dig("key", path, DATA, SILENT) == value


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("text", "String"),
        (1, "Integer"),
        (1.5, "Float"),
        (True, "TrueClass"),
        (False, "FalseClass"),
        ([1], "Array"),
    ],
)
def test_digging_into_a_scalar_is_an_error(value: Any, name: str) -> None:
    with pytest.raises(LookupFailure) as caught:
        explain.dig("k.x", ("x",), value, SILENT)
    assert str(caught.value) == (
        f"k.x: Data Provider type mismatch: Got {name} when a hash-like object was expected to access value "
        "using 'x' from key 'k.x'"
    )
