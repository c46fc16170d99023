"""Regular expressions with the interface of Go's ``regexp``: find, replace, split.

* Python's ``re`` runs a pattern if it is certain to be fast and to find the same matches. Other patterns run on the
  ``Machine`` in linear time.
* The machine runs a pattern as a program. A state is an instruction and a position. A state that led to no match is
  never visited again, so the work is at most program × text.
* The leftmost match wins, then the match that a backtracking matcher finds first, as in Perl and RE2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hiera.go_regex.syntax import (
    Assertion,
    Capture,
    CharacterClass,
    Choice,
    Pattern,
    PatternError,
    Repeat,
    Sequence,
    Tree,
    parse,
)

# The machine.

_MAX_PROGRAM: Final = 20_000
_MAX_POSITIONS: Final = 1_000_000
_STEPS_BETWEEN_LOOKS: Final = 4096

Span = tuple[int, int]
Match = list[Span | None]
"""The span of each group, the whole match first. ``None`` for a group outside of the match."""


@dataclass(slots=True)
class _Instruction:
    """A step of the program. ``then`` is tried first, then ``otherwise`` (-1: no alternative)."""

    test: CharacterClass | None = None  # accepts a character of this class
    place: str = ""  # the kind of an Assertion
    slot: int = -1  # records the position: 2n is the start of group n, 2n+1 its end
    then: int = -1
    otherwise: int = -1


class Program:
    """A compiled pattern."""

    def __init__(self, pattern: Pattern) -> None:
        self.code: list[_Instruction] = []
        self.slots = 2 * len(pattern.names)
        # Compiled from the end, so that each instruction knows its successor. Instruction 0 is the match.
        self._add(_Instruction())
        self.start = self._compile(Capture(pattern.tree, 0), 0)

    def _add(self, instruction: _Instruction) -> int:
        if len(self.code) >= _MAX_PROGRAM:
            raise PatternError("expression is too large")
        self.code.append(instruction)
        return len(self.code) - 1

    def _compile(self, tree: Tree, then: int) -> int:
        """Return the entry of the code for ``tree`` that continues at ``then``."""
        match tree:
            case CharacterClass():
                return self._add(_Instruction(test=tree, then=then))
            case Assertion(kind):
                return self._add(_Instruction(place=kind, then=then))
            case Capture(item, number):
                end = self._add(_Instruction(slot=2 * number + 1, then=then))
                return self._add(_Instruction(slot=2 * number, then=self._compile(item, end)))
            case Sequence(items):
                for item in reversed(items):
                    then = self._compile(item, then)
                return then
            case Choice(branches):
                return self._choice([self._compile(branch, then) for branch in branches])
            case Repeat():
                return self._repeat(tree, then)

    def _choice(self, entries: list[int]) -> int:
        entry = entries[-1]
        for other in reversed(entries[:-1]):
            entry = self._add(_Instruction(then=other, otherwise=entry))
        return entry

    def _fork(self, inside: int, outside: int, greedy: bool) -> int:
        first, second = (inside, outside) if greedy else (outside, inside)
        return self._add(_Instruction(then=first, otherwise=second))

    def _repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            then = self._loop(node, then)
        else:
            outside = then
            for _ in range(node.most - node.least):
                then = self._fork(self._compile(node.item, then), outside, node.greedy)
        for _ in range(node.least):
            then = self._compile(node.item, then)
        return then

    def _loop(self, node: Repeat, then: int) -> int:
        again = self._fork(-1, then, node.greedy)
        inside = self._compile(node.item, again)
        if node.greedy:
            self.code[again].then = inside
        else:
            self.code[again].otherwise = inside
        # An item that may be empty must not mark the place after a round as visited before its first round.
        return self._fork(inside, then, node.greedy) if _may_be_empty(node.item) else again


def _may_be_empty(tree: Tree) -> bool:
    match tree:
        case CharacterClass():
            return False
        case Capture(item):
            return _may_be_empty(item)
        case Sequence(items):
            return all(map(_may_be_empty, items))
        case Choice(branches):
            return any(map(_may_be_empty, branches))
        case Repeat(item, least):
            return least == 0 or _may_be_empty(item)
    return True


class Machine:
    """Runs a program over texts. ``look`` is called regularly, and may raise to stop a long search."""

    def __init__(self, program: Program, look: Callable[[], None]) -> None:
        self._program = program
        self._look = look
        self._steps = 0

    def search(self, text: str, start: int) -> Match | None:
        """Return the first match at or after ``start``."""
        visited: dict[int, int] = {}  # for each position the instructions tried there, one bit each
        for position in range(start, len(text) + 1):
            slots = self._run(text, position, visited)
            if slots is not None:
                pairs = zip(slots[::2], slots[1::2], strict=True)
                return [(begin, end) if end >= 0 else None for begin, end in pairs]
        return None

    def _run(self, text: str, position: int, visited: dict[int, int]) -> list[int] | None:
        code = self._program.code
        slots = [-1] * self._program.slots
        # Pending work: a state to try, or a slot to restore (as a negative number) after a failure.
        pending: list[tuple[int, int]] = [(self._program.start, position)]
        while pending:
            pc, position = pending.pop()
            if pc < 0:
                slots[-pc - 1] = position
            while pc >= 0:
                tried = visited.get(position, 0)
                if tried >> pc & 1:
                    break
                visited[position] = tried | 1 << pc
                self._count(visited)
                instruction = code[pc]
                if pc == 0:
                    return slots
                if instruction.test is not None:
                    if position >= len(text) or not instruction.test.has(text[position]):
                        break
                    position += 1
                elif instruction.place:
                    if not holds(instruction.place, text, position):
                        break
                elif instruction.slot >= 0:
                    pending.append((-instruction.slot - 1, slots[instruction.slot]))
                    slots[instruction.slot] = position
                elif instruction.otherwise >= 0:
                    pending.append((instruction.otherwise, position))
                pc = instruction.then
        return None

    def _count(self, visited: dict[int, int]) -> None:
        self._steps += 1
        if self._steps % _STEPS_BETWEEN_LOOKS == 0:
            if len(visited) > _MAX_POSITIONS:
                raise PatternError("the text is too long for this expression")
            self._look()


def holds(place: str, text: str, position: int) -> bool:
    """Return whether an assertion holds at a position."""
    match place:
        case "A":
            return position == 0
        case "z":
            return position == len(text)
        case "^":
            return position == 0 or text[position - 1] == "\n"
        case "$":
            return position == len(text) or text[position] == "\n"
    boundary = _is_word(text[position - 1 : position] if position else "") != _is_word(
        text[position : position + 1]
    )
    return boundary is (place == "b")


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


_MAX_WAYS: Final = 1_000_000  # that Python's matcher may try, instead of the machine
_META: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
_REFERENCE: Final = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")
_PLACES: Final = {"A": r"\A", "z": r"\Z", "^": r"(?:\A|(?<=\n))", "$": r"(?=\n|\Z)", "b": r"\b"}


def quote_meta(text: str) -> str:
    """Return the text with a backslash before each special character of patterns."""
    return _META.sub(r"\\\g<0>", text)


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Regexp:
    """Return the compiled pattern. Raises PatternError."""
    return Regexp(parse(text))


def is_found(pattern: Regexp, text: str) -> bool:
    """Return whether a pattern matches somewhere in a short text, without a budget of time."""
    return pattern.find(text, lambda: None) is not None


class Regexp:
    """A pattern for any text. Long searches call ``look`` regularly."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._quick = _translated(pattern.tree)
        self._is_empty = isinstance(pattern.tree, Sequence) and not pattern.tree.items
        self._program: Program | None = None

    def _searcher(self, text: str, look: Callable[[], None]) -> Callable[[int], Match | None]:
        quick = self._quick
        if quick is not None and (len(text) + 1) * _ways(self._pattern.tree, len(text)) <= _MAX_WAYS:
            return lambda start: _spans(quick.search(text, start))
        if self._program is None:
            self._program = Program(self._pattern)
        machine = Machine(self._program, look)
        return lambda start: machine.search(text, start)

    def find(self, text: str, look: Callable[[], None]) -> str | None:
        """Return the first match."""
        result = self._searcher(text, look)(0)
        return None if result is None else _text_of(result, 0, text)

    def find_all(self, text: str, count: int, look: Callable[[], None]) -> list[str]:
        """Return the first ``count`` matches, all for a negative count.

        An empty match does not directly follow another match.
        """
        return [text[start:end] for start, end in self._spans(text, count, look)]

    def _spans(self, text: str, count: int, look: Callable[[], None]) -> Iterator[tuple[int, int]]:
        search = self._searcher(text, look)
        position, before = 0, -1
        while count != 0 and position <= len(text) and (result := search(position)) is not None:
            start, end = _whole(result)
            is_repeated_gap = end == position and start == before
            position = position + 1 if end == position else end
            before = end
            if not is_repeated_gap:
                count -= 1
                yield start, end

    def replace_all(self, text: str, expand: Callable[[Match], str], look: Callable[[], None]) -> str:
        """Return the text with each match replaced by the result of ``expand``."""
        search = self._searcher(text, look)
        pieces: list[str] = []
        position = copied = 0
        while position <= len(text) and (result := search(position)) is not None:
            start, end = _whole(result)
            pieces.append(text[copied:start])
            # An empty match right after a match is ignored. Otherwise "a*" would match twice at each end.
            if end > copied or start == 0:
                pieces.append(expand(result))
            copied = end
            position = max(end, position + 1)
        return "".join([*pieces, text[copied:]])

    def split(self, text: str, count: int, look: Callable[[], None]) -> list[str]:
        """Return the pieces between matches, at most ``count`` pieces if it is positive."""
        if count == 0:
            return []
        if not text and not self._is_empty:
            return [""]
        pieces: list[str] = []
        begin = end = 0
        for start, stop in self._spans(text, count, look):
            if len(pieces) == count - 1:
                break
            end = start
            # As in Go, an empty match at the very start splits nothing off.
            if stop != 0:
                pieces.append(text[begin:end])
            begin = stop
        return [*pieces, text[begin:]] if end != len(text) else pieces

    def expander(self, template: str, text: str) -> Callable[[Match], str]:
        """Return a function that expands ``$1``, ``${name}`` and ``$$`` of a replacement for a match in ``text``."""

        def expand(match: Match) -> str:
            return _REFERENCE.sub(lambda reference: self._referred(reference, match, text), template)

        return expand

    def _referred(self, reference: re.Match[str], match: Match, text: str) -> str:
        if reference[1]:
            return "$"
        name = reference[2] or reference[3]
        if name.isascii() and name.isdigit() and (name == "0" or name[0] != "0"):
            number = int(name) if len(name) < 9 else len(match)
            return _text_of(match, number, text) if number < len(match) else ""
        names = self._pattern.names
        return _text_of(match, names.index(name), text) if name in names else ""


