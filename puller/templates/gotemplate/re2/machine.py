"""Matching in linear time: a small machine that never visits a state twice.

* A pattern becomes a program. A state is an instruction and a position; a state from which no match was found is not
  tried again, so the work is at most program × text.
* Of several matches the leftmost wins, then the one that a backtracking matcher would find first, as in Perl and RE2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from puller.templates.gotemplate.re2.classes import CharacterClass
from puller.templates.gotemplate.re2.syntax import (
    Assertion,
    Capture,
    Choice,
    Pattern,
    PatternError,
    Repeat,
    Sequence,
    Tree,
)

_MAX_PROGRAM: Final = 20_000
_MAX_POSITIONS: Final = 1_000_000
_STEPS_BETWEEN_LOOKS: Final = 4096

Span = tuple[int, int]
Match = list[Span | None]
"""Where each group matched, the whole match first; None for a group that took no part."""


@dataclass(slots=True)
class _Instruction:
    """Where to go on from here; ``then`` first, ``otherwise`` if that leads nowhere (-1: nowhere else)."""

    test: CharacterClass | None = None  # takes one character of this class
    place: str = ""  # an Assertion's kind
    slot: int = -1  # remembers the position: 2n is where group n begins, 2n+1 where it ends
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
        """The entry of the code for ``tree`` that goes on at ``then``."""
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
        # An item that may be empty must not use up the place after a round before its first round.
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
    """Runs a program over texts. ``look`` is called now and then, and may raise to stop a long search."""

    def __init__(self, program: Program, look: Callable[[], None]) -> None:
        self._program = program
        self._look = look
        self._steps = 0

    def search(self, text: str, start: int) -> Match | None:
        """The first match at or after ``start``."""
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
        # What is left to try: a state, or a slot to set back (as a negative number) when all after it has failed.
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
    """Whether an assertion holds at a position."""
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
