"""What can go wrong with a template.

TemplateError       the author of the template: it cannot be parsed, or fails while it renders
* LimitError          it takes too long, nests too deeply or makes too much text; no ``try`` catches it

FunctionError       raised by functions that templates call: a sentence; the engine adds the place
* SkippedEmpty        ``render`` of a partial that came out blank, in a tree that skips blank files
"""

from __future__ import annotations

from puller.errors import ResourceError


class TemplateError(ResourceError):
    """A template that cannot be parsed or rendered; ``str()`` is ``file:line:column: sentence``.

    ``line`` and ``column`` count from 1; a tab is one column. ``source_line`` is that line of the template.
    """

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
        """The line of the template, and below it a caret at the column."""
        indent = "".join("\t" if c == "\t" else " " for c in self.source_line[: self.column - 1])
        return f"{self.source_line}\n{indent}^"


class LimitError(TemplateError):
    """A template that would not end, or whose output would not fit."""


class FunctionError(Exception):
    """What a function says to the template that called it; the engine adds the place: TemplateError."""


class SkippedEmpty(FunctionError):
    """``render`` of a blank partial where blank files are skipped: Jet fails, Go leaves out the caller."""


def error_at(error: type[TemplateError], file: str, text: str, offset: int, message: str) -> TemplateError:
    """The error with line, column and source line worked out from an offset into the template's text."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    source_line = text[start:] if end < 0 else text[start:end]
    return error(file, text.count("\n", 0, offset) + 1, offset - start + 1, message, source_line.rstrip("\r"))
