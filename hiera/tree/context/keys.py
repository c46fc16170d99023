"""Keys: their text, split into a root and the segments that dig into its value.

* A key without quotes and dots is its own root, whatever else it holds.
* A quoted segment is taken literally; one that looks like a number is an integer, and indexes lists.
* The text before the first ``::`` of the root names the module.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from hiera.errors import LookupFailure
from hiera.tree.context.absent import ABSENT, Absent
from hiera.tree.context.explain import Step
from hiera.tree.ruby import values

Segment = str | int

_SEGMENT = re.compile(r"""\s*"[^"]+"\s*|\s*'[^']+'\s*|[^'".]+""", re.ASCII)
_INTEGER = re.compile(r"^:?[+-]?[0-9]+$", re.MULTILINE)
MAX_DIGITS: Final = 3000  # of one number; Python refuses to read more than 4300
_BLANKS: Final = "\0\t\n\v\f\r "


class Key(NamedTuple):
    """``a.b.0`` is the root ``a`` and the segments ``b`` and ``0``."""

    text: str
    root: str
    segments: tuple[Segment, ...]

    @property
    def module(self) -> str | None:
        """The module whose data may hold the key, if any; with a leading ``::`` no module can have the name."""
        name, found, _ = self.root.partition("::")
        return name or self.root if found else None

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=4096)
def parse(text: str) -> Key:
    """Split ``text``; raises ``LookupFailure``."""
    segments = split(text)
    if segments is None:
        raise LookupFailure(text, f"Syntax error in key: '{text}'")
    root = segments[0]
    if isinstance(root, int):
        raise LookupFailure(text, f"a key cannot begin with the number {root}; in quotes it is text")
    return Key(text, root, segments[1:])


def literal(root: str) -> str:
    """The key that means ``root`` whole, dots included; with both kinds of quotes in it there is none, as in Puppet."""
    if not any(char in root for char in ".'\""):
        return root
    return f'"{root}"' if '"' not in root else f"'{root}'"


def split(text: str) -> tuple[Segment, ...] | None:
    """The segments of ``text``, which is a key or a variable expression; ``None`` when it is not well-formed."""
    if not any(char in text for char in "'\"."):
        return (text,)
    segments: list[Segment] = []
    position = 0
    while found := _SEGMENT.match(text, position):
        segments.append(_segment(found[0].strip(_BLANKS)))
        position = found.end()
        if position == len(text):
            return tuple(segments)
        if text[position] != ".":
            return None
        position += 1
    return None


def _segment(text: str) -> Segment:
    if text.startswith(("'", '"')):
        return text[1:-1]
    if _INTEGER.search(text):
        return 0 if text.startswith(":") else int(text[:MAX_DIGITS])  # Ruby's ":1".to_i is 0
    return text


def dig(text: str, segments: tuple[Segment, ...], value: Any, step: Step) -> Any | Absent:
    """The value at ``segments`` inside ``value``; raises ``LookupFailure`` where a text or number stands in the way."""
    if not segments:
        return value
    step = step.add("sub_key", ".".join(map(str, segments)))
    for segment in segments:
        # Null has nothing inside, and that is no mistake, where a text or number is one.
        if value is None or not _holds(text, segment, value):
            step.add("segment", str(segment)).missing(segment)
            return ABSENT
        value = value[segment]
        step.add("segment", str(segment)).found(segment, value)
    return value


def _holds(text: str, segment: Segment, value: Any) -> bool:
    if isinstance(value, list) and isinstance(segment, int):
        return 0 <= segment < len(value)
    if not isinstance(value, Mapping):
        what = f"Got {values.class_name(value)} when a hash-like object was expected to access value"
        raise LookupFailure(text, f"Data Provider type mismatch: {what} using '{segment}' from key '{text}'")
    return segment in value
