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
    """The state of a managed path: its ``lstat``, ``None`` when nothing is there. Types add what else they look at."""

    found: os.stat_result | None

    @property
    def kind(self) -> str:
        """``absent``, ``present`` (a regular file), ``directory``, or what else is there."""
        return (
            "absent"
            if self.found is None
            else _KINDS.get(stat.S_IFMT(self.found.st_mode), "unknown kind of file")
        )


def is_plain(path: str) -> bool:
    """Whether a path has the form that is managed: absolute, without ``.``, ``..``, doubled slashes and NUL."""
    # POSIX gives two slashes at the start a meaning of their own, so ``normpath`` leaves them there.
    return (
        path.startswith("/")
        and not path.startswith("//")
        and os.path.normpath(path) == path
        and "\0" not in path
    )


def check_path(name: str, path: str) -> Iterator[PropertyError]:
    """The problem of a property ``name`` that is not plain (see ``is_plain``)."""
    if not is_plain(path):
        wanted = "an absolute path without '.', '..' or doubled slashes"
        yield PropertyError(name, f"is {path!r}", expected=wanted)


def check_managed(path: str) -> Iterator[PropertyError]:
    """The problems of a resource's name that is the path to be managed: plain, and not the root directory."""
    yield from check_path("name", path)
    if path == "/":
        yield PropertyError("name", "is '/', which is not managed")


def require_parent(path: str, context: Context) -> None:
    """Raise ``ResourceError`` when the directory that ``path`` is in does not exist, and this run does not bring it."""
    parent = os.path.dirname(path)
    if not context.system.is_directory(parent) and not context.uncertain(parent):
        raise ResourceError(f"directory {parent} does not exist")


def require_makeable(directory: str, system: System) -> None:
    """Raise ``ResourceError`` when something else is in the place of a directory, or of one above it.

    What is missing is no problem: it is made, with its parents.
    """
    while not system.is_directory(directory):
        if system.exists(directory):
            raise ResourceError(f"{directory} is not a directory")
        directory = os.path.dirname(directory)


# Paths relative to a directory, with ``/`` as the separator.


def printable(path: str) -> str:
    """The path on one line, whatever somebody has named a file."""
    return path if path.isprintable() else ascii(path)


def parents(path: str) -> Iterator[str]:
    """The directories that a path leads through, the innermost first."""
    while (path := path.rpartition("/")[0]) != "":
        yield path


def directories_of(paths: Iterable[str]) -> list[str]:
    """The directories that paths lead through, each before what it holds."""
    found = {directory for path in paths for directory in parents(path)}
    return sorted(found, key=lambda directory: (directory.count("/"), directory))


def kind(mode: int) -> str:
    """The kind of thing that an ``st_mode`` is of, for messages: ``a directory``."""
    return kind_of(mode)
