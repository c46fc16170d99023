"""A preview as text: a block for each group, with its diffs."""

from collections.abc import Callable, Iterator

from puller.authoring.preview.differences import Change
from puller.authoring.preview.formats import sentences
from puller.authoring.preview.groups import Preview
from puller.values.colour import coloured_diff_line
from puller.values.visible import visible

_MOST_LINES = 200
"""Lines of one diff that are shown."""
_LONGEST_LINE = 400
"""Characters of one of them."""


def text(preview: Preview, *, colours: bool = False) -> str:
    """The whole, with the end of its last line; ``colours`` are for its diffs."""
    return "".join(f"{line}\n" for line in _lines(preview, coloured_diff_line if colours else str))


def _lines(preview: Preview, paint: Callable[[str], str]) -> Iterator[str]:
    for group in preview.groups:
        yield f"{sentences.title(group, preview)}:"
        for change in group.changes:
            yield from (f"  {line}" for line in _change(change, paint))
        yield ""
    if line := sentences.unchanged_line(preview):
        yield line
    yield from sentences.still_failing_lines(preview)
    for note in sentences.note_lines(preview):
        yield f"note: {note}"


def _change(change: Change, paint: Callable[[str], str]) -> Iterator[str]:
    yield sentences.headline(change)
    for one in change.differences:
        if line := sentences.difference_line(change, one):
            yield f"  {line}"
        yield from (f"    {paint(line)}" for line in shown_diff(one.diff))


def shown_diff(diff: str, most: int = _MOST_LINES) -> list[str]:
    """The first lines of a diff, and how much there is more; without characters that steer a terminal."""
    lines = diff.split("\n")
    lines = lines[:-1] if not lines[-1] else lines
    found = [visible(_shortened(line)) for line in lines[:most]]
    return found if len(lines) <= most else [*found, f"… {len(lines) - most} more lines"]


def _shortened(line: str) -> str:
    left = len(line) - _LONGEST_LINE
    return line if left <= 0 else f"{line[:_LONGEST_LINE]}… {left} more characters"
