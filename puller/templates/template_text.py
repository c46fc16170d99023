"""The source text of a template, and errors with a position in it."""

from __future__ import annotations

from puller.templates.limits import Exceeded
from puller.templates.template_errors import LimitError, TemplateError


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
