"""The lines of a text, and the text with some of them changed.

* Only LF ends a line. A file whose first line ends with CRLF has CRLF on lines that are new or replaced, and the CR is
  no part of a line's content.
* A line that is not changed keeps its ending. What comes behind a last line without one completes that line first.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from puller.resources.edits.formats.remembered import remembered


class Lines(msgspec.Struct, frozen=True):
    """A text as lines, counted from 0."""

    contents: tuple[str, ...]
    """Without their endings."""
    endings: tuple[str, ...]
    """LF or CRLF; of the last line also nothing."""
    ending: str
    """That of a new line."""


@remembered
def lines_of(text: str) -> Lines:
    """The lines of a text; an empty one has none."""
    contents = text.split("\n")
    if not contents[-1]:
        contents.pop()
        endings = ["\n"] * len(contents)
    else:
        endings = ["\n"] * (len(contents) - 1) + [""]
    if ending_of(text) != "\r\n":
        return Lines(tuple(contents), tuple(endings), "\n")
    for index, content in enumerate(contents):
        if endings[index] and content.endswith("\r"):
            contents[index], endings[index] = content[:-1], "\r\n"
    return Lines(tuple(contents), tuple(endings), "\r\n")


def ending_of(text: str) -> str:
    """How a new line of the text ends."""
    end = text.find("\n")
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def edited(
    lines: Lines,
    *,
    replaced: Mapping[int, str] | None = None,
    removed: Collection[int] = (),
    at: int = 0,
    inserted: Sequence[str] = (),
) -> str:
    """The text with lines ``replaced`` and ``removed``, by number, and others ``inserted`` before line ``at``."""
    replaced, gone = replaced or {}, frozenset(removed)
    pieces: list[str] = []
    for index, (content, ending) in enumerate(zip(lines.contents, lines.endings, strict=True)):
        if index == at:
            pieces += (line + lines.ending for line in inserted)
        if index in replaced:
            pieces.append(replaced[index] + lines.ending)
        elif index not in gone:
            pieces.append(content + ending)
    if at >= len(lines.contents) and inserted:
        if pieces and not pieces[-1].endswith("\n"):
            pieces[-1] += lines.ending
        pieces += (line + lines.ending for line in inserted)
    return "".join(pieces)
