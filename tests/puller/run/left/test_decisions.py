"""Decisions about changes of a trial: their table, its invariants, and three-way merges."""

import json
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from puller.run.leftovers.reversal_rules import (
    Action,
    Before,
    Declared,
    Ending,
    Now,
    decide,
    merged_record,
    merged_text,
)
from tests.support.rows import each_row

ALL = [*product(Ending, Before, Now, Declared)]
REMOVALS = (Action.REMOVE, Action.REMOVE_AFTER)


@each_row(("ending", "before", "now", "declared"), ALL)
def test_the_table_keeps_its_laws(ending: Ending, before: Before, now: Now, declared: Declared) -> None:
    action = decide(ending, before, now, declared)
    if ending is Ending.PASSED:
        assert action is Action.FORGET
    if before is not Before.ABSENT:
        assert action not in REMOVALS
    if before is Before.ABSENT:
        assert action is not Action.RESTORE
    if now is Now.FOREIGN:  # a foreign state is never replaced
        assert action not in (*REMOVALS, Action.RESTORE, Action.MERGE)
    if now is Now.EDITED:
        assert action not in (*REMOVALS, Action.RESTORE) or before is Before.UNKNOWN
    if declared is Declared.WHOLE and ending is not Ending.PASSED:
        assert action is Action.HOLD
    if action is Action.REMOVE:
        assert ending is Ending.GIVEN_UP
    if before is Before.LEAVING and ending is Ending.REPLACED:
        assert action in (Action.FORGET, Action.HOLD)


LINES = st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), max_size=6, unique=True)


def text(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


@given(LINES, LINES)
def test_without_other_edits_the_text_before_is_back(before: list[bytes], changed: list[bytes]) -> None:
    assert merged_text(text(before), text(changed), text(changed)) == text(before)


@given(LINES, LINES)
def test_without_a_change_the_current_text_stays(changed: list[bytes], now: list[bytes]) -> None:
    assert merged_text(text(changed), text(changed), text(now)) == text(now)


@given(LINES, LINES, LINES)
def test_a_merge_keeps_lines_of_others(before: list[bytes], changed: list[bytes], now: list[bytes]) -> None:
    merged = merged_text(text(before), text(changed), text(now))
    if merged is not None:
        by_others = {*now} - {*changed}
        assert by_others <= {*merged.splitlines()}
        removed_by_others = {*changed} - {*now}
        assert not (removed_by_others - {*before}) & {*merged.splitlines()}


@each_row(
    ("before", "changed", "now", "merged"),
    [
        ("a\n", "a\nx\n", "a\nx\ny\n", "a\ny\n"),
        ("a", "a\nx\n", "a\nx\ny\n", "a\ny\n"),
        ("a=1\nb\nc\n", "a=2\nb\nc\n", "a=2\nb\n", "a=1\nb\n"),
        ("a\nb\n", "a\n", "a\n", "a\nb\n"),
        ("a=1\n", "a=2\n", "a=3\n", None),
        ("", "x\n", "x\ny\n", "y\n"),
        ("a\n", "x\ny\na\n", "y\na\n", "a\n"),
    ],
)
def test_texts_are_merged(before: str, changed: str, now: str, merged: str | None) -> None:
    result = merged_text(before.encode(), changed.encode(), now.encode())
    assert result == (None if merged is None else merged.encode())


def test_binary_contents_are_not_merged() -> None:
    assert merged_text(b"\0a", b"\0b", b"\0c") is None


RECORDS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3)


@given(RECORDS, RECORDS, RECORDS)
def test_records_keep_the_values_of_others(
    before: dict[str, int], changed: dict[str, int], now: dict[str, int]
) -> None:
    merged = merged_record(before, changed, now)
    for key in "abc":
        expected = before.get(key) if now.get(key) == changed.get(key) else now.get(key)
        assert merged.get(key) == expected, json.dumps([before, changed, now])


def test_lists_of_records_are_sets() -> None:
    assert merged_record(["a", "b"], ["b", "x"], ["b", "x", "y"]) == ["b", "y", "a"]
