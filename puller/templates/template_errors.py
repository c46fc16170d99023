"""Errors of templates, grouped by the person who must act.

* ``TemplateError``: the author of the template. It cannot be parsed, or fails while it renders.
* ``LimitError``, a ``TemplateError``: it takes too long, nests too deeply or produces too much text. ``try`` in a
  template does not catch it.
* ``FunctionError``: raised by functions that templates call, with a sentence. The engine adds the place.
* ``SkippedEmpty``, a ``FunctionError``: ``render`` of a partial with blank output, in a tree that skips blank files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

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
