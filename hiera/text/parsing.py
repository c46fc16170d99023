"""Parsers of YAML and JSON to plain values, with file, line and column in errors.

``yaml_reading`` has the rules for YAML, and ``foundation/strict_json.py`` has the rules for JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

from foundation import strict_json
from foundation.problems import Location
from hiera.errors import DocumentError, LimitError
from hiera.text import yaml_reading
from hiera.text.yaml_reading import Tags, places

SIZE_LIMIT: Final = 16 << 20
"""Maximum characters in a document, with its aliases expanded."""

NO_TAGS: Final[Tags] = MappingProxyType({})


def load_yaml(
    text: str | bytes,
    source: str,
    *,
    limit: int = SIZE_LIMIT,
    tags: Tags = NO_TAGS,
) -> Any:
    """Return the value of the single document in ``text``, or ``None`` if it is empty.

    ``source`` is the name used in messages, ``limit`` a number of characters. Do not change the value: aliased values
    are shared. Raises DocumentError (*file:line:column: sentence*) and LimitError.
    """
    return yaml_reading.read(_decoded(text, source, limit), source, limit, tags)


def locate(text: str, path: Sequence[str | int]) -> tuple[int, int]:
    """Return line and column, from 1, of the key or list item at ``path``. For messages, since it parses again."""
    return places(text).locate(path)


def original(text: str, path: Sequence[str | int]) -> str | None:
    """Return the source text of the scalar at ``path`` (``0644``, ``5.10``), or ``None`` for other values."""
    return places(text).original(path)


def _decoded(text: str | bytes, source: str, limit: int) -> str:
    if len(text) > limit:
        raise LimitError(Location(source), f"is longer than the {limit} characters that are read")
    try:
        # Encoding a str reveals surrogates from JSON or the command line.
        return text.decode() if isinstance(text, bytes) else text.encode().decode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        before = text[: error.start]
        line = 1 + (before.count("\n") if isinstance(before, str) else before.count(b"\n"))
        raise DocumentError(Location(source, line), "is not UTF-8 text") from None


DEPTH_LIMIT: Final = 100
"""Maximum depth of nested objects and arrays."""


def load_json(text: str | bytes, source: str) -> Any:
    """Return the value of a text. ``source`` is its name in messages. The caller must limit its length.

    Raises DocumentError and LimitError.
    """
    try:
        return strict_json.load(text, depth=DEPTH_LIMIT)
    except strict_json.NestingError as error:
        raise LimitError(source, str(error)) from None
    except strict_json.StrictJsonError as error:
        location = Location(source, error.line, error.column, is_exact=bool(error.column))
        raise DocumentError(location, str(error)) from None
