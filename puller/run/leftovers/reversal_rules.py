"""The reversal of changes by a version on trial: the decision about each object, and three-way merges.

These functions do no I/O. One table contains the decisions for all resource types.

An object is a path, or a resource that paths do not describe (a package, a user, a mount, a command that was run). The
table compares three of its states: before the trial, made by the trial, and declared now by all bundles of the host.
``Now`` compares the current state with the first two, to detect changes by other programs and people.

================  ==========================================================================================
ending            meaning
================  ==========================================================================================
passed            the version has passed its trial: nothing is reverted
given up          the version before it is applied again, after a failed trial or a rollback by hand
replaced          a newer version is applied: changes that it does not declare are reverted
================  ==========================================================================================

================  ==========================================================================================
action            meaning
================  ==========================================================================================
forget            no action now or later
hold              a declared resource determines it: keep the record while another bundle is on trial
restore           restore the state before the trial, before the declared resources are applied
merge             edit the file: remove the changes of the trial, and keep later changes by others
remove            remove it before the declared resources are applied
remove after      remove it after the resources that may replace it have succeeded
report            it cannot be undone, or was changed by others since: it stays, and is listed once
================  ==========================================================================================

Three-way merges revert one change and preserve all later changes by others.

* ``before`` is the state before the change, ``changed`` the state after it, and ``now`` the current state.
* The result is the current state without the change. If the change and a later change overlap, ``merged_text`` returns
  no result, and ``without_change`` keeps the later change.
"""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import product
from typing import Any, NamedTuple


class Before(StrEnum):
    """The state before the trial."""

    ABSENT = "absent"
    PRESENT = "present"
    LEAVING = "leaving"
    """Present, and removed by the trial because its bundle no longer declared it."""
    UNKNOWN = "unknown"
    """Present, without a copy to restore it."""


class Now(StrEnum):
    """The current state, compared with the states before and after the trial."""

    AS_BEFORE = "as before"
    AS_TRIAL = "as the trial left it"
    GONE = "absent since the trial removed it"
    EDITED = "a text that another hand has edited since"
    FOREIGN = "changed by another hand, and nothing can be merged"


class Declared(StrEnum):
    """The role of declared resources for the object."""

    NOTHING = "nothing"
    PART = "part"
    """A resource at the path or below it determines only a part: attributes, edits, a parent."""
    WHOLE = "whole"
    """Applying a declared resource restores it completely."""
    FILLED = "filled"
    """It is below a directory that a declared resource fills."""
    PURGED = "purged"
    """It is below a directory from which a declared resource removes undeclared files."""


class Ending(StrEnum):
    """The end of the trial."""

    PASSED = "passed"
    GIVEN_UP = "given up"
    REPLACED = "replaced"


class Action(StrEnum):
    """The action for one object."""

    FORGET = "forget"
    HOLD = "hold"
    RESTORE = "restore"
    MERGE = "merge"
    REMOVE = "remove"
    REMOVE_AFTER = "remove after"
    REPORT = "report"


class Rule(NamedTuple):
    """One row. It applies if each given state matches. The first matching row decides."""

    action: Action
    ending: Ending | None = None
    before: Before | None = None
    now: Now | None = None
    declared: Declared | None = None


RULES = (
    Rule(Action.FORGET, ending=Ending.PASSED),
    # Declared resources determine it.
    Rule(Action.HOLD, declared=Declared.WHOLE),
    Rule(Action.HOLD, declared=Declared.PURGED),
    # Removed leftovers stay absent: the newer version does not declare them either, or creates them anew.
    Rule(Action.FORGET, ending=Ending.REPLACED, before=Before.LEAVING),
    Rule(Action.FORGET, now=Now.AS_BEFORE),
    # The newer version fills the same directory. Its receipt lists the files that it has created there.
    Rule(Action.RESTORE, Ending.REPLACED, Before.PRESENT, Now.GONE, Declared.FILLED),
    Rule(Action.HOLD, ending=Ending.REPLACED, declared=Declared.FILLED),
    # Of a text with several edits, only those of the trial are removed.
    Rule(Action.MERGE, now=Now.EDITED, before=Before.ABSENT),
    Rule(Action.MERGE, now=Now.EDITED, before=Before.PRESENT),
    Rule(Action.MERGE, now=Now.EDITED, before=Before.LEAVING),
    # Created by the trial.
    Rule(Action.HOLD, before=Before.ABSENT, declared=Declared.PART),
    Rule(Action.REPORT, before=Before.ABSENT, now=Now.FOREIGN),
    Rule(Action.REMOVE, ending=Ending.GIVEN_UP, before=Before.ABSENT),
    Rule(Action.REMOVE_AFTER, ending=Ending.REPLACED, before=Before.ABSENT),
    # Existed before the trial.
    Rule(Action.FORGET, now=Now.FOREIGN, declared=Declared.PART),
    Rule(Action.REPORT, now=Now.FOREIGN),
    Rule(Action.REPORT, ending=Ending.GIVEN_UP, before=Before.UNKNOWN),
    Rule(Action.FORGET, ending=Ending.REPLACED, before=Before.UNKNOWN),
    Rule(Action.RESTORE),
)


