"""The ``line`` resource: one line of a file, present or absent (``docs/resources/line.md``).

* An equal line anywhere in the file is enough. Existing lines keep their position.
* A pattern with several matches is an error, unless the declaration includes all of them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from foundation.differences import ABSENT, changed, presence
from puller.errors import ResourceError
from puller.resources.base import Declared, PropertyError, missing_property
from puller.resources.edits.edit import Edit, EditProperties, unsaid
from puller.resources.edits.edit_receipts import Made, checksum_of
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
    of_lines,
    place_for,
    printable,
)

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
            return _without(text, _found(properties, text))
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
        return _is_ignored_by_sshd(properties) or bool(_found(properties, text))

    @classmethod
    def shown(cls, properties: LineProperties, text: Text) -> dict[str, Any]:
        if _is_ignored_by_sshd(properties):
            return {"count": len(text.lines)}
        result = _found(properties, text)
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


def _found(properties: LineProperties, text: Text) -> list[int]:
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
