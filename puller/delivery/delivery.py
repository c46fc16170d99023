"""Delivery of a host's reports: every report enters the spool of each destination and is sent from there.

* ``keep`` is part of the run and uses no network. ``send`` follows when the next run can already take the lock.
* ``send_timeout`` covers all destinations. Each destination gets an equal share of the remaining time, so a silent
  destination does not delay the others.
* Each failure causes one warning per destination and never changes the result of the run.

Spools contain documents that wait for a destination:

    <state>/spool/<sixteen digits of the destination's SHA-256>/<run>-failed.json.gz
                                                                <run>-other.json.gz

* A document enters the spool before it is sent and leaves it after delivery. After a kill in between it is sent again,
  so no document is lost.
* Beyond the limits, the oldest documents without failures are removed first, then the oldest with failures. The newest
  document always stays.
* A damaged document is set aside with a warning and does not block others.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

from bundles.deadline import Deadline, DeadlineError, aside
from bundles.errors import BundleError
from bundles.filesystem.atomic import open_directory, remove_any
from foundation.masking import mask_location, mask_urls
from foundation.quantities import counted
from puller.config.configuration import Configuration
from puller.config.report_destinations import DestinationOptions
from puller.delivery.destination import Destination, DoubtedError, RefusedError, open_destination
from puller.delivery.report_document import LARGEST, host_of, pack
from puller.exit_status import ExitStatus
from puller.reporting.report import SentReport
from puller.reporting.run_log import sentence_of
from puller.state import read_state, set_aside, write_state
from puller.values.foreign_text import EXPECTED_NAME, is_host_name

_NAME = re.compile(r"([0-9]{8}T[0-9]{6}\.[0-9]{6}Z)-(failed|other)\.json\.gz")
_DIRECTORY = re.compile(r"[0-9a-f]{16}")
_LOOK = 0.1
"""Seconds between two attempts at a lock."""

Warn = Callable[[str], None]


class Waiting(msgspec.Struct, frozen=True, order=True):
    """A document in a spool."""

    run: str
    """Identity of the run. Sorts by time."""
    failed: bool
    size: int
    """Bytes."""

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"{self.run}-{'failed' if self.failed else 'other'}.json.gz"


class Spool:
    """The spool of one destination below ``directory``, limited to ``count`` documents and ``size`` bytes in total."""

    def __init__(self, directory: Path, location: str, count: int, size: int) -> None:
        """``location`` must not contain credentials, so that a new password keeps the spool."""
        self.path = directory / hashlib.sha256(location.encode()).hexdigest()[:16]
        self._count = count
        self._size = size

    def put(self, run: str, data: bytes, warn: Warn, *, failed: bool) -> int:
        """Store a document durably. Return the number of removed documents. Raises ``OSError``."""
        make_directory(self.path.parent, warn)
        make_directory(self.path, warn)
        retained = Waiting(run, failed, len(data))
        write_state(self.path / retained.name, data)
        gone = list(_beyond(self.waiting(), self._count, self._size))
        for item in gone:
            self.remove(item)
        return len(gone)

    def waiting(self) -> list[Waiting]:
        """Return all documents, newest first. Raises ``OSError``."""
        return sorted(self._found(), reverse=True)

    def next(self, tried: Collection[str]) -> Waiting | None:
        """Return the next document to send, or ``None`` if the runs ``tried`` include all.

        Documents newer than all tried ones come first, then failed runs, then other runs, each newest first. Raises
        ``OSError``.
        """
        remaining = [item for item in self.waiting() if item.run not in tried]
        newer = [item for item in remaining if item.run > max(tried, default="")]
        return next(iter([*newer, *sorted(remaining, key=lambda item: not item.failed)]), None)

    def read(self, one: Waiting, warn: Warn) -> bytes | None:
        """Return a document, or ``None`` if it is gone or damaged. Set aside a damaged one. Raises ``OSError``."""
        path = self.path / one.name
        try:
            data = read_state(path, LARGEST)
            host_of(data)
        except FileNotFoundError:
            return None
        except ValueError as error:
            warn(f"{path}: {error}, set aside as {set_aside(path)}, so this report is not sent")
            return None
        return data

    def remove(self, one: Waiting) -> None:
        """Remove a document, if it exists. Raises ``OSError``."""
        (self.path / one.name).unlink(missing_ok=True)

    @contextmanager
    def sending(self, deadline: Deadline) -> Iterator[None]:
        """Lock the spool while the block runs. Raises ``DeadlineError`` if another process keeps the lock."""
        with open_directory(self.path) as descriptor:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    deadline.pause(_LOOK)
            yield  # closing the descriptor releases the lock

    def _found(self) -> Iterator[Waiting]:
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                if match := _NAME.fullmatch(entry.name):
                    size = entry.stat(follow_symlinks=False).st_size
                    yield Waiting(match[1], match[2] == "failed", size)


def make_directory(path: Path, warn: Warn) -> None:
    """Make a private directory. Set aside anything else at its path. Raises ``OSError``."""
    if os.path.lexists(path) and not path.is_dir():
        warn(f"{path}: is not a directory, set aside as {set_aside(path)}")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def forget_others(directory: Path, kept: Collection[Path], warn: Warn) -> None:
    """Remove the spools of destinations that are no longer configured. Raises ``OSError``."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in directory.iterdir():
            if _DIRECTORY.fullmatch(path.name) and path not in kept:
                waited = len(list(path.glob("*.json.gz")))
                remove_any(path)
                if waited:
                    what = counted(waited, "report was", "reports were")
                    warn(f"{what} removed: the destination is no longer configured")


