"""Pruning of a site: a signed statement marks outdated versions as pruned. A later sweep removes unreferenced files.

* ``PruningRule`` in ``settings.py`` selects the outdated versions of a bundle.
* Files are removed when hosts can no longer request them.
* Versions that a channel or a wave names, or that an unexpired ``timestamp.json`` may lead to, are kept.
* The history of a bundle records pruned versions, because a version always stands for the same files.
* Each publication and each refresh prunes the bundles that it changes. `prune_site` checks all bundles.

A sweep notes unreferenced files first, and removes them after a waiting time:

* A file is removed only if it was noted before, its waiting time is over, and it is still unreferenced.
* Roots, ``timestamp.json`` and files that do not belong to a site are never removed.
* If a sweep is killed, the next sweep starts from the current state of the files.
"""

import hashlib
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

import msgspec

from bundles.errors import BundleError, FormatError
from bundles.filesystem.atomic import (
    open_directory,
    read_limited,
    remove_leftovers,
    sync_directory,
    write_file,
)
from bundles.format.fields import parse_name
from bundles.format.index import Version, history_path, index_path
from bundles.format.site_targets import DIRECTORY, data_path
from bundles.format.size_limits import file_path
from bundles.publisher.edition import Edition
from bundles.publisher.files import make_directory
from bundles.publisher.published import Published, Record
from bundles.publisher.push.plan import Kind, kind_of_file
from bundles.publisher.settings import PruningRule
from bundles.publisher.signing_keys import Passphrase
from bundles.publisher.site import NewArchive, Site, explained, find_target

# Notes of unreferenced files, ``pruning.json`` in the directory of a site.
#
# * Each file is noted with the time until which a host may still request it. This is the expiry of the previously
#   signed ``timestamp.json`` plus one day for running downloads.
# * If the notes are missing or damaged, files stay longer, because their time starts again.

NOTES_FILE = "pruning.json"
GRACE = timedelta(days=1)
"""A host checks the expiry when a refresh begins, and downloads may then take hours."""

_FORMAT = 1
_LARGEST = 64_000_000


class Notes(msgspec.Struct):
    """Unreferenced files below ``public/``."""

    format: int = _FORMAT
    signed_until: datetime | None = None
    """The latest expiry of all timestamps signed so far."""
    shared: datetime | None = None
    """When the files that bundles share were last checked."""
    until: dict[str, datetime] = {}
    """The earliest time to remove each file, by path."""

    def is_shared_due(self, now: datetime) -> bool:
        """Return whether to check the files that bundles share.

        This happens once a day, because it takes longer with each bundle.
        """
        return self.shared is None or not timedelta() <= now - self.shared < timedelta(days=1)

    def saw(self, expires: datetime, now: datetime) -> datetime:
        """Record the expiry of a timestamp. Returns the time until which hosts may request unreferenced files."""
        self.signed_until = max(self.signed_until or expires, expires)
        return max(self.signed_until, now) + GRACE


def load_notes(path: Path) -> Notes:
    """Return the notes, empty if the file is missing or damaged. Raises ``OSError``."""
    try:
        notes = msgspec.json.decode(read_limited(path, _LARGEST), type=Notes)
    except (FileNotFoundError, ValueError):  # ValueError includes errors of msgspec
        return Notes()
    aware = all(
        each.tzinfo for each in (*notes.until.values(), *filter(None, [notes.signed_until, notes.shared]))
    )
    return notes if notes.format == _FORMAT and aware else Notes()


def save_notes(path: Path, notes: Notes) -> None:
    """Write the notes. Raises ``OSError``."""
    write_file(path, msgspec.json.encode(notes) + b"\n")


# References to files below ``targets/files/``, from the descriptions of all versions that are not pruned.
#
# * Reading thousands of descriptions takes seconds. The references of each bundle are therefore cached in a note with
#   the SHA-256 of the bundle's history. A note with another SHA-256 or a damaged note is recreated.
# * If a description cannot be read, all files count as referenced.

