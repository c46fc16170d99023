"""The log of a run: its entries, and the problems outside its resources, with the exit status of each error.

Entries are lines for people, and have fields for the journal (``puller.reporting.sinks``). A line is a level, a
sentence and ``key=value`` pairs::

    NOTICE file#/etc/motd changed ensure=present runtime=2ms provider=posix

WARN and above need attention. An expected result of a run, such as a change, is a NOTICE.

Each problem is logged at once, stored for the report, and included in the exit status. All commands use the same
table of exit statuses.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO, TypeVar, Unpack

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
from foundation.formatting import ARROW, journal, people, text_of_all
from foundation.masking import mask_urls
from foundation.problems import Problem, ProblemCode, problems_of
from hiera.errors import HieraError
from puller.errors import PullerError, file_problem
from puller.exit_status import ExitStatus, worst
from puller.reporting.report import BundleReport, Event, State, Summary
from puller.reporting.sinks import JOURNAL, Fields, Level, MessageId, find_sink
from puller.values.foreign_text import visible

if TYPE_CHECKING:
    from puller.reporting.terminal import Terminal


_Attended = TypeVar("_Attended")
_LEVEL_OF = {
    State.FAILED: Level.ERROR,
    State.CHANGED: Level.NOTICE,
    State.REFRESHED: Level.NOTICE,
    State.WOULD_CHANGE: Level.NOTICE,
    State.STABLE: Level.INFO,
    State.SKIPPED: Level.INFO,
}
_KIND_OF = {state: MessageId[f"RESOURCE_{state.name}"] for state in State}


def verbosity(*, verbose: bool, quiet: bool) -> Level:
    """Return the least urgent level to show, for the options of the command line."""
    return Level.ERROR if quiet else Level.INFO if verbose else Level.NOTICE


class Log:
    """Writes the entries of a run that are urgent enough to the sink of its stream, or to a terminal."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        level: Level = Level.NOTICE,
        colour: bool | None = None,
        journal: str = JOURNAL,
        terminal: "Terminal | None" = None,
        diffs: bool = True,
    ) -> None:
        self.terminal = terminal
        """Gets every entry in the place of the stream. ``None`` for pipes, files and the journal."""
        self._prints_diffs = diffs
        self._sink = find_sink(stream or sys.stderr, colour=colour, journal=journal)
        self._level = level
        self._common: Fields = {}

    def belong_to(self, run: str) -> None:
        """Assign all further entries to the run of this identity."""
        self._common = {"run": run}

    def is_shown(self, level: Level) -> bool:
        """Return whether an entry of this level would be written, so that callers can skip building it."""
        return level <= self._level

    def write(self, level: Level, sentence: str, **fields: Unpack[Fields]) -> None:
        """Write an entry, which may have several lines."""
        if not self.is_shown(level):
            return
        if self.terminal is not None:
            self.terminal.line(level, sentence, fields)
        else:
            self._sink.write(level, visible(sentence), {**self._common, **fields})

    def problems(
        self,
        level: Level,
        problems: Sequence[Problem],
        sentence: str,
        title: str = "",
        **fields: Unpack[Fields],
    ) -> None:
        """Write an entry for problems: ``sentence``, or on a terminal the problems below the title."""
        if self.terminal is None or not problems:
            self.write(level, sentence, **fields)
        elif self.is_shown(level):
            self.terminal.problems(level, problems, title)

    def at_once(self, sentence: str) -> None:
        """Write a warning. A signal handler may call this while another line is being written.

        The warning is omitted if writing it would block.
        """
        if self.is_shown(Level.WARN):
            text = visible(sentence) if self.terminal is None else self.terminal.urgent(sentence)
            self._sink.at_once(Level.WARN, text, {**self._common, "kind": MessageId.WARNING})

    def error(self, sentence: str, **fields: Unpack[Fields]) -> None:
        """Write an entry about a failure."""
        fields.setdefault("kind", MessageId.PROBLEM)
        self.write(Level.ERROR, sentence, **fields)

    def warn(self, sentence: str, **fields: Unpack[Fields]) -> None:
        """Write a warning: it needs attention, although nothing failed."""
        fields.setdefault("kind", MessageId.WARNING)
        self.write(Level.WARN, sentence, **fields)

    def notice(self, sentence: str, **fields: Unpack[Fields]) -> None:
        """Write an entry about a change or another notable event."""
        self.write(Level.NOTICE, sentence, **fields)

    def info(self, sentence: str, **fields: Unpack[Fields]) -> None:
        """Write an entry for readers who need details."""
        self.write(Level.INFO, sentence, **fields)

    def event(self, event: Event, bundle: str = "", where: Callable[[], str] = str) -> None:
        """Write an entry for a resource, at the level of its state. ``where`` returns the place of its declaration."""
        level = _level_of(event)
        if not self.is_shown(level):
            return
        if not self._prints_diffs:
            event = event.without_diffs()
        if self.terminal is not None:
            self.terminal.event(event, bundle, where() if event.state is State.FAILED else "")
        else:
            own: Fields = {"kind": _KIND_OF[event.state], "resource": event.reference, "state": event.state}
            if bundle:
                own["bundle"] = bundle
            if event.problems:
                own["code"] = event.problems[0].code
            if event.differences and self._sink.has_fields:
                own["differences"] = journal(event.differences)
            self.write(level, sentence(event, arrow=ARROW if self._sink.has_fields else ""), **own)

    def shows(self, event: Event) -> bool:
        """Return whether ``event`` would write an entry for a resource."""
        return self.is_shown(_level_of(event))

    def begin(self, name: str, version: str = "", *, before: str = "", remark: str = "") -> None:
        """Set the version of a bundle whose resources follow, for the heading on a terminal.

        ``before`` is the version before the run.
        """
        if self.terminal is not None:
            self.terminal.begin(name, version, before=before, remark=remark)

    def expect(self, resources: int) -> None:
        """Set the number of resources that follow, for the status line of a terminal."""
        if self.terminal is not None:
            self.terminal.expect(resources)

    def attending(self, attend: Callable[[_Attended], None]) -> Callable[[_Attended], None]:
        """Return ``attend``, which on a terminal also shows the resource in the status line."""
        if (terminal := self.terminal) is None:
            return attend

        def attend_and_show(resource: _Attended) -> None:
            terminal.attend(str(resource))
            attend(resource)

        return attend_and_show

    def ended(self, exit_status: int, bundles: Sequence[BundleReport] = ()) -> None:
        """Write the end of the run to a terminal or to the journal. Shells of pipes see the exit status."""
        if self.terminal is not None:
            self.terminal.end(bundles, exit_status)
        elif self._sink.has_fields:
            self.notice(
                f"the run ended with exit status {exit_status}", kind=MessageId.RUN_ENDED, exit=exit_status
            )