def _beyond(waiting: list[Waiting], count: int, size: int) -> Iterator[Waiting]:
    """Yield the documents beyond the limits, never the newest one."""
    remaining, total = len(waiting), sum(item.size for item in waiting)
    for item in sorted(waiting[1:], key=lambda item: (item.failed, item.run)):
        if remaining <= count and total <= size:
            return
        remaining, total = remaining - 1, total - item.size
        yield item


_NOT_FAILED = (ExitStatus.OK, ExitStatus.CHANGED, ExitStatus.HELD)


class Unsent(msgspec.Struct, frozen=True):
    """The reports that wait for one destination."""

    to: str
    """Location without credentials."""
    reports: int
    oldest: str
    """Identity of the run."""

    def __str__(self) -> str:
        what = counted(self.reports, "report waits", "reports wait")
        return f"{what} to be sent to {self.to}, the oldest of the run {self.oldest}"


class Delivery(msgspec.Struct, frozen=True):
    """Delivery of this host's reports. ``warn`` receives failures and losses."""

    configuration: Configuration
    directory: Path
    """Parent directory of all spools."""
    warn: Warn
    unkept: dict[str, tuple[str, bytes]] = {}
    """The run and the document that a spool could not store, by location of the destination."""

    def keep(self, sent: SentReport) -> None:
        """Put a report into the spool of every destination. If a spool cannot be written, warn.

        ``send`` then tries to send the unstored report directly, because people want to hear of a full disk.
        """
        if not is_host_name(sent.host):
            self.warn(f"cannot send reports: the name of this host is {sent.host!r}, {EXPECTED_NAME}")
            return
        data, failed = pack(sent), sent.report.exit_status not in _NOT_FAILED
        retained = set()
        for options in self._options:
            spool = self._spool(options)
            retained.add(spool.path)
            try:
                gone = spool.put(sent.report.run, data, self.warn, failed=failed)
            except OSError as error:
                self.unkept[options.location] = (sent.report.run, data)
                self._tell(options, f"this report is sent now, and not again: {sentence_of(error)}")
                continue
            if gone:
                self._tell(options, f"the spool is full, so the oldest unsent reports ({gone}) are removed")
        forget_others(self.directory, retained, self.warn)

    def send(self, check: Callable[[], None]) -> None:
        """Send the waiting reports within ``send_timeout``. Raises only exceptions of ``check``."""
        deadline = Deadline(self.configuration.reports.send_timeout, check)
        remaining = [
            option for option in self._options if option.location in self.unkept or self._waiting(option)
        ]
        while remaining:
            options, *remainder = remaining
            part = deadline.within(deadline.left / len(remaining))
            try:
                self._sending(options, part).run()
            except DeadlineError:
                check()
                self._report_waiting(
                    options, f"took longer than {part.seconds:.1f} s, its share of send_timeout"
                )
            except Exception as error:  # noqa: BLE001  whatever it is, the others get theirs, and the run has ended
                self._report_waiting(options, sentence_of(error))
            remaining = remainder

    def _sending(self, options: DestinationOptions, deadline: Deadline) -> "_Sending":
        return _Sending(
            self.configuration,
            options,
            self.unkept.get(options.location),
            self._spool(options),
            deadline,
            partial(self._tell, options),
        )

    def unsent(self) -> list[Unsent]:
        """Return the destinations that have waiting reports."""
        waiting = [(mask_location(options.location), self._waiting(options)) for options in self._options]
        return [Unsent(to, len(found), found[-1].run) for to, found in waiting if found]

    def _waiting(self, options: DestinationOptions) -> list[Waiting]:
        """Return the documents that wait for a destination. If the spool cannot be read, warn and return none."""
        try:
            return self._spool(options).waiting()
        except OSError as error:
            self._tell(options, f"cannot be read: {sentence_of(error)}")
            return []

    @property
    def _options(self) -> Sequence[DestinationOptions]:
        return self.configuration.reports.destinations

    def _spool(self, options: DestinationOptions) -> Spool:
        bounds = self.configuration.reports.spool
        return Spool(self.directory, _without_userinfo(options.location), bounds.count, bounds.bytes)

    def _report_waiting(self, options: DestinationOptions, description: str) -> None:
        waiting = len(self._waiting(options))
        self._tell(
            options, f"{description}, and {counted(waiting, 'report waits', 'reports wait')} for the next run"
        )

    def _tell(self, options: DestinationOptions, what: str) -> None:
        self.warn(mask_urls(f"reports to {mask_location(options.location)}: {what}"))


