"""Push of a site to a destination, in an order that always leaves readers a complete edition.

* A push copies only signed and complete editions. It never replaces a newer edition.
* A push resumes an interrupted one: existing files are not sent again.
* A push is complete when the destination serves the file that was sent last.
* Unrelated files at the destination are never touched.
* The publisher keeps a `Record` of each destination in ``pushes/NAME.json`` in the site's directory. ``NAME`` is a
  digest of the location.

Locations of destinations:

===================================  =============================================================
``/srv/www/puller``                  a directory
``www:/srv/www/puller``              a machine by SSH, configured for ``ssh``; or ``ssh://user@www:22/srv/www``
``https://dav.example.com/puller``   a web server with WebDAV
``s3://bucket/prefix``               an object store with the S3 API, with the extra ``s3``
===================================  =============================================================
"""

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from bundles.errors import PublishError
from bundles.filesystem.atomic import read_limited, write_file
from bundles.format.size_limits import LARGEST_STORED
from bundles.publisher.published import Published
from bundles.publisher.push.destination import Destination, Directory, Remote, Sending
from bundles.publisher.push.plan import (
    TIMESTAMP,
    Edition,
    Kind,
    Plan,
    Source,
    files_of,
    kind_of_file,
    plan,
    verify_source,
)
from bundles.publisher.push.web_destinations import ObjectStoreDestination, WebDav
from bundles.publisher.site import Site, explained
from foundation.masking import mask_location
from foundation.object_store import SCHEME
from foundation.problems import ProblemCode
from foundation.times import minute_text

# The record of a destination: the files that were pushed, and the files that are gone from the site.
#
# * The record is valid while the destination has the ``timestamp.json`` that was pushed last. Then the sizes of the
#   other files are enough. Otherwise the push checks every file.
# * If the destination cannot list files, the record also notes the start of a push. After an interrupted push, the
#   next one requests each file that may exist.
# * A file that is gone from the site stays at the destination for a while, because readers may hold a
#   ``timestamp.json`` that leads to it. The time starts when its disappearance was first pushed.
# * A damaged record is ignored. More files are compared, and deleted files stay longer.

_DIRECTORY = "pushes"
_FORMAT = 1
_LARGEST = 256 * 1024 * 1024


class Record(msgspec.Struct):
    """State of one destination after the last push."""

    format: int = _FORMAT
    destination: str = ""
    """For users who read the file."""
    timestamp: str = ""
    """SHA-256 of the ``timestamp.json`` that was pushed last."""
    lists_nothing: bool = False
    """Whether the destination cannot list its files."""
    files: dict[str, int] = {}
    """Sizes in bytes of files at a destination that cannot list them."""
    begun: bool = False
    """Whether a push has started to copy since. Unrecorded files may exist."""
    gone: dict[str, datetime] = {}
    """Files at the destination that are gone from the site, and when a push first noticed that."""


