"""Receipts: which archive was put where, so that a failed extraction is not taken for a finished one.

* A receipt says *begun* before anything is put in place, and *finished* when all is there.
* It also remembers the checksum of the archive's file, which is read again only when the file is another one.
* A receipt that is not understood counts as none. It is set aside when the next one is written.
"""

import os
from pathlib import Path
from urllib.parse import quote

import msgspec

from bundles.files import read_limited, write_file
from puller.decoding import decode
from puller.state import Directories
from puller.statefile import set_aside

_LARGEST = 16 * 1024 * 1024  # bytes; names at the top of an archive are few
_LONGEST_NAME = 200  # bytes; file systems take 255


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one archive."""

    format: int = 1
    archive: str
    """Its path on this machine."""
    sha256: str = ""
    file: tuple[int, ...] = ()
    """Which file had this checksum: see ``identity_of``."""
    extract_parent: str = ""
    """Where it was begun to be put; empty when it was only fetched."""
    finished: bool = False
    entries: tuple[str, ...] = ()
    """Names at the top of what was put there."""


class Receipts:
    """The receipts in one directory; methods raise ``OSError``."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = default_directory() if directory is None else directory

    def load(self, archive: str) -> Receipt | None:
        """The receipt for the archive at this path; ``None`` when there is none that can be used."""
        try:
            data = read_limited(self._path(archive), _LARGEST)
            receipt = decode(data, Receipt)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, msgspec.DecodeError, ValueError):
            return None
        return receipt if (receipt.format, receipt.archive) == (1, archive) else None

    def save(self, receipt: Receipt) -> None:
        """Keep it, in the place of an older one."""
        path = self._path(receipt.archive)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.path.lexists(path) and self.load(receipt.archive) is None:
            set_aside(path)
        write_file(path, msgspec.json.encode(receipt), mode=0o600)

    def forget(self, archive: str) -> None:
        """There is no such archive any more."""
        self._path(archive).unlink(missing_ok=True)

    def _path(self, archive: str) -> Path:
        name = quote(archive, safe="")
        if len(name) > _LONGEST_NAME:
            import hashlib  # and OpenSSL

            name = hashlib.sha256(archive.encode()).hexdigest()
        return self._directory / f"{name}.json"


def default_directory() -> Path:
    """Where receipts are, for the user that runs Puller."""
    return Directories.of_user().state / "archives"


def identity_of(found: os.stat_result) -> tuple[int, ...]:
    """What changes with every change of a file: its last number cannot be set by anybody."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
