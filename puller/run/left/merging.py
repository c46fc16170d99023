"""Three-way merges: one change is taken back, and the changes that others have made since stay.

* ``before`` is the state before the change, ``changed`` the state after it, and ``now`` the current state.
* The result is the current state without the change. Where the change and a later one meet, there is no result: nothing
  is guessed.
* These functions do no I/O.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

_MOST_LINES = 20_000
"""Lines of a text that is merged: comparing longer texts takes too long."""


class _Edit(NamedTuple):
    """The lines ``first`` to ``last``, which is excluded, are replaced."""

    first: int
    last: int
    lines: Sequence[bytes]


def merged_text(before: bytes, changed: bytes, now: bytes) -> bytes | None:
    """Return the text ``now`` without the change from ``before`` to ``changed``; ``None`` for a conflict."""
    if now == changed:
        return before
    if before in (changed, now):
        return now
    texts = [text.splitlines(keepends=True) for text in (before, changed, now)]
    if b"\0" in b"".join((before, changed, now)) or max(map(len, texts)) > _MOST_LINES:
        return None
    base = texts[1]
    edits = _in_order([*_edits(base, texts[0])], [*_edits(base, texts[2])])
    return None if edits is None else _applied(base, edits)


def _edits(base: list[bytes], other: list[bytes]) -> Iterator[_Edit]:
    matcher = SequenceMatcher(None, base, other, autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag != "equal":
            yield _Edit(first, last, other[start:end])


def _in_order(back: list[_Edit], others: list[_Edit]) -> list[_Edit] | None:
    """Return the edits of both lists in order; ``None`` where two of them replace one line differently."""
    edits = sorted({(edit.first, edit.last, tuple(edit.lines)) for edit in (*back, *others)})
    result: list[_Edit] = []
    for edit in (_Edit(*each) for each in edits):
        if result and edit.first < result[-1].last:
            previous = result[-1]
            if edit.lines or previous.lines:
                return None
            result[-1] = _Edit(previous.first, max(previous.last, edit.last), ())  # both remove lines
        else:
            result.append(edit)
    return result


def _applied(base: list[bytes], edits: list[_Edit]) -> bytes:
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
    """Return the record ``now`` without the change; where both have changed one value, that of ``now`` stays.

    Records are mappings, lists whose order has no meaning, and plain values.
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
        kept = [value for value in now if value in before or value not in changed]
        return [*kept, *(value for value in before if value not in changed and value not in now)]
    return now
