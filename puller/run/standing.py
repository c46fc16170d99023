"""The standing of a host after a run: its report, and what is so whatever the run has come to.

A run that fails early says nothing of the bundles; what is enforced, and since when, does not change by that.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from bundles.client.expiry import first_expiry
from bundles.errors import BundleError
from bundles.store.store import Store
from puller.config.configuration import BundleChoice, Configuration
from puller.reporting.report import BundleReport, Report
from puller.reporting.sent_report import PublishedBundle, RestlessResource, SentReport
from puller.run.exported import ExportedValues
from puller.run.policy.pins import Pins
from puller.run.policy.quarantine import Quarantine
from puller.state.directories import Directories


def standing(
    configuration: Configuration,
    directories: Directories,
    report: Report,
    restless: Sequence[RestlessResource],
    facts: Mapping[str, Any],
) -> SentReport:
    """The host after ``report``, as far as it can tell without asking anybody; raises ``OSError``.

    ``facts`` are those that go along, as plain values.
    """
    store, told = Store(directories.bundles), {bundle.name: bundle for bundle in report.bundles}
    expire = first_expiry(
        directories.trust, [choice.name for choice in configuration.bundles], configuration.signed_data
    )
    given_up: dict[str, list[str]] = defaultdict(list)
    for one in Quarantine.load(directories, lambda _: None, noop=True).entries:
        given_up[one.bundle].append(one.version)
    pins = Pins.load(directories, lambda _: None, noop=True)  # what is damaged is told by the run
    exported = ExportedValues(directories, lambda _: None).load(noop=True)
    return SentReport(
        host=report.host,
        sent=datetime.now(UTC).isoformat(timespec="milliseconds"),
        facts=dict(facts),
        metadata_expire=expire.isoformat(timespec="seconds") if expire else "",
        bundles=[
            msgspec.structs.replace(
                _bundle(choice, pins.find(choice.name), store, told.get(choice.name), given_up[choice.name]),
                exports=exported.get(choice.name, {}),
            )
            for choice in configuration.bundles
        ],
        restless=list(restless),
        report=report,
    )


def _bundle(
    choice: BundleChoice, pin: str | None, store: Store, told: BundleReport | None, given_up: list[str]
) -> PublishedBundle:
    found = PublishedBundle(name=choice.name, channel=choice.channel, quarantined=given_up)
    found.pin = pin or choice.version or ""
    if told:
        found.held, found.published, found.waits_until = told.held, told.published, told.waits_until
    try:
        if enforced := store.named(choice.name):
            found.enforced = enforced.version
            # The date of the link itself: when it was turned to this bundle.
            since = os.lstat(enforced.path.parent / "current").st_mtime
            found.enforced_since = datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
        if good := store.named(choice.name, "good"):
            found.good = good.version
    except (BundleError, OSError):  # what is damaged is told by the run
        pass
    return found
