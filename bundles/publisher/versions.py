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
"""In the place of a version: the next one, for a bundle whose files have changed."""
FIRST = "1.0.0"

_PARTS = re.compile(r"([^0-9]*)([0-9]*)")
_FIRST_NUMBERS = re.compile(r"([^0-9]*(?:[0-9]+\.)*)([0-9]+)")
"""``v1.4.0-rc1``: all before the last of the first numbers, and that."""

_Order = tuple[tuple[tuple[int, ...], int], ...]


def order(version: str) -> _Order:
    """The key to sort versions by: text and numbers in turn, numbers by their value.

    In text ``~`` comes before the end, that before letters, and those before everything else:
    https://www.debian.org/doc/debian-policy/ch-controlfields.html#version.
    """
    return tuple(((*map(_weight, text), 0), int(number or 0)) for text, number in _PARTS.findall(version))


def next_version(published: Iterable[str]) -> str:
    """A version that sorts after all of these; raises `PublishError` where none would be short enough.

    One more than the last of the first numbers of the newest, without what comes behind them: ``1.4.0`` and
    ``1.4.0-rc2`` give ``1.4.1``, which other tools sort last, too, whatever they make of ``-rc2``.
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
    """As wide as before, so that ``2026.08`` is followed by ``2026.09``."""
    return str(int(digits) + 1).zfill(len(digits))


def _weight(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) + (0 if character.isalpha() else 256)


# Changes between two versions.

_LIBRARIES = "libraries"
"""The directory of a packed bundle that has a directory for each library."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths of files, sorted. Those of a library, which other bundles may have too, begin with ``libraries/NAME/``."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    @classmethod
    def between(cls, before: BundleDescription, after: BundleDescription) -> Self:
        """From what ``before`` lists to what ``after`` does, whatever versions they state."""
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
        """The libraries that have changed, by name."""
        names = map(_library_of, (*self.added, *self.removed, *self.changed))
        return tuple(sorted({name for name in names if name is not None}))

    def own(self) -> "Changes":
        """The part of these that is in no library."""
        return Changes(_own(self.added), _own(self.removed), _own(self.changed))


def _own(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if _library_of(path) is None)


def _library_of(path: str) -> str | None:
    directory, *rest = path.split("/")
    return rest[0] if directory == _LIBRARIES and len(rest) > 1 else None
