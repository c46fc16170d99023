"""Findings of lint: each a rule that is broken, the place, and a sentence."""

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """The weight of a finding."""

    ERROR = "error"
    """The bundle cannot work like this on any host: it is not published."""
    WARNING = "warning"
    """Most likely not what is meant."""
    UNCHECKED = "unchecked"
    """Depends on what only hosts know."""


class Place(msgspec.Struct, frozen=True, order=True):
    """A place in a file."""

    file: str
    """As the user named the bundle: ``web/templates/app.conf.j2``."""
    line: int = 0
    """From 1; 0 where it is the whole file."""
    column: int = 0
    """From 1; 0 where only the line is known."""

    def __str__(self) -> str:
        return ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong, or may be."""

    rule: str
    """The name of one of ``rules.RULES``."""
    severity: Severity
    place: Place
    message: str
    """*what it is, what was wanted*, without the place; no secrets."""

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.message} [{self.rule}]"
