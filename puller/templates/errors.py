"""Errors of templates, by who must act.

TemplateError       the author of the template: it cannot be parsed, or fails while it renders
* LimitError          it takes too long, nests too deeply or makes too much text; no ``try`` catches it

FunctionError       raised by functions that templates call: a sentence; the engine adds the place
* SkippedEmpty        ``render`` of a partial that came out blank, in a tree that skips blank files
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from puller.errors import ResourceError

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_CANDIDATES: Final = 500
_LONGEST_NAME: Final = 100  # characters: comparing takes the product of the two lengths
_AROUND: Final = 100  # characters of a line on either side of a mistake


class TemplateError(ResourceError):
    """A template that cannot be parsed or rendered; ``str()`` is ``file:line:column: sentence``.

    ``line`` and ``column`` count from 1; a tab is one column. ``source_line`` is that line of the template.
    ``is_of_text``: it quotes the template at most, and no value that the template has seen.
    """

    is_of_text = False

    def __init__(self, file: str, line: int, column: int, message: str, source_line: str = "") -> None:
        super().__init__(file, line, column, message)
        self.file = file
        self.line = line
        self.column = column
        self.message = message
        self.source_line = source_line

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"

    def excerpt(self) -> str:
        """The line of the template (of a very long one, what is around the column), and below it a caret."""
        start = max(0, self.column - 1 - _AROUND) if len(self.source_line) > 2 * _AROUND else 0
        shown = self.source_line[start : start + 2 * _AROUND]
        indent = "".join("\t" if c == "\t" else " " for c in shown[: self.column - 1 - start])
        return f"{shown}\n{indent}^"


class LimitError(TemplateError):
    """A template that would not end, or whose output would not fit."""


class FunctionError(Exception):
    """A refusal, by a function, of the template that called it; the engine adds the place: TemplateError."""


class SkippedEmpty(FunctionError):
    """``render`` of a blank partial where blank files are skipped: Jet fails, Go leaves out the caller."""


def similar_names(name: str, known: Iterable[Any]) -> str:
    """The end of a sentence about a name that does not exist: those that do and look like it."""
    import difflib  # only errors pay for it

    candidates = [str(other)[:_LONGEST_NAME] for other in known][:_MOST_CANDIDATES]
    close = difflib.get_close_matches(name[:_LONGEST_NAME], candidates, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
