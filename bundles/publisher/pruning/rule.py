"""Which versions of a bundle stay in a site, and which are pruned. Nothing here reads, writes or asks for the time.

A version stays when one of these holds:

* a channel names it: for all hosts, as a rollout that grows or is halted, or as what the hosts run that one has not
  reached (`puller site back` names that);
* it is what a channel named before what it names now;
* it is among the latest of its bundle, by their publication;
* a channel has named it until not long ago, or it was published not long ago.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from bundles.format.history import History, Version
from bundles.format.index import named_by
from bundles.publisher.published import Record


@dataclass(frozen=True, slots=True)
class PruningRule:
    """The versions that stay beside those that channels name."""

    versions: int = 20
    """The latest of each bundle."""
    after: timedelta = timedelta(days=90)
    """How long the others stay when no channel names them any more."""
    automatic: bool = True
    """Whether each publication and each refresh prunes, too."""

    def outdated(self, record: Record, now: datetime) -> list[Version]:
        """The versions of a bundle that are pruned now, in the order of publication."""
        there = [version for version in record.history.versions.values() if version.pruned is None]
        stay = {*record.index.named(), *_named_before(record.history)}
        stay |= {version.version for version in there[-self.versions :]}
        since = unnamed_since(record)
        old = (version for version in there if version.version not in stay)
        return [version for version in old if now - since[version.version] >= self.after]

    def applied(self, record: Record, now: datetime) -> Record:
        """``record`` when what is outdated is pruned."""
        outdated = self.outdated(record, now)
        return record.without_files([version.version for version in outdated], now) if outdated else record


def unnamed_since(record: Record) -> dict[str, datetime]:
    """Since when no channel names each version; those that channels name now are not in it."""
    since = {name: version.published for name, version in record.history.versions.items()}
    for version, until in _endings(record.history):
        since[version] = max(until, since.get(version, until))
    return {version: when for version, when in since.items() if version not in record.index.named()}


def _endings(history: History) -> Iterator[tuple[str, datetime]]:
    """Each version that a channel ceased to name, with the time."""
    named: dict[str, set[str]] = {}
    for said in history.statements:
        following = {release.version for release in named_by(said.release)} if said.release else set()
        for version in named.get(said.channel, set()) - following:
            yield version, said.at
        named[said.channel] = following


def _named_before(history: History) -> set[str]:
    """The version that each channel named before the one that it names now, or named last."""
    versions: dict[str, list[str]] = {}
    for said in history.statements:
        named = versions.setdefault(said.channel, [])
        if said.release is not None and named[-1:] != [said.release.version]:
            named.append(said.release.version)
    return {named[-2] for named in versions.values() if len(named) > 1}
