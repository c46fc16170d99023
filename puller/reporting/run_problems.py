"""Problems of a run outside its resources, and the exit status of each error.

Each problem is logged at once, stored for the report, and included in the exit status. All commands use the same
table of exit statuses.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Unpack

import msgspec

from bundles.errors import (
    BundleError,
    ExpiredError,
    FormatError,
    PublishError,
    RollbackError,
    SettingsError,
    StoreError,
    TransportError,
    TrustError,
)
from foundation.formatting import text_of_all
from foundation.masking import mask_urls
from foundation.problems import Problem, ProblemCode, problems_of
from hiera.errors import HieraError
from puller.errors import PullerError, file_problem
from puller.exit_status import ExitStatus, worst
from puller.reporting.log import Log
from puller.reporting.report import Summary
from puller.reporting.sinks import Fields, Level, MessageId

# Subclasses precede their bases. A failing store stops updates, like an unreachable site.
_BUNDLE_ERRORS: tuple[tuple[type[BundleError], ExitStatus], ...] = (
    (ExpiredError, ExitStatus.EXPIRED),
    (RollbackError, ExitStatus.ROLLBACK),
    (TrustError, ExitStatus.SIGNATURE),
    (FormatError, ExitStatus.REJECTED),
    (TransportError, ExitStatus.FETCH_FAILED),
    (PublishError, ExitStatus.USAGE),
    (SettingsError, ExitStatus.CONFIGURATION),
    (StoreError, ExitStatus.FETCH_FAILED),
)


def status_of(error: BaseException) -> ExitStatus | None:
    """Return the documented status of an error of Puller or of the system, or ``None`` for a bug."""
    if isinstance(error, PullerError):
        return error.exit_status
    for kind, status in _BUNDLE_ERRORS:
        if isinstance(error, kind):
            return status
    if isinstance(error, HieraError | BundleError):
        return ExitStatus.REJECTED
    if isinstance(error, OSError):
        return ExitStatus.CONFIGURATION
    return None


class RunProblems(msgspec.Struct):
    """The problems of one run, and its exit statuses, including the statuses of its resources."""

    log: Log
    problems: list[Problem] = []
    statuses: list[ExitStatus] = []
    summaries: list[Summary] = []
    """Summary of each bundle's resources. One bundle may have failed resources, and another changed resources."""
    detailed: bool = False
    """Whether changes alone affect the exit status."""
    noop: bool = False
    """Whether the run is a dry run, whose predicted changes count like changes."""

    @property
    def exit_status(self) -> ExitStatus:
        """The most serious exit status of the run."""
        failed = sum(summary.failed + summary.unmet for summary in self.summaries)
        changes = sum(summary.changes for summary in self.summaries)
        predicted = sum(summary.would_change for summary in self.summaries)
        total = Summary(failed=failed, changed=changes, would_change=predicted)
        return worst(*self.statuses, total.exit_status(detailed=self.detailed, noop=self.noop))

    def error(self, problem: Problem, status: ExitStatus, **fields: Unpack[Fields]) -> None:
        """Log, keep and count a problem. ``fields`` are added to its log entry."""
        self.errors((problem,), status, str(problem), **fields)

    def errors(
        self,
        problems: Sequence[Problem],
        status: ExitStatus,
        sentence: str,
        title: str = "",
        **fields: Unpack[Fields],
    ) -> None:
        """Keep and count problems that share one log entry. A terminal shows them below the title."""
        fields["exit"] = status
        if problems:
            fields["code"] = problems[0].code
        fields.setdefault("kind", MessageId.PROBLEM)
        self.log.problems(Level.ERROR, problems, sentence, title, **fields)
        self.problems += problems
        self.statuses.append(status)

    def caught(self, error: Exception) -> str:
        """Log, keep and count an error of any kind. Return its text.

        A problem with a file or the memory of this machine stops updates, like an unreachable site.
        """
        sentence, status = sentence_of(error), status_of(error)
        if isinstance(error, OSError | MemoryError):
            status = ExitStatus.FETCH_FAILED
        elif status is None:
            self.log.error(_trace(error))
        self.errors(described(error), status or ExitStatus.BUG, sentence)
        return sentence

    def warn(self, warning: str | Problem) -> None:
        """Log and keep a warning, which does not change the exit status."""
        if isinstance(warning, str):
            warning = Problem(code=ProblemCode.RUN_WARNING, message=warning)
        kind = MessageId.WARNING
        self.log.problems(Level.WARN, [warning], str(warning), kind=kind, code=warning.code)
        self.problems.append(warning)

    def note(self, sentence: str, *, is_routine: bool) -> None:
        """Log a sentence. Only a sentence that is not routine is a problem of the run."""
        if is_routine:
            self.log.notice(sentence)
        else:
            self.warn(sentence)

    def count(self, status: ExitStatus) -> None:
        """Count an exit status that is reported elsewhere."""
        self.statuses.append(status)

    @contextlib.contextmanager
    def remembering(self) -> Iterator[None]:
        """Record results in the block. If that fails, warn, so that the run still reports its results."""
        try:
            yield
        except (BundleError, OSError) as error:
            for problem in described(error):
                self.warn(problem)


def sentence_of(error: Exception) -> str:
    """Return the text of an error: the file and the reason. The text of a bug identifies it as one."""
    return text_of_all(described(error))


def described(error: Exception) -> tuple[Problem, ...]:
    """Return the problems of an error, also of the operating system and of a bug."""
    if isinstance(error, OSError):
        return (Problem(code=ProblemCode.SYSTEM_ERROR, message=file_problem(error)),)
    if isinstance(error, MemoryError):
        return (Problem(code=ProblemCode.SYSTEM_ERROR, message="the memory is exhausted"),)
    if status_of(error) is not None:
        return problems_of(error)
    message = f"{type(error).__name__}: {error}: this is a bug in Puller. Please report it with its traceback"
    return (Problem(code=ProblemCode.INTERNAL_ERROR, message=mask_urls(message)),)


def problem_of(error: Exception, message: str) -> Problem:
    """Return a problem with the code of an error and another message."""
    return Problem(code=described(error)[0].code, message=message)


def _trace(error: Exception) -> str:
    import traceback  # for bugs only

    return mask_urls("".join(traceback.format_exception(error)).rstrip())
