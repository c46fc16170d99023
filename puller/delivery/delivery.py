"""Delivery of a host's reports: every report enters the spool of each destination and is sent from there.

* ``keep`` is part of the run and uses no network. ``send`` follows when the next run can already take the lock.
* ``send_timeout`` covers all destinations. Each destination gets an equal share of the remaining time, so a silent
  destination does not delay the others.
* Each failure causes one warning per destination and never changes the result of the run.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from bundles.deadline import Deadline, DeadlineError, aside
from bundles.errors import BundleError
from foundation.masking import mask_location, mask_urls
from foundation.quantities import counted
from puller.config.configuration import Configuration
from puller.config.destinations import DestinationOptions
from puller.delivery.destination import Destination, DoubtedError, RefusedError, open_destination
from puller.delivery.report_document import host_of, pack
from puller.delivery.spool import Spool, Waiting, Warn, forget_others
from puller.exit_status import ExitStatus
from puller.reporting.run_problems import sentence_of
from puller.reporting.sent_report import SentReport
from puller.values.host_name import WANTED, is_host_name

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
            self.warn(f"cannot send reports: the name of this host is {sent.host!r}, {WANTED}")
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
                self._tell_waiting(
                    options, f"took longer than {part.seconds:.1f} s, its share of send_timeout"
                )
            except Exception as error:  # noqa: BLE001  whatever it is, the others get theirs, and the run has ended
                self._tell_waiting(options, sentence_of(error))
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

    def _tell_waiting(self, options: DestinationOptions, description: str) -> None:
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
            self._tell_refused(run, error)
        except DoubtedError as error:
            # The destination accepted other documents of this host, so it will never accept this one.
            if not self.taken:
                raise
            self._tell_refused(run, error)

    def _tell_refused(self, run: str, error: BundleError) -> None:
        self.tell(f"the report of {run} was rejected and is removed: {error}")


def _without_userinfo(location: str) -> str:
    scheme, mark, remainder = location.partition("://")
    if not mark:
        return location
    origin, slash, path = remainder.partition("/")
    return f"{scheme}{mark}{origin.rpartition('@')[2]}{slash}{path}"
