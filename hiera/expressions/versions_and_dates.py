"""Version comparison and dates in expressions: ``facts.os.release.full is version('12', '>=')``.

* Runs of digits compare as numbers, other runs as text. A longer version is newer (``1.1`` after ``1``, ``1.1.1k``
  after ``1.1.1``), unless the rest starts with ``~`` or a pre-release word (``dev``, ``alpha``, ``beta``, ``pre``,
  ``rc``). Packages compare by the rules of their own package manager.
* The filters for dates never use the current time, because the result would change in every run.
"""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any, Final

from hiera.errors import ExpressionError, LimitError
from hiera.expressions.texts import as_text

_PART: Final = re.compile(r"[0-9]+|[a-z]+|~")
_LONGEST: Final = 200
_BEFORE: Final = frozenset({"dev", "alpha", "beta", "pre", "rc"})
_TILDE, _EARLY, _END, _WORD, _NUMBER = range(5)
_OPERATORS: Final[dict[str, Any]] = {
    "==": operator.eq,
    "=": operator.eq,
    "eq": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "ne": operator.ne,
    "<": operator.lt,
    "lt": operator.lt,
    "<=": operator.le,
    "le": operator.le,
    ">": operator.gt,
    "gt": operator.gt,
    ">=": operator.ge,
    "ge": operator.ge,
}


def version(
    value: Any,
    other: Any,
    comparison: str = "==",
    strict: bool | None = None,
    version_type: str | None = None,
) -> bool:
    """Return whether ``value`` and ``other`` satisfy ``comparison`` (``<``, ``<=``, ``==``, …).

    ``version_type`` is ``loose`` (the default), ``strict`` or ``semver``.

    Raises ExpressionError for an unknown comparison, or an invalid version.
    """
    if comparison not in _OPERATORS:
        raise ExpressionError("", f"version does not accept {comparison!r}, only {' '.join(_OPERATORS)}")
    kind = version_type or ("strict" if strict else "loose")
    if kind not in _KINDS:
        raise ExpressionError("", f"version does not accept version_type {kind!r}, only {', '.join(_KINDS)}")
    key = _KINDS[kind]
    return bool(_OPERATORS[comparison](key(_text(value)), key(_text(other))))


def _text(value: Any) -> str:
    text = str(value)
    if (
        not text
        or len(text) > _LONGEST
        or isinstance(value, bool)
        or not isinstance(value, (str, int, float))
    ):
        raise ExpressionError("", f"invalid version {text[:_LONGEST]!r}")
    return text


def _loose(text: str) -> Any:
    return [*map(_part, _PART.findall(text.lower())), (_END, 0, "")]


def _part(text: str) -> tuple[int, int, str]:
    if text.isascii() and text.isdecimal():
        return _NUMBER, int(text), ""
    rank = _TILDE if text == "~" else _EARLY if text in _BEFORE else _WORD
    return rank, 0, text


_STRICT: Final = r"([0-9]+)\.([0-9]+)(?:\.([0-9]+))?(?:([ab])([0-9]+))?"
_SEMANTIC: Final = (
    r"([0-9]+)\.([0-9]+)\.([0-9]+)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)


def _strict(text: str) -> Any:
    """Return the sort key of two or three numbers, with an optional pre-release such as ``a1`` or ``b1``."""
    match = _matched(_STRICT, text, "1.2.3 or 1.2b1")
    return [int(number or 0) for number in match.group(1, 2, 3)], match[4] or "z", int(match[5] or 0)


def _semantic(text: str) -> Any:
    """Return the sort key of semver.org (version 2.0.0, clause 11)."""
    match = _matched(_SEMANTIC, text, "1.2.3 or 1.2.3-rc.1")
    before = [
        (0, int(part), "") if (part.isascii() and part.isdecimal()) else (1, 0, part)
        for part in (match[4] or "").split(".")
    ]
    return [int(number) for number in match.group(1, 2, 3)], match[4] is None, before


def _matched(pattern: str, text: str, example: str) -> re.Match[str]:
    if (match := re.fullmatch(pattern, text, re.ASCII)) is None:
        raise ExpressionError("", f"{text!r} is not a version of this type, such as {example}")
    return match


_KINDS: Final[dict[str, Callable[[str], Any]]] = {
    "loose": _loose,
    "strict": _strict,
    "semver": _semantic,
    "semantic": _semantic,
}


# Dates.

TIMES: Final = (date, timedelta)
"""The types of results of ``to_datetime``, and of differences between them."""
TIME_PARTS: Final = frozenset(
    {
        *("day", "days", "hour", "isoformat", "isoweekday", "microsecond", "microseconds", "minute", "month"),
        *("second", "seconds", "timestamp", "total_seconds", "weekday", "year"),
    }
)
"""The attributes of these types that expressions can use."""

_LONGEST_FORMAT: Final = 1000
_WIDTH: Final = r"%[-_^#+]*\d"


def to_datetime(text: str, format: str = "%Y-%m-%d %H:%M:%S") -> datetime:  # noqa: A002  Ansible's name
    """Return the time in a text, for subtraction: ``(a | to_datetime - b | to_datetime).days``.

    Raises ExpressionError.
    """
    text = as_text(text, "to_datetime")
    try:
        return datetime.strptime(text, _format(format))
    except ValueError as error:
        raise ExpressionError("", f"to_datetime: {error}") from None


def strftime(layout: str, second: Any = None, utc: bool = False) -> str:
    """Return a time as text, by a format and the seconds since 1970: ``'%F' | strftime(0, utc=true)``.

    Raises ExpressionError if the seconds are missing or invalid.
    """
    if second is None:
        advice = "strftime requires the seconds since 1970, because the current time differs in every run"
        raise ExpressionError("", f"{advice}: '%Y' | strftime(1700000000)")
    try:
        moment = time.gmtime(float(second)) if utc else time.localtime(float(second))
    except (OSError, OverflowError, TypeError, ValueError):
        raise ExpressionError("", f"strftime requires seconds since 1970, not {str(second)[:40]!r}") from None
    return time.strftime(_format(layout), moment)


def _format(layout: Any) -> str:
    text = as_text(layout, "a format of times")
    if len(text) > _LONGEST_FORMAT or re.search(_WIDTH, text):  # the C library would pad to any width
        raise LimitError("", f"a format of times has a width, or is longer than {_LONGEST_FORMAT} characters")
    return text
