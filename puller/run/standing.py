"""The standing of a host after a run: its report, and what is so whatever the run has come to.

A run that fails early says nothing of the bundles; what is enforced, and since when, does not change by that.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

from bundles.client.expiry import first_expiry
from bundles.errors import BundleError
from bundles.store.store import Store
from puller.config.configuration import BundleChoice, Configuration
from puller.reporting.report import BundleReport, Report
from puller.reporting.sent_report import PublishedBundle, RestlessResource, SentReport
from puller.run.policy.quarantine import Quarantine
from puller.state.directories import Directories


def standing(
    configuration: Configuration,
    directories: Directories,
    report: Report,
    restless: Sequence[RestlessResource],
) -> SentReport:
    """The host after ``report``, as far as it can tell without asking anybody; raises ``OSError``."""
    store, told = Store(directories.bundles), {bundle.name: bundle for bundle in report.bundles}
    expire = first_expiry(directories.trust, [choice.name for choice in configuration.bundles])
    given_up: dict[str, list[str]] = defaultdict(list)
    for one in Quarantine.load(directories, lambda _: None, noop=True).entries:
        given_up[one.bundle].append(one.version)
    return SentReport(
        host=report.host,
        sent=datetime.now(UTC).isoformat(timespec="milliseconds"),
        metadata_expire=expire.isoformat(timespec="seconds") if expire else "",
        bundles=[
            _bundle(choice, store, told.get(choice.name), given_up[choice.name])
            for choice in configuration.bundles
        ],
        restless=list(restless),
        report=report,
    )


def _bundle(
    choice: BundleChoice, store: Store, told: BundleReport | None, given_up: list[str]
) -> PublishedBundle:
    found = PublishedBundle(name=choice.name, channel=choice.channel, quarantined=given_up)
    found.held = told.held if told else ""
    try:
        if enforced := store.named(choice.name):
            found.enforced = enforced.version
            # The date of the link itself: when it was turned to this bundle.
            since = os.lstat(enforced.path.parent / "current").st_mtime
            found.enforced_since = datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
    except (BundleError, OSError):  # what is damaged is told by the run
        pass
    return found
