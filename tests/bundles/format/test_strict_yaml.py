"""The publisher's settings have only one reading."""

from typing import Any

import pytest

from bundles.publisher import settings
from tests.support.rows import each_row


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"", None),
        (b"# nothing\n", None),
        (b"expiry: {timestamp: 7d, root: 52w}", {"expiry": {"timestamp": "7d", "root": "52w"}}),
        (b'a: [1, yes, null, 1:30]\r\nb: "x: y"', {"a": ["1", "yes", "null", "1:30"], "b": "x: y"}),
        (b"\xef\xbb\xbfa: b", {"a": "b"}),
    ],
)
def test_written_values_are_text(text: bytes, value: Any) -> None:
    assert settings.load(text) == value


@each_row(
    ("text", "message"),
    [
        (b"expiry: {", "is not YAML"),
        (b"a: 1\na: 2", "line 2: the key 'a' is repeated"),
        (b"a: &a [1]\nb: *a", "line 2: aliases are not supported"),
        (b"[" * 60_000, "line 1: is nested more than 16 deep"),
        (b"{a: " * 17 + b"}" * 17, "line 1: is nested more than 16 deep"),
        (b"? [a]\n: b", "line 1: a list or a mapping cannot be a key"),
        (b"a: 1\n---\nb: 2", "is not YAML"),
        (b"a: \xff", "is not YAML|is not UTF-8"),
        (b"#" * 70_000, "has more than 65536 bytes"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_anything_else_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings.load(text)
