"""Output of a run on a terminal: a heading for each bundle, a row for each resource, and a summary at the end.

    web 1.4.0 → 1.5.0                                       1.9 kB, signatures good
      ~ file     /etc/motd                    owner nobody → root, mode 0600 → 0644
    web 1.5.0: 1 changed, 119 unchanged · 0.4 s                              exit 0

* The layout of rows is in ``puller.reporting.terminal_rows``. Pipes, files and the journal get one line for each event
  instead (``puller.reporting.run_log``).
* A heading appears with the first row of its bundle, so a run without changes prints only its summary.
* The status line shows the current resource. It is erased before other output.
* Only commands with a terminal import this module.
"""

import math
import shlex
import sys
import time
from collections.abc import Sequence
from typing import TextIO

import msgspec

from foundation.problems import Problem
from foundation.quantities import counted, size_text
from puller.exit_status import ExitStatus
from puller.reporting.report import BundleReport, Event, Report
from puller.reporting.sinks import Fields, Level, MessageId
from puller.reporting.terminal_rows import Outcome, Rows, cells, count_outcomes, outcome_of, why_skipped
from puller.values.colour import can_redraw
from puller.values.foreign_text import visible, visible_line

_CLEAR = "\r\x1b[K"
_NO_BREAK = "\u00a0"
_QUICK_TYPES = frozenset(
    ("block", "cron", "file", "group", "kernel_module", "line", "link", "mount", "setting", "sysctl", "user")
)
"""Types that take milliseconds. Their status lines are drawn only after a pause, because drawing costs time, too."""
_PAUSE = 0.1
_SHOWN_ELSEWHERE = frozenset(
    (
        MessageId.BUNDLE_APPLIED,
        MessageId.BUNDLE_ENFORCED,
        MessageId.BUNDLE_FETCHING,
        MessageId.BUNDLE_HELD,
        MessageId.RUN_ENDED,
        MessageId.RUN_PAUSED,
    )
)
"""Kinds of log entries whose facts are in headings and in the summary."""
_DRY_RUN_OPTIONS = frozenset(("--noop", "--dry-run", "-n", "--detailed-exitcodes"))


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a bundle that a run applies."""

    name: str
    version: str = ""
    """Empty for a manifest without a version."""
    before: str = ""
    """The version before the run. Empty without one."""
    size: int = 0
    """Bytes that were fetched for it."""
    remark: str = ""
    """A remark about the version, such as ``signatures good``."""

    @property
    def bundle(self) -> str:
        """The name and the version."""
        return f"{self.name} {self.version}".rstrip()

    def text(self, arrow: str) -> str:
        """Return the name with the change of the version."""
        if self.before in ("", self.version):
            return self.bundle
        return f"{self.name} {self.before} {arrow} {self.version}"

    @property
    def origin(self) -> str:
        """The facts about the download."""
        return ", ".join(filter(None, (size_text(self.size) if self.size else "", self.remark)))


class Terminal:
    """The output of one command on a terminal."""

    def __init__(self, stream: TextIO, *, is_dry_run: bool = False, is_quiet: bool = False) -> None:
        self.rows = Rows.of(stream, is_dry_run=is_dry_run)
        self._stream = stream
        self._is_quiet = is_quiet
        self._can_redraw = can_redraw(stream) and not is_quiet
        self._began = self._drawn_at = time.monotonic()
        self._has_status = False
        self._total = self._place = 0
        self._sizes: dict[str, int] = {}
        self._headings: dict[str, Heading] = {}
        self._shown: set[Heading] = set()
        self._current: Heading | None = None
        """The bundle of the last printed row."""
        self._not_reached: list[Event] = []

    # Parts of the output

    def fetched(self, release: str, size: int) -> None:
        """Record the size of a download for the heading of the release."""
        self._sizes[release] = size

    def begin(self, name: str, version: str, *, before: str, remark: str) -> None:
        """Set the version of a bundle whose resources follow. See ``Heading``."""
        heading = Heading(name=name, version=version, before=before, remark=remark)
        size = self._sizes.get(heading.bundle, 0)
        self._headings[name] = msgspec.structs.replace(heading, size=size)

    def event(self, event: Event, bundle: str, where: str) -> None:
        """Print the row of a resource. Resources that the run did not reach share one row."""
        if not event.reached:
            if self._not_reached and self._not_reached[0].skip_reason != event.skip_reason:
                self._flush_not_reached()
            self._not_reached.append(event)
            return
        self._print([*self._heading_of(bundle), *self.rows.resource(event, where)])

    def line(self, level: Level, sentence: str, fields: Fields) -> None:
        """Print a sentence, unless its facts are in a heading or in the summary."""
        if fields.get("kind") not in _SHOWN_ELSEWHERE:
            self._print(self.rows.line(level, sentence))

    def problems(self, level: Level, problems: Sequence[Problem], title: str) -> None:
        """Print problems outside of resources."""
        self._print(self.rows.problems(level, problems, title))

    def end(self, bundles: Sequence[BundleReport], exit_status: int) -> None:
        """Print the summary of the run: a line for each bundle, the duration and the exit status."""
        self._flush_not_reached()
        if self._is_quiet:
            self._print([])
            return
        summaries = [line for bundle in bundles for line in self._summary(bundle)]
        hint = ""
        if self.rows.is_dry_run and any(bundle.summary.would_change for bundle in bundles):
            hint = f"To apply: {command_to_apply()}"
        self._print(self._last_lines(summaries, hint, exit_status))

    def _last_lines(self, lines: list[str], hint: str, exit_status: int) -> list[str]:
        """Return the summaries, with the duration and the exit status on the last line. The hint is there or below."""
        # Not broken at the end of a line.
        duration = duration_text(time.monotonic() - self._began).replace(" ", _NO_BREAK)
        right, colour = f"exit {exit_status}", _colour_of(exit_status)
        *above, last = lines or [""]
        dot = f" ·{_NO_BREAK}" if self.rows.is_utf8 else ", "
        for text in (f"{last}. {hint}", last) if hint and not above else (last,):
            left = f"{text}{dot}{duration}" if text else duration
            if cells(left) + 2 + cells(right) <= self.rows.width:
                break
        narrower = msgspec.structs.replace(self.rows, width=self.rows.width - cells(right) - 2)
        *before, left = (line.replace(_NO_BREAK, " ") for line in narrower.wrapped(left, 0, further=2))
        ended = [*above, *before, self.rows.both_sides(left, right, right_colour=colour)]
        return [*ended, hint] if hint and not text.endswith(hint) else ended

    # Headings and summaries

    def _heading_of(self, bundle: str) -> list[str]:
        """Return the heading of the next row, or nothing if the last row belongs to the same bundle."""
        heading = self._headings.get(bundle)
        if heading is None or heading == self._current:
            return []
        self._current = heading
        if self.rows.is_dry_run:
            text = f"{heading.text(self.rows.arrow)}, dry run: nothing is changed"
        else:
            text = heading.text(self.rows.arrow) if heading not in self._shown else heading.bundle
        self._shown.add(heading)
        return [self.rows.both_sides(text, heading.origin, left_colour="bold", right_colour="dim")]

    def _summary(self, bundle: BundleReport) -> list[str]:
        """Return the summary of a bundle. In a dry run, the heading above it has the name already."""
        name = f"{bundle.name} {bundle.version}".rstrip()
        heading = self._headings.get(bundle.name, Heading(name=bundle.name, version=bundle.version))
        is_shown = heading in self._shown
        if self.rows.is_dry_run:
            is_only = is_shown and len(self._headings) == 1
            dry_run = ", ".join(filter(None, (heading.text(self.rows.arrow), "dry run")))
            name = "" if is_only else name if is_shown else dry_run
        elif not is_shown and heading.version == bundle.version:
            name = heading.text(self.rows.arrow)
        return summary_lines(bundle, self.rows, name)

    def _flush_not_reached(self) -> None:
        """Print the row of the resources that the run did not reach."""
        events, self._not_reached = self._not_reached, []
        if len(events) == 1:
            self._print(self.rows.resource(events[0]))
        elif events:
            name = counted(len(events), "resource")
            self._print(self.rows.row(Outcome.SKIPPED, "skipped", name, why_skipped(events[0])))

    # The status line

    def expect(self, resources: int) -> None:
        """Set the number of resources that follow."""
        self._total, self._place = resources, 0

    def attend(self, resource: str) -> None:
        """Show a resource, ``type#name``, in the status line."""
        self._place += 1
        if not self._can_redraw:
            return
        now = time.monotonic()
        if resource.partition("#")[0] in _QUICK_TYPES and now - self._drawn_at < _PAUSE:
            return
        self._drawn_at = now
        text = visible_line(f"[{self._place}/{self._total}] {resource}")[: self.rows.width - 1]
        self._stream.write(f"{_CLEAR}{self.rows.painted(text, 'dim')}")
        self._stream.flush()
        self._has_status = True

    def urgent(self, sentence: str) -> str:
        """Return the text of a warning that a signal handler writes."""
        return f"{_CLEAR}  ! {visible(sentence)}" if self._can_redraw else visible(sentence)

    def _print(self, lines: Sequence[str]) -> None:
        if self._not_reached:
            self._flush_not_reached()
        clear, self._has_status = _CLEAR if self._has_status else "", False
        self._stream.write(clear + "".join(f"{line}\n" for line in lines))
        self._stream.flush()


