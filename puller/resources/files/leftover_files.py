"""Removal of files, directories and links that are no longer declared, if they are unchanged.

* Only an empty directory is removed. For a directory filled from a source, the receipt lists the files to remove.
* A file that replaced the link stays.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

from foundation.differences import Difference
from puller.resources.base import Properties
from puller.resources.files.link import Link, LinkState
from puller.resources.files.one_file import FileState, OneFile
from puller.resources.receipts import TREES, LeftFiles, LeftState


class LeftTree(LeftFiles):
    """The files that Puller created below a directory, and the directory itself, to be ``absent``."""

    type_name = "file"
    receipts = TREES
    noun = "files"


class LeftFileState(FileState, frozen=True):
    """The state of a path, and of the leftover files if the directory was filled from a source."""

    tree: LeftState | None = None


class LeftFile(OneFile):
    """A file or directory that Puller created, to be ``absent``."""

    _is_kept = False
    _had_tree = False

    def look(self) -> LeftFileState:
        found = self.context.system.lstat(self.properties.name)
        state = self._tree.look()
        if state.receipt.root:
            self._had_tree = True
        elif self._had_tree:  # the last file took the receipt with it: an older directory stays
            state = LeftState(state.receipt, exists=False)
        return LeftFileState(found, tree=state if self._had_tree else None)

    def differences(self, actual: FileState, *, refresh: bool = False) -> Sequence[Difference]:
        tree = _tree_of(actual)
        if tree is not None and (self._tree.differences(tree) or "" not in tree.receipt.directories):
            return self._tree.differences(tree)
        # Files that others added are kept, so the directory stays and is in sync.
        self._is_kept = actual.kind == "directory" and self._holds_anything()
        return () if self._is_kept else super().differences(actual, refresh=refresh)

    def change(self, differences: Sequence[Difference], actual: FileState) -> None:
        if (tree := _tree_of(actual)) is not None and self._tree.differences(tree):
            self._tree.change(differences, tree)
        else:
            super().change(differences, actual)

    def noop_message(self, differences: Sequence[Difference], actual: FileState) -> str:
        if (tree := _tree_of(actual)) is not None and self._tree.differences(tree):
            return self._tree.noop_message(differences, tree)
        message = super().noop_message(differences, actual)
        self.context.system.expect_content(self.properties.name, None)
        return message

    def final_ensure(self, actual: FileState) -> str:
        tree = _tree_of(actual)
        return super().final_ensure(actual) if tree is None else self._tree.final_ensure(tree)

    def changed_paths(self, actual: FileState) -> Iterable[str] | None:
        tree = _tree_of(actual)
        return [self.properties.name, *(self._tree.changed_paths(tree) if tree is not None else ())]

    @property
    def notes(self) -> Sequence[str]:
        return ["it is not empty, so it stays"] if self._is_kept else ()

    @cached_property
    def _tree(self) -> LeftTree:
        return LeftTree(Properties(name=self.properties.name, ensure="absent"), self.context)


def _tree_of(actual: FileState) -> LeftState | None:
    return actual.tree if isinstance(actual, LeftFileState) else None


class LeftLink(Link):
    """A link that Puller created, to be ``absent``."""

    _is_kept = False

    def differences(self, actual: LinkState, *, refresh: bool = False) -> Sequence[Difference]:
        self._is_kept = actual.kind not in ("absent", "present")
        return () if self._is_kept else super().differences(actual, refresh=refresh)

    @property
    def notes(self) -> Sequence[str]:
        return ["it is no link any more, so it stays"] if self._is_kept else ()
