"""JSON as Ruby reads it. Ruby's json 2.6 gave the expected outcomes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.errors import DocumentError, HieraError
from hiera.tree import backends
from tests.support.rows import each_row


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1 /* x */, // y\n "b": "http://x/*y*/"}', {"a": 1, "b": "http://x/*y*/"}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": "\\q\\/\\u00e9\\ud83d\\ude00"}', {"a": "q/é😀"}),
        ("[1e3, -0.0, 123456789012345678901234567890]", [1000.0, -0.0, 123456789012345678901234567890]),
        ("null", None),
    ],
)
def test_ruby_accepts_this_json(text: str, value: Any) -> None:
    assert backends.load_json(text.encode(), "x.json") == value


@each_row(
    ("text", "message"),
    [
        ('{"a": 1,\n }', "at line 2 column 2"),
        ("[1, 2,]", "at line 1 column"),
        ("", "Expecting value at line 1 column 1"),
        ("\ufeff{}", "at line 1 column 1"),
        ('{"a": NaN}', "unexpected token at 'NaN'"),
        ('{"a": 1} // the last line needs its end', "Extra data at line 1 column 10"),
        ('["\\ud800"]', "half a character"),
        ("[" * 101 + "]" * 101, "nesting of 101 is too deep"),
        ("[" + "9" * 5000 + "]", "limit"),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}", "Expecting value"),
    ],
)
def test_ruby_refuses_this_json(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        backends.load_json(text.encode(), "x.json")
    assert str(caught.value).startswith("Unable to parse (x.json): ")
    assert message in str(caught.value)


@given(st.text(alphabet='{}[]":,/*\\utrue 019.eE-\n', max_size=40) | st.binary(max_size=20))
def test_any_text_is_read_or_refused_by_an_error_of_ours(text: str | bytes) -> None:
    try:
        backends.load_json(text.encode() if isinstance(text, str) else text, "x.json")
    except HieraError as error:
        assert "x.json" in str(error)