def _matches(rule: Rule, states: Iterable[StrEnum]) -> bool:
    return all(given in (None, state) for given, state in zip(rule[1:], states, strict=True))


_TABLE = {
    states: next(rule.action for rule in RULES if _matches(rule, states))
    for states in product(Ending, Before, Now, Declared)
}


def decide(ending: Ending, before: Before, now: Now, declared: Declared) -> Action:
    """Return the action for an object in these states."""
    return _TABLE[ending, before, now, declared]


_MOST_LINES = 20_000
"""Lines between the first and the last difference of two texts. More lines are one hunk: comparing takes too long."""


class Hunk(NamedTuple):
    """The lines ``first`` to ``last``, which is excluded, are replaced."""

    first: int
    last: int
    lines: tuple[bytes, ...] = ()


def merged_text(before: bytes, changed: bytes, now: bytes) -> bytes | None:
    """Return the text ``now`` without the change from ``before`` to ``changed``. ``None`` for a conflict."""
    if now == changed:
        return before
    if before in (changed, now):
        return now
    if b"\0" in b"".join((before, changed, now)):
        return None
    base, back, others = _split_hunks(before, changed, now)
    if any(_is_conflict(edit, other) for edit in back for other in others):
        return None
    return _applied(base, _in_order(back, others))


def without_change(before: bytes, changed: bytes, now: bytes) -> tuple[bytes, bool]:
    """Return the text ``now`` without the change, and whether conflicts preserve a part of the change."""
    if now == changed:
        return before, False
    if before in (changed, now):
        return now, False
    base, back, others = _split_hunks(before, changed, now)
    clear = [edit for edit in back if not any(_is_conflict(edit, other) for other in others)]
    return _applied(base, _in_order(clear, others)), len(clear) < len(back)


def hunks_between(before: bytes, after: bytes) -> list[Hunk]:
    """Return the lines of ``before`` that ``after`` replaces."""
    return [*_hunks(before.splitlines(keepends=True), after.splitlines(keepends=True))]


def with_hunks(before: bytes, hunks: Iterable[Hunk]) -> bytes:
    """Return the text after a change."""
    return _applied(before.splitlines(keepends=True), [*hunks])


def _split_hunks(before: bytes, changed: bytes, now: bytes) -> tuple[list[bytes], list[Hunk], list[Hunk]]:
    """Return the lines after the change, the hunks that revert it, and the hunks of other changes."""
    base = changed.splitlines(keepends=True)
    return base, hunks_between(changed, before), hunks_between(changed, now)


def _hunks(base: list[bytes], other: list[bytes]) -> Iterator[Hunk]:
    shortest = min(len(base), len(other))
    start = next((index for index in range(shortest) if base[index] != other[index]), shortest)
    remainder = shortest - start
    end = next((index for index in range(remainder) if base[-1 - index] != other[-1 - index]), remainder)
    old, new = base[start : len(base) - end], other[start : len(other) - end]
    if max(len(old), len(new)) > _MOST_LINES:
        yield Hunk(start, start + len(old), tuple(new))
        return
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, first, last, begin, until in matcher.get_opcodes():
        if tag != "equal":
            yield Hunk(start + first, start + last, tuple(new[begin:until]))


def _is_conflict(edit: Hunk, other: Hunk) -> bool:
    """Return whether two hunks replace one line differently."""
    is_apart = edit.first >= other.last or other.first >= edit.last
    return not is_apart and edit != other and bool(edit.lines or other.lines)


def _in_order(back: list[Hunk], others: list[Hunk]) -> list[Hunk]:
    """Return the hunks of both lists in order. They must not conflict."""
    result: list[Hunk] = []
    for hunk in sorted({*back, *others}):
        if result and hunk.first < result[-1].last:  # both remove lines
            result[-1] = Hunk(result[-1].first, max(result[-1].last, hunk.last))
        else:
            result.append(hunk)
    return result


def _applied(base: list[bytes], edits: list[Hunk]) -> bytes:
    lines: list[bytes] = []
    position = 0
    for edit in edits:
        lines += base[position : edit.first]
        lines += edit.lines
        position = max(position, edit.last)
    lines += base[position:]
    # A last line without a newline may have become an inner one.
    ended = [line if line.endswith((b"\n", b"\r")) else line + b"\n" for line in lines[:-1]]
    return b"".join([*ended, *lines[-1:]])


_MISSING: Any = object()


def merged_record(before: Any, changed: Any, now: Any) -> Any:
    """Return the record ``now`` without the change. If both have changed one value, the value of ``now`` stays.

    Records are mappings, lists without a meaningful order, and plain values.
    """
    if now == changed:
        return before
    if before == changed:
        return now
    records = (before, changed, now)
    if all(isinstance(each, dict) for each in records):
        keys = [*dict.fromkeys((*now, *before))]
        pairs = ((key, merged_record(*(each.get(key, _MISSING) for each in records))) for key in keys)
        return {key: value for key, value in pairs if value is not _MISSING}
    if all(isinstance(each, list) for each in records):
        retained = [value for value in now if value in before or value not in changed]
        return [*retained, *(value for value in before if value not in changed and value not in now)]
    return now
