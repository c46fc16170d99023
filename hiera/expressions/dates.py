"""Filters for times. There is no *now* among them: a text with the present in it would be another in every run."""

from __future__ import annotations

import re
import time
from datetime import date, datetime, timedelta
from typing import Any, Final

from hiera.errors import ExpressionError, LimitError
from hiera.expressions.texts import as_text

TIMES: Final = (date, timedelta)
"""The types of what ``to_datetime`` gives, and of the difference of two of them."""
TIME_PARTS: Final = frozenset(
    {
        *("day", "days", "hour", "isoformat", "isoweekday", "microsecond", "microseconds", "minute", "month"),
        *("second", "seconds", "timestamp", "total_seconds", "weekday", "year"),
    }
)
"""What may be asked of them."""

_LONGEST_FORMAT: Final = 1000
_WIDTH: Final = r"%[-_^#+]*\d"


def to_datetime(text: str, format: str = "%Y-%m-%d %H:%M:%S") -> datetime:  # noqa: A002  Ansible's name
    """The time that a text says, to subtract another: ``(a | to_datetime - b | to_datetime).days``.

    Raises ExpressionError.
    """
    text = as_text(text, "to_datetime")
    try:
        return datetime.strptime(text, _format(format))
    except ValueError as error:
        raise ExpressionError("", f"to_datetime: {error}") from None


def strftime(layout: str, second: Any = None, utc: bool = False) -> str:
    """A time as text, by a format and the seconds since 1970: ``'%F' | strftime(0, utc=true)``.

    Raises ExpressionError without seconds, or for what is no number of them.
    """
    if second is None:
        advice = "strftime wants the seconds since 1970, since the present is another in every run"
        raise ExpressionError("", f"{advice}: '%Y' | strftime(1700000000)")
    try:
        moment = time.gmtime(float(second)) if utc else time.localtime(float(second))
    except (OSError, OverflowError, TypeError, ValueError):
        raise ExpressionError("", f"strftime wants seconds since 1970, not {str(second)[:40]!r}") from None
    return time.strftime(_format(layout), moment)


def _format(layout: Any) -> str:
    text = as_text(layout, "a format of times")
    if len(text) > _LONGEST_FORMAT or re.search(_WIDTH, text):  # the C library would pad to any width
        raise LimitError("", f"a format of times has a width, or is longer than {_LONGEST_FORMAT} characters")
    return text
