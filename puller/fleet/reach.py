"""The hosts that a rollout reaches, according to the store of the fleet."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from bundles.format.release import Release

if TYPE_CHECKING:
    from puller.fleet.store.queries import Reader


@dataclass(frozen=True, slots=True)
class Reach:
    """The hosts of a channel that get a release now, and the number of all hosts that follow the channel."""

    hosts: tuple[str, ...]
    followers: int


def reach_of(reader: "Reader", release: Release, channel: str, now: datetime) -> Reach:
    """Return the reach of a release. A pinned host does not follow the channel."""
    rows = [row for row in reader.standings(release.bundle) if row["channel"] == channel and not row["pin"]]
    names = sorted(reader.hosts[row["host"]].name for row in rows)
    reached = [name for name in names if release.chosen_for(name, now, current=False).release == release]
    return Reach(tuple(reached), len(names))
