"""The version of this agent, and required versions in manifests: ``>=1.2``, ``>=1.2, <2``.

* The distribution reads ``__version__`` from here.
* A version consists of numbers with dots between them. ``1.2`` and ``1.2.0`` are the same.
* The notation follows Python's packaging, and tests compare both. ``~=`` and ``==1.*`` are not supported.
"""

import operator
import re
from collections.abc import Callable
from typing import Self

import msgspec

__version__ = "1.0.0"


_CLAUSE = r"(?a)\s*(>=|<=|==|!=|>|<)\s*([0-9]{1,9}(?:\.[0-9]{1,9}){0,9})\s*"  # compiled on first use
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
    """Versions between limits. ``text`` is the original notation."""

    text: str
    clauses: tuple[tuple[str, _Numbers], ...]

    @classmethod
    def parse(cls, text: object) -> Self:
        """Parse the notation. Raise ``ValueError``, whose message continues the name of the key."""
        if not isinstance(text, str):
            raise ValueError(f'is {text!r}, expected quoted text such as ">=1.2" or ">=1.2, <2"')
        match = [re.fullmatch(_CLAUSE, part) for part in text.split(",")]
        clauses = [(item[1], _numbers(item[2])) for item in match if item is not None]
        if len(clauses) < len(match):
            raise ValueError(f'is {text!r}, expected a range such as ">=1.2" or ">=1.2, <2"')
        return cls(text, tuple(clauses))

    def __contains__(self, version: str) -> bool:
        numbers = _numbers(version)
        return all(_OPERATORS[sign](numbers, limit) for sign, limit in self.clauses)


def _numbers(version: str) -> _Numbers:
    """Return the numbers without trailing zeros, which do not matter."""
    numbers = [int(part) for part in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
