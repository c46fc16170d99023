"""Paths that resources manage: their canonical form, the file type at a path, and parent directories.

* Managed paths are absolute and normalized, so that one path has one resource name.
* Types come from ``lstat``. A symbolic link has a type of its own, whatever its target is.
"""

import os
import stat
from collections.abc import Iterable, Iterator

import msgspec

from bundles.filesystem.trees import kind_of
from puller.errors import ResourceError
from puller.resources.base import Context, PropertyError
from puller.system.protocol import System

_KINDS = {
    stat.S_IFREG: "present",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


class PathState(msgspec.Struct, frozen=True):
    """The state of a managed path: its ``lstat``, ``None`` if missing. Types add further fields."""

    found: os.stat_result | None

    @property
    def kind(self) -> str:
        """``absent``, ``present`` (a regular file), ``directory``, or the name of another file type."""
        return (
            "absent"
            if self.found is None
            else _KINDS.get(stat.S_IFMT(self.found.st_mode), "unknown kind of file")
        )


def is_plain(path: str) -> bool:
    """Return whether a path is absolute and without ``.``, ``..``, double slashes and NUL."""
    # In POSIX two leading slashes have a special meaning, so ``normpath`` keeps them.
    return (
        path.startswith("/")
        and not path.startswith("//")
        and os.path.normpath(path) == path
        and "\0" not in path
    )


def check_path(name: str, path: str) -> Iterator[PropertyError]:
    """Yield an error if a property ``name`` is not plain (see ``is_plain``)."""
    if not is_plain(path):
        expected = "an absolute path without '.', '..' or doubled slashes"
        yield PropertyError(name, f"is {path!r}", expected=expected)


def check_managed(path: str) -> Iterator[PropertyError]:
    """Yield errors for a managed path in ``name``, which must be plain and not the root directory."""
    yield from check_path("name", path)
    if path == "/":
        yield PropertyError("name", "is '/', which is not managed")


def require_parent(path: str, context: Context) -> None:
    """Raise ``ResourceError`` if the parent directory of ``path`` is missing and this run does not create it."""
    parent = os.path.dirname(path)
    if not context.system.is_directory(parent) and not context.uncertain(parent):
        raise ResourceError(f"directory {parent} does not exist")


def require_makeable(directory: str, system: System) -> None:
    """Raise ``ResourceError`` if a directory, or one above it, has another file type.

    Missing directories are valid, because they are created with their parents.
    """
    while not system.is_directory(directory):
        if system.exists(directory):
            raise ResourceError(f"{directory} is not a directory")
        directory = os.path.dirname(directory)


# Paths relative to a directory, with ``/`` as the separator.


def printable(path: str) -> str:
    """Return the path on one line, with unprintable characters escaped."""
    return path if path.isprintable() else ascii(path)


def parents(path: str) -> Iterator[str]:
    """Yield the directories that a path leads through, the innermost first."""
    while (path := path.rpartition("/")[0]) != "":
        yield path


def directories_of(paths: Iterable[str]) -> list[str]:
    """Return the directories that paths lead through, each before its contents."""
    result = {directory for path in paths for directory in parents(path)}
    return sorted(result, key=lambda directory: (directory.count("/"), directory))


def kind(mode: int) -> str:
    """Return the kind of file of an ``st_mode``, for messages: ``a directory``."""
    return kind_of(mode)