def _level_of(event: Event) -> Level:
    if event.unmet_requirements:
        return Level.INFO if event.reversal else Level.ERROR  # a leftover stays, with its own entry
    if event.notes and event.state is State.STABLE and not event.reversal:
        return Level.NOTICE  # a note is a warning, which most runs would not print with a stable resource
    return _LEVEL_OF[event.state] if event.reached else Level.WARN


def sentence(event: Event, *, arrow: str = "") -> str:
    """Return the line for a resource, with the diff of its changes below.

    ``arrow`` separates the values of a difference. The default depends on the locale.
    """
    name = f"{event.type}#{event.alias} ({event.name})" if event.alias else event.reference
    pieces = [
        f"{name} {_what(event)}",
        f"ensure={event.requested_ensure}",
        f"runtime={event.duration * 1000:.0f}ms",
    ]
    if event.provider:
        pieces.append(f"provider={event.provider}")
    if event.noop_message:
        pieces.append(f'noop="{event.noop_message}"')
    if event.differences and event.state is not State.STABLE:
        text = people(event.differences, is_predicted=event.is_predicted, arrow=arrow)
        pieces.append(f'differences="{text}"')
    if event.notes:
        pieces.append(f'notes="{"; ".join(event.notes)}"')
    pieces += [f"unmet={reference}" for reference in event.unmet_requirements]
    if event.item and event.state is State.FAILED:
        pieces.append(f'item="{event.item}"')
    if event.problems:
        pieces.append(f'errors="{", ".join(event.errors)}"')
    line = " ".join(pieces)
    return f"{line}\n{event.diff.rstrip()}" if event.diff else line


def _what(event: Event) -> str:
    if event.unmet_requirements and event.reversal:
        return "kept until the required resources succeed"
    if event.unmet_requirements:
        return "skipped due to unmet requirements"
    if event.state is State.SKIPPED:
        return f"skipped ({event.skip_reason})"
    return event.state


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
    import traceback  # 0.3 % of an idle run, which has no bug

    return mask_urls("".join(traceback.format_exception(error)).rstrip())