def summary_lines(bundle: BundleReport, rows: Rows, name: str) -> list[str]:
    """Return the summary of a bundle. ``name`` is the name with the version."""
    held = bundle.held if bundle.given_up is None else ""
    lines = rows.wrapped(f"held: {held}", 2, "yellow", further=2) if held else []
    if bundle.trial is not None and bundle.trial.until:
        lines += rows.wrapped(str(bundle.trial), 2, "cyan", further=2)
    return [*lines, ": ".join(filter(None, (name, _result(bundle, rows))))]


def _result(bundle: BundleReport, rows: Rows) -> str:
    if bundle.outcome != "applied":
        return bundle.outcome or "not applied"
    summary = bundle.summary
    numbers = count_outcomes(bundle.events, summary, is_dry_run=rows.is_dry_run)
    given_up = f"rolled back from {bundle.given_up.version}: " if bundle.given_up else ""
    if all(outcome is Outcome.UNCHANGED for outcome, _ in numbers):
        return f"{given_up}in sync, {counted(summary.resources, 'resource')}"
    if not rows.is_dry_run:
        return given_up + ", ".join(f"{number} {outcome}" for outcome, number in numbers)
    others = [
        f"{number} {word}"
        for number, word in ((summary.failed, "failed"), (summary.skipped, "skipped"))
        if number
    ]
    return ", ".join([f"would change {summary.would_change} of {summary.resources}", *others])


