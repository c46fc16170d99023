"""Output formats of a preview: text, Markdown for merge requests, and JSON.

* Text has a block for each group of machines, with its diffs. Markdown has a section for each group.
* In Markdown, values from bundles and facts are only in code spans and fences, which are longer than any run of
  backticks in the value.
* A Markdown comment has at most ``MARKDOWN_LIMIT`` characters, since services reject longer comments. A group whose
  diffs do not fit shows only its changes. The comment states the number of omitted parts.

``docs/preview.md`` describes the keys of the JSON document.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from foundation.differences import Difference, DifferenceKind
from foundation.formatting import ARROW, people
from foundation.quantities import counted, first_few
from puller.authoring.preview.differences import Change, Kind
from puller.authoring.preview.groups import Group, Preview
from puller.values.colour import coloured_diff_line
from puller.values.foreign_text import visible, visible_json, visible_line

# Parts that text and Markdown share.

_MOST_NAMES = 3
_LONGEST_SENTENCE = 200


def machines(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """Return the first names: ``web01, web02, web03 and 9 more``."""
    return first_few(list(map(one_line, names)), most)


def of_machines(count: int, total: int) -> str:
    """Return a count such as ``412 of 418 machines``."""
    return f"{count} of {counted(total, 'machine')}"


def title(group: Group, preview: Preview) -> str:
    """Return the count and the first names of a group's machines."""
    return f"{of_machines(len(group.machines), preview.total)} ({machines(group.machines)})"


def headline(change: Change) -> str:
    """Return one change in one line."""
    reference = one_line(change.reference)
    if change.kind is Kind.FAILS:
        return f"{reference} fails: {one_line(change.why)}"
    if change.kind is Kind.REFRESHED:
        return f"{reference} {_refresh(change)}"
    if change.kind is Kind.SKIPPED:
        return f"{reference} is skipped, because of {_because(change)}"
    why = f": {one_line(change.why)}" if change.why else ""
    also = f"; {_refresh(change)}" if change.refresh else ""
    return f"{reference} {change.kind}{why}{also}"


def _refresh(change: Change) -> str:
    return f"{change.refresh}, because of {_because(change)}"


def _because(change: Change) -> str:
    return ", ".join(map(one_line, change.because))


def difference_line(change: Change, difference: Difference, arrow: str = "") -> str:
    """Return a line such as ``mode 0644 → 0600``. Empty if the headline contains it."""
    is_presence = difference.property == "ensure" and difference.kind is not DifferenceKind.CHANGED
    if is_presence and not difference.path and change.kind in (Kind.ADDED, Kind.REMOVED):
        return ""
    return people([difference.map_texts(one_line)], arrow=arrow)


def unchanged_line(preview: Preview) -> str:
    """Return the line about unchanged machines. Empty without any."""
    if not preview.unchanged:
        return ""
    pieces = (
        ("no changes", [name for name in preview.unchanged if name not in preview.incomplete]),
        (
            "no known changes, but facts are missing",
            [name for name in preview.unchanged if name in preview.incomplete],
        ),
    )
    return "; ".join(
        f"{of_machines(len(names), preview.total)} ({machines(names)}): {what}"
        for what, names in pieces
        if names
    )


def still_failing_lines(preview: Preview) -> list[str]:
    """Return failures that exist before and after, because *nothing changes* does not mean *no failures*."""
    return [
        f"{of_machines(len(found.machines), preview.total)} ({machines(found.machines)}):"
        f" {one_line(found.change.reference)} {_as_before(found.change)}: {one_line(found.change.why)}"
        for found in preview.still_failing
    ]


def _as_before(change: Change) -> str:
    return f"{change.kind}, as before" if change.kind is Kind.LATE else "fails as before"


def note_lines(preview: Preview) -> list[str]:
    """Return all notes, one line each. A note may name many programs."""
    missing = [
        f"the bundle requires the fact {one_line(fact)}, which is missing in the store for "
        f"{of_machines(len(names), preview.total)} ({machines(names)}): "
        f"add it to `reports: facts` in their configuration"
        for fact, names in preview.missing.items()
    ]
    return [one_line(note, 1000) for note in (*missing, *preview.notes)]


def one_line(text: str, most: int = _LONGEST_SENTENCE) -> str:
    """Return a value in one line of at most ``most`` characters, without control characters."""
    result = visible_line(text)
    return result if len(result) <= most else f"{result[:most]}…"


_MOST_LINES = 200
"""Maximum lines of one diff."""
_LONGEST_DIFF_LINE = 400
"""Maximum characters of a diff line."""


def as_text(preview: Preview, *, colours: bool = False) -> str:
    """Return the whole preview, with a final line end. ``colours`` are for its diffs."""
    return "".join(f"{line}\n" for line in _lines(preview, coloured_diff_line if colours else str))


def _lines(preview: Preview, paint: Callable[[str], str]) -> Iterator[str]:
    for group in preview.groups:
        yield f"{title(group, preview)}:"
        for change in group.changes:
            yield from (f"  {line}" for line in _change_as_text(change, paint))
        yield ""
    if line := unchanged_line(preview):
        yield line
    yield from still_failing_lines(preview)
    for note in note_lines(preview):
        yield f"note: {note}"


