"""The publisher's side of a site.

::

    site.yaml            how long signatures last, and what is asked of what is published (settings.py)
    root.json            the newest root: the trust anchor for new hosts
    keys/                private keys, never below public/
    pending-root.json    a change of the root that waits for signatures
    unfinished.json      a change of keys that was cut off; whoever signs next completes it
    public/              what a web server serves
      metadata/          N.root.json  N.targets.json  N.snapshot.json  timestamp.json
      targets/           <sha256>.index.json  web/<sha256>.web-1.4.0.tar.gz

* A release never changes: its name and version stand for the same files for ever.
* Whenever a reader looks, it sees all of what was published before or all of what was published after.
* A publisher that crashed leaves files that nothing names. The next one publishes over them.

Old metadata is kept. Hosts need every root for ever. Other versions are asked for by hosts and caches
that still hold an older ``timestamp.json``: they may be deleted once they are older than that one's
lifetime.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from tuf.api.exceptions import LengthOrHashMismatchError
from tuf.api.metadata import Root, TargetFile

from bundles.client.targets import target_path
from bundles.errors import (
    PublishError,
    SignatureError,
)
from bundles.filesystem.atomic import (
    open_directory,
    remove_leftovers,
    replace_file,
    write_file,
)
from bundles.filesystem.trees import Counted, open_regular, pieces_of
from bundles.format.index import INDEX, Index
from bundles.format.limits import LARGEST_INDEX
from bundles.format.release import Release
from bundles.publisher import transaction
from bundles.publisher.keys import Passphrase
from bundles.publisher.settings import SiteSettings
from bundles.publisher.signing import ROLES, Edition, Keyring, Published, check_readable, read_stored

SETTINGS = "site.yaml"
ANCHOR = "root.json"
PENDING = "pending-root.json"

_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC

_DIRECTORY_MODE = 0o755


@dataclass(frozen=True, slots=True)
class Listed:
    """A release in a channel; ``size`` is bytes."""

    channel: str
    release: Release
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """Version and expiry of the metadata of one role."""

    role: str
    version: int
    expires: datetime


def utc_now() -> datetime:
    return datetime.now(UTC)


class Site:
    """The site in ``directory``; raises `PublishError` when there is none."""

    def __init__(self, directory: Path, now: Callable[[], datetime] = utc_now) -> None:
        self.directory = directory
        self.public = directory / "public"
        self.anchor = directory / ANCHOR
        self.keys = directory / "keys"
        self.pending_root = directory / PENDING
        self.metadata = self.public / "metadata"
        self._unfinished = directory / "unfinished.json"
        self.now = now
        if not self.metadata.is_dir():
            raise PublishError(str(directory), "is not a site; `puller site init` makes one")

    def index(self) -> Index:
        """The releases that hosts are told to run."""
        return self.index_of(self.published())

    def releases(self) -> list[Listed]:
        """The releases of `index`, with size and digest, sorted by channel and bundle."""
        published = self.published()
        infos = published.targets.targets
        return [
            Listed(channel, release, infos[release.target].length, infos[release.target].hashes["sha256"])
            for channel, releases in sorted(self.index_of(published).channels.items())
            for _, release in sorted(releases.items())
        ]

    def roles(self) -> list[RoleStatus]:
        """Version and expiry of each role."""
        return statuses(self.published())

    def root(self) -> Root:
        """Keys and thresholds of the roles, as they are in force."""
        return self.published().root

    def announce(self, edition: Edition, index: Index, *new: tuple[TargetFile, Path]) -> None:
        """Sign ``index`` and ``new`` targets, and write them; hosts see it all or nothing of it.

        Raises `PublishError`, `KeyFileError` for one, and ``OSError``; what was published before stays complete then.

        1. Sign the targets, the index and new ones among them, and the snapshot that names them (TUF 6.3.1, 6.3.2).
        2. Sign the timestamp (TUF 6.3.3). So far all is in memory: a key that is missing leaves no trace.
        3. Write new targets and the index, under names with their hashes in them (TUF 6.2.1): nobody asks for them yet.
        4. Write the metadata, ``timestamp.json`` last, which makes all of it visible.
        """
        # 1.
        about_index = TargetFile.from_data(INDEX, index.to_bytes(), ["sha256"])
        check_readable(INDEX, about_index.length, LARGEST_INDEX)
        edition.sign_targets({**{info.path: info for info, _ in new}, INDEX: about_index})
        # 2.
        edition.sign_timestamp()
        # 3.
        for info, source in new:
            self._write_target(info, source)
        write_file(self.file_of(about_index), index.to_bytes())
        # 4.
        self.write(edition)

    def edition(self, passphrase: Passphrase, published: Published | None = None) -> Edition:
        """The published metadata, to be changed and signed; raises as `published`."""
        return Edition(
            self.metadata,
            published or self.published(),
            Keyring(self.keys, passphrase),
            self.settings().lifetimes,
            self.now(),
        )

    def published(self) -> Published:
        """The metadata in force, verified; raises `PublishError`, `FormatError` and `SignatureError`."""
        if self._unfinished.exists():  # for those who read without the lock; whoever takes it has it finished
            raise PublishError(
                str(self.directory), "a change of keys was cut off: puller site refresh ends it"
            )
        return Published.load(self.metadata, self.anchor)

    def index_of(self, published: Published) -> Index:
        """The index that is published there; raises `SignatureError` when the file is not as signed."""
        info = published.targets.targets[INDEX]
        path = self.file_of(info)
        data = read_stored(path)
        try:
            info.verify_length_and_hashes(data)
        except LengthOrHashMismatchError as error:
            raise SignatureError(str(path), f"is not what this site signed: {error}") from None
        return Index.parse(data, str(path))

    def file_of(self, info: TargetFile) -> Path:
        """Where a target is below ``public/``."""
        return self.public / target_path(info)

    def _write_target(self, info: TargetFile, source: Path) -> None:
        destination = self.file_of(info)
        make_directory(destination.parent)
        with open_regular(source, follow=True) as stream, open_directory(destination.parent) as parent:
            remove_leftovers(parent)
            replace_file(parent, destination.name, _as_described(stream, info, source), mode=0o644)

    def write(self, edition: Edition) -> None:
        """Publish the metadata of ``edition``; raises ``OSError``.

        1. If hosts that know the old root only would refuse what the new one is published with, a crash between the two
           would shut them out: record everything first, so that whoever comes next finishes it.
        2. Write the files with a version in their names, then ``timestamp.json``, and last a new root.
        3. Drop the record.
        4. Let the anchor for new hosts be the newest root.
        """
        if edition.is_good_before_its_root:
            # 2.
            edition.write()
        else:
            # 1.
            transaction.record(self._unfinished, edition.contents())
            # 2.
            edition.write()
            # 3.
            transaction.forget(self._unfinished)
        # 4. Also when a publisher was killed between the two: an older root trusts keys that were taken away since.
        newest = read_stored(self.metadata / f"{edition.published.root.version}.root.json")
        if not self.anchor.exists() or read_stored(self.anchor) != newest:
            write_file(self.anchor, newest)

    def settings(self) -> SiteSettings:
        """The site's own choices; raises `PublishError`."""
        path = self.directory / SETTINGS
        return SiteSettings.parse(read_stored(path), str(path))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One publisher at a time; the kernel lets go of the lock when the process ends, however it ends.

        Raises `PublishError`, for one when there is another, and `FormatError` for a damaged record of a transaction.
        """
        path = self.directory / ".lock"
        with explained(self.directory), open(os.open(path, _LOCK, 0o644), "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PublishError(str(self.directory), "is being published to by another process") from None
            # Before anything is read: what was cut off is half of one edition and half of another.
            transaction.finish(self._unfinished, self.metadata)
            yield


def _as_described(stream: BinaryIO, info: TargetFile, source: Path) -> Iterator[bytes]:
    """The contents, and after their last piece, before they get their name: is it what will be signed?"""
    contents = Counted(pieces_of(stream))
    yield from contents
    if contents.sha256 != info.hashes["sha256"]:
        raise PublishError(str(source), "changed while it was published")


@contextlib.contextmanager
def explained(directory: Path) -> Iterator[None]:
    """A problem with the publisher's own files: an ``OSError`` within raises `PublishError`."""
    try:
        yield
    except OSError as error:
        raise PublishError(str(error.filename or directory), error.strerror or str(error)) from error


def statuses(published: Published) -> list[RoleStatus]:
    """Version and expiry of each role, in the order of signing."""
    roles = [published.of(role) for role in ROLES]
    return [RoleStatus(signed.type, signed.version, signed.expires) for signed in roles]


def make_directory(path: Path) -> None:
    """Make a directory that a web server can read, unless it is there; raises ``OSError``."""
    path.mkdir(exist_ok=True)
    path.chmod(_DIRECTORY_MODE)  # whatever the umask: a web server reads here
