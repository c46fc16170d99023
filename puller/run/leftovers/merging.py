"""Three-way merges that revert one change and preserve all later changes by others.

* ``before`` is the state before the change, ``changed`` the state after it, and ``now`` the current state.
* The result is the current state without the change. If the change and a later change overlap, ``merged_text`` returns
  no result, and ``without_change`` keeps the later change.
* These functions do no I/O.
"""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import Any, NamedTuple

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
    base, back, others = _back_and_others(before, changed, now)
    if any(_is_conflict(edit, other) for edit in back for other in others):
        return None
    return _applied(base, _in_order(back, others))


def without_change(before: bytes, changed: bytes, now: bytes) -> tuple[bytes, bool]:
    """Return the text ``now`` without the change, and whether conflicts preserve a part of the change."""
    if now == changed:
        return before, False
    if before in (changed, now):
        return now, False
    base, back, others = _back_and_others(before, changed, now)
    clear = [edit for edit in back if not any(_is_conflict(edit, other) for other in others)]
    return _applied(base, _in_order(clear, others)), len(clear) < len(back)


def hunks_between(before: bytes, after: bytes) -> list[Hunk]:
    """Return the lines of ``before`` that ``after`` replaces."""
    return [*_hunks(before.splitlines(keepends=True), after.splitlines(keepends=True))]


def with_hunks(before: bytes, hunks: Iterable[Hunk]) -> bytes:
    """Return the text after a change."""
    return _applied(before.splitlines(keepends=True), [*hunks])


def _back_and_others(before: bytes, changed: bytes, now: bytes) -> tuple[list[bytes], list[Hunk], list[Hunk]]:
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
