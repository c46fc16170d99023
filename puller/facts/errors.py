"""The error of a source of facts; it never stops a gathering.

FactError    a source that could not be read: the fact is left out, the sentence goes to ``Facts.problems``;
             of a fact that comes with a bundle it becomes the failure of what asks for it (``bundled.py``)
"""


class FactError(Exception):
    """A fact source that failed; ``str()`` is a sentence of the form *where: what*."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where = where
        self.what = what

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"
