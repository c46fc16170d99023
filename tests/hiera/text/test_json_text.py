"""JSON text gives plain values, or an error with its location."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.errors import HieraError
from hiera.parsing import load_json
from tests.support.rows import each_row

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(VALUES, st.booleans())
def test_json_round_trip(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert load_json(text, "f") == load_json(text.encode(), "f") == value


@given(st.text(alphabet='{}[]",:\\ \n01.e-tu', max_size=40))
def test_any_text_is_a_value_or_an_error_of_ours(text: str) -> None:
    try:
        assert load_json(text, "f") == json.loads(text)
    except HieraError as error:
        assert str(error).startswith("f")


@each_row(
    ("text", "message"),
    [
        ('{"a": 1, "a": 1}', "f: the key 'a' is duplicate"),
        ('[{"x": {"a": 1, "\\u0061": 2}}]', "f: the key 'a' is duplicate"),
        ("[1e400]", "f: 1e400 is too large for a number"),
        ("-1e400", "f: -1e400 is too large for a number"),
        ("9" * 2000, f"f: {'9' * 40}… is too long for a number"),
        ("0." + "1" * 2000, f"f: 0.{'1' * 38}… is too long for a number"),
        ("Infinity", "f: Infinity is not a JSON value"),
        ('"\\udc00"', r"f: an escaped half of a surrogate pair, such as \ud800, is not valid text"),
        ('{"\\ud800": 1}', r"f: an escaped half of a surrogate pair, such as \ud800, is not valid text"),
        ("\ufeff{}", "f:1:1: starts with a byte-order mark, which is not JSON"),
        ('{\n  "a": x}', "f:2:8: Expecting value"),
        ("[" * 101 + "]" * 101, "f: is nested more than 100 deep"),
        ("[" * 1_000_000, "f: is nested more than 100 deep"),
        ('{"a":' * 1_000_000, "f: is nested more than 100 deep"),
        ('"' + '\\"' * 300_000, "f:1:1: Unterminated string starting at"),
    ],
    ids=lambda value: value[:20],
)
def test_untrustworthy_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(HieraError) as refused:
        load_json(text, "f")
    assert str(refused.value) == message


def test_bytes_that_are_not_utf8_are_refused_with_their_line() -> None:
    with pytest.raises(HieraError, match=r"^f:2: is not UTF-8 text$"):
        load_json(b'{"a":\n"\xff"}', "f")


def test_brackets_in_text_are_no_nesting() -> None:
    assert load_json(json.dumps(["[" * 500, '"' + "{" * 500]), "f") == ["[" * 500, '"' + "{" * 500]
    assert load_json("[" * 100 + "]" * 100, "f")
