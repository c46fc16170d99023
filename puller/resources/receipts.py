"""Receipts: what a resource itself has made below a directory, so that it can be taken away when its source is gone.

* A file or directory is on the receipt before it is made, a file with the checksum of what is written: what somebody
  has changed since is not taken for the resource's own.
* What was there before is not on it, also when the resource has replaced its content.
* A receipt that is not understood is set aside; what it spoke of stays.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from puller.resources.checksums import sha256
from puller.resources.tree_paths import parents
from puller.state.directories import Directories
from puller.state.state_file import StateFile
from puller.system.protocol import System

SCAFFOLDS, TREES = "scaffolds", "trees"
"""The folders of receipts, one for each kind of resource."""

_LARGEST = 64 * 1024 * 1024  # bytes
_LONGEST_NAME = 200  # bytes; file systems take 255


class Receipt(msgspec.Struct, omit_defaults=True, tag_field="format", tag=1):
    """The files and directories that a resource has made; paths are relative to ``root``."""

    target: str
    root: str = ""
    """Where the target really is."""
    files: dict[str, str] = {}
    """Each with the SHA-256 of what was written."""
    directories: list[str] = []
    """The empty path is the target itself."""


class Receipts:
    """The receipt of one resource, in the folder ``kind``. Methods raise ``OSError``."""

    def __init__(self, kind: str, target: str, state_directory: Path | None, *, noop: bool = False) -> None:
        directory = (state_directory or Directories.of_user().state) / kind
        name = quote(target, safe="")
        if len(name) > _LONGEST_NAME:
            name = sha256([target.encode()])
        self._file = StateFile(directory / f"{name}.json", Receipt, "", largest=_LARGEST)
        self._target, self._noop = target, noop

    @property
    def path(self) -> str:
        """The receipt's own place: who brings back what the resource has changed brings this back, too."""
        return str(self._file.path)

    def load(self) -> Receipt:
        """The receipt; an empty one when there is none that is understood."""
        found = self._file.load(lambda sentence: None, noop=self._noop)
        return found if found is not None and found.target == self._target else Receipt(self._target)

    def note(
        self, root: str, made: Iterable[str], directories: Iterable[str], written: Mapping[str, str]
    ) -> None:
        """Put on it what is about to be ``made`` in ``root``, and of its own files what is about to be ``written``.

        That is the SHA-256 of each.
        """
        before, new = self.load(), {*made}
        files = {path: digest for path, digest in before.files.items() if os.path.lexists(f"{root}/{path}")}
        files |= {path: digest for path, digest in written.items() if path in files or path in new}
        kept = [path for path in before.directories if os.path.isdir(f"{root}/{path}")]
        kept = [*dict.fromkeys((*kept, *directories))]
        receipt = Receipt(self._target, root, files, kept)
        if receipt != before and (files or kept):
            self._file.save(receipt)

    def forget(self) -> None:
        """Nothing of it is left."""
        self._file.remove()


def own_file(system: System, root: str, path: str, receipt: Receipt) -> os.stat_result | None:
    """The ``lstat`` of a file that the resource has made and nobody has changed since; ``None`` when there is none."""
    for above in (root, *(f"{root}/{directory}" for directory in parents(path))):
        found = system.lstat(above)
        if found is None or not stat.S_ISDIR(found.st_mode):
            return None
    found = system.lstat(f"{root}/{path}")
    if found is None or not stat.S_ISREG(found.st_mode):
        return None
    return found if sha256(system.read_chunks(f"{root}/{path}")) == receipt.files[path] else None