SHARED = "files"
"""The directory below ``targets/`` of files that several bundles may share."""
NOTES = "named-files"
"""The directory of a site with a note for each bundle."""

MOST_READ = 20
"""Limit of bundles whose descriptions a brief sweep reads. Each publication reads those of its own bundles."""

_DIGEST = 32
_LARGEST_NOTE = 1_000_000 * _DIGEST
_PATH = re.compile(rf"targets/{SHARED}/[0-9a-f]{{2}}/([0-9a-f]{{64}})\.gz")


class SharedFiles:
    """The shared files of ``site``, as referenced by ``published`` and by the ``records`` to publish next."""

    def __init__(
        self, site: Site, published: Published, records: Mapping[str, Record], *, briefly: bool
    ) -> None:
        """With ``briefly``, read the descriptions of a few bundles only. The next sweeps read the remaining ones."""
        self._site = site
        self._published = published
        self._records = records
        self._directory = site.directory / NOTES
        self._new: dict[str, bytes] = {}
        self._most = MOST_READ if briefly else sys.maxsize

    def learn(self) -> None:
        """Read the references of the bundles of the records. Raises ``OSError``."""
        for bundle in self._records:
            self._named_by(bundle)

    def places(self) -> Iterator[str]:
        """Return the directories below ``public/`` that contain shared files."""
        directory = self._site.public / "targets" / SHARED
        if directory.is_dir():
            yield from (
                f"targets/{SHARED}/{name}" for name in sorted(os.listdir(directory)) if len(name) == 2
            )

    def is_named(self, path: str) -> bool:
        """Return whether a kept version references a file. True if unknown, and for files that are not shared.

        Raises ``OSError``, and the errors of `Site.record_of`.
        """
        match = _PATH.fullmatch(path)
        if match is None or f"targets/{file_path(match[1])}" != path:
            return True
        return self._named is None or bytes.fromhex(match[1]) in self._named

    def note(self) -> None:
        """Cache the references for the next sweep. Raises ``OSError``."""
        if self._new:
            make_directory(self._directory)
        for bundle, data in self._new.items():
            write_file(self._directory / bundle, data, durable=False)

    @cached_property
    def _named(self) -> set[bytes] | None:
        named: set[bytes] = set()
        complete = True
        for bundle in {*self._site.bundles(self._published), *self._records}:
            of_bundle = self._named_by(bundle)  # read all, even if one is unreadable
            complete = complete and of_bundle is not None
            named |= of_bundle or set()
        return named if complete else None

    def _named_by(self, bundle: str) -> set[bytes] | None:
        history = self._history(bundle)
        if (noted := self._noted(bundle, history)) is not None:
            return noted
        if len(self._new) >= self._most:
            return None
        record = self._records.get(bundle) or self._site.record_of(self._published, bundle)
        try:
            named = set(_digests(self._site, record))
        except (OSError, BundleError):
            return None
        remainder = history + b"".join(sorted(named))
        self._new[bundle] = hashlib.sha256(remainder).digest() + remainder
        return named

    def _history(self, bundle: str) -> bytes:
        """Return the SHA-256 of the history that lists the kept versions."""
        if (record := self._records.get(bundle)) is not None:
            return hashlib.sha256(record.history.to_bytes()).digest()
        path = history_path(bundle)
        return bytes.fromhex(self._published.bin_targets(path)[path].hashes["sha256"])

    def _noted(self, bundle: str, history: bytes) -> set[bytes] | None:
        try:
            data = self._new.get(bundle) or read_limited(self._directory / bundle, _LARGEST_NOTE)
        except (OSError, ValueError):
            return None
        checksum, remainder = data[:_DIGEST], data[_DIGEST:]
        if hashlib.sha256(remainder).digest() != checksum or remainder[:_DIGEST] != history:
            return None
        return {remainder[start : start + _DIGEST] for start in range(_DIGEST, len(remainder), _DIGEST)}


