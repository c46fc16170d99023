"""The state of this host, read from its records: the one description for ``status``, metrics, reports and the fleet.

* The state does not depend on the outcome of the last run. A run that fails early reports nothing about the bundles.
* Only the state directory is read, and nothing is changed. Damaged records are passed to ``warn``.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from bundles.client.revalidation import first_expiry
from bundles.errors import BundleError, FormatError
from bundles.format.fields import parse_name
from bundles.store.contents import Installed
from bundles.store.store import Store
from foundation.times import iso_text
from puller.config.configuration import BundleChoice, Configuration
from puller.reporting.report import (
    BundleReport,
    PublishedBundle,
    Report,
    RestlessResource,
    SentFacts,
    SentReport,
)
from puller.run.leftovers.managed import Managed
from puller.run.policy.holds import Holds
from puller.run.trials import Trial, Trials
from puller.state import Directories, StateFile
from puller.values.export_types import Value


class BundleState(msgspec.Struct, frozen=True):
    """A bundle of the configuration on this host."""

    choice: BundleChoice
    pin: str
    """The version that the operator or the configuration holds the bundle at. Usually empty."""
    quarantined: list[str]
    """Versions that this host has given up."""
    enforced: Installed | None = None
    """The current version."""
    enforced_since: datetime | None = None
    good: Installed | None = None
    """The last version that passed."""
    trial: Trial | None = None
    """The trial of the current version."""
    problem: str = ""
    """Why a version cannot be used. Usually empty."""


class HostState(msgspec.Struct, frozen=True, dict=True):
    """The state of this host. Values are read when they are needed."""

    configuration: Configuration
    directories: Directories
    now: datetime
    warn: Callable[[str], None]
    verify: bool = False
    """Compare the files of the current and the last good version. A run has done so before it reports."""

    @cached_property
    def store(self) -> Store:
        """The bundles on this host."""
        return Store(self.directories.bundles)

    @cached_property
    def holds(self) -> Holds:
        """The operator's pause, maintenance windows, pins, and the quarantine."""
        return Holds.load(self.configuration, self.directories, self.now, self.warn, noop=True)

    @cached_property
    def managed(self) -> Managed:
        """The resources that the bundles manage and have left behind."""
        return Managed(self.directories, self.warn, noop=True)

    @cached_property
    def bundles(self) -> list[BundleState]:
        """The bundles of the configuration, in its order."""
        trials = Trials(self.directories, self.warn, noop=True)
        return [
            self._with_versions(
                BundleState(
                    choice,
                    self.holds.pins.find(choice.name) or choice.version or "",
                    [entry.version for entry in self.holds.quarantine.entries if entry.bundle == choice.name],
                ),
                trials,
            )
            for choice in self.configuration.bundles
        ]

    def _with_versions(self, bundle: BundleState, trials: Trials) -> BundleState:
        """Add the versions in the store, up to the first one that cannot be used."""
        store, name = self.store, bundle.choice.name
        replace = msgspec.structs.replace
        try:
            if enforced := store.current(name) if self.verify else store.named(name):
                # A link has the time of its last change.
                since = datetime.fromtimestamp(os.lstat(enforced.path.parent / "current").st_mtime, UTC)
                trial = trials.find(enforced)
                bundle = replace(bundle, enforced=enforced, enforced_since=since, trial=trial)
            good = store.good(name) if self.verify else store.named(name, "good")
            return replace(bundle, good=good)
        except (BundleError, OSError) as error:
            return replace(bundle, problem=str(error))

    @cached_property
    def exports(self) -> dict[str, dict[str, Value]]:
        """The values that the bundles export to the fleet, by bundle."""
        return ExportedValues(self.directories, self.warn).load(noop=True)

    def metadata_expiry(self) -> datetime | None:
        """Return when the first of the site's metadata on this host expire."""
        names = [choice.name for choice in self.configuration.bundles]
        return first_expiry(self.directories.trust, names, self.configuration.signed_data)

    def unconfigured(self) -> "list[Unconfigured]":
        """Return the bundles in the store that the configuration does not name. Empty if the store cannot be read."""
        configured = {choice.name for choice in self.configuration.bundles}
        with contextlib.suppress(BundleError):
            names = [name for name in self.store.names() if name not in configured and is_bundle_name(name)]
            return [Unconfigured.load(self.store, name) for name in names]
        return []


