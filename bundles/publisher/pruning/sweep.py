"""Files of a site that its metadata does not lead to: noted when they are seen first, removed when their time has come.

* What is removed was noted before, its time is over, and nothing names it now: all three, each time.
* Roots and ``timestamp.json`` stay for ever, and so does whatever is no file of a site.
* A kill between any two steps costs time and nothing else: the next sweep sees what there is.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from bundles.errors import FormatError
from bundles.filesystem.atomic import sync_directory
from bundles.format.history import history_path
from bundles.format.identity import parse_name
from bundles.format.index import index_path
from bundles.format.site_data import DIRECTORY, data_path
from bundles.publisher.pruning.notes import NOTES, load_notes, save_notes
from bundles.publisher.pruning.shared import SHARED, SharedFiles
from bundles.publisher.published import Published
from bundles.publisher.push.contents import Kind, kind_of_file
from bundles.publisher.records import Record
from bundles.publisher.site import Site, find_target


@dataclass(slots=True)
class Swept:
    """Files by their paths below ``public/``, with their sizes in bytes."""

    removed: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    until: datetime | None = None
    """When the last of those that wait may be removed."""


class Sweep:
    """One sweep of ``site``, whose lock is held, by what is ``published`` now."""

    def __init__(self, site: Site, published: Published, *, briefly: bool = False) -> None:
        """``briefly``: as part of something that is not to take long."""
        self._site = site
        self._published = published
        self._notes = load_notes(site.directory / NOTES)
        self._records: dict[str, Record] = {}
        self._named: dict[str, set[str]] = {}
        self._shared = SharedFiles(site, published, self._records, briefly=briefly)
        self._briefly = briefly

    def look(self, records: Iterable[Record] = (), others: Iterable[str] = ()) -> Swept:
        """Look at the metadata, the directories of ``records`` and of ``others``, and what is noted elsewhere.

        And at the files that bundles share, in brief sweeps once a day. Writes nothing.

        Raises ``OSError``, and what `Site.record_of` raises.

        1. Which files are there, and which of them does nothing name?
        2. Note those that are new, with the time until which a host may be led to them.
        3. Those whose time is over are to go.
        """
        self._records |= {record.index.bundle: record for record in records}
        now = self._site.now()
        # 1.
        places = {"metadata", *(f"targets/{bundle}" for bundle in (*self._records, *others))}
        unnamed = dict(self._unnamed({*places, *self._shared_places(now)}, now))
        # 2.
        before, until = dict(self._notes.until), self._notes.saw(self._published.timestamp.expires, now)
        self._notes.until = {path: before.get(path, until) for path in unnamed}
        # 3.
        due = [path for path, until in self._notes.until.items() if until <= now]
        swept = Swept({path: unnamed.pop(path) for path in due}, unnamed)
        swept.until = max((self._notes.until[path] for path in swept.waiting), default=None)
        return swept

    def note(self) -> None:
        """Save the notes; raises ``OSError``."""
        save_notes(self._site.directory / NOTES, self._notes)
        self._shared.note()

    def remove(self, swept: Swept) -> None:
        """Remove what is to go, and forget its notes; raises ``OSError``."""
        for path in swept.removed:
            (self._site.public / path).unlink(missing_ok=True)
            del self._notes.until[path]
        for directory in {(self._site.public / path).parent for path in swept.removed}:
            sync_directory(directory)

    def _shared_places(self, now: datetime) -> Iterable[str]:
        self._shared.learn()
        if self._briefly and not self._notes.is_shared_due(now):
            return ()
        self._notes.shared = now
        return self._shared.places()

    def _unnamed(self, swept: set[str], now: datetime) -> Iterator[tuple[str, int]]:
        """Path and size of the files that nothing names: in the places that are swept, and those that are noted."""
        found = [path for place in sorted(swept) for path in self._files(place)]
        noted = {
            path: until for path, until in self._notes.until.items() if os.path.dirname(path) not in swept
        }
        # What has to wait is not looked into: that would be to read the records of many bundles each time.
        waits = {path for path, until in noted.items() if until > now}
        for path in [*found, *noted]:
            if (path in waits or not self._is_named(path)) and (size := self._size(path)) is not None:
                yield path, size

    def _files(self, place: str) -> Iterator[str]:
        """The files of the site in one directory below ``public/``."""
        try:
            names = os.listdir(self._site.public / place)
        except FileNotFoundError:
            return
        yield from (path for name in sorted(names) if kind_of_file(path := f"{place}/{name}") is not None)

    def _size(self, path: str) -> int | None:
        try:
            return os.lstat(self._site.public / path).st_size
        except FileNotFoundError:
            return None

    def _is_named(self, path: str) -> bool:
        """Whether readers may be led to a file by what is published now; also when that is not known."""
        kind = kind_of_file(path)
        if kind is Kind.METADATA:
            return path.removeprefix("metadata/") in self._metadata()
        if kind is not Kind.TARGET:
            return True
        if path.startswith(f"targets/{SHARED}/"):
            return self._shared.is_named(path)
        if path.count("/") != 2:
            return True
        _, bundle, name = path.split("/")
        if bundle == DIRECTORY:
            return self._is_data(name)
        if bundle not in self._named:
            self._named[bundle] = self._digests(bundle)
        return name.partition(".")[0] in self._named[bundle]

    def _is_data(self, file: str) -> bool:
        """Whether ``<sha256>.NAME.yaml`` is the document of that name."""
        digest, _, rest = file.partition(".")
        info = find_target(self._published, data_path(rest.removesuffix(".yaml")))
        return info is not None and info.hashes["sha256"] == digest

    def _metadata(self) -> set[str]:
        meta = {f"{named.version}.{name}" for name, named in self._published.snapshot.meta.items()}
        return {f"{self._published.timestamp.snapshot_meta.version}.snapshot.json", *meta}

    def _digests(self, bundle: str) -> set[str]:
        """SHA-256 of every file that the index or the history of a bundle leads to, and of these two."""
        record = self._record(bundle)
        versions = record.history.versions.values()
        kept = [*(each.artifact for each in versions if each.pruned is None), *record.index.releases.values()]
        paths = (index_path(bundle), history_path(bundle))
        infos = (find_target(self._published, path) for path in paths)
        signed = {info.hashes["sha256"] for info in infos if info is not None}
        return signed | {digest for each in kept for digest in (each.archive.sha256, each.description.sha256)}

    def _record(self, bundle: str) -> Record:
        if bundle not in self._records:
            self._records[bundle] = self._site.record_of(self._published, parse_name(bundle))
        return self._records[bundle]


def target_directories(public: Path) -> list[str]:
    """The directories below ``targets/`` that may be those of bundles or is that of site data, by name.

    Raises ``OSError``.
    """
    names = sorted(
        entry.name for entry in os.scandir(public / "targets") if entry.is_dir(follow_symlinks=False)
    )
    return [name for name in names if name == DIRECTORY or (name != SHARED and _is_name(name))]


def _is_name(text: str) -> bool:
    try:
        return bool(parse_name(text))
    except FormatError:
        return False
