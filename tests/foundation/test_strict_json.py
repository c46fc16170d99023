"""JSON with only one reading."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foundation import strict_json
from tests.support.rows import each_row

numbers = some.integers(-strict_json.LARGEST_NUMBER, strict_json.LARGEST_NUMBER)
scalars = some.none() | some.booleans() | numbers | some.text()
values = some.recursive(scalars, lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner))


@given(values)
def test_unambiguous_json_is_read(value: Any) -> None:
    assert strict_json.load_exact(json.dumps(value).encode()) == value


@each_row(
    ("data", "message"),
    [
        (b'{"a": 1, "a": 1}', "the key 'a' is duplicate"),
        (b'{"b": {"a": 1, "\\u0061": 2}}', "the key 'a' is duplicate"),
        (b"1.0", "'1.0' is not a whole number"),
        (b"1e3", "'1e3' is not a whole number"),
        (b"[NaN]", "'NaN' is not a whole number"),
        (b"-Infinity", "'-Infinity' is not a whole number"),
        (b"9007199254740992", "is larger than 9007199254740991"),
        (b"-9007199254740992", "is larger than 9007199254740991"),
        (b"1" * 100_000, "is larger than"),
        (b"\xef\xbb\xbf{}", "byte-order mark"),
        (b'"\xff"', "is not UTF-8 text"),
        (b'{"a": "\\ud800"}', "is not valid text"),
        (b"{} {}", "Extra data"),
        (b"", "Expecting value"),
        (b"{'a': 1}", "Expecting property name"),
        (b"[1,]", "Expecting value|Illegal trailing comma"),
        (b'"\x01"', "Invalid control character"),
        (b"[" * 66 + b"0" + b"]" * 66, "is nested more than 64 deep"),
        (b"[" * 100_000, "is nested more than 64 deep"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_ambiguous_json_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strict_json.load_exact(data)
