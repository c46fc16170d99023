"""Log lines: for people on a terminal, with priorities for the journal.

A line is a level, a sentence and ``key=value`` pairs::

    NOTICE file#/etc/motd changed ensure=present runtime=2ms provider=posix

WARN and above is what somebody should look at; what a run is there for, such as a change, is a notice.
"""

import contextlib
import os
import select
import sys
from enum import IntEnum
from typing import TextIO

from puller.reporting.report import Event, State
from puller.values.visible import visible


class Level(IntEnum):
    """Syslog's priorities; the smaller, the more urgent."""

    ERROR = 3
    WARN = 4
    NOTICE = 5
    INFO = 6
    DEBUG = 7


_COLOURS = {Level.ERROR: "31", Level.WARN: "33", Level.DEBUG: "2"}
_LEVEL_OF = {
    State.FAILED: Level.ERROR,
    State.CHANGED: Level.NOTICE,
    State.REFRESHED: Level.NOTICE,
    State.WOULD_CHANGE: Level.NOTICE,
    State.STABLE: Level.INFO,
    State.SKIPPED: Level.INFO,
}


def verbosity(*, verbose: bool, quiet: bool) -> Level:
    """The least urgent level that is shown, for the options of the command line."""
    return Level.ERROR if quiet else Level.INFO if verbose else Level.NOTICE


class Log:
    """Writes the lines of a run to one stream."""

    def __init__(
        self, stream: TextIO | None = None, *, level: Level = Level.NOTICE, colour: bool | None = None
    ) -> None:
        self._stream = stream or sys.stderr
        self._level = level
        self._journal = _is_journal(self._stream)
        self._colour = self._stream.isatty() and "NO_COLOR" not in os.environ if colour is None else colour

    def is_shown(self, level: Level) -> bool:
        """Whether a line of this level would be written; saves making it."""
        return level <= self._level

    def write(self, level: Level, sentence: str) -> None:
        """One entry; further lines of it are indented, so that an entry is told from the next."""
        if not self.is_shown(level):
            return
        self._stream.write(self._entry(level, sentence))
        self._stream.flush()

    def at_once(self, sentence: str) -> None:
        """A warning, also from the handler of a signal, which may have interrupted another line; one that cannot be
        written without waiting is left out.
        """
        if not self.is_shown(Level.WARN):
            return
        entry = self._entry(Level.WARN, sentence).encode()
        with contextlib.suppress(OSError, ValueError):
            descriptor = self._stream.fileno()
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            if poll.poll(0):
                os.write(descriptor, entry)

    def _entry(self, level: Level, sentence: str) -> str:
        sentence = visible(sentence)
        if self._journal:
            # The journal reads the priority at the start of every line.
            return "".join(f"<{level.value}>{line}\n" for line in sentence.splitlines())
        name = f"{level.name:7}"
        if self._colour and level in _COLOURS:
            name = f"\x1b[{_COLOURS[level]}m{name}\x1b[0m"
        return name + sentence.replace("\n", "\n        ") + "\n"

    def error(self, sentence: str) -> None:
        """Something failed."""
        self.write(Level.ERROR, sentence)

    def warn(self, sentence: str) -> None:
        """Something that somebody should look at, and that nothing failed for."""
        self.write(Level.WARN, sentence)

    def notice(self, sentence: str) -> None:
        """Something changed, or is otherwise worth knowing."""
        self.write(Level.NOTICE, sentence)

    def info(self, sentence: str) -> None:
        """Something for those who look closer."""
        self.write(Level.INFO, sentence)

    def event(self, event: Event) -> None:
        """A line for a resource, at the level of what became of it."""
        level = _level_of(event)
        if self.is_shown(level):
            self.write(level, sentence(event))


def _level_of(event: Event) -> Level:
    if event.unmet_requirements:
        return Level.ERROR
    return _LEVEL_OF[event.state] if event.reached else Level.WARN


def sentence(event: Event) -> str:
    """The line for a resource, and below it the diff of what changed."""
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
    elif event.differences and event.state is not State.STABLE:
        parts.append(f'differences="{"; ".join(event.differences)}"')
    if event.notes:
        parts.append(f'notes="{"; ".join(event.notes)}"')
    parts += [f"unmet={reference}" for reference in event.unmet_requirements]
    if event.item and event.state is State.FAILED:
        parts.append(f'item="{event.item}"')
    if event.errors:
        parts.append(f'errors="{", ".join(event.errors)}"')
    line = " ".join(parts)
    return f"{line}\n{event.diff.rstrip()}" if event.diff else line


def _what(event: Event) -> str:
    if event.unmet_requirements:
        return "skipped due to unmet requirements"
    if event.state is State.SKIPPED:
        return f"skipped ({event.skip_reason})"
    return event.state


def _is_journal(stream: TextIO) -> bool:
    """Whether the stream goes to the journal: systemd names its device and inode."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
