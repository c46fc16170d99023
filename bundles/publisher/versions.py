"""Versions of a bundle in order, and the next one, as ``--version auto`` gives it.

* Hosts never compare versions; the order is for people, and for what they sort lists with. It is that of Debian's
  packages and of ``sort -V``.
* The next version sorts after every one that is published. It follows from those and from nothing else, so it is the
  same on every machine and asks no clock.
"""

import re
from collections.abc import Iterable

from bundles.errors import FormatError, PublishError
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
