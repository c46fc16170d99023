"""Semantic versions, and constraints for them (``>=1.2 <2 || ^3.1``).

The rules follow Sprig's library: a version with a pre-release satisfies a constraint only if a constraint beside it
names a pre-release too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from puller.templates.gotemplate.function_calls import Struct, define_type
from puller.templates.govalue.types import Uint64
from puller.templates.template_errors import FunctionError

_MAX_CONSTRAINT: Final = 1000
_UINT64_SPAN: Final = 2**64
_EXTRA: Final = r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
_VERSION: Final = re.compile(rf"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?{_EXTRA}")
_WANTED: Final = rf"v?([0-9xX*]+)(?:\.([0-9xX*]+))?(?:\.([0-9xX*]+))?{_EXTRA}"
_RANGE: Final = re.compile(rf"(?P<low>{_WANTED})\s+-\s+(?P<high>{_WANTED})")
_TERM: Final = re.compile(rf"\s*(=>|=<|!=|>=|<=|~>|=|>|<|~|\^|)\s*{_WANTED}\s*")


@dataclass(frozen=True, slots=True, eq=False)
class Version(Struct):
    """A parsed version. A missing minor or patch number is 0."""

    numbers: tuple[int, int, int]
    prerelease: str = ""
    metadata: str = ""
    original: str = ""

    go_type: ClassVar[str] = "*semver.Version"
    go_kind: ClassVar[str] = "ptr"
    methods: ClassVar[Mapping[str, Callable[..., Any]]]

    def text(self) -> str:
        """Return ``MAJOR.MINOR.PATCH-PRERELEASE+METADATA``. The last two are optional."""
        numbers = ".".join(map(str, self.numbers))
        prerelease = f"-{self.prerelease}" if self.prerelease else ""
        return f"{numbers}{prerelease}{f'+{self.metadata}' if self.metadata else ''}"

    def json_value(self) -> str:
        """Return the text of the version."""
        return self.text()

    def key(self) -> tuple[Any, ...]:
        """The sort key: numbers below words, more identifiers above fewer, any pre-release below the release."""
        if not self.prerelease:
            return (*self.numbers, 1)
        identifiers = self.prerelease.split(".")
        return (*self.numbers, 0, tuple((0, int(i), "") if i.isdecimal() else (1, 0, i) for i in identifiers))


define_type("Version", Version.go_type, lambda value: isinstance(value, Version))


def parse_version(text: str) -> Version:
    """``semver``: the version in a text, which may be abbreviated. Raises FunctionError for other text."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise FunctionError(f"invalid semantic version {text!r}")
    numbers = int(match[1]), int(match[2] or 0), int(match[3] or 0)
    if max(numbers) >= _UINT64_SPAN:
        raise FunctionError(f"a number of the version {text!r} is too large")
    if any(part.isdecimal() and len(part) > 1 and part[0] == "0" for part in (match[4] or "").split(".")):
        raise FunctionError(f"a number of the pre-release of {text!r} starts with 0")
    return Version(numbers, match[4] or "", match[5] or "", text)


# Methods -------------------------------------------------------------------------------------------------------------


def _major(version: Version) -> Uint64:
    return Uint64(version.numbers[0])


def _minor(version: Version) -> Uint64:
    return Uint64(version.numbers[1])


def _patch(version: Version) -> Uint64:
    return Uint64(version.numbers[2])


def _prerelease(version: Version) -> str:
    return version.prerelease


def _metadata(version: Version) -> str:
    return version.metadata


def _original(version: Version) -> str:
    return version.original


def _string(version: Version) -> str:
    return version.text()


def _compare(version: Version, other: Version) -> int:
    return (version.key() > other.key()) - (version.key() < other.key())


def _less_than(version: Version, other: Version) -> bool:
    return version.key() < other.key()


def _less_than_equal(version: Version, other: Version) -> bool:
    return version.key() <= other.key()


def _greater_than(version: Version, other: Version) -> bool:
    return version.key() > other.key()


def _greater_than_equal(version: Version, other: Version) -> bool:
    return version.key() >= other.key()


def _equal(version: Version, other: Version) -> bool:
    return version.key() == other.key()


def _next(numbers: tuple[int, int, int], version: Version) -> Version:
    prefix = "v" if version.original.startswith("v") else ""
    return Version(numbers, original=prefix + ".".join(map(str, numbers)))


def _inc_major(version: Version) -> Version:
    return _next((version.numbers[0] + 1, 0, 0), version)


def _inc_minor(version: Version) -> Version:
    return _next((version.numbers[0], version.numbers[1] + 1, 0), version)


def _inc_patch(version: Version) -> Version:
    """Return the next patch version. A pre-release becomes its release."""
    major, minor, patch = version.numbers
    return _next((major, minor, patch if version.prerelease else patch + 1), version)


Version.methods = {
    "Compare": _compare,
    "Equal": _equal,
    "GreaterThan": _greater_than,
    "GreaterThanEqual": _greater_than_equal,
    "IncMajor": _inc_major,
    "IncMinor": _inc_minor,
    "IncPatch": _inc_patch,
    "LessThan": _less_than,
    "LessThanEqual": _less_than_equal,
    "Major": _major,
    "Metadata": _metadata,
    "Minor": _minor,
    "Original": _original,
    "Patch": _patch,
    "Prerelease": _prerelease,
    "String": _string,
}


