"""The ``block`` resource: lines between two markers (``docs/resources/block.md``).

* Each marker is a whole line and occurs once, in this order. Any other combination is an error.
* An existing block keeps its position.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from foundation.differences import ABSENT, changed, presence
from puller.errors import ResourceError
from puller.resources.base import Declared, PropertyError, missing_property
from puller.resources.content_sources import sha256, short
from puller.resources.edits.edit import Edit, EditProperties
from puller.resources.edits.edit_receipts import Made
from puller.resources.edits.file_text import (
    Edited,
    Text,
    check_one_line,
    check_places,
    in_words,
    of_blocks,
    place_for,
    printable,
)

_MARK = "{mark}"


class BlockProperties(EditProperties, frozen=True):
    """The properties of a block."""

    content: str | None = None
    """The lines of the block. An empty content removes the block."""
    marker: str | None = None
    """The line before and after the block, by default ``# {mark} puller NAME``. ``{mark}`` becomes BEGIN and END."""
    insert_after: str | None = None
    """Insert a new block after the last line that matches this pattern, or at ``EOF`` (default)."""
    insert_before: str | None = None
    """Insert a new block before the first line that matches this pattern, or at ``BOF``."""

    @property
    def template(self) -> str:
        """The declared marker, or the default one with the block's name."""
        return f"# {_MARK} puller {self.name}" if self.marker is None else self.marker

    @property
    def markers(self) -> tuple[str, str]:
        """The lines before and after the block."""
        marker = self.template
        return marker.replace(_MARK, "BEGIN"), marker.replace(_MARK, "END")

    @property
    def lines(self) -> list[str]:
        """The lines between the markers. A final newline makes no difference."""
        content = (self.content or "").removesuffix("\n")
        return content.split("\n") if content else []

    def lines_in(self, text: Text) -> list[str]:
        """Return the lines in the form of ``text``: in a CRLF file the CR belongs to the end of a line."""
        return [line.removesuffix("\r") for line in self.lines] if text.is_crlf else self.lines


class Block(Edit[BlockProperties]):
    """A block of lines in a file."""

    type_name = "block"
    properties_type = BlockProperties
    unused = {"absent": frozenset({"content"})}  # noqa: RUF012  ClassVar in the base class
    secret_properties = frozenset({"content"})

    @classmethod
    def edit(cls, properties: BlockProperties, text: Text) -> Edited | None:
        place = _find(properties, text)
        if properties.content is None and properties.ensure == "present":  # only the state is requested
            return None
        lines = properties.lines_in(text) if properties.ensure == "present" else []
        if not lines:
            return None if place is None else _without(text, *place)
        if place is None:
            begin, end = properties.markers
            index = place_for(text, properties.insert_after, properties.insert_before)
            made = text.inserted(index, [begin, *lines, end])
            return Edited(made, presence(ABSENT, "present"))
        return _replaced(text, *place, lines)

    @classmethod
    def finds(cls, properties: BlockProperties, text: Text) -> bool:
        return _find(properties, text) is not None

    @classmethod
    def shown(cls, properties: BlockProperties, text: Text) -> dict[str, Any]:
        place = _find(properties, text)
        if place is None:
            return {"marker": properties.markers[0]}
        begin, end = place
        content = "".join(f"{line}\n" for line in text.lines[begin + 1 : end])
        return {
            "marker": properties.markers[0],
            "begin": begin + 1,
            "end": end + 1,
            "content": printable(content),
        }

    @classmethod
    def made(cls, properties: BlockProperties) -> "Made":
        return Made(properties.file, marker=properties.template)

    @classmethod
    def check(cls, properties: BlockProperties) -> Iterator[PropertyError]:
        yield from super().check(properties)
        yield from check_places(properties.insert_after, properties.insert_before)
        yield from _check_marker(properties)
        if properties.content is None and properties.ensure == "present":
            yield missing_property(
                "content", "is missing", because=["ensure"], hint="it is required unless ensure is absent"
            )
        if "\0" in (properties.content or ""):
            yield PropertyError("content", "has a NUL in it")
        for line in sorted(
            {*properties.markers}.intersection(each.removesuffix("\r") for each in properties.lines)
        ):
            yield PropertyError("content", f"has the marker {line!r} in it", because=["marker"])

    @classmethod
    def contradictions(cls, declared: Declared) -> Iterator[tuple[Any, Any, str]]:
        return of_blocks(declared(cls.type_name), declared.spellings)


def _find(properties: BlockProperties, text: Text) -> tuple[int, int] | None:
    """Return the indexes of the markers. Raises ``ResourceError`` unless each marker occurs once, in order."""
    (begin, end), count = properties.markers, (1, 1)
    begins, ends = text.indexes_of(begin), text.indexes_of(end)
    if not begins and not ends:
        return None
    if (len(begins), len(ends)) == count and begins[0] < ends[0]:
        return begins[0], ends[0]
    results = [_at(marker, indexes) for marker, indexes in ((begin, begins), (end, ends))]
    raise ResourceError(f"{', '.join(results)}", expected="one of each, in this order")


def _at(marker: str, indexes: Sequence[int]) -> str:
    return f"{marker!r} is at {in_words(indexes)}" if indexes else f"{marker!r} is missing"


def _without(text: Text, begin: int, end: int) -> Edited:
    difference = presence(f"present at {in_words([begin, end])}", ABSENT)
    return Edited(text.without(range(begin, end + 1)), difference)


def _replaced(text: Text, begin: int, end: int, lines: list[str]) -> Edited | None:
    old = text.lines[begin + 1 : end]
    if list(old) == lines:
        return None
    made = text.without(range(begin + 1, end)).inserted(begin + 1, lines)
    return Edited(made, changed("content", *map(_checksum, (old, lines))))


def _checksum(lines: Sequence[str]) -> str:
    return short(sha256(["\n".join(lines).encode("utf-8", "surrogateescape")]))


def _check_marker(properties: BlockProperties) -> Iterator[PropertyError]:
    if properties.marker is None:
        yield from check_one_line("name", properties.name)
    else:
        if _MARK not in properties.marker:
            yield PropertyError("marker", f"is {properties.marker!r}", expected=f"a line with {_MARK}")
        yield from check_one_line("marker", properties.marker)
