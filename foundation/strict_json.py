"""Strict JSON parser for external documents. It accepts only JSON that all parsers interpret identically.

* A key appears once in an object. NaN, Infinity, a byte-order mark and unpaired surrogates are rejected.
* The depth is limited before any recursion, so callers may recurse over the value. Callers limit the size.
* Signed documents (``exact``) also contain neither fractions nor numbers beyond 2^53, which parsers interpret
  differently.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

LARGEST_NUMBER = 2**53 - 1
"""The largest number that every JSON parser represents exactly (RFC 8259, section 6)."""

_DEEPEST_SIGNED = 64
"""Limit of nested objects and arrays in signed documents."""
_LONGEST_NUMBER = 1000
"""Limit in characters, because the conversion of digits takes quadratic time."""
_SHOWN = 40
_BRACKET_OR_TEXT = r'(?s)"(?:[^"\\]|\\.)*+"?|[\[\]{}]'
_HALF_A_CHARACTER = r"\\u[dD][89a-fA-F]|[\ud800-\udfff]"


class StrictJsonError(ValueError):
    """The text is invalid. ``line`` and ``column`` are 0 if unknown."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class NestingError(StrictJsonError):
    """The text is nested too deeply."""


def load(text: str | bytes, *, depth: int, exact: bool = False) -> Any:
    """Return the value of a text. ``depth`` bounds the levels of objects and arrays. Raises ``StrictJsonError``."""
    import json  # 1 % of an idle apply, which reads no signed document

    decoded = _decoded(text)
    _verify_depth(decoded, depth)
    try:
        value = json.loads(
            decoded,
            object_pairs_hook=_each_once,
            parse_int=_exact if exact else _whole,
            parse_float=_no_fraction if exact else _finite,
            parse_constant=_no_fraction if exact else _no_value,
        )
        if re.search(_HALF_A_CHARACTER, decoded):  # Python parses the escape, but cannot encode the text
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        message = "starts with a byte-order mark, which is not JSON" if "BOM" in error.msg else error.msg
        raise StrictJsonError(message, error.lineno, error.colno) from None
    except UnicodeEncodeError:
        raise StrictJsonError(
            r"an escaped half of a surrogate pair, such as \ud800, is not valid text"
        ) from None
    return value


def load_exact(data: bytes) -> Any:
    """Return the value of a signed document. Raises ``StrictJsonError``."""
    return load(data, depth=_DEEPEST_SIGNED, exact=True)


def excerpt(value: Any) -> str:
    """Return the beginning of a value, for messages."""
    import json  # see load

    text = json.dumps(value)
    return text if len(text) <= 100 else text[:100] + "…"


def _decoded(text: str | bytes) -> str:
    try:
        return text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise StrictJsonError("is not UTF-8 text", line) from None


def _verify_depth(text: str, limit: int) -> None:
    """Verify the depth before parsing, because Python's parser recurses."""
    depth = 0
    for bracket in _brackets(text, limit):
        depth += 1 if bracket in "[{" else -1
        if depth > limit:
            raise NestingError(f"is nested more than {limit} deep")


def _brackets(text: str, limit: int) -> Iterator[str]:
    if text.count("[") + text.count("{") > limit:
        yield from (match[0] for match in re.finditer(_BRACKET_OR_TEXT, text) if match[0][0] != '"')


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    visited: set[str] = set()
    for name, _ in pairs:
        if name in visited:
            raise StrictJsonError(f"the key {_shortened(name)!r} is duplicate")
        visited.add(name)
    return members


def _exact(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > LARGEST_NUMBER:
        raise StrictJsonError(f"the number {digits[:20]}… is larger than {LARGEST_NUMBER}")
    return int(digits)


def _no_fraction(text: str) -> NoReturn:
    raise StrictJsonError(f"{_shortened(text)!r} is not a whole number")


def _whole(digits: str) -> int:
    _verify_length(digits)
    return int(digits)


def _finite(text: str) -> float:
    _verify_length(text)
    number = float(text)
    if math.isinf(number):
        raise StrictJsonError(f"{_shortened(text)} is too large for a number")
    return number


def _verify_length(number: str) -> None:
    if len(number) > _LONGEST_NUMBER:
        raise StrictJsonError(f"{_shortened(number)} is too long for a number")


def _no_value(name: str) -> NoReturn:
    raise StrictJsonError(f"{name} is not a JSON value")


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
