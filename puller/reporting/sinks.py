"""Where the lines of a run go: lines of a stream, or entries of the journal with fields.

* A stream that systemd has connected to the journal says so, and then entries go there with their fields.
* An entry that the journal does not take at once goes to that stream, with its priority in front, as journald reads
  lines: without its fields, which is said once on standard error. Nothing is lost, and nobody waits.
"""

import contextlib
import os
import select
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TextIO

from puller.reporting.fields import Fields
from puller.values.colour import coloured, coloured_diff, is_wanted

if TYPE_CHECKING:
    from puller.reporting.journal import Journal

JOURNAL = "/run/systemd/journal/socket"


class Level(IntEnum):
    """Syslog's priorities; the smaller, the more urgent."""

    ERROR = 3
    WARN = 4
    NOTICE = 5
    INFO = 6
    DEBUG = 7


_COLOURS = {Level.ERROR: "red", Level.WARN: "yellow", Level.NOTICE: "green", Level.DEBUG: "dim"}


class Sink(Protocol):
    """Takes entries: a level, a sentence that may have several lines, and fields."""

    has_fields: bool
    """Whether anybody will see them."""

    def write(self, level: Level, sentence: str, fields: Fields) -> None:
        """Take an entry; raises nothing for a journal that does not."""

    def at_once(self, level: Level, sentence: str, fields: Fields) -> None:
        """As ``write``, from the handler of a signal, which may have interrupted another one; may leave it out."""


def find_sink(stream: TextIO, *, colour: bool | None = None, journal: str = JOURNAL) -> Sink:
    """The sink that suits a stream; ``colour`` is ``None`` for what the terminal wants."""
    if not _is_journal(stream):
        is_coloured = is_wanted(stream) if colour is None else colour
        return Lines(stream, _coloured if is_coloured else _plain)
    # Imported before the first signal can come, whose handler must not begin to import.
    from puller.reporting.journal import Journal

    return Entries(Journal(journal), Lines(stream, _prefixed))


class Lines:
    """Lines of a stream."""

    has_fields = False

    def __init__(self, stream: TextIO, shape: Callable[[Level, str], str]) -> None:
        self._stream = stream
        self._shape = shape

    def write(self, level: Level, sentence: str, fields: Fields) -> None:
        """Write an entry and hand it over."""
        self._stream.write(self._shape(level, sentence))
        self._stream.flush()

    def at_once(self, level: Level, sentence: str, fields: Fields) -> None:
        """Write an entry, unless that would have to wait."""
        with contextlib.suppress(OSError, ValueError):
            descriptor = self._stream.fileno()
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            if poll.poll(0):
                os.write(descriptor, self._shape(level, sentence).encode())


class Entries:
    """Entries of the journal; lines of ``otherwise`` where it takes none."""

    has_fields = True

    def __init__(self, journal: "Journal", otherwise: Lines) -> None:
        self._journal = journal
        self._otherwise = otherwise
        self._is_told = False

    def write(self, level: Level, sentence: str, fields: Fields) -> None:
        """Send an entry with its fields, or write it without."""
        try:
            self._send(level, sentence, fields)
        except OSError as error:
            self._tell(error)
            self._otherwise.write(level, sentence, fields)

    def at_once(self, level: Level, sentence: str, fields: Fields) -> None:
        """Send an entry, or write it where that waits for nobody."""
        try:
            self._send(level, sentence, fields)
        except OSError:
            self._otherwise.at_once(level, sentence, fields)

    def _send(self, level: Level, sentence: str, fields: Fields) -> None:
        from puller.reporting.journal import entry

        self._journal.send(entry(level, sentence, fields))

    def _tell(self, error: OSError) -> None:
        if not self._is_told:
            self._is_told = True
            why = os.strerror(error.errno or 0)
            print(
                f"puller: the journal takes no entries with fields: {why}; they come as lines",
                file=sys.stderr,
            )


def _plain(level: Level, sentence: str) -> str:
    return _indented(f"{level.name:7}", sentence)


def _coloured(level: Level, sentence: str) -> str:
    name = f"{level.name:7}"
    return _indented(coloured(name, _COLOURS[level]) if level in _COLOURS else name, coloured_diff(sentence))


def _indented(name: str, sentence: str) -> str:
    """An entry of which further lines are told from the next entry."""
    return name + sentence.replace("\n", "\n        ") + "\n"


def _prefixed(level: Level, sentence: str) -> str:
    """An entry as journald, or another reader of syslog's lines, wants it: the priority at the start of every line."""
    return "".join(f"<{level.value}>{line}\n" for line in sentence.splitlines())


def _is_journal(stream: TextIO) -> bool:
    """Whether the stream goes to the journal: systemd names its device and inode."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
