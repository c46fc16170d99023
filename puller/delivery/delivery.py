"""The delivery of a host's reports: each is put into the spool of every destination, then sent from there.

* ``keep`` belongs to the run, and asks nobody; ``send`` comes after it, when the lock is free for the next one.
* All that is sent has one limit of time together, and each destination an equal part of what is left of it: one that is
  silent keeps no other from its reports.
* Whatever goes wrong is one warning a destination. The run has ended as it has.
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
    """Its location, safe to show."""
    reports: int
    oldest: str
    """Identity of the run."""

    def __str__(self) -> str:
        what = counted(self.reports, "report waits", "reports wait")
        return f"{what} to be sent to {self.to}, the oldest of the run {self.oldest}"


class Delivery(msgspec.Struct, frozen=True):
    """The delivery of this host's reports; ``warn`` is told what goes wrong, and what is lost."""

    configuration: Configuration
    directory: Path
    """That of all spools."""
    warn: Warn
    unkept: dict[str, tuple[str, bytes]] = {}
    """The run and the document that a spool could not take, by the location of the destination."""

    def keep(self, sent: SentReport) -> None:
        """Put a report into the spool of every destination; that it cannot be written is told.

        Then it is sent all the same, if it can be sent now: a full disk is what people want to hear of.
        """
        if not is_host_name(sent.host):
            self.warn(f"reports are not sent: the name of this host is {sent.host!r}, {WANTED}")
            return
        data, failed = pack(sent), sent.report.exit_status not in _NOT_FAILED
        kept = set()
        for options in self._options:
            spool = self._spool(options)
            kept.add(spool.path)
            try:
                gone = spool.put(sent.report.run, data, self.warn, failed=failed)
            except OSError as error:
                self.unkept[options.location] = (sent.report.run, data)
                self._tell(options, f"this one is sent now or not at all: {sentence_of(error)}")
                continue
            if gone:
                self._tell(
                    options, f"{gone} older ones that could not be sent are forgotten: the spool is full"
                )
        forget_others(self.directory, kept, self.warn)

    def send(self, check: Callable[[], None]) -> None:
        """Send what waits, within ``send_timeout``; raises only what ``check`` raises."""
        deadline = Deadline(self.configuration.reports.send_timeout, check)
        left = [one for one in self._options if one.location in self.unkept or self._waiting(one)]
        while left:
            options, *rest = left
            part = deadline.within(deadline.left / len(left))
            try:
                self._sending(options, part).run()
            except DeadlineError:
                check()
                self._tell_waiting(
                    options, f"took longer than {part.seconds:.1f} s, its part of send_timeout"
                )
            except Exception as error:  # noqa: BLE001  whatever it is, the others get theirs, and the run has ended
                self._tell_waiting(options, sentence_of(error))
            left = rest

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
        """The destinations for which reports wait."""
        waiting = [(mask_location(options.location), self._waiting(options)) for options in self._options]
        return [Unsent(to, len(found), found[-1].run) for to, found in waiting if found]

    def _waiting(self, options: DestinationOptions) -> list[Waiting]:
        """The documents that wait for a destination; none where that cannot be read, which is told."""
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

    def _tell_waiting(self, options: DestinationOptions, what: str) -> None:
        waiting = len(self._waiting(options))
        self._tell(options, f"{what}; {counted(waiting, 'waits', 'wait')} for the next run")

    def _tell(self, options: DestinationOptions, what: str) -> None:
        self.warn(mask_urls(f"reports to {mask_location(options.location)}: {what}"))


class _Sending(msgspec.Struct):
    """All that waits for one destination, sent to it."""

    configuration: Configuration
    options: DestinationOptions
    unkept: tuple[str, bytes] | None
    spool: Spool
    deadline: Deadline
    tell: Warn
    taken: int = 0
    """Documents, in this sending."""

    def run(self) -> None:
        """Until nothing waits; raises what ends it before."""
        destination = open_destination(self.configuration, self.options)
        try:
            if self.unkept:  # the newest of all
                self._bring(destination, *self.unkept)
            if self.spool.waiting():
                with self.spool.sending(self.deadline):
                    self._empty(destination)
        finally:
            destination.close()

    def _empty(self, destination: Destination) -> None:
        tried: set[str] = set()
        # Asked anew each time: another run may have put a newer one there meanwhile.
        while (one := self.spool.next(tried)) is not None:
            tried.add(one.run)
            if (data := self.spool.read(one, self.tell)) is not None:
                self._bring(destination, one.run, data)
                self.spool.remove(one)

    def _bring(self, destination: Destination, run: str, data: bytes) -> None:
        """Send a document, or give it up and say so; raises where neither is right."""
        host = host_of(data)  # who it was then
        try:
            aside(partial(destination.send, host, run, data, self.deadline), self.deadline)
            self.taken += 1
        except RefusedError as error:
            self._tell_refused(run, error)
        except DoubtedError as error:
            # It takes others of this host, so that it is this one that it will never take.
            if not self.taken:
                raise
            self._tell_refused(run, error)

    def _tell_refused(self, run: str, error: BundleError) -> None:
        self.tell(f"the report of {run} is refused, and dropped: {error}")


def _without_userinfo(location: str) -> str:
    scheme, mark, rest = location.partition("://")
    if not mark:
        return location
    origin, slash, path = rest.partition("/")
    return f"{scheme}{mark}{origin.rpartition('@')[2]}{slash}{path}"
