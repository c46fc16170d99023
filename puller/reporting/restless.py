"""Restless resources, which change in run after run. A host finds them in its own reports.

* The last five runs count that applied the same version of the bundle completely, after an earlier run of that version.
  The first run of a release makes intended changes, so it starts a new count. Runs that were paused, limited by
  ``--only``, gave up a version, or did not reach the resource do not count.
* A resource becomes restless after changes in three counted runs, and stays so until it changed in fewer than two. A
  resource that changes in every other run is therefore reported once, not repeatedly.
* A refresh does not count, because its cause does. A command that is declared to run in every run is not restless.
* A run without changes and without known restless resources reads no report.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from foundation.differences import Difference
from foundation.formatting import people
from puller.reporting.history import load_report, stored_reports
from puller.reporting.report import BundleReport, Event, Report, RestlessResource, State
from puller.state import Directories, StateFile

RUNS, MANY, FEW = 5, 3, 2
"""Number of runs that count, minimum changes to become restless, and minimum changes to stay so."""
_MOST_READ = 300
"""Maximum reports to read. A host that applies once a day and checks every half hour has 48 for each counted run."""
_MOST = 1000
"""Maximum restless resources to remember. More would repeat the same conclusion."""
MOST_SAID = 20
"""Maximum resources to name in messages."""
_MOST_TOLD, _LONGEST = 6, 200
"""Maximum differences of each resource, and maximum characters of each of their texts."""
_IN_ORDER = Event(type="", name="", state=State.STABLE)
Warn = Callable[[str], None]
Key = tuple[str, str]
"""The names of a bundle and of a resource in it."""


class _Known(msgspec.Struct, frozen=True, tag_field="format", tag=2):
    resources: list[RestlessResource]


def restless_file(directories: Directories) -> StateFile[_Known]:
    """Return the file that stores the restless resources of a host."""
    loss = "the detection of restless resources starts again"
    return StateFile(directories.restless, _Known, loss)


def load_restless(file: StateFile[_Known], warn: Warn, *, noop: bool = False) -> list[RestlessResource]:
    """Return the resources that were restless after the last run. Raises ``OSError``."""
    known = file.load(warn, noop=noop)
    return known.resources if known else []


def update_restless(
    report: Report, directories: Directories, warn: Warn
) -> tuple[list[RestlessResource], list[RestlessResource]]:
    """Return the resources that are restless after a run, and the newly restless resources. Raises ``OSError``."""
    file = restless_file(directories)
    known = load_restless(file, warn)
    restless = find_restless(report, _earlier(report, directories), known)
    if not restless:
        file.remove()
    elif restless != known:
        file.save(_Known(restless))
    before = {key_of(item) for item in known}
    return restless, [item for item in restless if key_of(item) not in before]


def key_of(resource: RestlessResource) -> Key:
    """Return the identity of a resource."""
    return resource.bundle, resource.reference


def sentence(resource: RestlessResource) -> str:
    """Return the sentence about a resource, with its old and new values."""
    times = f"changed in {resource.changes} of the last {resource.runs} runs of {resource.bundle}"
    return (
        f"{resource.reference} is restless: {times}: {people(resource.differences) or 'without a difference'}"
    )


def sentences(resources: Sequence[RestlessResource], most: int = MOST_SAID) -> list[str]:
    """Return a sentence about each resource. The last sentence counts the omitted resources."""
    reported = [sentence(resource) for resource in resources[:most]]
    return (
        [*reported, f"and {len(resources) - most} more restless resources"]
        if len(resources) > most
        else reported
    )


def _earlier(report: Report, directories: Directories) -> Iterator[Report]:
    """Yield the readable reports of earlier runs, newest first."""
    retained = sorted(
        (item for item in stored_reports(directories.runs) if item.run < report.run), reverse=True
    )
    for item in retained[:_MOST_READ]:
        try:
            yield load_report(directories.runs / item.name)
        except (OSError, ValueError):
            continue  # an unreadable report does not count


def find_restless(
    report: Report, earlier: Iterable[Report], known: Iterable[RestlessResource]
) -> list[RestlessResource]:
    """Return the resources that are restless after ``report``. Reads only as many ``earlier`` reports as it needs.

    ``earlier`` starts with the newest report.

    1. A resource that this run changed may have become restless. A restless resource may still be so.
    2. A restless resource stays so if this run did not apply its bundle.
    3. For other resources, count the runs that applied them, up to the limit or to another version of the bundle.
    4. A resource with enough changes is restless.
    """
    # 1.
    bundles, before = _applied(report), {key_of(item): item for item in known}
    changed = (
        (name, event.reference)
        for name, bundle in bundles.items()
        for event in bundle.events
        if _changes(event)
    )
    windows = {key: _Window(bundles[key[0]].sha256) for key in {*changed, *before} if key[0] in bundles}
    # 2.
    result = {
        key: item for key, item in before.items() if key[0] not in bundles and _is_configured(report, key[0])
    }
    # 3.
    requested = dict(windows)
    for each in _from(report, earlier) if requested else ():
        _count(requested, each)
        requested = {key: window for key, window in requested.items() if window.is_open}
        if not requested:
            break
    # 4.
    for key, window in windows.items():
        if window.changes >= (FEW if key in before else MANY):
            result[key] = window.resource(key)
    most = sorted(result, key=lambda key: (-result[key].changes, key))[:_MOST]
    return [result[key] for key in sorted(most)]


def _from(report: Report, earlier: Iterable[Report]) -> Iterator[Report]:
    yield report
    yield from earlier


class _Window(msgspec.Struct):
    """The newest runs of a resource."""

    sha256: str
    """Checksum of the version of its bundle."""
    is_open: bool = True
    runs: int = 0
    changes: int = 0
    differences: list[Difference] = []
    later: Event | None = None
    """The event that counts if an earlier run has the same version."""

    def count(self, bundle: BundleReport, event: Event) -> None:
        """Add the previous run."""
        if bundle.sha256 != self.sha256:
            self.is_open = False
            return
        if self.later is not None and _was_applied(self.later):
            self._add(self.later)
        self.later = event

    def _add(self, event: Event) -> None:
        self.runs += 1
        self.is_open = self.runs < RUNS
        if _changes(event):
            self.changes += 1
            plain = (msgspec.structs.replace(difference, diff="") for difference in event.differences)
            self.differences += [difference for difference in plain if difference not in self.differences]

    def resource(self, key: Key) -> RestlessResource:
        name, reference = key
        differences = [difference.map_texts(_beginning_of) for difference in self.differences[:_MOST_TOLD]]
        return RestlessResource(
            bundle=name, reference=reference, runs=self.runs, changes=self.changes, differences=differences
        )


def _count(windows: Mapping[Key, _Window], report: Report) -> None:
    """Add a run to each window whose bundle the run applied."""
    if not (bundles := _applied(report)):
        return
    events = {
        (name, event.reference): event
        for name, bundle in bundles.items()
        for event in bundle.events
        if event.state is not State.STABLE
    }
    for key, window in windows.items():
        if (bundle := bundles.get(key[0])) is not None:
            window.count(bundle, events.get(key, _IN_ORDER))


def _applied(report: Report) -> dict[str, BundleReport]:
    """Return the bundles that a run applied completely, by name."""
    if report.paused or report.only or report.noop:
        return {}
    return {
        bundle.name: bundle
        for bundle in report.bundles
        if bundle.outcome == "applied" and bundle.given_up is None
    }


def _is_configured(report: Report, name: str) -> bool:
    return any(bundle.name == name for bundle in report.bundles)


def _changes(event: Event) -> bool:
    return event.state is State.CHANGED and not event.recurring


def _was_applied(event: Event) -> bool:
    return event.reached and event.state is not State.SKIPPED


def _beginning_of(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
