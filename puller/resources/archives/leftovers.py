"""Leftovers of an older archive in a directory: removed as far as they are on record as ours, and as they were made.

* Only paths that are named are looked at, relative to the descriptor of a real directory, and never through a link.
* A file or link that was changed by somebody else stays, and so does a directory that holds anything.
* Another file system that is mounted below stays as it is.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bundles.filesystem.trees import Counted, open_regular, pieces_of
from puller.resources.archives.receipts import Made
from puller.system.safe_paths import REAL_DIRECTORY

Removable = Mapping[str, Sequence[Made]]
"""By path below the directory, everything that was put there by the archives before; of each, how they made it."""

IS_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_IS_IN_USE = (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY)


def stat_at(directory: int, name: str) -> os.stat_result | None:
    """Of what is in an open directory, links not followed; ``None`` when nothing is there."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


@contextmanager
def opened(directory: int, path: str) -> Iterator[int]:
    """A directory below an open one, never through a link."""
    with ExitStack() as stack:
        for name in filter(None, path.split("/")):
            directory = os.open(name, REAL_DIRECTORY, dir_fd=directory)
            stack.callback(os.close, directory)
        yield directory


def made_of(directory: int, name: str) -> Made:
    """How the file, link or directory ``name`` in an open directory is made."""
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        return Made("directory")
    if stat.S_ISLNK(found.st_mode):
        return Made("link", target=os.readlink(name, dir_fd=directory))
    kind = "file" if stat.S_ISREG(found.st_mode) else "other"
    return Made(kind, found.st_size, found.st_mtime_ns)


def made_at(directory: int, path: str) -> Made | None:
    """How what is at a path below is made, which no link leads to; ``None`` when nothing is there."""
    above, name = os.path.split(path)
    try:
        with opened(directory, above) as parent:
            return made_of(parent, name)
    except OSError as error:
        if error.errno not in IS_NOT_THERE:
            raise
        return None


def digest_at(directory: int, path: str) -> str:
    """The SHA-256 of a regular file below an open directory."""
    above, name = os.path.split(path)
    with opened(directory, above) as parent, open_regular(Path(name), directory=parent) as stream:
        return Counted(pieces_of(stream)).exhaust().sha256


def everything_below(directory: int, above: str = "") -> Iterator[tuple[str, Made]]:
    """Everything below an open directory, by path; a directory before what it holds."""
    for name in sorted(os.listdir(directory)):
        made = made_of(directory, name)
        yield above + name, made
        if made.kind == "directory":
            with opened(directory, name) as inner:
                yield from everything_below(inner, f"{above}{name}/")


def is_all_removable(target: int, path: str, removable: Removable) -> bool:
    """Whether what is at ``path``, and all below it, is as the archives before have made it."""
    directory, name = os.path.split(path)
    with opened(target, directory) as parent:
        if made_of(parent, name) not in removable.get(path, ()):
            return False
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return True
        with opened(parent, name) as inner:
            return all(
                made in removable.get(below, ()) for below, made in everything_below(inner, f"{path}/")
            )


def remove(target: int, paths: Iterable[str], removable: Removable) -> list[str]:
    """Remove what is still as it was made; gives the files and links that are not, and stay. Raises ``OSError``."""
    device = os.fstat(target).st_dev
    changed = []
    for path in sorted(paths, reverse=True):  # what a directory holds before the directory itself
        directory, name = os.path.split(path)
        try:
            with opened(target, directory) as parent:
                if os.fstat(parent).st_dev == device and not _remove(parent, name, removable[path]):
                    changed.append(path)
        except OSError as error:
            if error.errno not in IS_NOT_THERE:
                raise
    return changed[::-1]


def _remove(parent: int, name: str, variants: Sequence[Made]) -> bool:
    made = made_of(parent, name)
    if made not in variants:
        return made.kind == "directory"  # somebody else's, about which nothing is to be said
    if made.kind != "directory":
        os.unlink(name, dir_fd=parent)
        return True
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno not in _IS_IN_USE:
            raise
    return True
