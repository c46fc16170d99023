"""Resources that change in run after run, found by a host in its own reports.

* The last five runs count in which the same version of its bundle was applied as a whole, and had been before: what a
  release changes is wanted, and it begins anew. A run that was paused, limited by ``--only``, or has given up a version
  says nothing of it, nor does one that did not come to the resource.
* It is restless when it has changed in three of them, and no longer when in less than two: what changes in every other
  run is told once, and not again and again.
* A refresh is not a change of its own: what caused it is. A command that is declared to run in every run is not
  restless by doing so.
* A run that changed nothing, and knows of nothing restless, reads no report.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from foundation.differences import Difference
from foundation.formatting import people
from puller.reporting.history import load_report
from puller.reporting.report import BundleReport, Event, Report, State
from puller.reporting.retention import kept_in
from puller.reporting.sent_report import RestlessResource
from puller.state.directories import Directories
from puller.state.state_file import StateFile

RUNS, MANY, FEW = 5, 3, 2
"""How many runs count; in how many it must change to be restless, and to stay so."""
_MOST_READ = 300
"""Reports: a host that applies once a day and looks every half hour has 48 for each that counts."""
_MOST = 1000
"""Resources that are remembered: when everything is fought over, so many say it."""
MOST_SAID = 20
"""Resources that are named to people one by one."""
_MOST_TOLD, _LONGEST = 6, 200
"""Differences of each, and characters of each of their texts."""
_IN_ORDER = Event(type="", name="", state=State.STABLE)
Warn = Callable[[str], None]
Key = tuple[str, str]
"""The names of a bundle and of a resource in it."""


class _Known(msgspec.Struct, frozen=True, tag_field="format", tag=2):
    resources: list[RestlessResource]


def restless_file(directories: Directories) -> StateFile[_Known]:
    """Where a host keeps what it knows to be restless."""
    loss = "what changes in run after run is found anew"
    return StateFile(directories.restless, _Known, loss)


def load_restless(file: StateFile[_Known], warn: Warn, *, noop: bool = False) -> list[RestlessResource]:
    """The resources that were restless after the last run; raises ``OSError``."""
    known = file.load(warn, noop=noop)
    return known.resources if known else []


def update_restless(
    report: Report, directories: Directories, warn: Warn
) -> tuple[list[RestlessResource], list[RestlessResource]]:
    """The resources that are restless after a run, and those of them that were not before; raises ``OSError``."""
    file = restless_file(directories)
    known = load_restless(file, warn)
    found = find_restless(report, _earlier(report, directories), known)
    if not found:
        file.remove()
    elif found != known:
        file.save(_Known(found))
    before = {key_of(one) for one in known}
    return found, [one for one in found if key_of(one) not in before]


def key_of(resource: RestlessResource) -> Key:
    """By what it is told from others."""
    return resource.bundle, resource.reference


def sentence(resource: RestlessResource) -> str:
    """The sentence about it, with what it changed from and to."""
    times = f"changed in {resource.changes} of the last {resource.runs} runs of {resource.bundle}"
    return f"{resource.reference} is restless: {times}: {people(resource.differences) or 'by itself'}"


def sentences(resources: Sequence[RestlessResource], most: int = MOST_SAID) -> list[str]:
    """A sentence about each; the last says how many are left out."""
    told = [sentence(one) for one in resources[:most]]
    return [*told, f"and {len(resources) - most} more are restless"] if len(resources) > most else told


def _earlier(report: Report, directories: Directories) -> Iterator[Report]:
    """The reports of earlier runs, the newest first, as far as they can be read."""
    kept = sorted((one for one in kept_in(directories.runs) if one.run < report.run), reverse=True)
    for one in kept[:_MOST_READ]:
        try:
            yield load_report(directories.runs / one.name)
        except (OSError, ValueError):
            continue  # it says nothing of any resource


def find_restless(
    report: Report, earlier: Iterable[Report], known: Iterable[RestlessResource]
) -> list[RestlessResource]:
    """The resources that are restless after ``report``; reads of ``earlier`` as many as it takes, the newest first.

    1. What this run has changed may have become restless, and what was restless may be so still. Nothing to ask: done.
    2. What this run says nothing of is as it was.
    3. Of the others, each run in which it was applied counts, until there are enough, or its bundle was another one.
    4. Enough changes make it restless.
    """
    # 1.
    bundles, before = _applied(report), {key_of(one): one for one in known}
    changed = (
        (name, event.reference)
        for name, bundle in bundles.items()
        for event in bundle.events
        if _changes(event)
    )
    windows = {key: _Window(bundles[key[0]].sha256) for key in {*changed, *before} if key[0] in bundles}
    # 2.
    found = {
        key: one for key, one in before.items() if key[0] not in bundles and _is_configured(report, key[0])
    }
    # 3.
    asked = dict(windows)
    for each in _from(report, earlier) if asked else ():
        _count(asked, each)
        asked = {key: window for key, window in asked.items() if window.is_open}
        if not asked:
            break
    # 4.
    for key, window in windows.items():
        if window.changes >= (FEW if key in before else MANY):
            found[key] = window.told(key)
    most = sorted(found, key=lambda key: (-found[key].changes, key))[:_MOST]
    return [found[key] for key in sorted(most)]


def _from(report: Report, earlier: Iterable[Report]) -> Iterator[Report]:
    yield report
    yield from earlier


class _Window(msgspec.Struct):
    """The newest runs of a resource."""

    sha256: str
    """Of the version of its bundle."""
    is_open: bool = True
    runs: int = 0
    changes: int = 0
    differences: list[Difference] = []
    later: Event | None = None
    """What became of it in the run that counts when there was one before it with the same version."""

    def count(self, bundle: BundleReport, event: Event) -> None:
        """Go back by one more run."""
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
            plain = (msgspec.structs.replace(one, diff="") for one in event.differences)
            self.differences += [one for one in plain if one not in self.differences]

    def told(self, key: Key) -> RestlessResource:
        name, reference = key
        differences = [one.map_texts(_beginning_of) for one in self.differences[:_MOST_TOLD]]
        return RestlessResource(
            bundle=name, reference=reference, runs=self.runs, changes=self.changes, differences=differences
        )


def _count(windows: Mapping[Key, _Window], report: Report) -> None:
    """Let each window count a run, as far as it says something of the resource."""
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
    """The bundles that a run has applied as a whole, by name."""
    if report.paused or report.only or report.noop:
        return {}
    return {one.name: one for one in report.bundles if one.outcome == "applied" and one.given_up is None}


def _is_configured(report: Report, name: str) -> bool:
    return any(bundle.name == name for bundle in report.bundles)


def _changes(event: Event) -> bool:
    return event.state is State.CHANGED and not event.recurring


def _was_applied(event: Event) -> bool:
    return event.reached and event.state is not State.SKIPPED


def _beginning_of(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
