"""The text of one template, and errors that point into it."""

from __future__ import annotations

from puller.templates.errors import LimitError, TemplateError, error_at
from puller.templates.limits import Exceeded


class TemplateSource:
    """Name and text of a template."""

    __slots__ = ("name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def error(self, offset: int, message: str) -> TemplateError:
        """The error, to be raised, with line, column and the line of the template."""
        return error_at(TemplateError, self.name, self.text, offset, message)

    def limit(self, offset: int, exceeded: Exceeded) -> TemplateError:
        """The error for a limit that was reached at this place."""
        return error_at(LimitError, self.name, self.text, offset, str(exceeded))
