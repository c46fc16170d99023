"""Results of cases: plain values, without secrets."""

import msgspec

from foundation.problems import Problem


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as a case says."""

    where: str
    """*file:line* of what the case says."""
    message: str
    expected: str = ""
    found: str = ""
    declared: str = ""
    """*file:line* of the resource's declaration."""
    diff: str = ""
    """A unified diff, where texts are compared."""
    problem: Problem | None = None
    """The problem, if the case or the manifest has one."""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One case that was checked."""

    bundle: str
    """As the user has named it."""
    case: str
    file: str
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0
    snapshot: str | None = None
    """What is to be written as its snapshot; ``None`` where nothing is."""

    @property
    def passed(self) -> bool:
        return not self.failures