class _Sending(msgspec.Struct):
    """The transfer of all waiting documents to one destination."""

    configuration: Configuration
    options: DestinationOptions
    unkept: tuple[str, bytes] | None
    spool: Spool
    deadline: Deadline
    tell: Warn
    taken: int = 0
    """Number of documents that this transfer has delivered."""

    def run(self) -> None:
        """Send until the spool is empty. Raises the error that stops the transfer."""
        destination = open_destination(self.configuration, self.options)
        try:
            if self.unkept:  # the newest document
                self._bring(destination, *self.unkept)
            if self.spool.waiting():
                with self.spool.sending(self.deadline):
                    self._empty(destination)
        finally:
            destination.close()

    def _empty(self, destination: Destination) -> None:
        tried: set[str] = set()
        # Read the spool each time, because another run may have added a newer document.
        while (item := self.spool.next(tried)) is not None:
            tried.add(item.run)
            if (data := self.spool.read(item, self.tell)) is not None:
                self._bring(destination, item.run, data)
                self.spool.remove(item)

    def _bring(self, destination: Destination, run: str, data: bytes) -> None:
        """Send a document. If the destination refuses it, drop it with a warning. Raise other errors."""
        host = host_of(data)  # The host may have had another name when it wrote the document.
        try:
            aside(partial(destination.send, host, run, data, self.deadline), self.deadline)
            self.taken += 1
        except RefusedError as error:
            self._report_refusal(run, error)
        except DoubtedError as error:
            # The destination accepted other documents of this host, so it will never accept this one.
            if not self.taken:
                raise
            self._report_refusal(run, error)

    def _report_refusal(self, run: str, error: BundleError) -> None:
        self.tell(f"the report of {run} was rejected and is removed: {error}")


def _without_userinfo(location: str) -> str:
    scheme, mark, remainder = location.partition("://")
    if not mark:
        return location
    origin, slash, path = remainder.partition("/")
    return f"{scheme}{mark}{origin.rpartition('@')[2]}{slash}{path}"
