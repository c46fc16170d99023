"""A tree of files that nobody declares any more: what was made is removed by its receipt, without its source.

* What somebody has changed since stays, and so does a directory that anything is in.
* The paths of other resources stay, with the directories above them.
"""

import os
import stat
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from foundation.differences import ABSENT, Difference, presence
from puller.resources.base import Properties, Resource
from puller.resources.owned_paths import OwnedPaths, owned_below
from puller.resources.receipts import Receipt, Receipts, own_file
from puller.resources.tree_paths import printable


class LeftState(msgspec.Struct, frozen=True):
    """The rest of a tree, relative to its target; directories with the innermost first."""

    receipt: Receipt
    exists: bool
    """Whether there is anything that is on the receipt, changed or not; or the target, where there is no receipt."""
    files: dict[str, os.stat_result] = {}
    directories: dict[str, os.stat_result] = {}


class LeftFiles(Resource[Properties, LeftState]):
    """A resource's own files and directories, to be ``absent``."""

    properties_type = Properties
    receipts: ClassVar[str]
    """The folder of the receipts."""
    noun: ClassVar[str]
    """The name of the files in messages."""

    def look(self) -> LeftState:
        receipt, system = self._receipts.load(), self.context.system
        if not receipt.root:
            return LeftState(receipt, system.lstat(self.properties.name) is not None)
        reference = f"{self.type_name}#{self.properties.name}"
        owned = owned_below(receipt.root, self.context, reference, spares_work=False)
        files = {}
        for path in receipt.files:
            is_kept = owned.is_touched_by(path)
            if not is_kept and (found := own_file(system, receipt.root, path, receipt)):
                files[path] = found
        exists = any(
            os.path.lexists(self._path(receipt, path)) for path in (*receipt.files, *receipt.directories)
        )
        return LeftState(receipt, exists, files, self._emptied(receipt, files, owned))

    def _emptied(
        self, receipt: Receipt, files: dict[str, os.stat_result], owned: OwnedPaths
    ) -> dict[str, os.stat_result]:
        """The directories in which nothing else is than what goes."""
        going = {self._path(receipt, path) for path in files}
        emptied = {}
        for path in sorted(receipt.directories, reverse=True):
            place, system = self._path(receipt, path), self.context.system
            found = system.lstat(place)
            if found is None or not stat.S_ISDIR(found.st_mode) or owned.is_touched_by(path):
                continue
            if all(f"{place}/{name}" in going for name, _ in system.children(place)):
                emptied[path] = found
                going.add(place)
        return emptied

    def differences(self, actual: LeftState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        files = [presence("present", ABSENT, printable(path)) for path in actual.files]
        directories = (printable(path) for path in actual.directories)
        return [*files, *(presence("a directory", ABSENT, path) for path in directories)]

    def change(self, differences: Sequence[Difference], actual: LeftState) -> None:
        del differences
        receipt, system = actual.receipt, self.context.system
        with system.removing(receipt.root):
            for path, found in actual.files.items():
                system.remove(self._path(receipt, path), found, within=receipt.root)
            for path in actual.directories:
                place = self._path(receipt, path)
                if (now := system.lstat(place)) is not None:  # its times are others since its files are gone
                    system.remove(place, now, within=receipt.root if path else "")
        if not self.look().exists:
            self._receipts.forget()

    def noop_message(self, differences: Sequence[Difference], actual: LeftState) -> str:
        del differences
        for path in (*actual.files, *actual.directories):
            self.context.system.expect(self._path(actual.receipt, path), "absent")
        return f"Would have removed {len(actual.files)} {self.noun}"

    def final_ensure(self, actual: LeftState) -> str:
        return "present" if actual.exists else "absent"

    def changed_paths(self, actual: LeftState) -> Sequence[str]:
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
