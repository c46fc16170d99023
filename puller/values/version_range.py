"""Versions of Puller that something asks for: ``>=1.2``, ``>=1.2, <2``.

* A version is numbers with dots between them; ``1.2`` and ``1.2.0`` are the same.
* What is written means what Python's packaging means by it (tested against it). ``~=`` and ``==1.*`` are left out.
"""

import operator
import re
from collections.abc import Callable
from typing import Self

import msgspec

_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*([0-9]{1,9}(?:\.[0-9]{1,9}){0,9})\s*", re.ASCII)
_Numbers = tuple[int, ...]
_OPERATORS: dict[str, Callable[[_Numbers, _Numbers], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


class VersionRange(msgspec.Struct, frozen=True):
    """Versions between limits; ``text`` is how that was written."""

    text: str
    clauses: tuple[tuple[str, _Numbers], ...]

    @classmethod
    def parse(cls, text: object) -> Self:
        """Raises ``ValueError`` whose sentence goes on after the name of what is wrong."""
        if not isinstance(text, str):
            raise ValueError(f'is {text!r}, wanted text such as ">=1.2" or ">=1.2, <2"')
        found = [_CLAUSE.fullmatch(part) for part in text.split(",")]
        clauses = [(one[1], _numbers(one[2])) for one in found if one is not None]
        if len(clauses) < len(found):
            raise ValueError(f'is {text!r}, wanted something such as ">=1.2" or ">=1.2, <2"')
        return cls(text, tuple(clauses))

    def __contains__(self, version: str) -> bool:
        numbers = _numbers(version)
        return all(_OPERATORS[sign](numbers, limit) for sign, limit in self.clauses)


def _numbers(version: str) -> _Numbers:
    """Without zeros at the end, which say nothing."""
    numbers = [int(part) for part in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
