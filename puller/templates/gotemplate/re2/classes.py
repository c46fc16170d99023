"""Sets of characters: ranges, named classes of Perl and POSIX, categories and scripts of Unicode, and case folding."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

MAX_RUNE: Final = 0x10FFFF
_LAST_CASED: Final = 0x1E943

Ranges = tuple[tuple[int, int], ...]
"""First and last code point of each range, sorted and disjoint."""


def ranges_of(text: str) -> Ranges:
    """``"azAZ"`` is a to z and A to Z."""
    return tuple((ord(first), ord(last)) for first, last in zip(text[::2], text[1::2], strict=True))


PERL: Final = {
    "d": ranges_of("09"),
    "s": ranges_of("\t\n\f\r  "),
    "w": ranges_of("09AZ__az"),
}
POSIX: Final = {
    "alnum": ranges_of("09AZaz"),
    "alpha": ranges_of("AZaz"),
    "ascii": ranges_of("\x00\x7f"),
    "blank": ranges_of("\t\t  "),
    "cntrl": ranges_of("\x00\x1f\x7f\x7f"),
    "digit": ranges_of("09"),
    "graph": ranges_of("!~"),
    "lower": ranges_of("az"),
    "print": ranges_of(" ~"),
    "punct": ranges_of("!/:@[`{~"),
    "space": ranges_of("\t\r  "),
    "upper": ranges_of("AZ"),
    "word": ranges_of("09AZ__az"),
    "xdigit": ranges_of("09AFaf"),
}
_CATEGORY: Final = re.compile("C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")
_SCRIPTS: Final = {
    "Arabic": "ARABIC ",
    "Armenian": "ARMENIAN ",
    "Bengali": "BENGALI ",
    "Cyrillic": "CYRILLIC ",
    "Devanagari": "DEVANAGARI ",
    "Georgian": "GEORGIAN ",
    "Greek": "GREEK ",
    "Han": "CJK ",
    "Hangul": "HANGUL ",
    "Hebrew": "HEBREW ",
    "Hiragana": "HIRAGANA ",
    "Katakana": "KATAKANA ",
    "Latin": "LATIN ",
    "Thai": "THAI ",
}


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the ranges sorted, with touching ranges joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def inverted(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return all code points outside of the ranges."""
    gaps = []
    start = 0
    for first, last in merged(ranges):
        if start < first:
            gaps.append((start, first - 1))
        start = last + 1
    return (*gaps, (start, MAX_RUNE)) if start <= MAX_RUNE else tuple(gaps)


def folded(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the ranges with all characters that differ from them only in case."""
    desired = merged(ranges)
    return merged(
        [*desired, *((code, code) for first, last in desired for code in _other_cases(first, last))]
    )


def _other_cases(first: int, last: int) -> Iterator[int]:
    for code in range(first, min(last, _LAST_CASED) + 1):
        character = chr(code)
        for other in (character.lower(), character.upper(), *_ODD_CASES.get(character, "")):
            if len(other) == 1 and other != character:
                yield ord(other)


# Groups of characters with the same other case: ``upper`` and ``lower`` do not lead to all of these characters.
_ORBITS: Final = (
    "kK\u212a sS\u017f \u00e5\u00c5\u212b \u00b5\u03bc\u039c \u03c2\u03c3\u03a3 \u03b2\u03d0\u0392 \u03b5\u03f5\u0395 "
    "\u03b8\u03d1\u0398\u03f4 \u03b9\u1fbe\u0399\u0345 \u03ba\u03f0\u039a \u03c0\u03d6\u03a0 \u03c1\u03f1\u03a1 "
    "\u03c6\u03d5\u03a6 \u03c9\u03a9\u2126 \u00df\u1e9e"
)
_ODD_CASES: Final = {letter: orbit for orbit in _ORBITS.split() for letter in orbit}


def property_named(name: str) -> str | None:
    """Return the category for ``\\p{name}``, or the beginning of a Unicode name, or ``None`` if it is unknown."""
    return name if _CATEGORY.fullmatch(name) else _SCRIPTS.get(name)


@dataclass(frozen=True)
class CharacterClass:
    """A set of characters: ranges of code points and Unicode properties, which may be negated."""

    ranges: Ranges
    properties: tuple[tuple[str, bool], ...] = ()
    negated: bool = False

    @cached_property
    def _firsts(self) -> list[int]:
        return [first for first, _ in self.ranges]

    def has(self, character: str) -> bool:
        """Return whether the character is in the set."""
        code = ord(character)
        index = bisect_right(self._firsts, code) - 1
        inside = index >= 0 and code <= self.ranges[index][1]
        if not inside and self.properties:
            inside = any(_has_property(character, name) is wanted for name, wanted in self.properties)
        return inside is not self.negated

    def plain(self) -> Ranges | None:
        """Return the set as ranges alone, or ``None`` if it needs properties."""
        if self.properties:
            return None
        return inverted(self.ranges) if self.negated else self.ranges


def _has_property(character: str, name: str) -> bool:
    if len(name) <= 2:
        return unicodedata.category(character).startswith(name)
    return unicodedata.name(character, "").startswith(name)
