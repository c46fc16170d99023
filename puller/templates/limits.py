"""How long a template may run and how much text it may make.

* A loop or recursion without end stops at a time or depth limit; gigantic text stops before it is built.
* The clock is looked at where work repeats: at the first round of a loop and some of the others, and at each call of a
  block or partial.
* Text counts when it is long and a template makes or writes it, so that short values cost nothing; a value
  that is written twice counts twice.
* Nothing here knows an engine: what is raised is a sentence, to which the engine adds the place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from puller.templates.template_errors import FunctionError

LONG_TEXT: Final = 4096
"""Characters from which on a text counts; whoever makes or writes one calls ``Budget.spend``."""

_STEPS_BETWEEN_LOOKS: Final = 128  # a round may be short, and asking the clock is not free
PIECES_AT_ONCE: Final = 256
"""Pieces of text that are counted together; short ones cost nothing before."""


class Exceeded(FunctionError):
    """A limit was reached; ``str()`` is a sentence with the limit. Engines raise it on as LimitError."""


class Limits(NamedTuple):
    """Of one rendering: ``seconds`` of wall clock, ``characters`` of long text, ``depth`` of nested calls."""

    seconds: float = 20.0
    characters: int = 64 * 1024 * 1024
    depth: int = 100


DEFAULT_LIMITS: Final = Limits()


class Budget:
    """The rest of the limits during one rendering, the partials that it renders included.

    The ``Meter`` of expressions differs: it belongs to a thread, counts each value, and reads the clock each time.
    That would slow loops of templates down. The budget of archives counts bytes and has no clock.
    """

    __slots__ = ("_characters", "_clock", "_deadline", "_depth", "_steps", "limits")

    def __init__(self, limits: Limits = DEFAULT_LIMITS, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._deadline = clock() + limits.seconds
        self._characters = limits.characters
        self._depth = limits.depth
        self._steps = _STEPS_BETWEEN_LOOKS

    def step(self) -> None:
        """Once for each round of a loop. Raises Exceeded when the time is over."""
        self._steps -= 1
        if self._steps < 0:
            self._steps = _STEPS_BETWEEN_LOOKS
            self.look()

    def look(self) -> None:
        """Look at the clock now. Raises Exceeded when the time is over."""
        if self._clock() > self._deadline:
            raise Exceeded(f"the template runs for more than {self.limits.seconds:g} seconds")

    def spend(self, characters: int) -> None:
        """Before long text is made or written. Raises Exceeded when there would be too much of it."""
        self._characters -= characters
        if self._characters < 0:
            raise Exceeded(f"the template makes more than {self.limits.characters} characters of text")
        self.look()

    def enter(self) -> None:
        """Before the call of a block or partial, with ``leave`` after it. Raises Exceeded when too deep."""
        # Counted before it is refused, since callers leave in a ``finally``.
        self._depth -= 1
        if self._depth < 0:
            raise Exceeded(f"templates and blocks call one another more than {self.limits.depth} levels deep")
        if self._clock() > self._deadline:
            self.look()

    def leave(self) -> None:
        """After the call, whether it failed or not."""
        self._depth += 1


class Pieces:
    """Text that grows piece by piece, of any number: it is paid for in parts, short pieces included."""

    __slots__ = ("_budget", "_parts", "_pieces")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._parts: list[str] = []
        self._pieces: list[str] = []

    @property
    def none(self) -> bool:
        """Whether nothing was added yet."""
        return not self._pieces and not self._parts

    def add(self, text: str) -> None:
        """One more piece. Raises Exceeded when there is too much text."""
        self._pieces.append(text)
        if len(self._pieces) >= PIECES_AT_ONCE:
            self._join()

    def take(self, texts: list[str]) -> None:
        """More pieces, which are taken out of the list. Raises Exceeded when there is too much text."""
        self._pieces += texts
        texts.clear()
        if len(self._pieces) >= PIECES_AT_ONCE:
            self._join()

    def joined(self) -> str:
        """The whole text. Raises Exceeded when there is too much of it."""
        self._join()
        return self._parts[0] if len(self._parts) == 1 else "".join(self._parts)

    def _join(self) -> None:
        length = sum(map(len, self._pieces))
        if length >= LONG_TEXT or self._parts:  # before they are one text, which may be too long
            self._budget.spend(length)
        self._parts.append("".join(self._pieces))
        self._pieces.clear()
