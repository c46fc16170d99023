"""Rows of a terminal: a row for each resource, with its differences and its diff, and the lines of a problem.

* Rows are made from events and problems. No code reads their text.
* Every text is escaped (``puller.values.foreign_text``) before colours are added.
* Names are never shortened, because users copy them. Details that do not fit beside a name are below it.
"""

import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, TextIO

import msgspec

from foundation.differences import ABSENT, Action, Difference, DifferenceKind
from foundation.formatting import ARROW, ASCII_ARROW, is_utf8, people, text_of
from foundation.problems import Problem
from puller.reporting.report import Event, State, Summary
from puller.reporting.sinks import Level
from puller.values import colour
from puller.values.foreign_text import visible, visible_line

_WIDEST = 120
"""Maximum columns. Text to the far right of a wide terminal is hard to read."""
_TYPE = 8
_NARROW_NAME, _WIDE_NAME, _WIDE_ENOUGH = 28, 40, 100
_BELOW = 13
"""The column of names, and of details below a name."""
_DIFF = 6


class Outcome(StrEnum):
    """The end of a resource, in the words of a summary."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    RUN = "run"
    RESTARTED = "restarted"
    RELOADED = "reloaded"
    PREDICTED = "would change"
    """A resource with ``noop`` in a real run."""
    FAILED = "failed"
    SKIPPED = "skipped"
    UNCHANGED = "unchanged"


class Mark(NamedTuple):
    """The symbol in front of a row, its replacement in ASCII, and its colour."""

    symbol: str
    ascii: str
    colour: str


_REPEATED = Mark("↻", "@", "cyan")
_WARNING = Mark("!", "!", "yellow")
_MARKS = {
    Outcome.ADDED: Mark("+", "+", "green"),
    Outcome.CHANGED: Mark("~", "~", "yellow"),
    Outcome.REMOVED: Mark("-", "-", "red"),
    Outcome.RUN: _REPEATED,
    Outcome.RESTARTED: _REPEATED,
    Outcome.RELOADED: _REPEATED,
    Outcome.PREDICTED: _WARNING,
    Outcome.FAILED: Mark("✗", "x", "red"),
    Outcome.SKIPPED: Mark("-", "-", "dim"),
    Outcome.UNCHANGED: Mark("✓", "=", "green"),
}
_ACTIONS = {Action.RUN: Outcome.RUN, Action.RESTART: Outcome.RESTARTED, Action.RELOAD: Outcome.RELOADED}


def outcome_of(event: Event, *, is_dry_run: bool = False) -> Outcome:
    """Return the outcome of a resource. For a dry run, return the predicted outcome of the real run."""
    match event.state:
        case State.FAILED:
            return Outcome.FAILED
        case State.SKIPPED:
            return Outcome.SKIPPED
        case State.STABLE:
            return Outcome.UNCHANGED
        case State.WOULD_CHANGE if not is_dry_run:
            return Outcome.PREDICTED
    properties = [difference for difference in event.differences if difference.action is None]
    if not properties and event.differences:
        return _ACTIONS[event.differences[0].action or Action.RUN]
    kinds = [difference.kind for difference in properties if _is_presence(difference)]
    if DifferenceKind.ADDED in kinds:
        return Outcome.ADDED
    return Outcome.REMOVED if DifferenceKind.REMOVED in kinds else Outcome.CHANGED


def _is_presence(difference: Difference) -> bool:
    """Return whether a difference concerns the existence of the whole resource."""
    return difference.property == "ensure" and not difference.path


class Content(NamedTuple):
    """The texts of a resource in a run, without a layout. Terminals and fleet pages show them."""

    outcome: Outcome
    mark: Mark
    kind: str
    """The type, or ``skipped``."""
    name: str
    details: str
    problems: Sequence[Problem]
    """The reasons for a failure. Empty for other outcomes."""
    planned: str
    """The differences that a failed change should have removed."""
    notes: Sequence[str]
    diff: Sequence[str]
    """Lines, without the header of a single file."""


def content_of(event: Event, *, is_dry_run: bool = False, arrow: str = ARROW) -> Content:
    """Return the texts of a resource."""
    outcome = outcome_of(event, is_dry_run=is_dry_run)
    kind, name, details, planned = event.type, _name(event), "", ""
    match outcome:
        case Outcome.SKIPPED:
            kind, name, details = "skipped", f"{event.type}#{name}", why_skipped(event)
        case Outcome.FAILED:
            details = "failed"
            if any(difference.action is None for difference in event.differences):
                planned = people(event.differences, is_predicted=True, arrow=arrow)
        case _:
            details = _details(event, outcome, arrow)
    mark = _WARNING if outcome is Outcome.UNCHANGED and event.notes else _MARKS[outcome]
    problems = event.problems if outcome is Outcome.FAILED else ()
    return Content(outcome, mark, kind, name, details, problems, planned, event.notes, _diff_lines(event))


def _details(event: Event, outcome: Outcome, arrow: str) -> str:
    if outcome is Outcome.UNCHANGED:
        return "" if event.notes else "in sync"
    texts = [text for difference in event.differences for text in _texts_of(difference, event, arrow)]
    verb = "would be " if event.is_predicted else ""
    if outcome is Outcome.REMOVED:
        texts.insert(0, f"{verb}removed{', leftover' if event.reversal else ''}")
    if outcome is Outcome.PREDICTED:
        texts.append("not changed, because noop is set")
    return ", ".join(texts) or f"{verb}{outcome}"


def _texts_of(difference: Difference, event: Event, arrow: str) -> list[str]:
    """Return the text of a difference, or nothing if the symbol of the row shows it."""
    if _is_presence(difference) and difference.desired == ABSENT:
        return []
    if _is_presence(difference) and difference.kind is DifferenceKind.ADDED:
        return [] if difference.desired in ("present", event.type) else [difference.desired]
    return [people([difference], is_predicted=event.is_predicted, arrow=arrow)]


def _diff_lines(event: Event) -> list[str]:
    lines = visible(event.diff).splitlines()
    # The row has the name of the file already.
    if [line[:4] for line in lines].count("--- ") == 1 and lines[0].startswith("--- "):
        lines = lines[2:]
    return lines


def count_outcomes(
    events: Iterable[Event], summary: Summary, *, is_dry_run: bool = False
) -> list[tuple[Outcome, int]]:
    """Return the number of resources for each outcome that occurs.

    The numbers of unchanged and skipped resources are those of the summary, because stored reports do not list them.
    """
    numbers = Counter(outcome_of(event, is_dry_run=is_dry_run) for event in events)
    numbers[Outcome.UNCHANGED], numbers[Outcome.SKIPPED] = summary.stable, summary.skipped
    return [(outcome, numbers[outcome]) for outcome in Outcome if numbers[outcome]]


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The layout for one terminal."""

    width: int = 80
    is_coloured: bool = False
    is_utf8: bool = True
    is_dry_run: bool = False

    @classmethod
    def of(cls, stream: TextIO, *, is_dry_run: bool = False) -> "Rows":
        """Return the layout for the terminal of a stream, or for 80 columns if the stream is not a terminal."""
        try:
            width = os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):
            width = 0
        return cls(
            width=min(width or 80, _WIDEST),
            is_coloured=colour.is_wanted(stream),
            is_utf8=is_utf8(),
            is_dry_run=is_dry_run,
        )

    @property
    def arrow(self) -> str:
        """The sign between a current and a desired value."""
        return ARROW if self.is_utf8 else ASCII_ARROW

    def painted(self, text: str, colour_name: str) -> str:
        """Return the text in a colour, if the terminal has colours."""
        return colour.coloured(text, colour_name) if self.is_coloured and colour_name and text else text

    def both_sides(self, left: str, right: str, *, left_colour: str = "", right_colour: str = "") -> str:
        """Return a line with one text at the left and one at the right edge, or with two spaces between them."""
        space = max(self.width - cells(left) - cells(right), 2) if right else 0
        return f"{self.painted(left, left_colour)}{' ' * space}{self.painted(right, right_colour)}"

    # Resources

    def resource(self, event: Event, where: str = "") -> list[str]:
        """Return the row of a resource, with further details, notes and its diff below.

        ``where`` is the place of the declaration. It completes problems without a location.
        """
        content = content_of(event, is_dry_run=self.is_dry_run, arrow=self.arrow)
        place = event.item or where
        details, details_colour = content.details, ""
        if content.outcome is Outcome.FAILED:
            details = message_of(content.problems[0], place) if content.problems else content.details
            details_colour = "red"
        elif content.outcome is Outcome.SKIPPED:
            details_colour = "dim"
        rows = self._row(content.mark, content.kind, content.name, details, details_colour)
        for number, problem in enumerate(content.problems):
            if number:
                rows += self._below(message_of(problem, place), "red")
            rows += self._advice(problem, _BELOW)
        if content.planned:
            rows += self._below(f"planned: {content.planned}")
        for note in content.notes:
            rows += self._below(f"note: {note}", "yellow")
        return [*rows, *(self._diff_line(line) for line in content.diff)]

    # Problems outside of resources

    def problems(self, level: Level, problems: Sequence[Problem], title: str = "") -> list[str]:
        """Return the lines of problems: message with location, code, excerpt and hint. ``title`` is a line above."""
        rows = self.line(level, f"{title}:") if title else []
        for problem in problems:
            text = f"{message_of(problem, '')} [{problem.code}]"
            rows += self.wrapped(text, 4) if title else self.line(level, text)
            rows += self._advice(problem, 4)
        return rows

    def line(self, level: Level, sentence: str) -> list[str]:
        """Return the lines of a sentence, with the symbol of its level."""
        mark = {Level.ERROR: _MARKS[Outcome.FAILED], Level.WARN: _WARNING}.get(level)
        if mark is None:
            return self.wrapped(sentence, 2, "dim" if level > Level.NOTICE else "", further=2)
        first, *others = self.wrapped(sentence, 4)
        symbol = self.painted(mark.symbol if self.is_utf8 else mark.ascii, mark.colour)
        return [f"  {symbol} {first.lstrip()}", *others]

    def _advice(self, problem: Problem, indent: int) -> list[str]:
        """Return the excerpt and the hint of a problem."""
        lines = [f"{' ' * indent}{line}" for line in visible(problem.excerpt).splitlines()]
        return lines + (self.wrapped(f"hint: {problem.hint}", indent, further=2) if problem.hint else [])

    # Layout

    def row(
        self, outcome: Outcome, kind: str, name: str, details: str, details_colour: str = ""
    ) -> list[str]:
        """Return a row with the symbol of an outcome."""
        return self._row(_MARKS[outcome], kind, name, details, details_colour)

    def _row(self, mark: Mark, kind: str, name: str, details: str, details_colour: str = "") -> list[str]:
        """Return a row. Details that do not fit beside the name follow on further lines."""
        head = f"{kind:<{_TYPE}} {visible_line(name)}"
        symbol = self.painted(mark.symbol if self.is_utf8 else mark.ascii, mark.colour)
        column = _BELOW + (_WIDE_NAME if self.width >= _WIDE_ENOUGH else _NARROW_NAME) + 1
        text = visible(details)
        space = column - 4 - cells(head)
        if not text:
            return [f"  {symbol} {head}"]
        if space > 0 and "\n" not in text and cells(text) <= self.width - column:
            return [f"  {symbol} {head}{' ' * space}{self.painted(text, details_colour)}"]
        return [f"  {symbol} {head}", *self._below(details, details_colour)]

    def _below(self, text: str, colour_name: str = "") -> list[str]:
        """Return lines below a name."""
        return self.wrapped(text, _BELOW, colour_name)

    def wrapped(self, text: str, indent: int, colour_name: str = "", *, further: int = 0) -> list[str]:
        """Return a text in lines that fit. Lines after the first have ``further`` additional spaces."""
        lines = []
        for number, line in enumerate(
            _wrap(visible(text), self.width - indent, self.width - indent - further)
        ):
            lines.append(" " * (indent + further * (number > 0)) + self.painted(line, colour_name))
        return lines

    def _diff_line(self, line: str) -> str:
        return " " * _DIFF + (colour.coloured_diff_line(line) if self.is_coloured else line)


def _name(event: Event) -> str:
    return f"{event.alias} ({event.name})" if event.alias else event.name


def why_skipped(event: Event) -> str:
    """Return why a resource was skipped."""
    if event.unmet_requirements:
        verb = "kept until these succeed:" if event.reversal else "requires"
        return f"{verb} {', '.join(event.unmet_requirements)}"
    return event.skip_reason if event.reached else f"not reached: {event.skip_reason}"


def message_of(problem: Problem, where: str = "") -> str:
    """Return a problem without its hint and excerpt. A problem without location gets ``where`` at its end."""
    text = text_of(msgspec.structs.replace(problem, hint="", excerpt=""))
    return text if problem.location.file or not where else f"{text} ({where})"


def cells(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(character) for character in text)


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _wrap(text: str, first_width: int, width: int) -> list[str]:
    """Return the lines of a text, broken at spaces. A word that is too long for a line is not broken."""
    lines: list[str] = []
    for paragraph in text.splitlines() or [""]:
        line = ""
        for word in paragraph.split(" "):
            limit = width if lines else first_width
            if line and cells(line) + 1 + cells(word) > limit:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return lines
