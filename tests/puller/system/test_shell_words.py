"""Splitting a command line by the shell's quoting rules."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.system.commands import split_words
from tests.support.rows import each_row


@each_row(
    ("text", "words"),
    [
        ("", []),
        ("  a   b\tc\nd ", ["a", "b", "c", "d"]),
        ("a 'b c' d", ["a", "b c", "d"]),
        ("a '' b", ["a", "", "b"]),
        ("'a'\"b\"c", ["abc"]),
        (r"a\ b", ["a b"]),
        ("a \\\n b", ["a", "b"]),
        (r'"a\$b\"c\\d\`e"', ['a$b"c\\d`e']),
        (r'"a\nb"', ["a\\nb"]),
        ('"a\\\nb"', ["ab"]),
        (r"'a\b'", ["a\\b"]),
        ("echo # no comment", ["echo", "#", "no", "comment"]),
        ("ls *.txt $HOME", ["ls", "*.txt", "$HOME"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 'b", "has a single quote that is not closed"),
        ('a "b', "has a double quote that is not closed"),
        ('a "b\\', "has a double quote that is not closed"),
        ("a\\", "ends in a backslash"),
    ],
)
def test_unterminated_quote_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_words(text)


@given(st.lists(st.text()))
def test_words_that_the_standard_library_quoted_come_back(words: list[str]) -> None:
    assert split_words(shlex.join(words)) == words
