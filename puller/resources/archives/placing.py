"""Moving unpacked members into a directory that may have other contents.

* Conflicts are detected before the first member is moved.
* Files replace files, and directories are merged. A file and a directory replace each other only if the old one is a
  leftover of an earlier archive. Links in the directory are never followed.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator

from bundles.filesystem.trees import kind_of, sync_filesystem
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.archives.archive_receipts import (
    Made,
    Members,
    Removable,
    digest_at,
    everything_below,
    is_all_removable,
    made_at,
    opened,
    remove,
    stat_at,
)
from puller.resources.archives.opened import needing_space

_KINDS = {"file": "a regular file", "link": "a symbolic link", "directory": "a directory"}


class Unpacked:
    """The members of an archive in a private directory, on the file system of their destination.

    ``staging`` and ``target`` are open. ``where`` is the path of the target, for messages.
    """

    def __init__(self, staging: int, target: int, where: str) -> None:
        self._staging = staging
        self._target = target
        self._where = where
        self._device = os.fstat(target).st_dev
        self._in_the_way: list[str] = []
        self.entries = tuple(sorted(os.listdir(staging)))
        """Top-level names."""
        self.members: Members = dict(everything_below(staging))

    def joined(self) -> set[str]:
        """Return the existing directories, which stay unchanged."""
        directories = [path for path, made in self.members.items() if made.kind == "directory"]
        return {path for path in directories if made_at(self._target, path) == Made("directory")}

    def differs(self, path: str) -> bool:
        """Return whether the file or link at ``path`` differs from the archive's."""
        return is_another(self._target, path, self.members[path], lambda: digest_at(self._staging, path))

    def refuse_in_the_way(self, removable: Removable) -> None:
        """Raise ``ResourceError`` for another file type in the way, unless it is an unchanged earlier member."""
        self._in_the_way = list(self._find_in_the_way(self._staging, self._target, "", removable))

    def put(self, removable: Removable) -> None:
        """Move all members into place."""
        # One sync for all files instead of an fsync for each of up to half a million files.
        sync_filesystem(self._staging)
        for path in self._in_the_way:
            below = [other for other in removable if other == path or other.startswith(f"{path}/")]
            remove(self._target, below, removable)
        with needing_space(
            self._where, self._target, "the directories for what the archive holds", lambda: None
        ):
            _move(self._staging, self._target)

    def remove(self, paths: Iterable[str], removable: Removable) -> list[str]:
        """Remove leftovers of earlier archives. Returns changed paths, which stay."""
        changed = remove(self._target, paths, removable)
        sync_filesystem(self._target)  # before the receipt omits them
        return changed

    def _find_in_the_way(self, new: int, old: int, above: str, removable: Removable) -> Iterator[str]:
        for name in os.listdir(new):
            mine, there, path = stat_at(new, name), stat_at(old, name), above + name
            if mine is None or there is None:
                continue
            # A rename cannot cross a mount point, and would fail after some members are already in place.
            if there.st_dev != self._device:
                what = f"is on another file system than {self._where}, and is not replaced"
                raise ResourceError(
                    f"{os.path.join(self._where, path)} {what}", code=ProblemCode.CHANGE_REFUSED
                )
            if stat.S_ISDIR(mine.st_mode) != stat.S_ISDIR(there.st_mode):
                if not is_all_removable(self._target, path, removable):
                    raise in_the_way(self._where, path, there.st_mode, self.members[path].kind)
                yield path
            elif stat.S_ISDIR(mine.st_mode):
                with opened(new, name) as inner, opened(old, name) as outer:
                    yield from self._find_in_the_way(inner, outer, f"{path}/", removable)


def is_another(target: int, path: str, wanted: Made, digest: Callable[[], str]) -> bool:
    """Return whether ``path`` exists and differs from ``wanted``. Calls ``digest`` only for files of equal size."""
    there = made_at(target, path)
    if there is None:
        return False
    if (there.kind, there.size, there.target) != (wanted.kind, wanted.size, wanted.target):
        return True
    return wanted.kind == "file" and digest() != digest_at(target, path)


def in_the_way(where: str, path: str, there: int, wanted: str) -> ResourceError:
    """Return the error for a directory in place of a file, or the reverse. ``there`` is an ``st_mode``."""
    what = f"is {kind_of(there)}, the archive has {_KINDS[wanted]} there"
    return ResourceError(f"{os.path.join(where, path)} {what}", code=ProblemCode.CHANGE_REFUSED)


def _move(source: int, target: int) -> None:
    for name in os.listdir(source):
        new = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISDIR(new.st_mode) and stat_at(target, name) is not None:
            # An existing directory keeps its owner, mode and other contents.
            with opened(source, name) as inner, opened(target, name) as outer:
                _move(inner, outer)
        else:
            os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
    os.fsync(target)
