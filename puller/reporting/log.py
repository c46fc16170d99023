"""Log entries: lines for people, and with fields for the journal (``puller.reporting.sinks``).

A line is a level, a sentence and ``key=value`` pairs::

    NOTICE file#/etc/motd changed ensure=present runtime=2ms provider=posix

WARN and above is what somebody should look at; what a run is there for, such as a change, is a notice.
"""

import sys
from typing import TextIO, Unpack

from foundation.formatting import ARROW, journal, people
from puller.reporting.report import Event, State
from puller.reporting.sinks import JOURNAL, Fields, Level, MessageId, find_sink
from puller.values.visible import visible

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
    """The least urgent level that is shown, for the options of the command line."""
    return Level.ERROR if quiet else Level.INFO if verbose else Level.NOTICE


class Log:
    """Takes the entries of a run, and hands those that are urgent enough to where its stream goes."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        level: Level = Level.NOTICE,
        colour: bool | None = None,
        journal: str = JOURNAL,
    ) -> None:
        self._sink = find_sink(stream or sys.stderr, colour=colour, journal=journal)
        self._level = level
        self._common: Fields = {}

    def belong_to(self, run: str) -> None:
        """From here on, all entries are those of a run of this identity."""
        self._common = {"run": run}

    def is_shown(self, level: Level) -> bool:
        """Whether an entry of this level would be written; saves making it."""
        return level <= self._level

    def write(self, level: Level, sentence: str, **fields: Unpack[Fields]) -> None:
        """One entry, which may have several lines."""
        if self.is_shown(level):
            self._sink.write(level, visible(sentence), {**self._common, **fields})

    def at_once(self, sentence: str) -> None:
        """A warning, also from the handler of a signal, which may have interrupted another line; one that cannot be
        written without waiting is left out.
        """
        if self.is_shown(Level.WARN):
            self._sink.at_once(Level.WARN, visible(sentence), {**self._common, "kind": MessageId.WARNING})

    def error(self, sentence: str, **fields: Unpack[Fields]) -> None:
        """Something failed."""
        fields.setdefault("kind", MessageId.PROBLEM)
        self.write(Level.ERROR, sentence, **fields)

    def warn(self, sentence: str, **fields: Unpack[Fields]) -> None:
        """Something that somebody should look at, and that nothing failed for."""
        fields.setdefault("kind", MessageId.WARNING)
        self.write(Level.WARN, sentence, **fields)

    def notice(self, sentence: str, **fields: Unpack[Fields]) -> None:
        """Something changed, or is otherwise worth knowing."""
        self.write(Level.NOTICE, sentence, **fields)

    def info(self, sentence: str, **fields: Unpack[Fields]) -> None:
        """Something for those who look closer."""
        self.write(Level.INFO, sentence, **fields)

    def event(self, event: Event, bundle: str = "") -> None:
        """An entry for a resource, at the level of what became of it."""
        level = _level_of(event)
        if self.is_shown(level):
            own: Fields = {"kind": _KIND_OF[event.state], "resource": event.reference, "state": event.state}
            if bundle:
                own["bundle"] = bundle
            if event.problems:
                own["code"] = event.problems[0].code
            if event.differences and self._sink.has_fields:
                own["differences"] = journal(event.differences)
            self.write(level, sentence(event, arrow=ARROW if self._sink.has_fields else ""), **own)

    def shows(self, event: Event) -> bool:
        """Whether there would be an entry for a resource."""
        return self.is_shown(_level_of(event))

    def ended(self, exit_status: int) -> None:
        """The end of the run, for those who look by fields; on a terminal the exit status itself tells it."""
        if self._sink.has_fields:
            self.notice(
                f"the run ended with exit status {exit_status}", kind=MessageId.RUN_ENDED, exit=exit_status
            )


def _level_of(event: Event) -> Level:
    if event.unmet_requirements:
        return Level.INFO if event.reversal else Level.ERROR  # a leftover stays, with an entry of its own
    if event.notes and event.state is State.STABLE and not event.reversal:
        return Level.NOTICE  # a note is a warning, which most runs would not print with a stable resource
    return _LEVEL_OF[event.state] if event.reached else Level.WARN


def sentence(event: Event, *, arrow: str = "") -> str:
    """Return the line for a resource, and below it the diff of what changed.

    ``arrow`` is the one between the values of a difference, by default as the locale can show it.
    """
    name = f"{event.type}#{event.alias} ({event.name})" if event.alias else event.reference
    parts = [
        f"{name} {_what(event)}",
        f"ensure={event.requested_ensure}",
        f"runtime={event.duration * 1000:.0f}ms",
    ]
    if event.provider:
        parts.append(f"provider={event.provider}")
    if event.noop_message:
        parts.append(f'noop="{event.noop_message}"')
    if event.differences and event.state is not State.STABLE:
        text = people(event.differences, is_predicted=event.is_predicted, arrow=arrow)
        parts.append(f'differences="{text}"')
    if event.notes:
        parts.append(f'notes="{"; ".join(event.notes)}"')
    parts += [f"unmet={reference}" for reference in event.unmet_requirements]
    if event.item and event.state is State.FAILED:
        parts.append(f'item="{event.item}"')
    if event.problems:
        parts.append(f'errors="{", ".join(event.errors)}"')
    line = " ".join(parts)
    return f"{line}\n{event.diff.rstrip()}" if event.diff else line


def _what(event: Event) -> str:
    if event.unmet_requirements and event.reversal:
        return "stays until these succeed"
    if event.unmet_requirements:
        return "skipped due to unmet requirements"
    if event.state is State.SKIPPED:
        return f"skipped ({event.skip_reason})"
    return event.state
