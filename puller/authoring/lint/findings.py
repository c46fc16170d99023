"""Findings of lint: a problem and its weight."""

from enum import StrEnum
from typing import Any

import msgspec

from foundation.formatting import text_without_place
from foundation.problems import Location, Problem, ProblemCode


class Severity(StrEnum):
    """The weight of a finding."""

    ERROR = "error"
    """The bundle cannot work like this on any host: it is not published."""
    WARNING = "warning"
    """Most likely a mistake."""
    UNCHECKED = "unchecked"
    """Depends on values that only hosts have."""


class Finding(msgspec.Struct, frozen=True):
    """One mistake, or a possible one."""

    problem: Problem
    severity: Severity
    switched_by: ProblemCode | None = None
    """The rule that switches the finding off, if it is not the code of the problem."""

    @classmethod
    def of(
        cls, code: ProblemCode, severity: Severity, place: Location, message: str, **fields: Any
    ) -> "Finding":
        """Return the finding of a new problem. ``fields`` are further ones of the problem."""
        return cls(Problem(code=code, message=message, location=place, **fields), severity)

    @property
    def is_undeclared(self) -> bool:
        """Whether it is a reference to an undeclared resource. If it is unchecked, another bundle may declare it."""
        return self.problem.code is ProblemCode.UNDECLARED_REFERENCE

    @property
    def rule(self) -> ProblemCode:
        """The name that the finding is shown with, and switched off by."""
        return self.switched_by or self.problem.code

    @property
    def place(self) -> Location:
        """The location of the problem."""
        return self.problem.location

    @property
    def message(self) -> str:
        """The text without its location."""
        return text_without_place(self.problem)

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.message} [{self.rule}]"
