"""Errors of the agent, grouped by who must act. Each class has the exit status of its cause.

PullerError
* ConfigurationError    the operator of this machine: a missing or invalid configuration (78)
* UsageError            the user of the command (64)
* BusyError             no action: another run is active (75)
* ManifestError         the author of a bundle: all problems of a manifest at once (13)
* SourceError           the user who named an unreadable manifest, directory or bundle (13)
  - MissingSourceError    the user who named a source that does not exist (64)
* ResourceError         only the affected resource: its failure in the report
  - StoppedDownload       no action: a signal stopped a download before any change
  - StoppedCommand        no action: the user stopped a command by a second signal
  - ChangedMeanwhile      another process changed a path between look and change: try again
* MutationInNoop        the developers: a resource tried to write in a dry run (a bug, 1)
"""

import errno
import os
from collections.abc import Sequence
from typing import ClassVar, TypedDict, Unpack

from foundation.formatting import text_of_all
from foundation.problems import DependsOn, Location, Problem, ProblemCode
from puller.exit_status import ExitStatus

UNIT_PROFILE = "PULLER_UNIT_PROFILE"
"""Variable with the name of the unit's profile, so that messages can name it after a forbidden operation."""


class Fields(TypedDict, total=False):
    """The fields of a problem that ``raise`` may set."""

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
        """``fields`` has the fields of the problem. ``problems`` replaces all other arguments."""
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
    """A syntactically valid command line with an impossible request."""

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


class MissingSourceError(SourceError):
    """A manifest, directory, bundle or store that does not exist."""

    exit_status = ExitStatus.USAGE


class ManifestError(PullerError):
    """All problems of a manifest."""

    exit_status = ExitStatus.REJECTED
    code = ProblemCode.INVALID_MANIFEST

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems=problems)


class ResourceError(PullerError):
    """The reason for a failed resource. It never ends a run."""

    exit_status = ExitStatus.FAILED
    code = ProblemCode.CHANGE_FAILED


class StoppedDownload(ResourceError):
    """A signal stopped a download. Nothing was changed, and the next run resumes it."""

    code = ProblemCode.STOPPED


class StoppedCommand(ResourceError):
    """A command that a second signal has ended."""

    code = ProblemCode.STOPPED


class NeededByAnother(ResourceError):
    """A change would remove a dependency of another declared resource. Nothing was changed.

    A leftover that raises it stays and is not a failure.
    """

    code = ProblemCode.NEEDED_BY_ANOTHER


class ChangedMeanwhile(ResourceError):
    """A path has changed since this resource looked at it."""

    code = ProblemCode.CHANGED_MEANWHILE


class MutationInNoop(PullerError):
    """A resource tried to write in a system that only allows reading."""


def file_problem(error: OSError, description: str = "", *, where: object = "") -> str:
    """Return the sentence about a file: ``/etc/motd: cannot be read: permission denied``.

    ``where`` replaces the path in the error.
    """
    return ": ".join(str(part) for part in (where or error.filename, description, reason(error)) if part)


def reason(error: OSError) -> str:
    """Return the system's message for an error, without Python's numbers."""
    if error.errno == errno.ENOSPC:
        return "no space left on the file system"
    # Only the system's message is changed, because another message may contain a file or program name.
    text = error.strerror or str(error)
    if error.errno is not None and text == os.strerror(error.errno):
        text = text.lower()
    if error.errno in (errno.EROFS, errno.EPERM) and (profile := os.environ.get(UNIT_PROFILE)):
        return f"{text} (this run has the {profile} profile of its unit: docs/units.md)"
    return text
