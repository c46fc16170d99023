"""JSON text becomes plain values, or an error with line and column.

* A key stands once in an object, a number is finite and of a length that somebody might write, text is Unicode.
* Depth is bounded before anything recurses, so that whoever walks the value may recurse too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from foundation.problems import Location
from hiera.errors import DocumentError, LimitError

DEPTH_LIMIT: Final = 100
"""Objects and arrays inside one another."""

_LONGEST_NUMBER: Final = 1000  # converting digits takes time quadratic in their number
_SHOWN: Final = 40  # characters of what is wrong in a message
_BRACKET_OR_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_HALF_A_CHARACTER: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def load(text: str | bytes, source: str) -> Any:
    """The value that ``text`` stands for; ``source`` is its name in messages. The caller bounds its length.

    Raises DocumentError and LimitError.
    """
    decoded = _decoded(text, source)
    _verify_depth(decoded, source)
    try:
        value = json.loads(
            decoded,
            object_pairs_hook=_each_once,
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_refuse,
        )
        # Python reads such an escape, but nobody can write the text that it gives.
        if _HALF_A_CHARACTER.search(decoded):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        what = "starts with a byte-order mark, which is not JSON" if "BOM" in error.msg else error.msg
        raise DocumentError(Location(source, error.lineno, error.colno, is_exact=True), what) from None
    except UnicodeEncodeError:
        raise DocumentError(
            Location(source), r"an escape of half a character, such as \ud800, is not text"
        ) from None
    except ValueError as error:
        raise DocumentError(Location(source), str(error)) from None


def _decoded(text: str | bytes, source: str) -> str:
    try:
        return text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DocumentError(Location(source, line), "is not UTF-8 text") from None


def _verify_depth(text: str, source: str) -> None:
    """Before reading: Python's own parser would recurse as deep as it is let."""
    depth = 0
    for bracket in _brackets(text):
        depth += 1 if bracket in "[{" else -1
        if depth > DEPTH_LIMIT:
            raise LimitError(source, f"is nested more than {DEPTH_LIMIT} deep")


def _brackets(text: str) -> Iterator[str]:
    if text.count("[") + text.count("{") <= DEPTH_LIMIT:
        return
    yield from (found[0] for found in _BRACKET_OR_TEXT.finditer(text) if found[0][0] != '"')


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the key {_excerpt(name)!r} is given twice")
        members[name] = value
    return members


def _whole(digits: str) -> int:
    _verify_length(digits)
    return int(digits)


def _finite(text: str) -> float:
    _verify_length(text)
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{_excerpt(text)} is too large for a number")
    return number


def _verify_length(number: str) -> None:
    if len(number) > _LONGEST_NUMBER:
        raise ValueError(f"{_excerpt(number)} is too long for a number")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _excerpt(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
