"""Edits that cannot all be content, found when the manifest is read: of lines, of blocks, and of files as a whole."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from puller.errors import ResourceError
from puller.resources.base import Declared
from puller.resources.edits.patterns import is_in
from puller.values.identical import identical

_CONTENT_OF_FILES = ("content", "source", "template")

Found = Iterator[tuple[Any, Any, str]]


def with_others(type_name: str, declared: Declared) -> Found:
    """Edits of a file that another resource makes what it wants, whatever is in it."""
    files = {file.name: file for file in declared("file")}
    for properties in declared(type_name) if files else ():
        file = files.get(properties.file)
        if file is not None and (what := _makes_whole(file, properties)):
            yield file, properties, what
    scaffolds = [
        scaffold for scaffold in declared("scaffold") if scaffold.ensure == "present" and scaffold.purge
    ]
    for properties in declared(type_name) if scaffolds else ():
        for scaffold in scaffolds:
            if properties.ensure == "present" and properties.file.startswith(f"{scaffold.name.rstrip('/')}/"):
                yield scaffold, properties, "edits a file where another resource leaves only what is its own"


def _makes_whole(file: Any, edit: Any) -> str:
    """A sentence about an edit of a file that is made whole in every run; empty for one that is not."""
    if file.ensure in ("absent", "directory"):
        return f"edits a file that is to be {file.ensure}" if edit.ensure == "present" else ""
    # With ``exists`` it is written once: the edits are made after that.
    given = (
        name for name in _CONTENT_OF_FILES if file.ensure == "present" and getattr(file, name) is not None
    )
    return next((f"edits a file whose {name} is managed as a whole" for name in given), "")


def of_lines(lines: Sequence[Any]) -> Found:
    """One line that is to be there and to be absent, and what matches that is to be two different lines."""
    for group in _by_file(lines):
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


def of_blocks(blocks: Sequence[Any]) -> Found:
    """One marker of two blocks."""
    for group in _by_file(blocks):
        seen: dict[tuple[str, str], Any] = {}
        for properties in group:
            first = seen.setdefault(properties.markers, properties)
            if first is not properties and "present" in (first.ensure, properties.ensure):
                yield first, properties, f"has the marker {properties.markers[0]!r}, too"


def of_settings(settings: Sequence[Any]) -> Found:
    """One setting with two values, or present and absent."""
    for group in _by_file(settings):
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


def _by_file(properties: Sequence[Any]) -> list[list[Any]]:
    """Those of each file of which there are several."""
    found: dict[str, list[Any]] = {}
    for one in properties:
        found.setdefault(one.file, []).append(one)
    return [group for group in found.values() if len(group) > 1]
