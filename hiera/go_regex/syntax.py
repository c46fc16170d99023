r"""Parses regular expressions into trees. The language is RE2 as Go reads it.

* Look-around and back-references are rejected, since they cannot be matched in linear time.
* ``\d \s \w \b`` are about ASCII. ``$`` is the end of the text, not the place before a last newline.

Sets of characters: ranges, named classes of Perl and POSIX, categories and scripts of Unicode, and case folding.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

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
            inside = any(_has_property(character, name) is desired for name, desired in self.properties)
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


_MAX_REPEAT: Final = 1000  # Go's limit, for a single repetition and for nested repetitions
_MAX_NESTING: Final = 100
_SIMPLE_ESCAPES: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_REPEAT: Final = re.compile(r"\{(0|[1-9][0-9]{0,6})(?:(,)(0|[1-9][0-9]{0,6})?)?\}")
_FLAGS: Final = re.compile(r"([imsU]*)(-[imsU]+)?([:)])")
_GROUP_NAME: Final = re.compile(r"\w+", re.ASCII)
_OCTAL: Final = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_HEXADECIMAL: Final = re.compile(r"x(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]{1,8})\})")
_POSIX_NAME: Final = re.compile(r"\[:(\^?)(\w+):\]")
_PROPERTY: Final = re.compile(r"[pP](?:([^{])|\{(\^?)([^}]*)\})")


class PatternError(ValueError):
    """An invalid regular expression. ``str()`` is a message that quotes the invalid part."""


class Assertion(NamedTuple):
    """An assertion about a place: ``A`` and ``z`` (text), ``^`` and ``$`` (line), ``b`` and ``B`` (word)."""

    kind: str


class Sequence(NamedTuple):
    """Parts in order."""

    items: tuple[Tree, ...]


class Choice(NamedTuple):
    """Alternatives, in the order in which they are tried."""

    branches: tuple[Tree, ...]


class Repeat(NamedTuple):
    """A repetition. ``most`` is ``None`` without a limit."""

    item: Tree
    least: int
    most: int | None
    greedy: bool


class Capture(NamedTuple):
    """A group with a recorded span."""

    item: Tree
    number: int


Tree = CharacterClass | Assertion | Sequence | Choice | Repeat | Capture


class Pattern(NamedTuple):
    """``names`` has the name of each group, or empty text. Group 0 is the whole match."""

    tree: Tree
    names: tuple[str, ...]


class _Flags(NamedTuple):
    fold: bool = False
    lines: bool = False
    dot_newline: bool = False
    lazy: bool = False


def parse(text: str) -> Pattern:
    """Return the tree of a pattern. Raises PatternError."""
    parser = _Parser(text)
    tree = parser.choice(_Flags(), 0)
    if parser.position < len(text):
        raise PatternError(f"unexpected ): `{text}`")
    return Pattern(tree, tuple(parser.names))


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.names = [""]

    def _at(self, text: str) -> bool:
        return self.text.startswith(text, self.position)

    def _take(self, text: str) -> bool:
        result = self._at(text)
        self.position += len(text) if result else 0
        return result

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match

    def choice(self, flags: _Flags, depth: int) -> Tree:
        """Read branches up to the end of the group or text. Flags set in a branch apply to later branches too."""
        if depth > _MAX_NESTING:
            raise PatternError(f"more than {_MAX_NESTING} groups inside one another")
        branches = []
        while True:
            branch, flags = self._sequence(flags, depth)
            branches.append(branch)
            if not self._take("|"):
                return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self, flags: _Flags, depth: int) -> tuple[Tree, _Flags]:
        items: list[Tree] = []
        repeated = ""  # the operator of the last item
        while self.position < len(self.text) and self.text[self.position] not in "|)":
            start = self.position
            if self._take("\\Q"):
                items += self._quoted(flags)
                repeated = ""
            elif (bounds := self._repeat_bounds()) is not None:
                items[-1:] = [self._repeated(items, bounds, flags, start, repeated)]
                repeated = self.text[start : self.position]
            elif self._at("(?") and (changed := self._flag_change(flags)) is not None:
                flags = changed
            else:
                items.append(self._item(flags, depth))
                repeated = ""
        return (items[0] if len(items) == 1 else Sequence(tuple(items))), flags

    # Repetition ------------------------------------------------------------------------------------------------------

    def _repeat_bounds(self) -> tuple[int, int | None] | None:
        for operator, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(operator):
                return bounds
        match = self._match(_REPEAT)
        if match is None:
            return None
        least = int(match[1])
        most = least if match[2] is None else int(match[3]) if match[3] else None
        if least > _MAX_REPEAT or (most is not None and not least <= most <= _MAX_REPEAT):
            raise PatternError(f"invalid repeat count: `{match[0]}`")
        return least, most

    def _repeated(
        self, items: list[Tree], bounds: tuple[int, int | None], flags: _Flags, start: int, repeated: str
    ) -> Tree:
        # The flag U swaps both: ``a*`` becomes lazy, and ``a*?`` greedy.
        lazy = self._take("?") is not flags.lazy
        operator = self.text[start : self.position]
        if repeated:
            raise PatternError(f"invalid nested repetition operator: `{repeated}{operator}`")
        if not items:
            raise PatternError(f"missing argument to repetition operator: `{operator}`")
        node = Repeat(items[-1], *bounds, not lazy)
        if _copies(node) > _MAX_REPEAT:
            raise PatternError(f"invalid repeat count: `{operator}`")
        return node

    # Groups ----------------------------------------------------------------------------------------------------------

    def _item(self, flags: _Flags, depth: int) -> Tree:
        start = self.position
        character = self.text[start]
        if character == "(":
            return self._group(flags, depth)
        if character == "[":
            return self._bracketed(flags)
        if character == "\\":
            return self._escaped(flags)
        self.position += 1
        if character == "^":
            return Assertion("^" if flags.lines else "A")
        if character == "$":
            return Assertion("$" if flags.lines else "z")
        if character == ".":
            return CharacterClass(() if flags.dot_newline else ((10, 10),), negated=True)
        return _literal(ord(character), flags)

    def _group(self, flags: _Flags, depth: int) -> Tree:
        start = self.position
        self.position += 1
        number = None
        if self._at("?"):
            changed = self._flags_of_group(flags)
            if changed is None:
                number = self._named_group()
            else:
                flags = changed
        else:
            number = self._new_group("")
        tree = self.choice(flags, depth + 1)
        if not self._take(")"):
            raise PatternError(f"missing closing ): `{self.text[start:]}`")
        return tree if number is None else Capture(tree, number)

    def _new_group(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1

    def _named_group(self) -> int:
        start = self.position - 1
        if not (self._take("?P<") or (not self._at("?<=") and not self._at("?<!") and self._take("?<"))):
            raise PatternError(f"invalid or unsupported Perl syntax: `{self.text[start : start + 4]}`")
        name = self._match(_GROUP_NAME)
        if name is None or not self._take(">"):
            raise PatternError(f"invalid named capture: `{self.text[start:]}`")
        if name[0] in self.names:
            raise PatternError(f"duplicate capture group name: `{name[0]}`")
        return self._new_group(name[0])

    def _flags_of_group(self, flags: _Flags) -> _Flags | None:
        """Read flags such as ``?i:`` after the parenthesis. Return ``None`` without flags."""
        match = _FLAGS.match(self.text, self.position + 1)
        if match is None or match[3] != ":":
            return None
        self.position = match.end()
        return _changed(flags, match)

    def _flag_change(self, flags: _Flags) -> _Flags | None:
        """Read ``(?i)``, which applies up to the end of its group."""
        match = _FLAGS.match(self.text, self.position + 2)
        if match is None or match[3] != ")":
            return None
        self.position = match.end()
        return _changed(flags, match)

    # Characters ------------------------------------------------------------------------------------------------------

    def _quoted(self, flags: _Flags) -> list[Tree]:
        """Read ``\\Q...\\E``. Without ``\\E`` it extends to the end."""
        end = self.text.find("\\E", self.position)
        quoted = self.text[self.position : end if end >= 0 else None]
        self.position = end + 2 if end >= 0 else len(self.text)
        return [_literal(ord(character), flags) for character in quoted]

    def _escaped(self, flags: _Flags) -> Tree:
        kind = self.text[self.position + 1 : self.position + 2]
        if kind and kind in "AzbB":
            self.position += 2
            return Assertion(kind)
        return self._class_escape(flags) or _literal(self._code_escape(), flags)

    def _class_escape(self, flags: _Flags) -> CharacterClass | None:
        """Read ``\\d``, ``\\pL`` and similar escapes."""
        kind = self.text[self.position + 1 : self.position + 2]
        if kind and kind in "dswDSW":
            self.position += 2
            ranges = folded(PERL[kind.lower()]) if flags.fold else PERL[kind.lower()]
            return CharacterClass(ranges, negated=kind.isupper())
        match = _PROPERTY.match(self.text, self.position + 1)
        if match is None:
            return None
        self.position = match.end()
        return _property_class(match, flags)

    def _code_escape(self) -> int:
        start = self.position
        self.position += 1
        character = self.text[self.position : self.position + 1]
        if not character:
            raise PatternError("trailing backslash at end of expression: ``")
        if octal := self._match(_OCTAL):
            return int(octal[0], 8)
        if hexadecimal := self._match(_HEXADECIMAL):
            code = int(hexadecimal[1] or hexadecimal[2], 16)
        else:
            self.position += 1
            code = _SIMPLE_ESCAPES.get(character, ord(character))
            if not character.isascii() or (character.isalnum() and character not in _SIMPLE_ESCAPES):
                code = -1
        if not 0 <= code <= MAX_RUNE:
            raise PatternError(f"invalid escape sequence: `{self.text[start : self.position]}`")
        return code

    def _bracketed(self, flags: _Flags) -> CharacterClass:
        start = self.position
        self.position += 1
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        properties: list[tuple[str, bool]] = []
        first = True
        # A bracket in the first place is an ordinary character: ``[]a]``.
        while first or not self._at("]"):
            first = False
            if self.position >= len(self.text):
                raise PatternError(f"missing closing ]: `{self.text[start:]}`")
            named = self._named_class(flags)
            if named is None:
                ranges.append(self._range())
            else:
                ranges += inverted(named.ranges) if named.negated else named.ranges
                properties += named.properties
        self.position += 1
        return CharacterClass(_as_written(ranges, flags), tuple(properties), negated)

    def _named_class(self, flags: _Flags) -> CharacterClass | None:
        if self._at("\\"):
            return self._class_escape(flags)
        match = self._match(_POSIX_NAME)
        if match is None:
            return None
        if match[2] not in POSIX:
            raise PatternError(f"invalid character class range: `{match[0]}`")
        return CharacterClass(POSIX[match[2]], negated=bool(match[1]))

    def _range(self) -> tuple[int, int]:
        start = self.position
        first = self._class_character()
        last = first
        if self._at("-") and not self._at("-]") and self.position + 1 < len(self.text):
            self.position += 1
            last = self._class_character()
        if last < first:
            raise PatternError(f"invalid character class range: `{self.text[start : self.position]}`")
        return first, last

    def _class_character(self) -> int:
        if self._at("\\"):
            return self._code_escape()
        if self.position >= len(self.text):
            raise PatternError(f"missing closing ]: `{self.text}`")
        self.position += 1
        return ord(self.text[self.position - 1])


def _as_written(ranges: list[tuple[int, int]], flags: _Flags) -> Ranges:
    return folded(ranges) if flags.fold else merged(ranges)


def _literal(code: int, flags: _Flags) -> CharacterClass:
    return CharacterClass(_as_written([(code, code)], flags))


def _property_class(match: re.Match[str], flags: _Flags) -> CharacterClass:
    name = match[1] or match[3]
    desired = (match[0][0] == "p") is not bool(match[2])
    if name == "Any":
        return CharacterClass((), negated=desired)
    known = property_named(name)
    if known is None:
        raise PatternError(f"invalid character class range: `\\{match[0]}`")
    if flags.fold and known in ("Lu", "Ll", "Lt"):
        properties = tuple((cased, True) for cased in ("Lu", "Ll", "Lt"))
        return CharacterClass((), properties, negated=not desired)
    return CharacterClass((), ((known, desired),))


def _changed(flags: _Flags, match: re.Match[str]) -> _Flags:
    for letters, value in ((match[1], True), (match[2] or "", False)):
        for letter, name in (("i", "fold"), ("m", "lines"), ("s", "dot_newline"), ("U", "lazy")):
            if letter in letters:
                flags = flags._replace(**{name: value})
    return flags


def _copies(tree: Tree) -> int:
    """Return how often counted repetitions repeat the innermost item."""
    match tree:
        case Repeat(item, least, most):
            return max(1, least if most is None else most) * _copies(item)
        case Capture(item):
            return _copies(item)
        case Sequence(items) | Choice(items):
            return max(map(_copies, items), default=1)
    return 1
