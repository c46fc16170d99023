"""Regular expressions from outside end, and give what Python's own would."""

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera import regex
from hiera.errors import ExpressionError, HieraError, LimitError
from hiera.expressions.expressions import Scope, evaluate
from hiera.regex import bounded, is_found, starred
from hiera.tree.lookup import Tree
from hiera.tree.puppet import type_expressions, types

CATASTROPHES = {
    "(a+)+$": "a" * 40 + "b",
    "(a|aa)+$": "a" * 60 + "b",
    "(a*)*$": "a" * 40 + "b",
    r"(\w+\s?)*$": "word " * 20 + "!",
    "(.*a){20}$": "a" * 60 + "b",
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less time than in earnest, so that the tests take less of it."""
    monkeypatch.setattr(regex, "TIME_LIMIT", 0.1)


@pytest.fixture
def in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text counts as long."""
    monkeypatch.setattr(regex, "_SHORT", -1)


def children() -> set[str]:
    """The processes whose parent this one is, also those that have ended and were not waited for."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((process / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(process.name)
    return found


@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_a_catastrophic_pattern_is_stopped(pattern: str) -> None:
    text = CATASTROPHES[pattern]
    with pytest.raises(LimitError, match=f"took more than 0.1 s on {len(text)} characters") as stopped:
        is_found(re.compile(pattern), text)
    assert str(stopped.value).startswith(f"pattern {pattern!r} took")


@pytest.mark.usefixtures("in_a_child")
@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_a_catastrophic_pattern_is_stopped_in_a_child(pattern: str) -> None:
    with pytest.raises(LimitError, match=r"took more than 0\.1 s"):
        is_found(re.compile(pattern), CATASTROPHES[pattern])


@pytest.mark.parametrize("pattern", ["a*b", ".*x", "a+?b"])
def test_a_long_text_is_stopped_where_python_does_not_look_for_signals(pattern: str) -> None:
    with pytest.raises(LimitError, match="on 200000 characters"):
        is_found(re.compile(pattern), "a" * 200_000)


def test_a_catastrophic_pattern_is_stopped_in_a_thread() -> None:
    caught: list[HieraError] = []

    def search() -> None:
        try:
            is_found(re.compile("(a+)+$"), "a" * 40 + "b")
        except HieraError as error:
            caught.append(error)

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert isinstance(caught[0], LimitError)


def operations(pattern: re.Pattern[str], text: str) -> list[Callable[[], Any]]:
    return [
        lambda: pattern.findall(text),
        lambda: pattern.sub("<>", text),
        lambda: [match and match.regs for match in [pattern.search(text)]],
    ]


@pytest.mark.usefixtures("in_a_child")
@pytest.mark.parametrize("pattern", ["a", "(a)(b)?", "", "x*", "(?P<n>b)|a", "é+"])
def test_the_child_gives_what_is_found_here(pattern: str) -> None:
    text = "aab éé ab"
    for operation in operations(re.compile(pattern), text):
        assert bounded(re.compile(pattern), text, operation) == operation()


@pytest.mark.usefixtures("in_a_child")
def test_what_goes_wrong_in_the_child_goes_wrong_here() -> None:
    with pytest.raises(re.error, match="invalid group reference 7"):
        bounded(re.compile("a"), "a", lambda: re.compile("a").sub(r"\7", "a"))
    with pytest.raises(ExpressionError, match="no such thing"):
        bounded(re.compile("a"), "a", _failing)


def _failing() -> None:
    raise ExpressionError("", "no such thing")


@pytest.mark.usefixtures("in_a_child")
def test_a_child_that_dies_is_an_error() -> None:
    with pytest.raises(LimitError, match="its process ended without an answer"):
        bounded(re.compile("a"), "a", lambda: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.usefixtures("in_a_child")
def test_a_child_leaves_nothing_behind() -> None:
    before = sorted(os.listdir("/proc/self/fd")), children()
    for pattern in ("a", "(a+)+$"):
        try:
            is_found(re.compile(pattern), "a" * 40 + "b")
        except LimitError:
            pass
    assert (sorted(os.listdir("/proc/self/fd")), children()) == before


@pytest.mark.usefixtures("in_a_child")
def test_a_signal_ends_the_search_and_its_child() -> None:
    class StoppedError(Exception):
        pass

    def stop(*_: object) -> None:
        raise StoppedError

    def signal_the_parent_when_it_waits() -> None:
        status = Path(f"/proc/{os.getppid()}/stat")
        while status.read_text().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.01)
        os.kill(os.getppid(), signal.SIGUSR1)
        time.sleep(60)

    ours = children()
    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(StoppedError):
            bounded(re.compile("a"), "a", signal_the_parent_when_it_waits)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert children() == ours


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


def test_the_end_of_the_time_is_not_lost_in_what_the_collector_calls() -> None:
    class Slow:
        def __del__(self) -> None:
            end = time.process_time() + 3 * regex.TIME_LIMIT
            while time.process_time() < end:
                pass

    pattern = re.compile("(a+)+$")
    with pytest.raises(LimitError, match=r"took more than"):
        bounded(pattern, "a", lambda: (Slow() is None, pattern.search("a" * 40 + "b")))


def test_one_search_inside_another_is_bounded_too() -> None:
    outer = re.compile("a")
    with pytest.raises(LimitError, match=r"pattern '\(a\+\)\+\$' took"):
        bounded(outer, "a", lambda: is_found(re.compile("(a+)+$"), "a" * 40 + "b"))
    assert bounded(outer, "a", lambda: is_found(re.compile("b"), "b"))


# -- where patterns come from ---------------------------------------------------------------------

TEXT = "('a' * 40 ~ 'b')"


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
    from hiera.values.secrets import Secret

    with pytest.raises(LimitError) as stopped:
        evaluate(
            "text | regex_search(data.pattern)",
            Scope({}, {"pattern": Secret("(a+)+$")}).with_names({"text": "a" * 40 + "b"}),
        )
    assert "a+" not in str(stopped.value)


KNOCKOUT = {"strategy": "deep", "knockout_prefix": "(a+)+$"}


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
        types.matches(type_expressions.parse("Pattern[/(a+)+$/]"), "a" * 40 + "b")


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