def _change_as_text(change: Change, paint: Callable[[str], str]) -> Iterator[str]:
    yield headline(change)
    for difference in change.differences:
        if line := difference_line(change, difference):
            yield f"  {line}"
        yield from (f"    {paint(line)}" for line in shown_diff(difference.diff))


def shown_diff(diff: str, most: int = _MOST_LINES) -> list[str]:
    """Return the first lines of a diff, and the number of omitted lines, without terminal control characters."""
    lines = diff.split("\n")
    lines = lines[:-1] if not lines[-1] else lines
    results = [visible(_shortened(line)) for line in lines[:most]]
    return results if len(lines) <= most else [*results, f"… {len(lines) - most} more lines"]


def _shortened(line: str) -> str:
    remaining = len(line) - _LONGEST_DIFF_LINE
    return line if remaining <= 0 else f"{line[:_LONGEST_DIFF_LINE]}… {remaining} more characters"


# Markdown.

MARKDOWN_LIMIT = 60_000
_MOST_SAID = 20
"""Maximum notes, and maximum failures that exist before and after."""


class _Extent(msgspec.Struct, frozen=True):
    """The visible part of a group."""

    lines: int
    """Maximum lines of each diff."""
    changes: int = 100_000
    has_details: bool = True
    """Whether properties and files are shown."""


_EXTENTS = (_Extent(80), _Extent(20), _Extent(5), _Extent(0), _Extent(0, 50, has_details=False))
"""The first extent that fits is used, so that a group with long diffs still lists its changes."""


def as_markdown(preview: Preview) -> str:
    """Return the whole comment."""
    pieces = [_summary(preview)]
    room = MARKDOWN_LIMIT - len(pieces[0]) - 200
    for number, group in enumerate(preview.groups):
        sections = (_markdown_section(group, preview, extent) for extent in _EXTENTS)
        section = next((section for section in sections if len(section) < room), None)
        if section is None:
            pieces.append(f"… and {len(preview.groups) - number} more groups: too long for a comment\n")
            break
        room -= len(section) + 1
        pieces.append(section)
    return "\n".join(pieces)


def _summary(preview: Preview) -> str:
    changed = sum(len(group.machines) for group in preview.groups)
    results = [f"**{of_machines(changed, preview.total)}** would change."]
    if line := unchanged_line(preview):
        results.append(_markdown_code_span(line))
    results += _some(still_failing_lines(preview), "failures")
    results += _some(note_lines(preview), "notes")
    return "\n\n".join(results) + "\n"


def _some(lines: Sequence[str], description: str) -> Iterator[str]:
    yield from map(_markdown_code_span, lines[:_MOST_SAID])
    if len(lines) > _MOST_SAID:
        yield f"… and {len(lines) - _MOST_SAID} more {description}"


def _markdown_section(group: Group, preview: Preview, extent: _Extent) -> str:
    lines = [f"### {of_machines(len(group.machines), preview.total)}", ""]
    lines += [_markdown_code_span(machines(group.machines, 10)), ""]
    for change in group.changes[: extent.changes]:
        lines += _change_as_markdown(change, extent)
    if (remaining := len(group.changes) - extent.changes) > 0:
        lines.append(f"* … and {remaining} more changes")
    if extent is not _EXTENTS[0]:
        lines += ["", "Shortened: too long for a comment."]
    return "\n".join((*lines, ""))


def _change_as_markdown(change: Change, extent: _Extent) -> Iterator[str]:
    yield f"* {_markdown_code_span(headline(change))}"
    if not extent.has_details:
        return
    for difference in change.differences:
        if line := difference_line(change, difference, ARROW):
            yield f"  * {_markdown_code_span(line)}"
        if difference.diff:
            yield from (f"    {line}" for line in ("", *_markdown_fence(difference.diff, extent.lines), ""))


def _markdown_fence(diff: str, most: int) -> list[str]:
    lines = shown_diff(diff, most)
    fence = "`" * max(3, 1 + _longest_run("\n".join(lines)))
    return [f"{fence}diff", *lines, fence]


def _markdown_code_span(text: str) -> str:
    ticks = "`" * (1 + _longest_run(text))
    return f"{ticks} {text} {ticks}" if "`" in text else f"`{text}`"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


# JSON.


def as_json(preview: Preview) -> str:
    """Return the indented document. ``docs/preview.md`` describes its keys."""
    return visible_json(json.dumps(_plain_preview(preview), indent=2, ensure_ascii=False)) + "\n"


def _plain_preview(preview: Preview) -> dict[str, Any]:
    return {
        "total": preview.total,
        "changes": preview.changes,
        "fails": preview.fails,
        "groups": [
            {"machines": group.machines, "changes": msgspec.to_builtins(group.changes)}
            for group in preview.groups
        ],
        "unchanged": preview.unchanged,
        "still_failing": [
            {
                "machines": found.machines,
                "reference": found.change.reference,
                "why": found.change.why,
                "problems": msgspec.to_builtins(found.change.problems),
            }
            for found in preview.still_failing
        ],
        "missing_facts": preview.missing,
        "notes": preview.notes,
    }
