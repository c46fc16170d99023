"""Errors of the agent, split by who must act; each class carries the exit status of its cause.

PullerError
* ConfigurationError    the operator of this machine: a configuration that is missing or not valid (78)
* UsageError            whoever typed the command (64)
* BusyError             nobody: another run is at work (75)
* ManifestError         the author of a bundle: all problems of a manifest at once (13)
* SourceError           whoever named a manifest, directory or bundle that cannot be read (13)
* ResourceError         the resource that it happened to, and nobody else: its failure in the report
  - StoppedDownload       nobody: a signal came while it fetched, before anything was changed
  - StoppedCommand        whoever has insisted on a stop by a second signal
  - ChangedMeanwhile      somebody else changed a path between look and change: try again
* MutationInNoop        us: a resource tried to write while it should only look (a bug, 1)
"""

import errno
import os
from collections.abc import Sequence
from typing import ClassVar, TypedDict, Unpack

from foundation.formatting import text_of_all
from foundation.problems import DependsOn, Location, Problem, ProblemCode
from puller.exit_status import ExitStatus

UNIT_PROFILE = "PULLER_UNIT_PROFILE"
"""The variable in which a profile of the unit gives its name, so that what it forbids can be told."""


class Fields(TypedDict, total=False):
    """The fields of a problem that ``raise`` may give."""

    expected: str
    hint: str
    location: Location
    depends_on: DependsOn
    related: tuple[Location, ...]
    name: str
    property: str
    excerpt: str
    suggestions: tuple[str, ...]
    known: tuple[str, ...]
    known_more: int


class PullerError(Exception):
    """Base of all errors of the agent. ``str()`` formats its problem: *where: what*.

    The first argument is the message.
    """

    exit_status: ClassVar[ExitStatus] = ExitStatus.BUG
    code = ProblemCode.INTERNAL_ERROR
    """The code if ``raise`` gives none."""

    def __init__(
        self,
        *args: object,
        code: ProblemCode | None = None,
        problems: Sequence[Problem] = (),
        **fields: Unpack[Fields],
    ) -> None:
        """``fields`` are those of the problem. ``problems`` replaces all other arguments."""
        super().__init__(*args)
        self.code = code or type(self).code
        self._fields = fields
        self._problems = tuple(problems)

    def __str__(self) -> str:
        return text_of_all(self.problems)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems as values."""
        if self._problems:
            return self._problems
        return (Problem(code=self.code, message=self.message, **self._fields),)

    @property
    def message(self) -> str:
        """The sentence, without its location."""
        return str(self.args[0]) if self.args else ""


class ConfigurationError(PullerError):
    """The configuration, the trust anchor or the state directory cannot be used."""

    exit_status = ExitStatus.CONFIGURATION
    code = ProblemCode.INVALID_CONFIGURATION


class UsageError(PullerError):
    """A command line that is understood, and asks for something that cannot be."""

    exit_status = ExitStatus.USAGE
    code = ProblemCode.INVALID_COMMAND


class BusyError(PullerError):
    """Another run holds the lock."""

    exit_status = ExitStatus.BUSY
    code = ProblemCode.ANOTHER_RUN


class SourceError(PullerError):
    """A manifest, directory or bundle that cannot be read."""

    exit_status = ExitStatus.REJECTED
    code = ProblemCode.UNREADABLE_SOURCE


class ManifestError(PullerError):
    """All problems of a manifest."""

    exit_status = ExitStatus.REJECTED
    code = ProblemCode.INVALID_MANIFEST

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems=problems)


class ResourceError(PullerError):
    """Why one resource failed; never ends a run."""

    exit_status = ExitStatus.FAILED
    code = ProblemCode.CHANGE_FAILED


class StoppedDownload(ResourceError):
    """A download that a signal has ended; nothing was changed, and the next run goes on."""

    code = ProblemCode.STOPPED


class StoppedCommand(ResourceError):
    """A command that a second signal has ended."""

    code = ProblemCode.STOPPED


class NeededByAnother(ResourceError):
    """A change that would take away what another declared resource needs; nothing was changed.

    A leftover that raises it stays and is not a failure.
    """

    code = ProblemCode.NEEDED_BY_ANOTHER


class ChangedMeanwhile(ResourceError):
    """A path is not any more what it was when this resource looked at it."""

    code = ProblemCode.CHANGED_MEANWHILE


class MutationInNoop(PullerError):
    """A write was asked of a system that only looks."""


def file_problem(error: OSError, what: str = "", *, where: object = "") -> str:
    """The sentence about a file: ``/etc/motd: cannot be read: permission denied``.

    ``where`` takes the place of the path that the error names itself.
    """
    return ": ".join(str(part) for part in (where or error.filename, what, reason(error)) if part)


def reason(error: OSError) -> str:
    """The system's own words for an error, without Python's numbers."""
    if error.errno == errno.ENOSPC:
        return "no space left on the file system"
    # Only the system's own words: another sentence may name a file or a program as somebody spells it.
    said = error.strerror or str(error)
    if error.errno is not None and said == os.strerror(error.errno):
        said = said.lower()
    if error.errno in (errno.EROFS, errno.EPERM) and (profile := os.environ.get(UNIT_PROFILE)):
        return f"{said} (this run has the {profile} profile of its unit: docs/units.md)"
    return said
