"""The ``line`` and ``block`` resources: a line of a file, and lines between two markers.

The ``line`` resource (``docs/resources/line.md``):

* An equal line anywhere in the file is enough. Existing lines keep their position.
* A pattern with several matches is an error, unless the declaration includes all of them.

The ``block`` resource (``docs/resources/block.md``):

* Each marker is a whole line and occurs once, in this order. Any other combination is an error.
* An existing block keeps its position.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from foundation.differences import ABSENT, changed, presence
from puller.errors import ResourceError
from puller.resources.base import Declared, PropertyError, missing_property
from puller.resources.content_sources import sha256, short
from puller.resources.edits.edit import Edit, EditProperties, unsaid
from puller.resources.edits.file_text import (
    Edited,
    Text,
    check_one_line,
    check_pattern,
    check_places,
    compiled,
    expanded,
    in_short,
    in_words,
    matching,
    of_blocks,
    of_lines,
    place_for,
    printable,
)
from puller.resources.edits.planned_edits import Made, checksum_of

_MORE_LINES = re.compile(r"(?<!\\)(?:\\\\)*\\[nr0]")
"""An escape that Python replaces with a line end or NUL."""


class LineProperties(EditProperties, frozen=True):
    """The properties of a line."""

    line: str | None = None
    """The line without its end."""
    match: str | None = None
    """A pattern (Python's ``re``) for the line to replace. For ``absent``: the lines to remove."""
    match_all: bool = False
    """Replace each matching line."""
    insert_after: str | None = None
    """Insert a new line after the last line that matches this pattern, or at ``EOF`` (default)."""
    insert_before: str | None = None
    """Insert a new line before the first line that matches this pattern, or at ``BOF``."""
    back_references: bool = False
    r"""Replace ``\1``, ``\g<1>`` and ``\g<name>`` in ``line`` by the groups of ``match``."""


class Line(Edit[LineProperties]):
    """A line of a file."""

    type_name = "line"
    properties_type = LineProperties
    secret_properties = frozenset({"line"})

    @classmethod
    def edit(cls, properties: LineProperties, text: Text) -> Edited | None:
        if properties.ensure == "absent":
            return _without(text, _found_lines(properties, text))
        line, match = properties.line, properties.match
        if line is None:  # only the state is requested
            return None
        if properties.back_references:
            return _expanded(properties, text, matching(text, match or ""))
        if properties.match_all and (matches := matching(text, match or "")):
            return _replaced(text, dict.fromkeys([*matches, *text.indexes_of(line)], line))
        if equal := text.indexes_of(line):
            return _replaced(text, {equal[-1]: line})
        if match is not None and (matches := matching(text, match)):
            _require_one(matches)
            return _replaced(text, {matches[0]: line})
        index = place_for(text, properties.insert_after, properties.insert_before)
        return Edited(text.inserted(index, [line]), presence(ABSENT, "present"))

    @classmethod
    def finds(cls, properties: LineProperties, text: Text) -> bool:
        return _is_ignored_by_sshd(properties) or bool(_found_lines(properties, text))

    @classmethod
    def shown(cls, properties: LineProperties, text: Text) -> dict[str, Any]:
        if _is_ignored_by_sshd(properties):
            return {"count": len(text.lines)}
        result = _found_lines(properties, text)
        return {"lines": [{"number": index + 1, "text": printable(text.lines[index])} for index in result]}

    @classmethod
    def unsaid(cls, properties: LineProperties) -> str:
        return unsaid("line", properties.name, "--line TEXT") if _is_ignored_by_sshd(properties) else ""

    @classmethod
    def made(cls, properties: LineProperties) -> "Made":
        return Made(properties.file, lines=(checksum_of(properties.line or ""),))

    @classmethod
    def check(cls, properties: LineProperties) -> Iterator[PropertyError]:
        yield from super().check(properties)
        yield from check_pattern("match", properties.match)
        yield from check_places(properties.insert_after, properties.insert_before)
        if properties.line is not None:
            yield from check_one_line("line", properties.line)
        yield from _check_company(properties)

    @classmethod
    def contradictions(cls, declared: Declared) -> Iterator[tuple[Any, Any, str]]:
        return of_lines(declared(cls.type_name), declared.spellings)


def _is_ignored_by_sshd(properties: LineProperties) -> bool:
    """Return whether only the current state is requested (``puller state``)."""
    return properties.line is None and properties.match is None


def _found_lines(properties: LineProperties, text: Text) -> list[int]:
    """Return the indexes of the declared lines."""
    equal = () if properties.line is None else text.indexes_of(properties.line)
    matches = () if properties.match is None else matching(text, properties.match)
    return sorted({*equal, *matches})


def _without(text: Text, indexes: Sequence[int]) -> Edited | None:
    if not indexes:
        return None
    return Edited(text.without(indexes), presence(f"present at {in_words(indexes)}", ABSENT))


def _replaced(text: Text, desired: dict[int, str]) -> Edited | None:
    """Return the text with other lines at these indexes. If a desired line is the last one, it gets a line end."""
    lines, last = text.lines, len(text.lines) - 1
    others = sorted(index for index, line in desired.items() if lines[index] != line)
    unended = [last] if last in desired and not text.is_ended else []
    if not others and not unended:
        return None
    made = text.replaced({index: desired[index] for index in [*others, *unended]})
    if not others:
        return Edited(made, changed("line", "without a newline at its end", "with one"))
    current = in_short(lines[others[0]]) if len(others) == 1 else in_words(others)
    return Edited(made, changed("line", current, in_short(desired[others[0]])))


def _expanded(properties: LineProperties, text: Text, matches: Sequence[int]) -> Edited | None:
    """Return the text with the groups of each match filled in. Without a match, nothing changes."""
    desired = expanded(text, properties.match or "", properties.line or "", matches)
    edited = _replaced(text, desired)
    if edited is not None and not properties.match_all:
        _require_one(matches)
    return edited


def _require_one(matches: Sequence[int]) -> None:
    if len(matches) > 1:
        raise ResourceError(f"{in_words(matches)} match", hint="narrow match or set match_all")


def _check_company(properties: LineProperties) -> Iterator[PropertyError]:
    """Yield errors about missing properties that others require."""
    has_line, has_match = properties.line is not None, properties.match is not None
    if properties.ensure == "present" and not has_line:
        yield missing_property(
            "line", "is missing", because=["ensure"], hint="it is required unless ensure is absent"
        )
    if properties.ensure == "absent" and not has_line and not has_match:
        yield missing_property(
            "line", "is missing, and match too", because=["match"], hint="one of them is required"
        )
    for name in ("match_all", "back_references"):
        if getattr(properties, name) and not has_match:
            yield missing_property("match", "is missing", because=[name], hint=f"it is required with {name}")
    if properties.back_references and has_line and has_match:
        yield from _check_references(properties.line or "", properties.match or "")


def _check_references(template: str, pattern: str) -> Iterator[PropertyError]:
    """Yield errors of a line with unknown references, or with escapes for line ends."""
    because = ["match", "back_references"]
    try:
        search = compiled(pattern)
    except re.error:  # check_pattern reports it
        return
    try:
        search.sub(template, "")
    except (re.error, IndexError) as error:
        yield PropertyError("line", f"is {template!r}: {error}", because=because)
    if _MORE_LINES.search(template):
        yield PropertyError("line", f"is {template!r}", because=because, expected="one line, without NUL")


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
        place = _find_block(properties, text)
        if properties.content is None and properties.ensure == "present":  # only the state is requested
            return None
        lines = properties.lines_in(text) if properties.ensure == "present" else []
        if not lines:
            return None if place is None else _without_block(text, *place)
        if place is None:
            begin, end = properties.markers
            index = place_for(text, properties.insert_after, properties.insert_before)
            made = text.inserted(index, [begin, *lines, end])
            return Edited(made, presence(ABSENT, "present"))
        return _replaced_block(text, *place, lines)

    @classmethod
    def finds(cls, properties: BlockProperties, text: Text) -> bool:
        return _find_block(properties, text) is not None

    @classmethod
    def shown(cls, properties: BlockProperties, text: Text) -> dict[str, Any]:
        place = _find_block(properties, text)
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


def _find_block(properties: BlockProperties, text: Text) -> tuple[int, int] | None:
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


def _without_block(text: Text, begin: int, end: int) -> Edited:
    difference = presence(f"present at {in_words([begin, end])}", ABSENT)
    return Edited(text.without(range(begin, end + 1)), difference)


def _replaced_block(text: Text, begin: int, end: int, lines: list[str]) -> Edited | None:
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
