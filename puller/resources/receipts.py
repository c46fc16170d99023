"""Receipts of the files that a resource created below a directory, and their removal.

* A file or directory is recorded before it is created, a file with the checksum of its content. A file that was
  changed later no longer counts as the resource's own.
* Files that existed before the resource are never recorded, even if the resource replaced their content.
* A damaged or unknown receipt is set aside. Its files stay.
* Removal needs the receipt only. Changed files, directories with content, and paths of other resources stay.
"""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import msgspec

from foundation.differences import ABSENT, Difference, presence
from puller.resources.base import Context, Properties, Resource
from puller.resources.content_sources import sha256
from puller.resources.owned_paths import OwnedPaths, owned_below
from puller.resources.paths import parents, printable
from puller.state import Directories, StateFile
from puller.system.protocol import System

SCAFFOLDS, TREES = "scaffolds", "trees"
"""The folders of receipts, one for each kind of resource."""

_LARGEST = 64 * 1024 * 1024  # bytes
_LONGEST_NAME = 200  # bytes; file systems allow 255


class Receipt(msgspec.Struct, omit_defaults=True, tag_field="format", tag=1):
    """The files and directories that a resource created. Paths are relative to ``root``."""

    target: str
    root: str = ""
    """The canonical path of the target."""
    files: dict[str, str] = {}
    """The SHA-256 of the written content, by path."""
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
        """The path of the receipt. A rollback of the resource also restores this file."""
        return str(self._file.path)

    def load(self) -> Receipt:
        """Return the receipt, or an empty one if it is missing or invalid."""
        result = self._file.load(lambda sentence: None, noop=self._noop)
        return result if result is not None and result.target == self._target else Receipt(self._target)

    def note(
        self, root: str, made: Iterable[str], directories: Iterable[str], written: Mapping[str, str]
    ) -> None:
        """Record paths that are about to be ``made`` in ``root``, and own files that are about to be ``written``.

        ``written`` has the SHA-256 of each new content.
        """
        before, new = self.load(), {*made}
        files = {path: digest for path, digest in before.files.items() if os.path.lexists(f"{root}/{path}")}
        files |= {path: digest for path, digest in written.items() if path in files or path in new}
        retained = [path for path in before.directories if os.path.isdir(f"{root}/{path}")]
        retained = [*dict.fromkeys((*retained, *directories))]
        receipt = Receipt(self._target, root, files, retained)
        if receipt != before and (files or retained):
            self._file.save(receipt)

    def forget(self) -> None:
        """Remove the receipt, because none of its files remain."""
        self._file.remove()


def is_own_directory(path: str, context: Context) -> bool:
    """Return whether Puller has created a directory, for a resource that creates its first file there.

    The receipt of a tree or scaffold at the path decides. Without a receipt, the record of created resources decides.
    """
    folders = (
        Receipts(kind, path, context.state_directory, noop=context.noop) for kind in (TREES, SCAFFOLDS)
    )
    receipts = [receipt for folder in folders if (receipt := folder.load()).root]
    return any("" in receipt.directories for receipt in receipts) or (
        not receipts and context.is_created_at(path)
    )


def own_file(system: System, root: str, path: str, receipt: Receipt) -> os.stat_result | None:
    """Return the ``lstat`` of a file that the resource created and that is unchanged, else ``None``."""
    for above in (root, *(f"{root}/{directory}" for directory in parents(path))):
        status = system.lstat(above)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return None
    status = system.lstat(f"{root}/{path}")
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return status if sha256(system.read_chunks(f"{root}/{path}")) == receipt.files[path] else None


# Removal of an undeclared tree. Works from the receipt and does not need the source.


class LeftoverTreeState(msgspec.Struct, frozen=True):
    """Leftover files of a tree, relative to its target, and directories, the innermost first."""

    receipt: Receipt
    exists: bool
    """Whether any path of the receipt exists, changed or not. Without a receipt: whether the target exists."""
    files: dict[str, os.stat_result] = {}
    directories: dict[str, os.stat_result] = {}


class LeftoverFiles(Resource[Properties, LeftoverTreeState]):
    """Leftover files and directories of a resource. The desired state is ``absent``."""

    properties_type = Properties
    receipts: ClassVar[str]
    """The folder of the receipts."""
    noun: ClassVar[str]
    """The name of the files in messages."""

    def look(self) -> LeftoverTreeState:
        receipt, system = self._receipts.load(), self.context.system
        if not receipt.root:
            return LeftoverTreeState(receipt, system.lstat(self.properties.name) is not None)
        reference = f"{self.type_name}#{self.properties.name}"
        owned = owned_below(receipt.root, self.context, reference, spares_work=False)
        files = {}
        for path in receipt.files:
            is_kept = owned.is_touched_by(path)
            if not is_kept and (result := own_file(system, receipt.root, path, receipt)):
                files[path] = result
        exists = any(
            os.path.lexists(self._path(receipt, path)) for path in (*receipt.files, *receipt.directories)
        )
        return LeftoverTreeState(receipt, exists, files, self._emptied(receipt, files, owned))

    def _emptied(
        self, receipt: Receipt, files: dict[str, os.stat_result], owned: OwnedPaths
    ) -> dict[str, os.stat_result]:
        """Return the directories that contain only paths to be removed."""
        going = {self._path(receipt, path) for path in files}
        emptied = {}
        for path in sorted(receipt.directories, reverse=True):
            place, system = self._path(receipt, path), self.context.system
            status = system.lstat(place)
            if status is None or not stat.S_ISDIR(status.st_mode) or owned.is_touched_by(path):
                continue
            if all(f"{place}/{name}" in going for name, _ in system.children(place)):
                emptied[path] = status
                going.add(place)
        return emptied

    def differences(self, actual: LeftoverTreeState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        files = [presence("present", ABSENT, printable(path)) for path in actual.files]
        directories = (printable(path) for path in actual.directories)
        return [*files, *(presence("a directory", ABSENT, path) for path in directories)]

    def change(self, differences: Sequence[Difference], actual: LeftoverTreeState) -> None:
        del differences
        receipt, system = actual.receipt, self.context.system
        with system.removing(receipt.root):
            for path, found in actual.files.items():
                system.remove(self._path(receipt, path), found, within=receipt.root)
            for path in actual.directories:
                place = self._path(receipt, path)
                if (now := system.lstat(place)) is not None:  # its timestamps have changed
                    system.remove(place, now, within=receipt.root if path else "")
        if not self.look().exists:
            self._receipts.forget()

    def noop_message(self, differences: Sequence[Difference], actual: LeftoverTreeState) -> str:
        del differences
        for path in (*actual.files, *actual.directories):
            self.context.system.expect(self._path(actual.receipt, path), "absent")
        return f"Would have removed {len(actual.files)} {self.noun}"

    def final_ensure(self, actual: LeftoverTreeState) -> str:
        return "present" if actual.exists else "absent"

    def changed_paths(self, actual: LeftoverTreeState) -> Sequence[str]:
        return [
            self._receipts.path,
            *(self._path(actual.receipt, path) for path in (*actual.directories, *actual.files)),
        ]

    @classmethod
    def fills(cls, properties: Properties) -> tuple[str]:
        return (properties.name,)

    @staticmethod
    def _path(receipt: Receipt, path: str) -> str:
        return f"{receipt.root}/{path}" if path else receipt.root

    @property
    def _receipts(self) -> Receipts:
        return Receipts(
            self.receipts, self.properties.name, self.context.state_directory, noop=self.context.noop
        )