def report_lines(report: Report, rows: Rows) -> list[str]:
    """Return a stored report as its run was shown: headings, rows and summaries."""
    rows = msgspec.structs.replace(rows, is_dry_run=report.noop)
    lines = rows.problems(Level.ERROR, report.problems)
    for bundle in report.bundles:
        name = f"{bundle.name} {bundle.version}".rstrip()
        shown = [event for event in bundle.events if is_remarkable(event)]
        if shown:
            lines.append(rows.painted(name, "bold"))
        for event in shown:
            lines += rows.resource(event)
        lines += summary_lines(bundle, rows, name)
    return lines


def is_remarkable(event: Event) -> bool:
    """Return whether an event gets a row: a change, a failure, a note, or a resource that was not reached."""
    if event.notes or not event.reached or event.unmet_requirements:
        return True
    return outcome_of(event) not in (Outcome.UNCHANGED, Outcome.SKIPPED)


def duration_text(seconds: float) -> str:
    """Return a duration as ``0.4 s`` or ``3 min 5 s``, rounded up."""
    return (
        f"{math.ceil(seconds * 10) / 10:.1f} s"
        if seconds < 100
        else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    )


def command_to_apply() -> str:
    """Return the command line that makes the changes of this dry run."""
    words = [word for word in sys.argv[1:] if word not in _DRY_RUN_OPTIONS]
    if words[:1] == ["diff"]:
        words[0] = "run"
    return shlex.join(["puller", *words])


def _colour_of(exit_status: int) -> str:
    if exit_status == ExitStatus.OK:
        return "green"
    return "yellow" if exit_status in (ExitStatus.CHANGED, ExitStatus.HELD, ExitStatus.BUSY) else "red"
