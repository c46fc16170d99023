"""Paths in a bundle. Only this module decides which file a path means.

* A path starts at the directory of its manifest. ``bundle:roles/web.yaml`` starts at the root of the bundle,
  ``common:files/motd`` at that of the library ``common``.
* A path stays in its bundle or library, also through links. A path that leads out is refused.
* A library does not know the bundles that use it, so its paths cannot reach into a bundle.
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
"""Prefix of a path at the root of the bundle."""
LIBRARY_NAME = r"[a-z][a-z0-9_-]*"
"""Pattern of a library's name."""


class BundlePathError(HieraError):
    """A path without an allowed file in its bundle. The resource that uses it fails."""


class FileTree(msgspec.Struct, frozen=True):
    """A bundle, or a library of a bundle."""

    root: str
    """The real path of its directory."""
    name: str = ""
    """Name of a library. Empty for the bundle itself."""
    libraries: frozenset[str] = frozenset()
    """The names of the libraries that its files may use."""
    start: str = ""
    """Start of paths from the root, if it is deeper, as a real path."""

    def __str__(self) -> str:
        return f"the library {self.name}" if self.name else "the bundle"

    def holds(self, file: str) -> bool:
        """Return whether a real path is the tree's directory, or below it."""
        return _is_within(file, self.root)

    @property
    def top(self) -> str:
        """The directory that the name of the tree means."""
        return self.start or self.root

    def full_name(self, file: str) -> str:
        """Return a file by its real path in a form that is valid anywhere in the bundle: ``bundle:roles/web.yaml``."""
        inner = file[len(self.top) :].strip("/")
        return f"{self.name or BUNDLE}:{inner}" if _is_within(file, self.top) else file


def _is_within(file: str, directory: str) -> bool:
    return file == directory or file.startswith(directory.rstrip("/") + "/")


def _plain_path(start: str, remainder: str) -> str | None:
    """Return the real path of an existing ``remainder`` without links below a real path, otherwise ``None``.

    The result is that of ``realpath``, which checks every directory from the root in every call.
    """
    path = start.rstrip("/")
    for part in remainder.split("/"):
        if part in ("", ".", ".."):
            return None
        path = f"{path}/{part}"
        try:
            status = os.lstat(path)
        except OSError:
            return None
        if stat.S_ISLNK(status.st_mode):
            return None
    return path


class BundleFiles(msgspec.Struct, frozen=True):
    """The files of a bundle and its libraries, relative to one directory."""

    directory: str
    """Start of paths, as a real path."""
    tree: FileTree
    """The bundle or library that contains the directory."""
    libraries: Mapping[str, FileTree] = {}
    """All libraries of the bundle, by name."""

    @classmethod
    def of(cls, directory: str | os.PathLike[str]) -> Self:
        """Return the files below a directory, as a bundle without libraries."""
        root = os.path.realpath(directory)
        return cls(root, FileTree(root))

    @classmethod
    def anywhere(cls, directory: str | os.PathLike[str]) -> Self:
        """Return all files of the machine. Paths start at ``directory`` and may lead out of it."""
        start = os.path.realpath(directory)
        return cls(start, FileTree("/", start=start))

    def find(self, path: str) -> str:
        """Return the real path of a file, which need not exist. Raises ``BundlePathError``."""
        tree, start, remainder = self._start(path)
        try:
            file = _plain_path(start, remainder) or os.path.realpath(os.path.join(start, remainder))
        except ValueError as error:
            raise BundlePathError("", f"{path!r} is no path: {error}") from None
        if not tree.holds(file):
            raise BundlePathError("", f"{path} is outside of {tree}")
        # A packed bundle contains its libraries. An author's tree does not, and must have the same rules.
        if not tree.name and (library := self._library_of(file)):
            raise BundlePathError("", f"{path} is in {library}: write {self.full_name(file)}")
        return file

    def name_of(self, path: str) -> str:
        """Return a unique name of a path's file, relative to the bundle's root: ``roles/web.yaml``,
        ``common:vhost.yaml``.

        Raises ``BundlePathError``.
        """
        tree, start, remainder = self._start(path)
        name = os.path.normpath(os.path.join(os.path.relpath(start, tree.top), remainder))
        return f"{tree.name}:{name}" if tree.name else name

    def is_prefixed(self, path: str) -> bool:
        """Return whether a path starts at the root of the bundle or of a library."""
        prefix, colon, _ = path.partition(":")
        return bool(colon) and (prefix == BUNDLE or prefix in self.tree.libraries)

    def at(self, directory: str) -> Self:
        """Return the files relative to another directory of the bundle or of a library, by its real path."""
        return type(self)(directory, self._tree_of(directory), self.libraries)

    def within(self, file: str) -> Self:
        """Return the files relative to a template, by its real path: its paths start like those of the manifest.

        In a template of another tree than the manifest's, and in each template of a library, paths start at the root of
        that tree.
        """
        tree = self._tree_of(file)
        if tree is self.tree and (not tree.name or self.directory == tree.root):
            return self
        return type(self)(tree.root, tree, self.libraries)

    def full_name(self, file: str) -> str:
        """Return a file of the bundle, by its real path, in a form that is valid anywhere in it:
        ``bundle:roles/web.yaml``.
        """
        return self._tree_of(file).full_name(file)

    def shown(self, file: str) -> str:
        """Return a real path for messages: relative to the start of paths, if it is in the bundle itself."""
        below = self.directory.rstrip("/") + "/"
        if not self.tree.name and file.startswith(below) and not self._library_of(file):
            return file.removeprefix(below)
        return self.full_name(file)

    def _start(self, path: str) -> tuple[FileTree, str, str]:
        """Return the tree of a path, the directory where it starts, and the rest of it."""
        prefix, colon, remainder = path.partition(":")
        if not colon or not re.fullmatch(LIBRARY_NAME, prefix):
            return self.tree, self.directory, path
        if prefix in self.tree.libraries:
            library = self.libraries[prefix]
            return library, library.root, remainder
        if prefix == BUNDLE and not self.tree.name:
            return self.tree, self.tree.top, remainder
        if remainder.startswith("//"):  # a URL, which other code handles
            return self.tree, self.directory, path
        # The name of a file may contain a colon.
        if os.path.lexists(os.path.join(self.directory, path)):
            return self.tree, self.directory, path
        raise BundlePathError("", f"{path}: {self._why_unknown(prefix)}")

    def _why_unknown(self, prefix: str) -> str:
        if prefix == BUNDLE:
            return (
                f"{self.tree} cannot name files of the bundle that uses it; hand over what it needs as data"
            )
        text = f"{self.tree} names no library {prefix!r}"
        return f"{text}{did_you_mean(prefix, [BUNDLE, *self.tree.libraries])}, and there is no such file"

    def _tree_of(self, file: str) -> FileTree:
        if self.tree.name and self.tree.holds(file):
            return self.tree
        return self._library_of(file) or self.tree

    def _library_of(self, file: str) -> FileTree | None:
        return next((library for library in self.libraries.values() if library.holds(file)), None)
