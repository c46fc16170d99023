"""Rule that selects the versions of a bundle to prune. This module does not use disk, network or clock.

A version stays if one of these holds:

* a channel names it: for all hosts, in a running or halted rollout, or for the hosts outside a rollout (the version of
  `puller site back`);
* it is the previous version of a channel;
* it is among the latest published versions of its bundle;
* a channel named it until recently, or it was published recently.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from bundles.format.history import History, Version
from bundles.format.index import named_by
from bundles.publisher.published import Record


@dataclass(frozen=True, slots=True)
class PruningRule:
    """The versions to keep in addition to those that channels name."""

    versions: int = 20
    """The latest of each bundle."""
    after: timedelta = timedelta(days=90)
    """How long other versions stay after the last channel stopped naming them."""
    automatic: bool = True
    """Whether each publication and each refresh also prunes."""

    def outdated(self, record: Record, now: datetime) -> list[Version]:
        """Return the versions of a bundle to prune now, in the order of publication."""
        there = [version for version in record.history.versions.values() if version.pruned is None]
        stay = {*record.index.named(), *_named_before(record.history)}
        stay |= {version.version for version in there[-self.versions :]}
        since = unnamed_since(record)
        old = (version for version in there if version.version not in stay)
        return [version for version in old if now - since[version.version] >= self.after]

    def applied(self, record: Record, now: datetime) -> Record:
        """Return ``record`` with outdated versions pruned."""
        outdated = self.outdated(record, now)
        return record.without_files([version.version for version in outdated], now) if outdated else record


def unnamed_since(record: Record) -> dict[str, datetime]:
    """Return since when no channel names each version. Excludes versions that channels name now."""
    since = {name: version.published for name, version in record.history.versions.items()}
    for version, until in _endings(record.history):
        since[version] = max(until, since.get(version, until))
    return {version: when for version, when in since.items() if version not in record.index.named()}


def _endings(history: History) -> Iterator[tuple[str, datetime]]:
    """Yield each version that a channel stopped naming, with the time."""
    named: dict[str, set[str]] = {}
    for said in history.statements:
        following = {release.version for release in named_by(said.release)} if said.release else set()
        for version in named.get(said.channel, set()) - following:
            yield version, said.at
        named[said.channel] = following


def _named_before(history: History) -> set[str]:
    """Return the previous version of each channel."""
    versions: dict[str, list[str]] = {}
    for said in history.statements:
        named = versions.setdefault(said.channel, [])
        if said.release is not None and named[-1:] != [said.release.version]:
            named.append(said.release.version)
    return {named[-2] for named in versions.values() if len(named) > 1}
