"""Sessions: the events of separate ``puller ensure`` commands, so that they can refer to each other.

* Sequence numbers keep the order of recording. Clocks do not matter.
* Only the owner can read a session. A session of another user is rejected.
* Removing a session removes only the files that it wrote.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from bundles.filesystem.atomic import write_file
from foundation.problems import ProblemCode
from foundation.timestamps import iso_text
from puller.errors import UsageError, file_problem
from puller.reporting.report import Event
from puller.state.state_file import decode
from puller.values.references import Reference

VARIABLE = "PULLER_SESSION"
"""The environment variable that names the directory."""
_MARK = "session.json"
_ENDING = ".event"


class Start(msgspec.Struct, frozen=True):
    """The start of a session. ``started`` is UTC in ISO 8601."""

    started: str
    format: Literal[3] = 3


class Recorded(msgspec.Struct, frozen=True):
    """An event with its sequence number."""

    sequence: int
    time: str
    event: Event


class Session:
    """The events in one directory."""

    def __init__(self, directory: Path, start: Start) -> None:
        self.directory = directory
        self.start = start

    @classmethod
    def create(cls, directory: Path | None = None) -> "Session":
        """Return a new session in ``directory``, or in a temporary one. Raise ``UsageError``, ``OSError``."""
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="puller-session-"))
        else:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise UsageError(f"{directory}: is not empty, and a session requires an empty directory")
        start = Start(iso_text(datetime.now(UTC), "microseconds"))
        write_file(directory / _MARK, msgspec.json.encode(start), mode=0o600)
        return cls(directory.absolute(), start)

    @classmethod
    def open(cls, directory: Path) -> "Session":
        """Return the session in ``directory``. Raise ``UsageError``."""
        try:
            if os.stat(directory).st_uid != os.geteuid():
                # The events decide what runs, so only the user may write them.
                raise UsageError(f"{directory}: belongs to another user")
            return cls(directory, decode((directory / _MARK).read_bytes(), Start))
        except FileNotFoundError:
            raise UsageError(
                f"{directory}: is not a session", hint="create one with: puller session new"
            ) from None
        except OSError as error:
            raise UsageError(
                file_problem(error, "cannot be read", where=directory), code=ProblemCode.UNREADABLE_SOURCE
            ) from error
        except msgspec.DecodeError as error:
            raise UsageError(f"{directory / _MARK}: is not a session ({error})") from error

    def record(self, event: Event) -> Recorded:
        """Add an event after all others, also with concurrent writers. Raise ``OSError``."""
        temporary = self.directory / f".{os.urandom(8).hex()}.new"
        sequence = max((number for number, _ in self._files()), default=0)
        try:
            while True:
                sequence += 1
                recorded = Recorded(sequence, iso_text(datetime.now(UTC), "microseconds"), event)
                write_file(temporary, msgspec.json.encode(recorded), mode=0o600)
                # A link never replaces a file, so each number is used once.
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, self.directory / f"{sequence:08d}{_ENDING}")
                    return recorded
        finally:
            temporary.unlink(missing_ok=True)

    def events(self) -> list[Recorded]:
        """Return all events in order. Raise ``UsageError`` if one is invalid."""
        return [_load(path) for _, path in sorted(self._files())]

    def remove(self) -> None:
        """Remove the session, and its directory if it is then empty. Raise ``OSError``."""
        for _, path in self._files():
            path.unlink()
        (self.directory / _MARK).unlink()
        with contextlib.suppress(OSError):
            self.directory.rmdir()

    def _files(self) -> Iterator[tuple[int, Path]]:
        for path in self.directory.iterdir():
            if path.suffix == _ENDING and (path.stem.isascii() and path.stem.isdecimal()):
                yield int(path.stem), path


def latest(events: Sequence[Recorded], reference: Reference) -> Recorded | None:
    """Return the last event of a resource, by its name or alias."""
    return next((event for event in reversed(events) if _is_named(event.event, reference)), None)


def change_since(events: Sequence[Recorded], reference: Reference, since: int) -> Recorded | None:
    """Return a change of a resource after the event with number ``since``."""
    return next(
        (e for e in events if e.sequence > since and e.event.changed and _is_named(e.event, reference)), None
    )


def _is_named(event: Event, reference: Reference) -> bool:
    return reference in (event.reference, f"{event.type}#{event.alias}" if event.alias else "")


def _load(path: Path) -> Recorded:
    try:
        return decode(path.read_bytes(), Recorded)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: is not an event of a session ({error})") from error
