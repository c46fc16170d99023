"""Ranges of semantic versions: ``>1.0.0 <2.0.0 !=1.5.0 || >=3.0.0``, as goss takes them."""

import re
from functools import cache

_VERSION = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)
_CONDITION = re.compile(r"(>=|<=|!=|==|=|!|>|<)?\s*([^\s<>=!|]+)")

_Key = tuple[int, int, int, int, tuple[tuple[int, int, str], ...]]
Range = tuple[tuple[tuple[str, _Key], ...], ...]
"""Alternatives, each of conditions that all hold."""


def in_range(version: str, constraint: str) -> bool:
    """Whether a version is in a range; what is no version is in none."""
    try:
        key = _key(version)
    except ValueError:
        return False
    return any(all(_holds(key, *one) for one in conditions) for conditions in parse_range(constraint))


@cache
def parse_range(text: str) -> Range:
    """Read a range; raises ``ValueError`` for what is none, wildcards included."""
    return tuple(_conditions(part) for part in text.split("||"))


def _conditions(text: str) -> tuple[tuple[str, _Key], ...]:
    found = _CONDITION.findall(text)
    if not found or "".join("".join(one) for one in found) != "".join(text.split()):
        raise ValueError(f"is {text.strip()!r}, wanted a range such as '>1.0.0 <2.0.0'")
    return tuple((sign or "=", _key(version)) for sign, version in found)


def _key(text: str) -> _Key:
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"has {text!r}, wanted a semantic version such as '1.2.3' (wildcards are not supported)"
        )
    before = match[4]
    # A version comes after those that lead to it; numbers in these come before words.
    parts = tuple(
        (0, int(part), "") if (part.isascii() and part.isdecimal()) else (1, 0, part)
        for part in (before.split(".") if before else ())
    )
    return int(match[1]), int(match[2]), int(match[3]), int(before is None), parts


def _holds(key: _Key, sign: str, other: _Key) -> bool:
    if sign in ("=", "=="):
        return key == other
    if sign in ("!", "!="):
        return key != other
    if sign in (">", ">="):
        return key > other or (sign == ">=" and key == other)
    return key < other or (sign == "<=" and key == other)
