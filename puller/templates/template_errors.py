"""Errors of templates, the source text that adds a place to them, and limits on time and on the amount of text.

Errors, grouped by the person who must act:

* ``TemplateError``: the author of the template. It cannot be parsed, or fails while it renders.
* ``LimitError``, a ``TemplateError``: it takes too long, nests too deeply or produces too much text. ``try`` in a
  template does not catch it.
* ``FunctionError``: raised by functions that templates call, with a sentence. The engine adds the place.
* ``SkippedEmpty``, a ``FunctionError``: ``render`` of a partial with blank output, in a tree that skips blank files.

Limits:

* An endless loop or recursion stops at a time or depth limit. Gigantic text stops before it is built.
* The clock is checked where work repeats: in the first round of a loop and at intervals after it, and at each call of a
  block or partial.
* Only long texts count, when a template makes or writes them, so that short values cost nothing. A value that is
  written twice counts twice.
* This module does not depend on an engine. Errors are sentences, to which the source text adds the position.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foundation.formatting import suggestions_text
from foundation.problems import DependsOn, Location, ProblemCode
from foundation.suggestions import nearest
from puller.errors import ResourceError

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_CANDIDATES: Final = 500
_LONGEST_NAME: Final = 100  # characters: comparing takes time by the product of both lengths
_FACTS: Final = frozenset({"facts", "Facts", "environ", "Environ"})
_AROUND: Final = 100  # characters of a line on both sides of an error


class TemplateError(ResourceError):
    """A template that cannot be parsed or rendered. ``str()`` is ``file:line:column: sentence``.

    ``line`` and ``column`` count from 1. A tab is one column. ``source_line`` is that line of the template.
    ``is_of_text``: the message quotes only the template, never a value.
    """

    code = ProblemCode.TEMPLATE_FAILS
    is_of_text = False

    def __init__(
        self, file: str, line: int, column: int, message: str, source_line: str = "", name: str = ""
    ) -> None:
        location = Location(file, line, column, is_exact=True)
        super().__init__(message, location=location, name=name, depends_on=_depends_of(source_line))
        self.file = file
        self.line = line
        self.column = column
        self.source_line = source_line

    def excerpt(self) -> str:
        """Return the line of the template, shortened around the column if it is very long, and a caret below it."""
        start = max(0, self.column - 1 - _AROUND) if len(self.source_line) > 2 * _AROUND else 0
        shown = self.source_line[start : start + 2 * _AROUND]
        indent = "".join("\t" if c == "\t" else " " for c in shown[: self.column - 1 - start])
        return f"{shown}\n{indent}^"


class LimitError(TemplateError):
    """A template that is endless, or whose output is too large."""

    code = ProblemCode.LIMIT_EXCEEDED


class FunctionError(Exception):
    """An error of a function that a template calls. The engine adds the place: TemplateError."""


class SkippedEmpty(FunctionError):
    """Raised by ``render`` for a blank partial if blank files are skipped: Jet fails, Go leaves out the caller."""


def _depends_of(source_line: str) -> DependsOn:
    """Return the sources that a line of a template reads. A value that another line has set counts as data."""
    words = set(re.findall(r"\w+", source_line))
    return DependsOn.FACTS if words & _FACTS else DependsOn.DATA


def similar_names(name: str, known: Iterable[Any]) -> str:
    """Return the suggestions for an unknown name, as the end of its message."""
    candidates = [str(other)[:_LONGEST_NAME] for other in known][:_MOST_CANDIDATES]
    return suggestions_text(nearest(name[:_LONGEST_NAME], candidates))


LONG_TEXT: Final = 4096
"""Texts from this length on count: code that makes or writes one calls ``Budget.spend``."""

_STEPS_BETWEEN_LOOKS: Final = 128  # a round may be short, and reading the clock is not free
PIECES_AT_ONCE: Final = 256
"""Pieces of text that are counted together. Shorter lists of pieces cost nothing."""


class Exceeded(FunctionError):
    """A limit was reached. ``str()`` is a sentence with the limit. Engines convert it to LimitError."""


class Limits(NamedTuple):
    """Limits of a rendering: ``seconds`` of wall clock, ``characters`` of long text, ``depth`` of nested calls."""

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
        """Count a round of a loop. Raises Exceeded after the time limit."""
        self._steps -= 1
        if self._steps < 0:
            self._steps = _STEPS_BETWEEN_LOOKS
            self.look()

    def look(self) -> None:
        """Check the clock now. Raises Exceeded after the time limit."""
        if self._clock() > self._deadline:
            raise Exceeded(f"the template runs for more than {self.limits.seconds:g} seconds")

    def spend(self, characters: int) -> None:
        """Count long text before it is made or written. Raises Exceeded if it is too much."""
        self._characters -= characters
        if self._characters < 0:
            raise Exceeded(f"the template makes more than {self.limits.characters} characters of text")
        self.look()

    def enter(self) -> None:
        """Enter a block or partial, with ``leave`` after it. Raises Exceeded if it is nested too deeply."""
        # Counted before the check, since callers leave in a ``finally``.
        self._depth -= 1
        if self._depth < 0:
            raise Exceeded(f"templates and blocks call one another more than {self.limits.depth} levels deep")
        if self._clock() > self._deadline:
            self.look()

    def leave(self) -> None:
        """Leave a block or partial, even after a failure."""
        self._depth += 1


class Pieces:
    """Text that grows in any number of pieces. It is counted in parts, including short pieces."""

    __slots__ = ("_budget", "_parts", "_pieces")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._parts: list[str] = []
        self._pieces: list[str] = []

    @property
    def none(self) -> bool:
        """Return whether nothing was added yet."""
        return not self._pieces and not self._parts

    def add(self, text: str) -> None:
        """Add a piece. Raises Exceeded if the text is too long."""
        self._pieces.append(text)
        if len(self._pieces) >= PIECES_AT_ONCE:
            self._join()

    def take(self, texts: list[str]) -> None:
        """Move all pieces out of the list. Raises Exceeded if the text is too long."""
        self._pieces += texts
        texts.clear()
        if len(self._pieces) >= PIECES_AT_ONCE:
            self._join()

    def joined(self) -> str:
        """Return the whole text. Raises Exceeded if it is too long."""
        self._join()
        return self._parts[0] if len(self._parts) == 1 else "".join(self._parts)

    def _join(self) -> None:
        length = sum(map(len, self._pieces))
        if (
            length >= LONG_TEXT or self._parts
        ):  # checked before joining, since the joined text may be too long
            self._budget.spend(length)
        self._parts.append("".join(self._pieces))
        self._pieces.clear()


class TemplateSource:
    """Name and text of a template."""

    __slots__ = ("name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def error(self, position: int, message: str, kind: type[TemplateError] = TemplateError) -> TemplateError:
        """Return an error with line and column of an offset into the text, and that line."""
        start = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        source_line = self.text[start:] if end < 0 else self.text[start:end]
        line = self.text.count("\n", 0, position) + 1
        return kind(self.name, line, position - start + 1, message, source_line.rstrip("\r"))

    def limit(self, position: int, exceeded: Exceeded | str) -> TemplateError:
        """Return an error for a limit that was exceeded at this place."""
        return self.error(position, str(exceeded), LimitError)
