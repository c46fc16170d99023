"""Order of a bundle's versions, the next version for ``--version auto``, and the changes between two versions.

* The order is for display only, because hosts never compare versions. It is the order of Debian packages and of
  ``sort -V``.
* The next version sorts after every published version. It depends on the published versions only, so it is the same
  on every machine and at any time.
* `Changes` lists the files that differ in contents, mode or existence.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from bundles.errors import FormatError, PublishError
from bundles.format.description import BundleDescription
from bundles.format.identity import parse_version
from foundation.problems import ProblemCode

AUTO = "auto"
"""Placeholder for the next version of a changed bundle."""
FIRST = "1.0.0"

_PARTS = re.compile(r"([^0-9]*)([0-9]*)")
_FIRST_NUMBERS = re.compile(r"([^0-9]*(?:[0-9]+\.)*)([0-9]+)")
"""Matches ``v1.4.0-rc1``: the prefix, and the last of the first numbers."""

_Order = tuple[tuple[tuple[int, ...], int], ...]


def order(version: str) -> _Order:
    """Return the sort key of a version: text and numbers in turn, numbers by value.

    In text, ``~`` comes before the end, the end before letters, and letters before other characters:
    https://www.debian.org/doc/debian-policy/ch-controlfields.html#version.
    """
    return tuple(((*map(_weight, text), 0), int(number or 0)) for text, number in _PARTS.findall(version))


def next_version(published: Iterable[str]) -> str:
    """Return a version that sorts after all of these. Raises `PublishError` if it would be too long.

    Increments the last of the first numbers of the newest version, and drops the rest: ``1.4.0`` and ``1.4.0-rc2`` give
    ``1.4.1``, which is also last in tools with other rules for ``-rc2``.
    """
    newest = max(published, key=lambda version: (order(version), version), default=None)
    if newest is None:
        return FIRST
    numbers = _FIRST_NUMBERS.match(newest)
    following = f"{newest.removesuffix('.')}.1" if numbers is None else numbers[1] + _one_more(numbers[2])
    try:
        return parse_version(following)
    except FormatError:
        raise PublishError(
            newest,
            "has no next version that is short enough",
            code=ProblemCode.INVALID_NAME,
            expected="one by --version",
        ) from None


def _one_more(digits: str) -> str:
    """Increment with the same width, so that ``2026.09`` follows ``2026.08``."""
    return str(int(digits) + 1).zfill(len(digits))


def _weight(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) + (0 if character.isalpha() else 256)


# Changes between two versions.

_LIBRARIES = "libraries"
"""Directory of a packed bundle with a subdirectory for each library."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Sorted paths of files. Files of a library, which other bundles may contain, start with ``libraries/NAME/``."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    @classmethod
    def between(cls, before: BundleDescription, after: BundleDescription) -> Self:
        """Compare the files of two descriptions, regardless of their versions."""
        old = {path.text: entry for path, entry in before.files.items()}
        new = {path.text: entry for path, entry in after.files.items()}
        return cls(
            added=tuple(sorted(new.keys() - old.keys())),
            removed=tuple(sorted(old.keys() - new.keys())),
            changed=tuple(sorted(path for path in old.keys() & new.keys() if old[path] != new[path])),
        )

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    @property
    def libraries(self) -> tuple[str, ...]:
        """Return the names of changed libraries."""
        names = map(_library_of, (*self.added, *self.removed, *self.changed))
        return tuple(sorted({name for name in names if name is not None}))

    def own(self) -> "Changes":
        """Return the changes outside of libraries."""
        return Changes(_own(self.added), _own(self.removed), _own(self.changed))


def _own(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if _library_of(path) is None)


def _library_of(path: str) -> str | None:
    directory, *rest = path.split("/")
    return rest[0] if directory == _LIBRARIES and len(rest) > 1 else None
