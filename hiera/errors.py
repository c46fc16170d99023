"""Errors of data, split by who must act.

HieraError
* DocumentError       the author of a document: text that cannot be read, or has the wrong shape
* ExpressionError     the author of an expression: it cannot be compiled, or fails while it runs
  - UndefinedError        the author or the machine: a fact, a key or a name that does not exist
* ConfigError         the author of a ``hiera.yaml``
* LookupFailure       a key of a Hiera tree that cannot be answered
  - KeyNotFound         no layer has the key, and there is no default
* LimitError          input that is too deep, too large or never ends
"""

from collections.abc import Iterable
from typing import Self


class HieraError(Exception):
    """Base of all errors of this package; ``str()`` is a sentence of the form *where: what*.

    ``where`` is a file with line (and column) or a path of keys; it may be empty while the error travels to
    the place that knows it, which adds it with ``at``. ``keys`` leads from the value that was worked on to
    the part of it that is wrong; ``under`` adds to it in the same manner.
    """

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where = where
        self.what = what
        self.keys: tuple[str | int, ...] = ()
        self._is_placed = False

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what

    def under(self, key: str | int) -> Self:
        """Note that what is wrong stands below ``key``; returns itself, for ``raise``."""
        self.keys = (key, *self.keys)
        return self

    def at(self, where: str) -> Self:
        """Put ``where`` in front of what is already known about the place; returns itself, for ``raise``."""
        self.where = ": ".join(part for part in (where, self.where) if part)
        return self

    def beside(self, place: str) -> Self:
        """Name the place in data behind what is wrong, unless one is named already; returns itself, for ``raise``."""
        if place and not self._is_placed and "(file: " not in self.what:
            self.what = f"{self.what} ({place})"
        self._is_placed = True
        return self


class DocumentError(HieraError):
    """A document that cannot be read, or whose shape is not what its place wants."""


class ExpressionError(HieraError):
    """An expression that cannot be compiled, or that fails while it runs."""


class UndefinedError(ExpressionError):
    """A fact, key or name that an expression asks for and that does not exist.

    ``among`` are the names that do exist; they are looked at only when somebody wants to read the message,
    because a missing fact is an everyday thing in a hierarchy, and naming all facts can be slow.
    """

    def __init__(self, where: str, what: str, name: object = None, among: Iterable[object] = ()) -> None:
        super().__init__(where, what)
        self.name = name
        self.among = among

    def __str__(self) -> str:
        # Slow to import, and most errors of this kind are never shown: an entry of a hierarchy does not match.
        from difflib import get_close_matches

        try:
            similar = get_close_matches(str(self.name), map(str, self.among), n=3)
        except HieraError:
            similar = []  # names that are looked up when asked for: a message is no place to find out about them
        advice = f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
        return super().__str__() + advice


class ConfigError(HieraError):
    """A ``hiera.yaml`` that is not valid."""


class LookupFailure(HieraError):
    """A key of a Hiera tree that cannot be answered."""


class KeyNotFound(LookupFailure):
    """No layer has the key, and the caller gave no default."""


class LimitError(HieraError):
    """Input that is too deep, too large, or would never end."""
