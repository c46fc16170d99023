"""A preview for a merge request: a section for each group, diffs in fences that nothing within them can close.

* What comes out of bundles and facts stands in code spans and fences only, longer than any run of backticks in it.
* A comment is at most ``LIMIT`` characters, as services refuse longer ones; what is left out is counted: of a group
  whose diffs have no room there are its changes.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from foundation.formatting import ARROW
from puller.authoring.preview.differences import Change
from puller.authoring.preview.formats import sentences
from puller.authoring.preview.formats.text import shown_diff
from puller.authoring.preview.groups import Group, Preview

LIMIT = 60_000
_MOST_SAID = 20
"""Notes, and failures that are there before and after."""


class _Extent(msgspec.Struct, frozen=True):
    """The part of a group that is shown."""

    lines: int
    """Of each diff."""
    changes: int = 100_000
    has_details: bool = True
    """Whether properties and files are shown."""


_EXTENTS = (_Extent(80), _Extent(20), _Extent(5), _Extent(0), _Extent(0, 50, has_details=False))
"""The first of them that has room is taken: a group whose diffs are too long still says what changes."""


def text(preview: Preview) -> str:
    """The whole comment."""
    parts = [_summary(preview)]
    room = LIMIT - len(parts[0]) - 200
    for number, group in enumerate(preview.groups):
        sections = (_section(group, preview, extent) for extent in _EXTENTS)
        section = next((section for section in sections if len(section) < room), None)
        if section is None:
            parts.append(f"… and {len(preview.groups) - number} more groups: too long for a comment\n")
            break
        room -= len(section) + 1
        parts.append(section)
    return "\n".join(parts)


def _summary(preview: Preview) -> str:
    changed = sum(len(group.machines) for group in preview.groups)
    found = [f"**{sentences.of_machines(changed, preview.total)}** would change."]
    if line := sentences.unchanged_line(preview):
        found.append(_span(line))
    found += _some(sentences.still_failing_lines(preview), "failures")
    found += _some(sentences.note_lines(preview), "notes")
    return "\n\n".join(found) + "\n"


def _some(lines: Sequence[str], what: str) -> Iterator[str]:
    yield from map(_span, lines[:_MOST_SAID])
    if len(lines) > _MOST_SAID:
        yield f"… and {len(lines) - _MOST_SAID} more {what}"


def _section(group: Group, preview: Preview, extent: _Extent) -> str:
    lines = [f"### {sentences.of_machines(len(group.machines), preview.total)}", ""]
    lines += [_span(sentences.machines(group.machines, 10)), ""]
    for change in group.changes[: extent.changes]:
        lines += _change(change, extent)
    if (left := len(group.changes) - extent.changes) > 0:
        lines.append(f"* … and {left} more changes")
    if extent is not _EXTENTS[0]:
        lines += ["", "Shortened: too long for a comment."]
    return "\n".join((*lines, ""))


def _change(change: Change, extent: _Extent) -> Iterator[str]:
    yield f"* {_span(sentences.headline(change))}"
    if not extent.has_details:
        return
    for one in change.differences:
        if line := sentences.difference_line(change, one, ARROW):
            yield f"  * {_span(line)}"
        if one.diff:
            yield from (f"    {line}" for line in ("", *_fenced(one.diff, extent.lines), ""))


def _fenced(diff: str, most: int) -> list[str]:
    lines = shown_diff(diff, most)
    fence = "`" * max(3, 1 + _longest_run("\n".join(lines)))
    return [f"{fence}diff", *lines, fence]


def _span(text: str) -> str:
    ticks = "`" * (1 + _longest_run(text))
    return f"{ticks} {text} {ticks}" if "`" in text else f"`{text}`"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
