"""Parses regular expressions into trees. The language is RE2 as Go reads it.

* Look-around and back-references are rejected, since they cannot be matched in linear time.
* ``\\d \\s \\w \\b`` are about ASCII. ``$`` is the end of the text, not the place before a last newline.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from puller.templates.gotemplate.re2.classes import (
    MAX_RUNE,
    PERL,
    POSIX,
    CharacterClass,
    Ranges,
    folded,
    inverted,
    merged,
    property_named,
)

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
