"""Regular expressions of the Go engine: RE2's syntax, executed by ``re`` where that is safe, otherwise by a machine."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.go_regex.pattern import (
    Machine,
    Match,
    Program,
    Regexp,
    compile_pattern,
    quote_meta,
)
from hiera.go_regex.syntax import PatternError, parse
from tests.support.rows import each_row

TEXTS = st.text("abc1 \n", max_size=10)
ITEMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", r"\w", r"\d", "[a-c1]"])
PLACES = st.sampled_from(["^", "$", r"\b", "(?m:^)", "(?m:$)"])


def look() -> None:
    """Never interrupt a search."""


def by_machine(pattern: str, text: str) -> Match | None:
    return Machine(Program(parse(pattern)), look).search(text, 0)


def by_python(pattern: str, text: str) -> Match | None:
    match = re.compile(pattern.replace("(?m:$)", r"(?=\n|\Z)").replace("$", r"\Z"), re.ASCII).search(text)
    return None if match is None else [span if span[0] >= 0 else None for span in match.regs]


def repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{1,}?"])
    return st.builds("(?:{}){}".format, inner, operators)


FLAT = st.lists(ITEMS | PLACES | repeated(ITEMS) | st.builds("({})".format, ITEMS), max_size=4).map("".join)
CHOICES = st.lists(FLAT, min_size=1, max_size=3).map("|".join)
# Repetitions of non-empty matches, because RE2 and Python differ for empty rounds.
NESTED = st.recursive(
    ITEMS,
    lambda inner: (
        st.builds("(?:{}|{})".format, inner, inner)
        | st.builds("{}{}".format, ITEMS, repeated(inner))
        | st.builds("({})".format, inner)
    ),
    max_leaves=6,
)


@given(CHOICES, TEXTS)
def test_python_and_the_machine_find_the_same(pattern: str, text: str) -> None:
    regexp = Regexp(parse(pattern))
    assert regexp.find(text, look) == text_of(by_machine(pattern, text), text)


@given(NESTED | CHOICES, TEXTS)
def test_matcher_equals_a_backtracking_matcher(pattern: str, text: str) -> None:
    result, expected = by_machine(pattern, text), by_python(pattern, text)
    assert text_of(result, text) == text_of(expected, text)


@given(FLAT, TEXTS)
def test_groups_equal_those_of_a_backtracking_matcher(pattern: str, text: str) -> None:
    assert by_machine(pattern, text) == by_python(pattern, text)


def text_of(found: Match | None, text: str) -> str | None:
    if found is None or found[0] is None:
        return None
    return text[slice(*found[0])]


@given(st.text())
def test_quoted_text_matches_itself(text: str) -> None:
    assert compile_pattern(quote_meta(text)).find(f"<{text}>", look) == text


@given(CHOICES, TEXTS)
def test_split_and_matched_parts_make_up_the_text(pattern: str, text: str) -> None:
    regexp = compile_pattern(pattern)
    assert regexp.replace_all(text, lambda result: text_of(result, text) or "", look) == text
    assert sum(map(len, regexp.split(text, -1, look))) + sum(
        map(len, regexp.find_all(text, -1, look))
    ) <= len(text)


@given(st.text(r"ab()[]{}|*+?^$\.-:P<>!=dwspi0123456789,", max_size=12))
def test_any_pattern_is_read_or_refused(pattern: str) -> None:
    try:
        Program(parse(pattern))
    except PatternError:
        return
    Regexp(parse(pattern)).find_all("ab(1)", -1, look)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(a+)+$", "a" * 20_000 + "!"),
        (r"(a|a)*b", "a" * 20_000),
        (r"(\w+\s?)*!", "word " * 4_000),
        (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 5_000),
        (r"(x+x+)+y", "x" * 5_000),
        (r"a*a*a*a*a*a*b", "a" * 5_000),
    ],
)
def test_catastrophic_patterns_are_answered(pattern: str, text: str) -> None:
    assert compile_pattern(pattern).find(text, look) is None


def test_a_long_search_looks_at_the_clock() -> None:
    looks = []
    compile_pattern(r"(a|b)*c").find("ab" * 10_000, lambda: looks.append(1))
    assert len(looks) > 2


@each_row(
    ("pattern", "text", "found"),
    [
        (r"a|ab", "ab", "a"),
        (r"\Qa.b\E+", "xa.bbb", "a.bbb"),
        (r"\Qa.b", "a.b", "a.b"),
        (r"[]a]+", "x]a", "]a"),
        (r"[^]a]+", "]xa", "x"),
        (r"[a\-c]+", "b-a", "-a"),
        (r"[-a]+", "b-a", "-a"),
        (r"[\d\s]+", "x1 2", "1 2"),
        (r"[[:^alpha:]]+", "a1b", "1"),
        (r"\x41\x{42}\103", "ABC", "ABC"),
        (r"\a\f\t\n\r\v", "\a\f\t\n\r\v", "\a\f\t\n\r\v"),
        (r"\pL+", "1äß2", "äß"),
        (r"\PL+", "a1-b", "1-"),
        (r"\p{^Lu}+", "ABcD", "c"),
        (r"\p{Cyrillic}+", "aжж", "жж"),
        (r"[\p{Lu}\d]+", "aB1c", "B1"),
        (r"(?i)straße", "STRAßE", "STRAßE"),
        (r"(?i)[k-l]", "\u212a", "\u212a"),
        (r"(?i:a)b", "AB", None),
        (r"(?i:a)b", "Ab", "Ab"),
        (r"(?i)a(?-i)b", "AB", None),
        (r"(?U)a+", "aaa", "a"),
        (r"(?U)a+?", "aaa", "aaa"),
        (r"(?s).", "\n", "\n"),
        (r"(?ms)^.$", "\n", "\n"),
        (r"(?P<n>a)(?<m>b)", "ab", "ab"),
        (r"a{0}b", "ab", "b"),
        (r"a{,2}", "a{,2}", "a{,2}"),
        (r"x{2", "x{2", "x{2"),
        (r"\Bb", "ab", "b"),
        (r"\B", "", ""),
        (r"^$", "", ""),
        (r"\s", "\v", None),
        (r"\w", "é", None),
        (r"(|a)*", "aa", ""),
        (r"(|a)+", "aa", ""),
        (r"(a*)+", "b", ""),
    ],
)
def test_the_language_is_that_of_re2(pattern: str, text: str, found: str | None) -> None:
    assert compile_pattern(pattern).find(text, look) == found
    assert text_of(by_machine(pattern, text), text) == found


@pytest.mark.parametrize(
    "pattern",
    ["a" * 30_000, "(" * 200 + ")" * 200, "((a{10}){10}){11}", "(a{1000}b{1000}c{1000}){20}", "\\", "x\\"],
)
def test_a_pattern_that_is_too_large_or_ends_early_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Program(parse(pattern))
