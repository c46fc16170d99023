"""A preview as text: a block for each group, with its diffs."""

from collections.abc import Iterator

from puller.authoring.preview.differences import Change
from puller.authoring.preview.formats import sentences
from puller.authoring.preview.groups import Preview

_MOST_LINES = 200
"""Lines of one diff that are shown."""


def text(preview: Preview) -> str:
    """The whole, with the end of its last line."""
    return "".join(f"{line}\n" for line in _lines(preview))


def _lines(preview: Preview) -> Iterator[str]:
    for group in preview.groups:
        yield f"{sentences.title(group, preview)}:"
        for change in group.changes:
            yield from (f"  {line}" for line in _change(change))
        yield ""
    if line := sentences.unchanged_line(preview):
        yield line
    yield from sentences.still_failing_lines(preview)
    for note in preview.notes:
        yield f"note: {note}"


def _change(change: Change) -> Iterator[str]:
    yield sentences.headline(change)
    for one in change.properties:
        yield f"  {sentences.property_line(one)}"
    for content in change.contents:
        if line := sentences.content_line(change, content):
            yield f"  {line}"
        yield from (f"    {line}" for line in shown_diff(content.diff))


def shown_diff(diff: str, most: int = _MOST_LINES) -> list[str]:
    """The first lines of a diff, and how many there are more; without characters that steer a terminal."""
    found = ["".join(c if c.isprintable() or c == "\t" else "?" for c in line) for line in diff.split("\n")]
    found = found[:-1] if found and not found[-1] else found
    return found if len(found) <= most else [*found[:most], f"… {len(found) - most} more lines"]
