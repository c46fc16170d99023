"""The error of a source of facts. It never stops a gathering.

FactError    a source that could not be read: the fact is left out, and ``Facts.problems`` has the error.
             An expression that reads a fact of a bundle fails with it (``bundled.py``).
"""

from foundation.formatting import text_of
from foundation.problems import Location, Problem, ProblemCode


class FactError(Exception):
    """A fact source that failed. ``str()`` formats its problem: *where: what*."""

    def __init__(self, where: str, what: str, *, is_left_out: bool = False) -> None:
        """``is_left_out``: the fact exists on hosts, and was not gathered here."""
        super().__init__(where, what)
        self.where = where
        self.what = what
        self.is_left_out = is_left_out

    def __str__(self) -> str:
        return text_of(self.problems[0])

    @property
    def problems(self) -> "tuple[Problem, ...]":
        """The problem as a value."""
        code = ProblemCode.UNDEFINED_FACT if self.is_left_out else ProblemCode.UNAVAILABLE_FACT
        return (Problem(code=code, message=self.what, location=Location(self.where)),)
