"""Values as Ruby prints, compares and sorts them. Ruby 3.1 printed the expected texts."""

from typing import Any

import pytest

from foundation.masking import VALUE_MASK
from hiera.errors import LookupFailure
from hiera.tree import ruby_values as ruby
from hiera.tree.ruby_values import OddKey, Symbol
from hiera.values import Decrypted, Secret
from tests.support.rows import each_row


@each_row(
    ("value", "printed"),
    [
        ('a"b\\c', r'"a\"b\\c"'),
        ("t\tn\ne\x1b", r'"t\tn\ne\e"'),
        ("\0\x7f", r'"\u0000\u007F"'),
        ("#{x} #$y #@z #w", r'"\#{x} \#$y \#@z #w"'),
        ("żółć 😀 \u00a0", '"żółć 😀 \u00a0"'),
        ("\u2028\u200b\U0010ffff", '"\\u2028\u200b\\u{10FFFF}"'),
        (None, "nil"),
        ([True, False, None, 1], "[true, false, nil, 1]"),
        ({"a": {1: []}}, '{"a"=>{1=>[]}}'),
        (1.0, "1.0"),
        (1e15, "1000000000000000.0"),
        (1e16, "1.0e+16"),
        (0.0001, "0.0001"),
        (1.5e-7, "1.5e-07"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
        (Symbol("sym"), ":sym"),
        (Symbol("two words"), ':"two words"'),
        (Secret("hidden"), VALUE_MASK),
    ],
)
def test_inspect(value: Any, printed: str) -> None:
    assert ruby.inspect(value) == printed


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "a"), (None, ""), (True, "true"), (Symbol("s"), "s"), (OddKey(None), ""), ([], "[]")],
)
def test_to_s(value: Any, text: str) -> None:
    assert ruby.to_s(value) == text


def test_uniq_separates_values_like_ruby() -> None:
    values = [1, 1.0, True, "1", 1, None, {"a": 1, "b": 2}, {"b": 2, "a": 1}, [1], [1.0], Decrypted("1")]
    assert ruby.unique(values) == [1, 1.0, True, "1", None, {"a": 1, "b": 2}, [1], [1.0]]


def test_sorting_follows_bytes_and_numbers() -> None:
    assert ruby.sort(["b", "Z", "ż", "a", "10", "9"]) == ["10", "9", "Z", "a", "b", "ż"]
    assert ruby.sort([2, 1.5, -1]) == [-1, 1.5, 2]
    assert ruby.sort([[1, 2], [1], [0, 9]]) == [[0, 9], [1], [1, 2]]


@pytest.mark.parametrize("values", [["a", 1], [{"a": 1}, {"b": 1}], [True, 1], [None, "a"]])
def test_values_without_an_order_between_them_cannot_be_sorted(values: list[Any]) -> None:
    with pytest.raises(
        LookupFailure, match=r"comparison of \w+ with .* failed: only like values can be sorted"
    ):
        ruby.sort(values)
