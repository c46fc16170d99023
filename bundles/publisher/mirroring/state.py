"""The state of a copy, in ``mirror/`` beside the ``public/`` that hosts read: never below what a server gives out.

======================  ==================================================================
``root.json``           the root that was given with the first run
``trust/``              what was trusted so far, as on a host: rollback is measured against it
``incoming/``           downloads, until they are verified
``record.json``         which files were verified, and until when the others are kept
``lock``                one run at a time
======================  ==================================================================
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from bundles.client.targets import explained
from bundles.client.trust_anchor import Anchor
from bundles.errors import SettingsError, StoreError
from bundles.filesystem.atomic import read_limited, write_file
from bundles.filesystem.output import open_output_directory
from bundles.filesystem.safe_paths import REAL_DIRECTORY, others_can_exchange, writers
from foundation.problems import ProblemCode

_FORMAT = 1
_LARGEST = 256 * 1024 * 1024

Stamp = tuple[int, int]
"""Size in bytes, and time of the last change in nanoseconds."""


class Selection(msgspec.Struct, frozen=True):
    """The part of a site that is copied; empty for all bundles, and for all that they offer."""

    bundles: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


class Record(msgspec.Struct):
    """The knowledge of a copy; one that is lost or damaged costs reading every file again, and nothing else."""

    format: int = _FORMAT
    files: dict[str, Stamp] = {}
    """Of files that were verified, by path below ``public/``."""
    gone: dict[str, datetime] = {}
    """Until when files stay that the site does not have any more: a host may still be led to them."""


class State:
    """The state of the copy in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "mirror"

    @property
    def trust(self) -> Path:
        return self.directory / "trust"

    @property
    def incoming(self) -> Path:
        return self.directory / "incoming"

    @property
    def _record(self) -> Path:
        return self.directory / "record.json"

    @property
    def _root(self) -> Path:
        return self.directory / "root.json"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Open and lock the state. Raises `StoreError` while another process works on this copy.

        If another user could exchange the directory for a link, its paths lead through the open directory.
        """
        named = self.directory
        with contextlib.ExitStack() as opened:
            with explained(named):
                own = _open_own(named)
                opened.callback(os.close, own)
                if others_can_exchange(os.path.abspath(named)):
                    self.directory = Path(f"/proc/self/fd/{own}")
                    opened.callback(setattr, self, "directory", named)
                self.incoming.mkdir(mode=0o700, exist_ok=True)
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                lock = os.open("lock", flags, 0o600, dir_fd=own)
                opened.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    str(named.parent), "is being copied to by another process", code=ProblemCode.ANOTHER_RUN
                ) from None
            yield

    def anchor(self, given: Anchor | None) -> Anchor:
        """The root that this copy began with, or begins with now; raises `SettingsError`."""
        if self._root.exists():
            return Anchor.load(self._root)
        if given is None:
            raise SettingsError(
                str(self._root), "there is no trust anchor", hint="the first run needs --root"
            )
        return given

    def keep_anchor(self, anchor: Anchor) -> None:
        """Keep a root that has proved to be the site's."""
        with explained(self._root):
            if not self._root.exists():
                write_file(self._root, anchor.data)

    def load(self) -> Record:
        """The record; an empty one where there is none, or a damaged one. Raises `StoreError`."""
        with explained(self._record):
            try:
                record = msgspec.json.decode(read_limited(self._record, _LARGEST), type=Record)
            except (FileNotFoundError, ValueError):
                return Record()
        return record if record.format == _FORMAT else Record()

    def store(self, record: Record) -> None:
        """Write the record; raises `StoreError`."""
        with explained(self._record):
            write_file(self._record, msgspec.json.encode(record) + b"\n", mode=0o600)


def _open_own(path: Path) -> int:
    """Create and open the directory of the state, which belongs to the running user alone; raises ``OSError``."""
    with open_output_directory(path.parent, make=True) as parent:  # public/ is below it
        with contextlib.suppress(FileExistsError):
            os.mkdir(path.name, 0o700, dir_fd=parent)
        descriptor = os.open(path.name, REAL_DIRECTORY, dir_fd=parent)
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or writers(found):
        os.close(descriptor)
        what = "belongs to another user, or other users may write there"
        raise OSError(errno.EPERM, what, os.fspath(path))
    return descriptor
