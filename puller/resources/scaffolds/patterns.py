"""Patterns for the names of files, as Go's ``filepath.Match`` has them (``docs/templates.md``).

``*`` is any text, ``?`` any character, ``[a-z]`` and ``[^a-z]`` one of a class or none of it; a backslash takes the
special meaning from what follows. A leading dot is a character like any other.
"""

import re
from functools import cache

from hiera.regex import starred


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression for a whole name; raises ``ValueError``."""
    pieces: list[str | None] = []
    position = 0
    while position < len(pattern):
        piece, position = _piece(pattern, position)
        pieces.append(piece)
    return re.compile(starred(pieces), re.DOTALL)


def _piece(pattern: str, position: int) -> tuple[str | None, int]:
    """The piece at a position as a regular expression (None for a star), and where the next begins."""
    character = pattern[position]
    if character in "*?":
        return (None if character == "*" else "."), position + 1
    if character == "[":
        return _character_class(pattern, position + 1)
    literal, after = _character(pattern, position)
    return re.escape(literal), after


def _character(pattern: str, position: int) -> tuple[str, int]:
    if pattern.startswith("\\", position):
        position += 1
    if position == len(pattern):
        raise ValueError("ends in a backslash or within brackets")
    return pattern[position], position + 1


def _character_class(pattern: str, position: int) -> tuple[str, int]:
    negated = pattern.startswith("^", position)
    position += negated
    ranges: list[str] = []
    while not (pattern.startswith("]", position) and ranges):
        first, position = _of_class(pattern, position)
        last = first
        if pattern.startswith("-", position):
            last, position = _of_class(pattern, position + 1)
        if last < first:
            raise ValueError(f"has the range {first}-{last}, which is empty")
        ranges.append(f"{re.escape(first)}-{re.escape(last)}")
    return f"[{'^' * negated}{''.join(ranges)}]", position + 1


def _of_class(pattern: str, position: int) -> tuple[str, int]:
    if pattern.startswith(("]", "-"), position):
        raise ValueError(f"has {pattern[position]!r} in brackets where a character is wanted")
    return _character(pattern, position)