class RecordFile:
    """The record of ``destination`` in the site at ``directory``. One push at a time holds it."""

    def __init__(self, directory: Path, destination: str) -> None:
        name = hashlib.sha256(destination.encode(errors="surrogateescape")).hexdigest()[:16]
        self._destination = destination
        self.path = directory / _DIRECTORY / f"{name}.json"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the record. Raises `PublishError` while another process pushes from here to the same destination."""
        with explained(self.path):
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(
                self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PublishError(
                self._destination, "is in use by another push", code=ProblemCode.ANOTHER_RUN
            ) from None
        else:
            yield
        finally:
            os.close(lock)

    def load(self) -> Record:
        """Return the record, empty if the file is missing or damaged. Raises `PublishError` for this disk."""
        try:
            record = msgspec.json.decode(read_limited(self.path, _LARGEST), type=Record)
        except (FileNotFoundError, ValueError):
            return Record(destination=self._destination)
        except OSError as error:
            raise PublishError(
                str(self.path), error.strerror or str(error), code=ProblemCode.SYSTEM_ERROR
            ) from error
        return record if record.format == _FORMAT else Record(destination=self._destination)

    def store(self, record: Record) -> None:
        """Write the record. Raises `PublishError`."""
        record.destination = self._destination
        with explained(self.path):
            write_file(self.path, msgspec.json.encode(record) + b"\n", mode=0o600)


_FIRST_ROOT = "metadata/1.root.json"
_NOT_THERE = -1
"""Placeholder for the size of a missing file."""


class Watch(Sending, Protocol):
    """Receives the progress of a push."""

    def planned(self, steps: Plan) -> None:
        """Receive the plan, before any file is copied."""
        ...


class Pushed(msgspec.Struct, frozen=True):
    """A completed push, or with ``noop`` a planned one."""

    destination: str
    plan: Plan


class Push:
    """One push of ``site`` to ``destination``.

    ``keep`` is how long files gone from the site stay at the destination. The default is the lifetime of the timestamp,
    because a reader can use a timestamp that leads to them for that long. ``replace`` allows the push to overwrite an
    edition that is newer or unreadable. ``compare`` ignores the record and checks every file.
    """

    def __init__(
        self,
        site: Site,
        destination: Destination,
        keep: timedelta | None = None,
        *,
        replace: bool = False,
        compare: bool = False,
    ) -> None:
        self._site = site
        self._destination = destination
        self._keep = site.settings().lifetimes.timestamp if keep is None else keep
        self._replace = replace
        self._compare = compare
        self._file = RecordFile(site.directory, str(destination))

    def plan(self) -> Plan:
        """Return the steps without writing. Raises `PublishError` if a push is impossible."""
        return self._prepare()[0]

    def run(self, watch: Watch) -> Pushed:
        """Push the site. Raises `PublishError`, and the errors of `Site.published`. The destination stays consistent.

        1. Lock the record against other pushes from here to the same destination.
        2. Read the edition of the site once, and compare it with the destination. Later editions need another push.
        3. Copy each group of files. Verify a target against its name before it is sent.
        4. Before ``timestamp.json``, check that the destination is unchanged. Otherwise another publisher has pushed.
        5. Check that the destination serves the new ``timestamp.json``. A server may accept files without storing them.
        6. Record the files at the destination, and remove outdated files.
        """
        with self._file.held():  # 1.
            # 2.
            steps, record, timestamp, before = self._prepare()
            watch.planned(steps)
            if steps.groups:
                self._begin(record)
            # 3.
            for group in steps.groups:
                if TIMESTAMP in group:
                    self._verify_unchanged(before)  # 4.
                self._destination.write([self._source(path, timestamp) for path in group], watch)
            if steps.groups:
                self._verify_pushed(timestamp)  # 5.
            # 6. Files to remove stay in the record until they are removed, for destinations that cannot list files.
            self._remember(record, steps, timestamp)
            if steps.removed:
                self._destination.remove(steps.removed)
                self._forget(record, steps)
        return Pushed(str(self._destination), steps)

    # Comparison

    def _prepare(self) -> tuple[Plan, Record, bytes, bytes | None]:
        """Return the plan, the record, and ``timestamp.json`` of the site and of the destination."""
        timestamp, published, local = self._edition()
        self._verify_complete(published, local)
        before = self._destination.read(TIMESTAMP, LARGEST_STORED)
        self._verify_successor(timestamp, before)
        record = self._file.load()
        is_remembered = before is not None and record.timestamp == _digest(before)
        is_ours = is_remembered and not self._compare
        there = self._there(record, local, is_known=is_ours)
        read_again = set() if is_ours else Edition(timestamp, self._read_local).names()
        desired = self._desired_files(local, there, read_again)
        if timestamp == before:
            desired.discard(TIMESTAMP)
        else:
            desired.add(TIMESTAMP)
        local[TIMESTAMP] = len(timestamp)
        former = None if before is None else Edition(before, self._read_former)
        steps = plan(
            local,
            desired,
            there,
            record.gone if is_remembered else {},
            self._keep,
            self._site.now(),
            lambda version: (
                former is not None and former.holds_under(self._read_local(f"metadata/{version}.root.json"))
            ),
            is_remembered=is_ours and record.lists_nothing,
        )
        return steps, record, timestamp, before

    def _edition(self) -> tuple[bytes, Published, dict[str, int]]:
        """Return ``timestamp.json`` of the site, its metadata and its files, all of one edition.

        Retries if another process publishes meanwhile.
        """
        with explained(self._site.public):
            while True:
                timestamp = read_limited(self._site.public / TIMESTAMP, LARGEST_STORED)
                published = self._verified()
                local = files_of(self._site.public)
                if read_limited(self._site.public / TIMESTAMP, LARGEST_STORED) == timestamp:
                    return timestamp, published, local

    def _verified(self) -> Published:
        """Return the metadata of the site. Raises `PublishError` if it has expired, because hosts would reject it."""
        published = self._site.published()
        if published.timestamp.expires <= self._site.now():
            detail = f"expired at {minute_text(published.timestamp.expires)}"
            hint = "run `puller site refresh`"
            raise PublishError(str(self._site.metadata / "timestamp.json"), detail, hint=hint)
        return published

    def _verify_complete(self, published: Published, local: Mapping[str, int]) -> None:
        """Raise `PublishError` if a file that hosts need is missing or truncated."""
        for path, size in self._led_to(published):
            if local.get(path) != size:
                result = "is missing" if path not in local else f"has {local[path]} bytes, expected {size}"
                again = ", or publish that version again" if path.endswith(".tar.gz") else ""
                raise PublishError(
                    str(self._site.public / path), result, hint=f"restore it from a copy{again}"
                )

    def _led_to(self, published: Published) -> Iterator[tuple[str, int]]:
        """Yield the targets and archives of the site, with their sizes in bytes.

        Single files of bundles are not included, because hosts fall back to the archive.
        """
        for of_bin in published.bins():
            for info in of_bin.targets.values():
                yield str(self._site.file_of(info).relative_to(self._site.public)), info.length
        for bundle in self._site.bundles(published):
            for artifact in self._site.index_of(published, bundle).releases.values():
                yield f"targets/{artifact.archive.path}", artifact.archive.length

    def _verify_successor(self, timestamp: bytes, before: bytes | None) -> None:
        """Raise `PublishError` if the destination has another site, or an edition that is not older."""
        root = self._destination.read(_FIRST_ROOT, LARGEST_STORED)
        if root is not None and root != self._read_local(_FIRST_ROOT):
            raise PublishError(
                str(self._destination), "contains another site, because its first root differs"
            )
        if before is None or before == timestamp or self._replace:
            return
        here, there = Edition(timestamp, self._read_local), Edition(before, self._read_former)
        if there.version == 0:
            raise PublishError(
                f"{self._destination}/{TIMESTAMP}", "cannot be read", hint="--replace replaces it"
            )
        if here.version <= there.version:
            detail = f"has version {there.version} of the timestamp, and this site has version {here.version}"
            hint = "check that this site is not an old copy. --replace pushes it anyway"
            raise PublishError(str(self._destination), detail, hint=hint)

    def _there(self, record: Record, local: Mapping[str, int], *, is_known: bool) -> dict[str, int]:
        """Return the files of the destination with their sizes: listed, recorded, or requested one by one."""
        if (listed := self._destination.files()) is not None:
            record.files.clear()
            return listed
        # A killed push has sent files without recording them. Recorded files are requested, too: if one were dropped
        # from the record, it would never be removed.
        requested = (
            {*local, *record.files} if not is_known else local.keys() - record.files if record.begun else ()
        )
        record.files |= dict.fromkeys(requested, _NOT_THERE) | self._destination.sizes(sorted(requested))
        record.files = {path: size for path, size in record.files.items() if size != _NOT_THERE}
        record.lists_nothing = True
        return record.files

    def _desired_files(self, local: dict[str, int], there: dict[str, int], read_again: set[str]) -> set[str]:
        """Return files that are missing at the destination or differ there."""
        desired = {path for path, size in local.items() if there.get(path) != size}
        compared = (
            path for path in local.keys() - desired if path in read_again or kind_of_file(path) is Kind.ROOT
        )
        return desired | {path for path in compared if read_again and self._differs(path)}

    def _differs(self, path: str) -> bool:
        """Return whether a file without a digest in its name differs at the destination."""
        return self._destination.read(path, LARGEST_STORED) != self._read_local(path)

    def _read_local(self, path: str) -> bytes | None:
        try:
            return read_limited(self._site.public / path, LARGEST_STORED)
        except FileNotFoundError:
            return None

    def _read_former(self, path: str) -> bytes | None:
        """Return a file of the destination's edition. Versions never change, so the site's own file is identical."""
        result = self._read_local(path)
        return self._destination.read(path, LARGEST_STORED) if result is None else result

    # Changes

    def _source(self, path: str, timestamp: bytes) -> Source:
        if path == TIMESTAMP:
            return Source(path, len(timestamp), self._site.public / path, timestamp)
        place: Path = self._site.public / path
        with explained(place):
            source = Source(path, place.stat().st_size, place)
            verify_source(source)
        return source

    def _verify_unchanged(self, before: bytes | None) -> None:
        if self._destination.read(TIMESTAMP, LARGEST_STORED) != before:
            raise PublishError(
                str(self._destination),
                "was changed by another push at the same time",
                code=ProblemCode.CHANGED_MEANWHILE,
                hint="push again",
            )

    def _verify_pushed(self, timestamp: bytes) -> None:
        if self._destination.read(TIMESTAMP, LARGEST_STORED) != timestamp:
            detail = "differs from the pushed file"
            hint = "possible causes are another push, a destination that stores nothing, or a cache"
            raise PublishError(f"{self._destination}/{TIMESTAMP}", detail, hint=hint)

    def _begin(self, record: Record) -> None:
        if record.lists_nothing and not record.begun:
            record.begun = True
            self._file.store(record)

    def _remember(self, record: Record, steps: Plan, timestamp: bytes) -> None:
        record.begun = False
        record.timestamp = _digest(timestamp)
        record.gone = {**steps.gone, **dict.fromkeys(steps.removed, self._site.now() - self._keep)}
        if record.lists_nothing:
            record.files |= {path: steps.sizes[path] for path in steps.copied}
        self._file.store(record)

    def _forget(self, record: Record, steps: Plan) -> None:
        for path in steps.removed:
            record.files.pop(path, None)
            record.gone.pop(path, None)
        self._file.store(record)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_SSH = re.compile(r"(?P<host>(?:[^/@:\s]+@)?(?:\[[0-9a-fA-F:.]+\]|[^/@:\s-][^/@:\s]*)):(?P<path>/.*)")
_SSH_URL = re.compile(
    r"ssh://(?P<host>(?:[^/@:\s]+@)?(?:\[[0-9a-fA-F:.]+\]|[^/@:\s-][^/@:\s]*))(?::(?P<port>[0-9]+))?(?P<path>/.*)"
)


def open_destination(location: str) -> Destination:
    """Return the destination of a location, without connecting. Raises `PublishError`."""
    if any(not character.isprintable() for character in location):
        detail = "is not a destination, because it contains control characters"
        raise PublishError(mask_location(ascii(location)), detail, code=ProblemCode.INVALID_COMMAND)
    if location.startswith(SCHEME):
        return ObjectStoreDestination.open(location)
    if location.startswith(("http://", "https://")):
        return WebDav(location)
    if "://" in location and not location.startswith("ssh://"):
        scheme = location.partition("://")[0]
        detail = "is an unknown kind of destination, expected a directory, ssh://, https:// or s3://"
        raise PublishError(f"{scheme}://", detail, code=ProblemCode.INVALID_COMMAND)
    if match := _SSH_URL.fullmatch(location) or _SSH.fullmatch(location):
        fields = match.groupdict()
        return Remote(fields["host"], fields["path"], fields.get("port"))

    return Directory(location)
