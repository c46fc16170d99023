"""Which files below ``targets/files/`` are named: by the descriptions of all versions that were not pruned.

* Thousands of descriptions take seconds to read. So what those of one bundle name is noted, with the SHA-256 of the
  history that says which they are; the note of another history, and one that is damaged, is made anew.
* Where a description cannot be read, anything may be named, and nothing counts as unnamed.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property

from bundles.errors import BundleError
from bundles.filesystem.atomic import read_limited, write_file
from bundles.format.bins import bin_of
from bundles.format.compressed_file import file_path
from bundles.format.history import history_path
from bundles.publisher.files import make_directory
from bundles.publisher.published import Published
from bundles.publisher.records import Record
from bundles.publisher.site import Site

SHARED = "files"
"""The directory below ``targets/`` of files that several bundles may share."""
NOTES = "named-files"
"""The directory of a site with a note for each bundle."""

MOST_READ = 20
"""Bundles whose descriptions a brief look reads; each publication reads those of its own."""

_DIGEST = 32
_LARGEST = 1_000_000 * _DIGEST
_PATH = re.compile(rf"targets/{SHARED}/[0-9a-f]{{2}}/([0-9a-f]{{64}})\.gz")


class SharedFiles:
    """The files of ``site`` that bundles share, by what is ``published``, and by ``records`` that are to follow."""

    def __init__(
        self, site: Site, published: Published, records: Mapping[str, Record], *, briefly: bool
    ) -> None:
        """``briefly``: of no more than a few bundles descriptions are read; those of others the next time."""
        self._site = site
        self._published = published
        self._records = records
        self._directory = site.directory / NOTES
        self._new: dict[str, bytes] = {}
        self._most = MOST_READ if briefly else sys.maxsize

    def learn(self) -> None:
        """Read which files the bundles of the records name; raises ``OSError``."""
        for bundle in self._records:
            self._named_by(bundle)

    def places(self) -> Iterator[str]:
        """The directories below ``public/`` that such files are in."""
        directory = self._site.public / "targets" / SHARED
        if directory.is_dir():
            yield from (
                f"targets/{SHARED}/{name}" for name in sorted(os.listdir(directory)) if len(name) == 2
            )

    def is_named(self, path: str) -> bool:
        """Whether some version that is kept has a file; also when that is not known, and for what is no such file.

        Raises ``OSError``, and what `Site.record_of` raises.
        """
        found = _PATH.fullmatch(path)
        if found is None or f"targets/{file_path(found[1])}" != path:
            return True
        return self._named is None or bytes.fromhex(found[1]) in self._named

    def note(self) -> None:
        """Keep what was found, for the next time; raises ``OSError``."""
        if self._new:
            make_directory(self._directory)
        for bundle, data in self._new.items():
            write_file(self._directory / bundle, data, durable=False)

    @cached_property
    def _named(self) -> set[bytes] | None:
        named: set[bytes] = set()
        complete = True
        for bundle in {*self._site.bundles(self._published), *self._records}:
            of_bundle = self._named_by(bundle)  # of all of them, also when it is known that one is missing
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
        rest = history + b"".join(sorted(named))
        self._new[bundle] = hashlib.sha256(rest).digest() + rest
        return named

    def _history(self, bundle: str) -> bytes:
        """SHA-256 of the history that says which versions are kept."""
        if (record := self._records.get(bundle)) is not None:
            return hashlib.sha256(record.history.to_bytes()).digest()
        path = history_path(bundle)
        return bytes.fromhex(self._published.bin(bin_of(path)).targets[path].hashes["sha256"])

    def _noted(self, bundle: str, history: bytes) -> set[bytes] | None:
        try:
            data = self._new.get(bundle) or read_limited(self._directory / bundle, _LARGEST)
        except (OSError, ValueError):
            return None
        checksum, rest = data[:_DIGEST], data[_DIGEST:]
        if hashlib.sha256(rest).digest() != checksum or rest[:_DIGEST] != history:
            return None
        return {rest[start : start + _DIGEST] for start in range(_DIGEST, len(rest), _DIGEST)}


def _digests(site: Site, record: Record) -> Iterator[bytes]:
    kept = [each.artifact for each in record.history.versions.values() if each.pruned is None]
    for description in {artifact.description for artifact in (*kept, *record.index.releases.values())}:
        yield from map(bytes.fromhex, site.files.named_by(description))