class Unconfigured(msgspec.Struct, frozen=True):
    """A bundle in the store that the configuration does not name."""

    name: str
    version: str | None
    """The version that was applied last."""
    directory: Path
    size: int
    """In bytes."""

    @classmethod
    def load(cls, store: Store, name: str) -> "Unconfigured":
        """Return the description of a bundle. Raise ``BundleError``."""
        named, directory = store.named(name), store.root / name
        size = 0
        with contextlib.suppress(OSError):  # files that are removed meanwhile do not count
            for path in directory.rglob("*"):
                size += path.lstat().st_size
        return cls(name, named.version if named else None, directory, size)


def is_bundle_name(text: str) -> bool:
    """Return whether a text is a valid name of a bundle."""
    with contextlib.suppress(FormatError):
        return bool(parse_name(text))
    return False


def sent_report(
    state: HostState,
    report: Report,
    restless: Sequence[RestlessResource],
    facts: SentFacts,
    recipient: str = "",
) -> SentReport:
    """Return the document about the host after a run, for metrics and the fleet. Raise ``OSError``.

    ``recipient`` is that of the host's key for encrypted files.
    """
    reports = {bundle.name: bundle for bundle in report.bundles}
    expiry = state.metadata_expiry()
    return SentReport(
        host=report.host,
        sent=iso_text(datetime.now(UTC), "milliseconds"),
        facts=facts.facts,
        absent_facts=facts.absent_facts,
        whole_facts=facts.whole_facts,
        metadata_expire=iso_text(expiry) if expiry else "",
        recipient=recipient,
        bundles=[
            _published_bundle(
                bundle, reports.get(bundle.choice.name), state.exports.get(bundle.choice.name, {})
            )
            for bundle in state.bundles
        ],
        restless=list(restless),
        report=report,
    )


def _published_bundle(
    bundle: BundleState, report: BundleReport | None, exports: dict[str, Value]
) -> PublishedBundle:
    since = bundle.enforced_since
    return PublishedBundle(
        name=bundle.choice.name,
        channel=bundle.choice.channel,
        pin=bundle.pin,
        published=report.published if report else "",
        waits_until=report.waits_until if report else "",
        enforced=bundle.enforced.version if bundle.enforced else "",
        enforced_since=iso_text(since) if since else "",
        good=bundle.good.version if bundle.good else "",
        held=report.held if report else "",
        quarantined=bundle.quarantined,
        exports=exports,
    )


class _Exports(msgspec.Struct, tag_field="format", tag=1):
    """The document of exports, with its format in front."""

    bundles: dict[str, dict[str, Value]]
    """By bundle, then by name."""


class ExportedValues:
    """The exports of all bundles, kept from the run that applied them last. Methods raise ``OSError``.

    A run that applies nothing (a maintenance window, a pause) has the same exports as the run before it.
    """

    def __init__(self, directories: Directories, warn: Callable[[str], None]) -> None:
        self._file = StateFile(directories.exports, _Exports, "the next run exports all values again")
        self._warn = warn

    def load(self, *, noop: bool = False) -> dict[str, dict[str, Value]]:
        """Return the last exports by bundle. ``noop`` keeps a damaged file in its place."""
        document = self._file.load(self._warn, noop=noop)
        return document.bundles if document else {}

    def update(self, applied: Mapping[str, Mapping[str, Any]], configured: Collection[str]) -> None:
        """Keep the exports of applied bundles. Remove the exports of bundles that are not ``configured``."""
        if not self._file.path.exists() and not any(applied.values()):
            return
        before = self.load()
        now = before | {name: dict(values) for name, values in applied.items()}
        now = {name: values for name, values in now.items() if name in configured and values}
        if now != before:
            self._file.save(_Exports(now))
        if not now:
            self._file.remove()
