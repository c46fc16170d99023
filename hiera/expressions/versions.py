"""Comparing versions in expressions: ``facts.os.release.full is version('12', '>=')``.

Runs of digits compare as numbers, other runs as text. A version that goes on is newer (``1.1`` after ``1``,
``1.1.1k`` after ``1.1.1``), unless it goes on with ``~`` or a word for what comes before a release
(``dev``, ``alpha``, ``beta``, ``pre``, ``rc``). Packages compare by the rules of their own package manager.
"""

from __future__ import annotations

import operator
import re
from typing import Any, Final

from hiera.errors import ExpressionError

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


def version(value: Any, other: Any, comparison: str = "==") -> bool:
    """Whether ``value`` compares to ``other`` as ``comparison`` says (``<``, ``<=``, ``==``, …).

    Raises ExpressionError for another comparison, or what is no version.
    """
    if comparison not in _OPERATORS:
        raise ExpressionError("", f"version knows no {comparison!r}, only {' '.join(_OPERATORS)}")
    return bool(_OPERATORS[comparison](_parts(value), _parts(other)))


def _parts(value: Any) -> list[tuple[int, int, str]]:
    text = str(value)
    if (
        not text
        or len(text) > _LONGEST
        or isinstance(value, bool)
        or not isinstance(value, (str, int, float))
    ):
        raise ExpressionError("", f"{text[:_LONGEST]!r} is no version")
    return [*map(_part, _PART.findall(text.lower())), (_END, 0, "")]


def _part(text: str) -> tuple[int, int, str]:
    if text.isdigit():
        return _NUMBER, int(text), ""
    rank = _TILDE if text == "~" else _EARLY if text in _BEFORE else _WORD
    return rank, 0, text