# Constraints ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Constraint:
    """A single constraint. ``known`` is the count of its numbers: 1 for ``1`` and ``1.x``, 0 for ``*``."""

    operator: str
    version: Version
    known: int

    def allows(self, version: Version) -> bool:
        return _CHECKS[self.operator](version, self)


def _parse_constraint(match: re.Match[str]) -> _Constraint:
    operator, *words, prerelease, metadata = match.groups()
    numbers: list[int] = []
    for word in words:
        if word is None or word in ("x", "X", "*"):
            break
        numbers.append(int(word) if word.isdecimal() else -1)
    if -1 in numbers:
        raise FunctionError(f"improper constraint: {match[0]}")
    extra = f"-{prerelease}" if prerelease else ""
    extra += f"+{metadata}" if metadata and len(numbers) == len(words) else ""
    padded = [*numbers, 0, 0, 0][: len(words)]
    return _Constraint(operator, parse_version(".".join(map(str, padded)) + extra), len(numbers))


def _parse_group(text: str) -> list[_Constraint]:
    """Return constraints that must all be satisfied, separated by spaces or commas."""
    if not text:
        return [_Constraint("", Version((0, 0, 0)), 0)]
    constraints: list[_Constraint] = []
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None or (constraints and not text[position - 1].isspace() and text[position - 1] != ","):
            raise FunctionError(f"improper constraint: {text}")
        constraints.append(_parse_constraint(match))
        position = match.end()
        if text[position : position + 1] == "," and position + 1 < len(text):
            position += 1
    return constraints


def _is_not_equal(version: Version, desired: _Constraint) -> bool:
    width = desired.known or 3
    if version.numbers[:width] != desired.version.numbers[:width]:
        return True
    return width > 1 and version.prerelease != desired.version.prerelease


def _is_greater(version: Version, desired: _Constraint) -> bool:
    """Return whether the version is greater. ``>1.2`` is above all of 1.2.x."""
    if desired.known in (1, 2):
        return version.numbers[: desired.known] > desired.version.numbers[: desired.known]
    return version.key() > desired.version.key()


def _is_less(version: Version, desired: _Constraint) -> bool:
    return version.key() < desired.version.key()


def _is_at_least(version: Version, desired: _Constraint) -> bool:
    return version.key() >= desired.version.key()


def _is_at_most(version: Version, desired: _Constraint) -> bool:
    """Return whether the version is at most the constraint's. ``<=1.2`` includes all of 1.2.x."""
    if desired.known == 3:
        return version.key() <= desired.version.key()
    width = desired.known or 2
    return version.numbers[:width] <= desired.version.numbers[:width]


def _matches_tilde_range(version: Version, desired: _Constraint) -> bool:
    """``~1.2.3``: the same minor version. ``~1``: the same major version."""
    if version.key() < desired.version.key():
        return False
    if desired.version.numbers == (0, 0, 0) and desired.known in (0, 3):
        return True
    width = 1 if desired.known == 1 else 2
    return version.numbers[:width] == desired.version.numbers[:width]


def _is_like(version: Version, desired: _Constraint) -> bool:
    """``=1.2`` matches any 1.2.x."""
    return (
        version.key() == desired.version.key()
        if desired.known == 3
        else _matches_tilde_range(version, desired)
    )


def _is_compatible(version: Version, desired: _Constraint) -> bool:
    """``^1.2.3``: equal up to the first nonzero number."""
    if version.key() < desired.version.key():
        return False
    major, minor, _ = desired.version.numbers
    width = 1 if major > 0 or desired.known == 1 else 2 if minor > 0 or desired.known == 2 else 3
    return version.numbers[:width] == desired.version.numbers[:width]


_CHECKS: Final[dict[str, Callable[[Version, _Constraint], bool]]] = {
    "": _is_like,
    "=": _is_like,
    "!=": _is_not_equal,
    ">": _is_greater,
    "<": _is_less,
    ">=": _is_at_least,
    "=>": _is_at_least,
    "<=": _is_at_most,
    "=<": _is_at_most,
    "~": _matches_tilde_range,
    "~>": _matches_tilde_range,
    "^": _is_compatible,
}


def _semver_compare(constraint: str, version: str) -> bool:
    """``semverCompare``: whether the version satisfies the constraint. Raises FunctionError."""
    if len(constraint) > _MAX_CONSTRAINT:
        raise FunctionError(f"the constraint has more than {_MAX_CONSTRAINT} characters")
    written_out = _RANGE.sub(r">= \g<low>, <= \g<high> ", constraint)
    groups = [_parse_group(group) for group in written_out.split("||")]
    parsed = parse_version(version)
    return any(_group_allows(group, parsed) for group in groups)


def _group_allows(group: list[_Constraint], version: Version) -> bool:
    if version.prerelease and not any(constraint.version.prerelease for constraint in group):
        return False
    return all(constraint.allows(version) for constraint in group)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {"semver": parse_version, "semverCompare": _semver_compare}
