"""External regular expressions end, and return the results of Python's `re`."""

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera import regex
from hiera.errors import LimitError
from hiera.expressions.expressions import Scope, evaluate
from hiera.regex import bounded, is_found, starred
from hiera.tree import puppet_types
from hiera.tree.lookup import Tree

CATASTROPHES = {
    "(a+)+$": "a" * 40 + "b",
    "(a|aa)+$": "a" * 60 + "b",
    "(a*)*$": "a" * 40 + "b",
    r"(\w+\s?)*$": "word " * 20 + "!",
    "(.*a){20}$": "a" * 60 + "b",
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time limit to make tests fast."""
    monkeypatch.setattr(regex, "TIME_LIMIT", 0.1)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_a_catastrophic_pattern_is_stopped(pattern: str) -> None:
    text = CATASTROPHES[pattern]
    with pytest.raises(LimitError, match=f"took more than 0.1 s on {len(text)} characters") as stopped:
        is_found(re.compile(pattern), text)
    assert str(stopped.value).startswith(f"pattern {pattern!r} took")


@pytest.mark.parametrize("pattern", ["a*b", ".*x", "a+?b", "[ab]{2,}c", "^a|b*c", "(?m)^a*b"])
def test_repetition_is_refused_on_a_long_text(pattern: str) -> None:
    with pytest.raises(LimitError, match="is tried on 50001 characters, at most 50000 are possible"):
        is_found(re.compile(pattern), "a" * 50_001)


@pytest.mark.parametrize("pattern", ["a*b", ".*x", "a+?b", "[ab]*c", "(?=a*b)c"])
@pytest.mark.representatives(1)
def test_repetition_is_stopped_soon_on_the_longest_text(pattern: str) -> None:
    before = time.process_time()
    with pytest.raises(LimitError, match="took more than"):
        is_found(re.compile(pattern), "a" * regex.REPETITION_LIMIT)
    assert time.process_time() - before < 30


@pytest.mark.parametrize("pattern", ["ab", "a.b?", "^a*b", "^.*[ab]*b$"])
def test_long_texts_are_searched_without_free_repetition(pattern: str) -> None:
    assert is_found(re.compile(pattern), "a" * 200_000 + "ab")


def test_the_timer_and_the_handler_before_come_back() -> None:
    rung = []
    before = signal.signal(signal.SIGVTALRM, lambda *_: rung.append(1))
    signal.setitimer(signal.ITIMER_VIRTUAL, 100)
    try:
        assert is_found(re.compile("b"), "abc")
        with pytest.raises(LimitError):
            is_found(re.compile("(a+)+$"), "a" * 40 + "b")
        assert signal.setitimer(signal.ITIMER_VIRTUAL, 0)[0] > 90
        os.kill(os.getpid(), signal.SIGVTALRM)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_regex_timeout_survives_garbage_collection() -> None:
    class Slow:
        def __del__(self) -> None:
            end = time.process_time() + 3 * regex.TIME_LIMIT
            while time.process_time() < end:
                pass

    pattern = re.compile("(a+)+$")
    with pytest.raises(LimitError, match=r"took more than"):
        bounded(pattern, "a", lambda: (Slow() is None, pattern.search("a" * 40 + "b")))


def test_nested_search_is_bounded() -> None:
    outer = re.compile("a")
    with pytest.raises(LimitError, match=r"pattern '\(a\+\)\+\$' took"):
        bounded(outer, "a", lambda: is_found(re.compile("(a+)+$"), "a" * 40 + "b"))
    assert bounded(outer, "a", lambda: is_found(re.compile("b"), "b"))


# -- sources of patterns --------------------------------------------------------------------------

TEXT = "('a' * 40 ~ 'b')"


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    "expression",
    [
        f"{TEXT} | regex_search('(a+)+$')",
        f"{TEXT} | regex_search('((a+)+)$', '\\\\1')",
        f"{TEXT} | regex_replace('(a+)+$', 'x')",
        f"{TEXT} | regex_findall('(a+)+$')",
        f"{TEXT} is match('(a+)+$')",
        f"{TEXT} is search('(a+)+$')",
        f"{TEXT} is regex('(a+)+$')",
        f"[{TEXT}] | select('search', '(a+)+$') | list",
    ],
)
def test_expressions_are_bounded(expression: str) -> None:
    with pytest.raises(
        LimitError, match=r"^\{\{ .* \}\}: pattern '.*' took more than 0.1 s on 41 characters$"
    ):
        evaluate(expression, Scope({}))


def test_a_secret_pattern_is_not_shown() -> None:
    from hiera.values import Secret

    with pytest.raises(LimitError) as stopped:
        evaluate(
            "text | regex_search(data.pattern)",
            Scope({}, {"pattern": Secret("(a+)+$")}).with_names({"text": "a" * 40 + "b"}),
        )
    assert "a+" not in str(stopped.value)


KNOCKOUT = {"strategy": "deep", "knockout_prefix": "(a+)+$"}


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "data",
    [
        {"lookup_options": {"^(a+)+$": {"merge": "hash"}}, "a" * 40 + "b": 1},
        {"lookup_options": {"k": {"merge": KNOCKOUT}}, "k": {"x": ["a" * 40 + "b"]}},
        {"lookup_options": {"k": {"merge": KNOCKOUT}}, "k": {"x": "a" * 40 + "b"}},
    ],
    ids=["lookup_options", "knockout of items", "knockout of a text"],
)
def test_a_hiera_tree_is_bounded(data: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "hiera.yaml").write_text("version: 5\nhierarchy: [{name: a, paths: [a.yaml, b.yaml]}]\n")
    (tmp_path / "data").mkdir()
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / "data" / name).write_text(json.dumps(data))
    key = next(name for name in data if name != "lookup_options")
    with pytest.raises(LimitError, match=r"took more than 0\.1 s"):
        Tree({}, environment=str(tmp_path)).lookup(key)


def test_a_type_of_a_hiera_tree_is_bounded() -> None:
    with pytest.raises(LimitError, match=r"took more than 0\.1 s"):
        puppet_types.matches(puppet_types.parse("Pattern[/(a+)+$/]"), "a" * 40 + "b")


@pytest.mark.parametrize("name", ["regex_search", "regex_findall", "regex_replace"])
def test_a_pattern_that_takes_long_to_compile_is_refused(name: str) -> None:
    with pytest.raises(LimitError, match="a pattern has 9999999 characters, at most 10000 are possible"):
        evaluate(f"'a' | {name}('x' * 9999999, '')", Scope({}))


# -- stars ------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["a", "b", ".", "[ab]", None]), max_size=8), st.text("abc", max_size=10))
def test_stars_mean_any_text(pieces: list[str | None], text: str) -> None:
    plain = "".join(".*" if piece is None else piece for piece in pieces)
    expected = re.compile(plain, re.DOTALL).fullmatch(text) is not None
    assert (re.compile(starred(pieces), re.DOTALL).fullmatch(text) is not None) == expected


def test_many_stars_take_no_longer() -> None:
    pattern = re.compile(starred([None, "a"] * 60 + [None, "b"]), re.DOTALL)
    assert not bounded(pattern, "a" * 250, lambda: pattern.fullmatch("a" * 250) is not None)
