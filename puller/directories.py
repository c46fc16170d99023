"""Directories that are about to be changed in, opened one name after the other.

* A link of root's, or of the running user's, is followed. Anybody else's is followed only to what belongs to the same
  user, or a user could lead what root writes below ``/home/user/dir`` into ``/etc``.
* What is opened stays what is meant, whatever becomes of the names on the way meanwhile.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from puller.errors import ResourceError

REAL_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40  # as many as the kernel follows


@contextlib.contextmanager
def open_directory(path: str) -> Iterator[int]:
    """A descriptor of the directory at an absolute path; raises ``OSError``, and ``ResourceError`` for such a link."""
    walk = _Walk(path)
    try:
        descriptor = walk.arrive()
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(walk.here)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _Walk:
    """From the root to a directory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.names = path.split("/")[::-1]
        self.links: list[tuple[str, int]] = []
        """Of ordinary users, with these users."""
        self.followed = 0
        self.here = os.open("/", _STEP)

    def arrive(self) -> int:
        while self.names:
            if (name := self.names.pop()) not in ("", "."):
                self._step(name)
        descriptor = os.open(".", REAL_DIRECTORY, dir_fd=self.here)
        owner = os.fstat(descriptor).st_uid
        for name, user in self.links:
            if user != owner:
                os.close(descriptor)
                what = f"the link {name!r} of user {user} leads to a directory of user {owner}, so it is not followed"
                raise ResourceError(f"{self.path}: {what}")
        return descriptor

    def _step(self, name: str) -> None:
        there = os.open(name, _STEP, dir_fd=self.here)
        found = os.fstat(there)
        if not stat.S_ISLNK(found.st_mode):
            os.close(self.here)
            self.here = there
            return
        target = os.readlink("", dir_fd=there)
        os.close(there)
        self._follow(target)
        if found.st_uid not in (0, os.geteuid()):
            self.links.append((name, found.st_uid))

    def _follow(self, target: str) -> None:
        self.followed += 1
        if self.followed > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        self.names += target.split("/")[::-1]
        if target.startswith("/"):
            os.close(self.here)
            self.here = os.open("/", _STEP)
