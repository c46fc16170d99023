"""Paths in a bundle: which file a written one means; the one place that decides.

* A path starts at the directory of the manifest that it stands in; ``bundle:roles/web.yaml`` starts at the root of the
  bundle, ``common:files/motd`` at that of the library ``common``.
* Whatever links it goes through, it stays in its bundle, or in its library: what leads out is refused.
* A library does not know by whom it is used, so nothing in it reaches into the bundle.
"""

import os
import re
import stat
from collections.abc import Mapping
from typing import Self

import msgspec

from foundation.formatting import did_you_mean
from hiera.errors import HieraError

BUNDLE = "bundle"
"""What begins a path at the root of the bundle."""
LIBRARY_NAME = r"[a-z][a-z0-9_-]*"
"""What a library may be called, as a pattern."""


class BundlePathError(HieraError):
    """A path that names no file of its bundle, or must not name it: the failure of what it is written for."""


class FileTree(msgspec.Struct, frozen=True):
    """A bundle, or one of its libraries."""

    root: str
    """The real path of its directory."""
    name: str = ""
    """Of a library; empty for the bundle itself."""
    libraries: frozenset[str] = frozenset()
    """The names of the libraries that its files may use."""
    start: str = ""
    """Where paths from the root start, if that is deeper; a real path."""

    def __str__(self) -> str:
        return f"the library {self.name}" if self.name else "the bundle"

    def holds(self, file: str) -> bool:
        """Whether a real path is the tree's directory, or below it."""
        return _is_within(file, self.root)

    @property
    def top(self) -> str:
        """The directory that is meant by the name of the tree."""
        return self.start or self.root

    def full_name(self, file: str) -> str:
        """A file by its real path, as it can be named from anywhere in the bundle: ``bundle:roles/web.yaml``."""
        inner = file[len(self.top) :].strip("/")
        return f"{self.name or BUNDLE}:{inner}" if _is_within(file, self.top) else file


def _is_within(file: str, directory: str) -> bool:
    return file == directory or file.startswith(directory.rstrip("/") + "/")


def _plain_path(start: str, rest: str) -> str | None:
    """The real path of ``rest`` below a real path, where it is there and no link leads to it; else ``None``.

    As ``realpath`` finds it, which asks for every directory down from the root, whenever it is called.
    """
    path = start.rstrip("/")
    for part in rest.split("/"):
        if part in ("", ".", ".."):
            return None
        path = f"{path}/{part}"
        try:
            found = os.lstat(path)
        except OSError:
            return None
        if stat.S_ISLNK(found.st_mode):
            return None
    return path


class BundleFiles(msgspec.Struct, frozen=True):
    """The files of a bundle and its libraries, as seen from one directory."""

    directory: str
    """Where paths start; a real path."""
    tree: FileTree
    """The bundle or library that the directory is of."""
    libraries: Mapping[str, FileTree] = {}
    """All libraries of the bundle, by name."""

    @classmethod
    def of(cls, directory: str | os.PathLike[str]) -> Self:
        """The files below a directory, which is a bundle without libraries."""
        root = os.path.realpath(directory)
        return cls(root, FileTree(root))

    @classmethod
    def anywhere(cls, directory: str | os.PathLike[str]) -> Self:
        """All files of the machine, for what is no bundle: paths start at ``directory`` and may lead out of it."""
        start = os.path.realpath(directory)
        return cls(start, FileTree("/", start=start))

    def find(self, path: str) -> str:
        """The real path of the file that is meant, which need not exist; raises ``BundlePathError``."""
        tree, start, rest = self._start(path)
        try:
            file = _plain_path(start, rest) or os.path.realpath(os.path.join(start, rest))
        except ValueError as error:
            raise BundlePathError("", f"{path!r} is no path: {error}") from None
        if not tree.holds(file):
            raise BundlePathError("", f"{path} is outside of {tree}")
        # The libraries of a packed bundle are inside of it, those of the author's tree are not: both read alike.
        if not tree.name and (library := self._library_of(file)):
            raise BundlePathError("", f"{path} is in {library}: write {self.full_name(file)}")
        return file

    def name_of(self, path: str) -> str:
        """One name for all paths that mean the same file, relative to the bundle's root: ``roles/web.yaml``,
        ``common:vhost.yaml``; raises ``BundlePathError``."""
        tree, start, rest = self._start(path)
        name = os.path.normpath(os.path.join(os.path.relpath(start, tree.top), rest))
        return f"{tree.name}:{name}" if tree.name else name

    def is_prefixed(self, path: str) -> bool:
        """Whether a path starts at the root of the bundle or of a library, and not here."""
        prefix, colon, _ = path.partition(":")
        return bool(colon) and (prefix == BUNDLE or prefix in self.tree.libraries)

    def at(self, directory: str) -> Self:
        """As seen from another directory of the bundle or of a library, by its real path: paths start there."""
        return type(self)(directory, self._tree_of(directory), self.libraries)

    def within(self, file: str) -> Self:
        """As seen from a template, by its real path: paths start where those of the manifest do.

        In a template of another tree than the manifest's, and in each of a library, they start at the root of that.
        """
        tree = self._tree_of(file)
        if tree is self.tree and (not tree.name or self.directory == tree.root):
            return self
        return type(self)(tree.root, tree, self.libraries)

    def full_name(self, file: str) -> str:
        """A file of the bundle, by its real path, as it can be named from anywhere in it: ``bundle:roles/web.yaml``."""
        return self._tree_of(file).full_name(file)

    def shown(self, file: str) -> str:
        """A real path as messages call it: relative to where paths start, where that is in the bundle itself."""
        below = self.directory.rstrip("/") + "/"
        if not self.tree.name and file.startswith(below) and not self._library_of(file):
            return file.removeprefix(below)
        return self.full_name(file)

    def _start(self, path: str) -> tuple[FileTree, str, str]:
        """The tree that a path is in, the directory where it starts, and the rest of it."""
        prefix, colon, rest = path.partition(":")
        if not colon or not re.fullmatch(LIBRARY_NAME, prefix):
            return self.tree, self.directory, path
        if prefix in self.tree.libraries:
            library = self.libraries[prefix]
            return library, library.root, rest
        if prefix == BUNDLE and not self.tree.name:
            return self.tree, self.tree.top, rest
        if rest.startswith("//"):  # a URL, which is no business of ours
            return self.tree, self.directory, path
        # A file's own name may have a colon in it.
        if os.path.lexists(os.path.join(self.directory, path)):
            return self.tree, self.directory, path
        raise BundlePathError("", f"{path}: {self._why_unknown(prefix)}")

    def _why_unknown(self, prefix: str) -> str:
        if prefix == BUNDLE:
            return (
                f"{self.tree} cannot name files of the bundle that uses it; hand over what it needs as data"
            )
        said = f"{self.tree} names no library {prefix!r}"
        return f"{said}{did_you_mean(prefix, [BUNDLE, *self.tree.libraries])}, and there is no such file"

    def _tree_of(self, file: str) -> FileTree:
        if self.tree.name and self.tree.holds(file):
            return self.tree
        return self._library_of(file) or self.tree

    def _library_of(self, file: str) -> FileTree | None:
        return next((library for library in self.libraries.values() if library.holds(file)), None)