def _whole(match: Match) -> tuple[int, int]:
    span = match[0]
    assert span is not None  # noqa: S101  for the type checker: group 0 always took part
    return span


def _text_of(match: Match, number: int, text: str) -> str:
    span = match[number]
    return "" if span is None else text[span[0] : span[1]]


def _spans(match: re.Match[str] | None) -> Match | None:
    if match is None:
        return None
    return [span if span[0] >= 0 else None for span in match.regs]


# Python's re ---------------------------------------------------------------------------------------------------------


def _translated(tree: Tree) -> re.Pattern[str] | None:
    """Return the pattern for Python, or ``None`` if it is not expressible, or if repetitions are nested."""
    try:
        return re.compile(_write(tree), re.ASCII)
    except _Untranslatable:
        return None


class _Untranslatable(Exception):
    pass


def _write(tree: Tree) -> str:
    match tree:
        case CharacterClass():
            return _write_class(tree)
        case Assertion(kind) if kind in _PLACES:  # \B differs on the empty text
            return _PLACES[kind]
        case Capture(item):
            return f"({_write(item)})"
        case Sequence(items):
            return "".join(map(_write, items))
        case Choice(branches):
            return f"(?:{'|'.join(map(_write, branches))})"
        case Repeat(item, least, most, greedy) if isinstance(item, CharacterClass) or most == 1:
            return f"(?:{_write(item)}){{{least},{'' if most is None else most}}}{'' if greedy else '?'}"
    raise _Untranslatable


def _write_class(tree: CharacterClass) -> str:
    ranges = tree.plain()
    if ranges is None:
        raise _Untranslatable
    if not ranges:
        return r"[^\x00-\U0010ffff]"
    return "[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges) + "]"


def _ways(tree: Tree, length: int) -> int:
    """Return the worst-case number of paths of a backtracking matcher from a position in a text of this length."""
    match tree:
        case Capture(item):
            return _ways(item, length)
        case Sequence(items):
            product = 1
            for item in items:
                product *= _ways(item, length)
            return product
        case Choice(branches):
            return sum(_ways(branch, length) for branch in branches)
        case Repeat(item, least, most):
            rounds = length if most is None else min(most, length)
            return _ways(item, length) + max(rounds - least, 0)
    return 1