def _digests(site: Site, record: Record) -> Iterator[bytes]:
    retained = [each.artifact for each in record.history.versions.values() if each.pruned is None]
    for description in {artifact.description for artifact in (*retained, *record.index.releases.values())}:
        yield from map(bytes.fromhex, site.files.named_by(description))


@dataclass(slots=True)
class Swept:
    """Removed and waiting files by path below ``public/``, with their sizes in bytes."""

    removed: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    until: datetime | None = None
    """When the last waiting file may be removed."""


class Sweep:
    """One sweep of ``site`` with the metadata ``published``. The caller holds the lock of the site."""

    def __init__(self, site: Site, published: Published, *, briefly: bool = False) -> None:
        """Use ``briefly`` as a part of a command that must stay fast."""
        self._site = site
        self._published = published
        self._notes = load_notes(site.directory / NOTES_FILE)
        self._records: dict[str, Record] = {}
        self._named: dict[str, set[str]] = {}
        self._shared = SharedFiles(site, published, self._records, briefly=briefly)
        self._briefly = briefly

    def look(self, records: Iterable[Record] = (), others: Iterable[str] = ()) -> Swept:
        """Check the metadata, the directories of ``records`` and ``others``, and the noted files. Writes nothing.

        Also checks the files that bundles share, in brief sweeps once a day. Raises ``OSError``, and the errors of
        `Site.record_of`.

        1. List the files and select the unreferenced ones.
        2. Note new unreferenced files, with the time until which a host may request them.
        3. Select files whose waiting time is over for removal.
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
        """Save the notes. Raises ``OSError``."""
        save_notes(self._site.directory / NOTES_FILE, self._notes)
        self._shared.note()

    def remove(self, swept: Swept) -> None:
        """Remove the selected files and their notes. Raises ``OSError``."""
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
        """Yield path and size of unreferenced files: in the swept directories, and among the noted files."""
        results = [path for place in sorted(swept) for path in self._files(place)]
        noted = {
            path: until for path, until in self._notes.until.items() if os.path.dirname(path) not in swept
        }
        # Waiting files are not checked, because each sweep would then read the records of many bundles.
        waits = {path for path, until in noted.items() if until > now}
        for path in [*results, *noted]:
            if (path in waits or not self._is_named(path)) and (size := self._size(path)) is not None:
                yield path, size

    def _files(self, place: str) -> Iterator[str]:
        """Return the site's files in one directory below ``public/``."""
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
        """Return whether the published metadata leads readers to a file. True if unknown."""
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
        """Return whether ``<sha256>.NAME.yaml`` is the published document NAME."""
        digest, _, remainder = file.partition(".")
        info = find_target(self._published, data_path(remainder.removesuffix(".yaml")))
        return info is not None and info.hashes["sha256"] == digest

    def _metadata(self) -> set[str]:
        meta = {f"{named.version}.{name}" for name, named in self._published.snapshot.meta.items()}
        return {f"{self._published.timestamp.snapshot_meta.version}.snapshot.json", *meta}

    def _digests(self, bundle: str) -> set[str]:
        """Return the SHA-256 of index and history of a bundle, and of every file that they reference."""
        record = self._record(bundle)
        versions = record.history.versions.values()
        retained = [
            *(each.artifact for each in versions if each.pruned is None),
            *record.index.releases.values(),
        ]
        paths = (index_path(bundle), history_path(bundle))
        infos = (find_target(self._published, path) for path in paths)
        signed = {info.hashes["sha256"] for info in infos if info is not None}
        return signed | {
            digest for each in retained for digest in (each.archive.sha256, each.description.sha256)
        }

    def _record(self, bundle: str) -> Record:
        if bundle not in self._records:
            self._records[bundle] = self._site.record_of(self._published, parse_name(bundle))
        return self._records[bundle]


