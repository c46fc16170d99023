"""Quarantine: versions that this host does not try again, because they failed here or were rolled back.

* Entries are identified by the SHA-256 of the archive. A fixed release has another digest and is not affected.
* Only an operator removes an entry (``puller quarantine clear``). Runs never do.
* With ``noop`` new entries exist only in this run.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from bundles.format.identity import SHA256
from foundation.timestamps import iso_text, minute_text, parse_moment
from puller.state.directories import Directories
from puller.state.state_file import StateFile

_LOSS = "quarantined versions may be tried again"


class Quarantined(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A quarantined version. ``since`` is UTC in ISO 8601."""

    bundle: str
    version: str
    sha256: Annotated[str, msgspec.Meta(pattern=f"^{SHA256}$")]
    reason: str
    since: str
    failed: tuple[str, ...] = ()
    """The first resources that failed in the run that gave it up, as sentences."""
    not_undone: tuple[str, ...] = ()
    """Its changes that could not be undone, as sentences."""

    def __post_init__(self) -> None:
        parse_moment(self.since)

    def __str__(self) -> str:
        since = minute_text(parse_moment(self.since))
        return f"{self.bundle} {self.version} has been quarantined since {since}: {self.reason}"


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1]
    bundles: tuple[Quarantined, ...]


class Quarantine:
    """All entries, oldest first."""

    def __init__(self, file: StateFile[_Document], entries: tuple[Quarantined, ...], *, noop: bool) -> None:
        self.entries = entries
        self._file = file
        self._noop = noop

    @classmethod
    def load(
        cls, directories: Directories, warn: Callable[[str], None], *, noop: bool = False
    ) -> "Quarantine":
        """Read the file. A damaged file has no entries, and ``warn`` receives the damage. Raise ``OSError``."""
        file = StateFile(directories.quarantine, _Document, _LOSS)
        document = file.load(warn, noop=noop)
        return cls(file, document.bundles if document else (), noop=noop)

    def find(self, sha256: str) -> Quarantined | None:
        """Return the entry of the archive with this SHA-256."""
        return next((entry for entry in self.entries if entry.sha256 == sha256), None)

    def in_force(self, published: Mapping[str, str]) -> list[Quarantined]:
        """Return the entries that keep this host from a release. Other entries are about old releases.

        ``published`` has the version that is published for this host, by configured bundle. If it is empty, because
        metadata were not fetched yet, the newest entry of the bundle counts.
        """
        newest = {entry.bundle: entry for entry in self.entries}
        return [
            entry
            for entry in self.entries
            if entry.bundle in published
            and (
                entry.version == published[entry.bundle]
                or (not published[entry.bundle] and entry is newest[entry.bundle])
            )
        ]

    def add(
        self, bundle: str, version: str, sha256: str, reason: str, failed: Iterable[str] = ()
    ) -> Quarantined:
        """Quarantine a version. An existing entry keeps its reason. Raise ``OSError``."""
        if (known := self.find(sha256)) is not None:
            return known
        since, why = iso_text(datetime.now(UTC)), " ".join(reason.split())
        entry = Quarantined(bundle, version, sha256, why, since, tuple(failed))
        self._save((*self.entries, entry))
        return entry

    def add_remaining(self, sha256: str, sentences: Iterable[str]) -> None:
        """Add irreversible changes to an entry. Raise ``OSError``."""
        if (entry := self.find(sha256)) is None:
            return
        not_undone = tuple(dict.fromkeys((*entry.not_undone, *sentences)))
        new = msgspec.structs.replace(entry, not_undone=not_undone)
        if new != entry:
            self._save(tuple(new if one is entry else one for one in self.entries))

    def clear(self, bundle: str | None = None, version: str | None = None) -> list[Quarantined]:
        """Remove all entries, those of one bundle, or those of one of its versions. Raise ``OSError``."""
        cleared = [
            entry
            for entry in self.entries
            if bundle in (None, entry.bundle) and version in (None, entry.version)
        ]
        if cleared:
            self._save(tuple(entry for entry in self.entries if entry not in cleared))
        return cleared

    def _save(self, entries: tuple[Quarantined, ...]) -> None:
        if not self._noop:
            self._file.save(_Document(1, entries))
        self.entries = entries
