"""JSON from outside, with one reading only.

* What two parsers might read differently is refused: repeated keys, floats, NaN, numbers beyond 2^53, a
  byte-order mark, halves of characters.
* Depth is bounded, so that whoever walks the value may recurse; size is bounded by the caller, who read
  the bytes.
"""

import json
from typing import Any

LARGEST_NUMBER = 2**53 - 1
"""The largest that every JSON parser keeps exactly (RFC 8259, section 6)."""
DEEPEST = 64
"""Levels of objects and arrays."""


def load(data: bytes) -> Any:
    """The value of a JSON text in UTF-8; raises ``ValueError`` with a sentence."""
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_unique,
            parse_int=_bounded,
            parse_float=_no_number,
            parse_constant=_no_number,
        )
        if b"\\ud" in data.lower():  # an escape of half a character: it is no text, and has no UTF-8
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        raise ValueError("is not UTF-8 text") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _check_depth(value)
    return value


def excerpt(value: Any) -> str:
    """The beginning of a value, for messages."""
    text = json.dumps(value)
    return text if len(text) <= 100 else text[:100] + "…"


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST + 1):
        held = [
            item.values() if isinstance(item, dict) else item
            for item in level
            if isinstance(item, dict | list)
        ]
        level = [child for children in held for child in children]
        if not level:
            return
    raise ValueError("nested too deeply")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key[:100]!r} stands there twice")
        values[key] = value
    return values


def _bounded(digits: str) -> int:
    # Length first: turning endless digits into a number takes time that grows with their square.
    if len(digits) > 17 or abs(int(digits)) > LARGEST_NUMBER:
        raise ValueError(f"the number {digits[:20]}… is larger than {LARGEST_NUMBER}")
    return int(digits)


def _no_number(text: str) -> None:
    raise ValueError(f"{text[:20]!r} is not a whole number")
