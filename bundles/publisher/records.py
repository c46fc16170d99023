"""Records of bundles: what hosts are told of one, its index, and what was ever published of it, its history.

* The two change together: what a channel says is in the index and, with the time, in the history.
* The index offers the versions that channels name, and the latest others, for hosts that are held at one of them. So
  its size does not grow with the years. A version that hosts are to be held at for long is named in a channel.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Self

from bundles.format.artifact import Artifact
from bundles.format.history import History
from bundles.format.index import Index
from bundles.format.release import Release

OFFERED = 20
"""Versions in an index beside those that channels name."""


@dataclass(frozen=True, slots=True)
class Record:
    """Index and history of one bundle."""

    index: Index
    history: History

    def find_artifact(self, version: str) -> Artifact | None:
        """The files of a version that was published, unless they are pruned."""
        known = self.history.versions.get(version)
        return known.artifact if known is not None and known.pruned is None else None

    def with_version(self, version: str, artifact: Artifact, now: datetime) -> Self:
        """This record and one version more, which no channel names yet."""
        return self._offering(self.history.with_version(version, artifact, now), self.index.channels)

    def with_statement(self, channel: str, release: Release | None, now: datetime) -> Self:
        """This record when a channel says something else; ``None`` for nothing any more."""
        channels = {name: of for name, of in self.index.channels.items() if name != channel}
        if release is not None:
            channels[channel] = release
        return self._offering(self.history.with_statement(channel, release, now), channels)

    def without_files(self, versions: Iterable[str], now: datetime) -> Self:
        """This record after the files of versions that no channel names were pruned."""
        gone = set(versions) - self.index.named()
        return self._offering(self.history.without_files(gone, now), self.index.channels)

    def _offering(self, history: History, channels: Mapping[str, Any]) -> Self:
        index = Index(self.index.bundle, MappingProxyType(dict(channels)))
        there = [name for name, version in history.versions.items() if version.pruned is None]
        offered = {*index.named(), *there[-OFFERED:]}
        releases = {name: history.versions[name].artifact for name in there if name in offered}
        return type(self)(Index(index.bundle, index.channels, MappingProxyType(releases)), history)
