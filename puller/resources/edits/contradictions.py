"""Edits of one type and one file that contradict each other, found when the manifest is read.

Contradictions with other types follow from claims (``puller.resources.claims``). A file is known by its canonical path.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from puller.errors import ResourceError
from puller.resources.edits.patterns import is_in
from puller.resources.spellings import Spellings
from puller.values.identical import identical

Found = Iterator[tuple[Any, Any, str]]


def of_lines(lines: Sequence[Any], spellings: Spellings) -> Found:
    """One line that is to be there and to be absent, and what matches that is to be two different lines."""
    for group in _by_file(lines, spellings):
        by_match: dict[str, Any] = {}
        present = [one for one in group if one.ensure == "present"]
        for properties in present:
            if properties.match is None:
                continue
            first = by_match.setdefault(properties.match, properties)
            if first.line != properties.line:
                yield first, properties, "wants another line for the same match"
        kept = [one for one in present if not one.back_references]
        for properties in group:
            if properties.ensure == "absent":
                yield from (
                    (one, properties, "takes away a line that is to be present")
                    for one in kept
                    if _takes(properties, one)
                )


def of_blocks(blocks: Sequence[Any], spellings: Spellings) -> Found:
    """One marker of two blocks."""
    for group in _by_file(blocks, spellings):
        seen: dict[tuple[str, str], Any] = {}
        for properties in group:
            first = seen.setdefault(properties.markers, properties)
            if first is not properties and "present" in (first.ensure, properties.ensure):
                yield first, properties, f"has the marker {properties.markers[0]!r}, too"


def of_settings(settings: Sequence[Any], spellings: Spellings) -> Found:
    """One setting with two values, or present and absent."""
    for group in _by_file(settings, spellings):
        seen: dict[tuple[object, ...], Any] = {}
        for properties in group:
            first = seen.setdefault(properties.identity, properties)
            if UNSET in (first.value, properties.value) and first.ensure == properties.ensure:
                continue  # absent, or without a value, which is said already
            if first.ensure != properties.ensure:
                yield first, properties, f"wants the same setting {properties.ensure}"
            elif properties.ensure == "present" and not identical(first.wanted, properties.wanted):
                yield first, properties, "wants another value of the same setting"


def _takes(absent: Any, present: Any) -> bool:
    """Whether a line that is to be absent is the one that is to be present."""
    if absent.line == present.line:
        return True
    try:
        return absent.match is not None and is_in(absent.match, present.line)
    except ResourceError:  # a pattern without an end, which is the failure of its own resource
        return False


def _by_file(edits: Sequence[Any], spellings: Spellings) -> list[list[Any]]:
    """Return the edits of each file that has several. An edit follows a link at its path."""
    groups: dict[str, list[Any]] = {}
    for properties in edits:
        groups.setdefault(spellings.directory(properties.file), []).append(properties)
    return [group for group in groups.values() if len(group) > 1]
