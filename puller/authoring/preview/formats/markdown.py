"""A preview for a merge request: a section for each group, diffs in fences that nothing within them can close.

* What comes out of bundles and facts stands in code spans and fences only, longer than any run of backticks in it.
* A comment is at most ``LIMIT`` characters, as services refuse longer ones; what is left out is counted.
"""

import re
from collections.abc import Iterator

from puller.authoring.preview.differences import Change
from puller.authoring.preview.formats import sentences
from puller.authoring.preview.formats.text import shown_diff
from puller.authoring.preview.groups import Group, Preview

LIMIT = 60_000
_MOST_LINES = 80
_LONGEST_LINE = 400


def text(preview: Preview) -> str:
    """The whole comment."""
    parts = [_summary(preview)]
    room = LIMIT - len(parts[0]) - 200
    for number, group in enumerate(preview.groups):
        section = _section(group, preview)
        if (room := room - len(section)) < 0:
            parts.append(f"… and {len(preview.groups) - number} more groups: too long for a comment\n")
            break
        parts.append(section)
    return "\n".join(parts)


def _summary(preview: Preview) -> str:
    changed = sum(len(group.machines) for group in preview.groups)
    found = [f"**{sentences.counted(changed, preview.total)}** would change."]
    if line := sentences.unchanged_line(preview):
        found.append(_span(line))
    found += map(_span, (*sentences.still_failing_lines(preview)[:20], *preview.notes))
    return "\n\n".join(found) + "\n"


def _section(group: Group, preview: Preview) -> str:
    lines = [f"### {sentences.counted(len(group.machines), preview.total)}", ""]
    lines += [_span(sentences.machines(group.machines, 10)), ""]
    for change in group.changes:
        lines += _change(change)
    return "\n".join((*lines, ""))


def _change(change: Change) -> Iterator[str]:
    yield f"* {_span(sentences.headline(change))}"
    for one in change.properties:
        yield f"  * {_span(sentences.property_line(one))}"
    for content in change.contents:
        if line := sentences.content_line(change, content):
            yield f"  * {_span(line)}"
        if content.diff:
            yield from (f"    {line}" for line in ("", *_fenced(content.diff), ""))


def _fenced(diff: str) -> list[str]:
    lines = [line[:_LONGEST_LINE] for line in shown_diff(diff, _MOST_LINES)]
    fence = "`" * max(3, 1 + _longest_run("\n".join(lines)))
    return [f"{fence}diff", *lines, fence]


def _span(text: str) -> str:
    ticks = "`" * (1 + _longest_run(text))
    return f"{ticks} {text} {ticks}" if "`" in text else f"`{text}`"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
