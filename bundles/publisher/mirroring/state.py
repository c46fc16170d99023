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
from bundles.publisher.push.directory import make_directories

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
        self.trust = self.directory / "trust"
        self.incoming = self.directory / "incoming"
        self._record = self.directory / "record.json"
        self._root = self.directory / "root.json"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raises `StoreError` while another process works on this copy."""
        with explained(self.directory):
            make_directories(self.directory.parent)  # public/ is below it
            self.incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(self.directory / "lock", flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(str(self.directory.parent), "is being copied to by another process") from None
        else:
            yield
        finally:
            os.close(lock)

    def anchor(self, given: Anchor | None) -> Anchor:
        """The root that this copy began with, or begins with now; raises `SettingsError`."""
        if self._root.exists():
            return Anchor.load(self._root)
        if given is None:
            raise SettingsError(str(self._root), "there is no trust anchor; the first run needs --root")
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