def target_directories(public: Path) -> list[str]:
    """Return the directories below ``targets/`` with the names of bundles or of site data, sorted.

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


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of pruning, or with ``noop`` of planned pruning."""

    versions: Mapping[str, Sequence[Version]]
    """Versions that are marked as pruned now, by bundle. Their files are among the waiting ones."""
    swept: Swept


def announce(site: Site, edition: Edition, records: Sequence[Record], new: Iterable[NewArchive] = ()) -> None:
    """Call `Site.announce` without the versions that are outdated by the rule of the site, then `tidy`."""
    rule = site.settings().pruning
    if rule.automatic:
        records = [rule.applied(record, edition.now) for record in records]
    site.announce(edition, records, new)
    tidy(site, edition, records)


def outdated_by_rule(site: Site, records: Iterable[Record]) -> Mapping[str, Sequence[Version]]:
    """Return the versions that `announce` prunes with these records, by bundle."""
    rule = site.settings().pruning
    return _outdated(rule, records, site) if rule.automatic else {}


def tidy(
    site: Site, edition: Edition, records: Sequence[Record] = (), directories: Sequence[str] = ()
) -> None:
    """Remove metadata and files of published bundles that no host can request, also in ``directories`` of ``targets/``.

    A failure is logged only, because the publication is complete and the next one tries again.
    """
    try:
        sweep = Sweep(site, edition.published, briefly=True)
        swept = sweep.look(records, directories)
        if site.settings().pruning.automatic:
            sweep.remove(swept)
        # Even without removals, because the waiting time starts now.
        sweep.note()
    except (OSError, BundleError) as error:
        _log.warning("%s: unneeded files cannot be removed: %s", site.directory, error)


def plan_pruning(site: Site, rule: PruningRule) -> Pruned:
    """Return the planned result of `prune_site`. Raises the same errors, and writes nothing."""
    published, now = site.published(), site.now()
    with explained(site.directory):
        records = [site.record_of(published, bundle) for bundle in site.bundles(published)]
        after = [rule.applied(record, now) for record in records]
        swept = Sweep(site, published).look(after, target_directories(site.public))
        return Pruned(_outdated(rule, records, site), swept)


def prune_site(site: Site, rule: PruningRule, passphrase: Passphrase) -> Pruned:
    """Prune every version that ``rule`` does not keep. Raises `PublishError`, `SignatureError` and `KeyFileError`.

    1. Lock the site against other publishers, and complete an interrupted change.
    2. Read and verify the published metadata of all bundles.
    3. Sign the records without outdated versions. If nothing is outdated, no key is needed.
    4. Note unreferenced files, and remove files whose waiting time is over.
    5. Remove temporary files of killed publishers.
    """
    with site.locked():  # 1.
        # 2.
        edition = site.edition(passphrase)
        records = [site.record_of(edition.published, bundle) for bundle in site.bundles(edition.published)]
        # 3.
        versions = _outdated(rule, records, site)
        after = [rule.applied(record, edition.now) for record in records]
        if versions:
            site.announce(edition, [record for record in after if record.index.bundle in versions])
        # 4.
        sweep = Sweep(site, edition.published)
        directories = target_directories(site.public)
        swept = sweep.look(after, directories)
        sweep.note()  # a kill during removal must not restart the waiting times
        sweep.remove(swept)
        sweep.note()
        # 5.
        for name in ["metadata", *(f"targets/{name}" for name in directories)]:
            with open_directory(site.public / name) as directory:
                remove_leftovers(directory)
        return Pruned(versions, swept)


def _outdated(rule: PruningRule, records: Iterable[Record], site: Site) -> dict[str, list[Version]]:
    now = site.now()
    result = {record.index.bundle: rule.outdated(record, now) for record in records}
    return {bundle: versions for bundle, versions in result.items() if versions}
