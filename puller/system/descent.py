"""A directory below another one, reached from the directory that was reached before.

* No link is followed below the directory at the top. On the way up, ``..`` must be the directory that was passed.
* One directory is open, whatever the depth. Removing a whole tree takes time in proportion to its size.
"""

import contextlib
import os

from puller.errors import ChangedMeanwhile
from puller.system.safe_paths import REAL_DIRECTORY, open_safely

_Identity = tuple[int, int]


class Descent:
    """A walk below ``top``, which is opened for the first path."""

    def __init__(self, top: str) -> None:
        self.top = top
        self._here: int | None = None
        self._names: list[str] = []
        """The names on the way from the top."""
        self._passed: list[_Identity] = []
        """The directory above each of the names."""

    def parent_of(self, path: str) -> int:
        """Return a descriptor of the directory of a path below ``top``, which is valid until the next call.

        Raises ``OSError``, and ``ChangedMeanwhile`` if a directory on the way was moved.
        """
        names = [name for name in path.removeprefix(self.top).split("/")[:-1] if name]
        if self._here is None:
            with open_safely(self.top) as descriptor:
                self._here = os.dup(descriptor)
        while self._names != names[: len(self._names)]:
            self._go_up(self._here, path)
        for name in names[len(self._names) :]:
            self._go_down(self._here, name)
        here: int = self._here
        return here

    def close(self) -> None:
        """Close the directory."""
        if self._here is not None:
            os.close(self._here)
            self._here = None

    def _go_up(self, here: int, path: str) -> None:
        above = os.open("..", REAL_DIRECTORY, dir_fd=here)
        if _identity(above) != self._passed[-1]:
            os.close(above)
            raise ChangedMeanwhile(f"{path}: a directory on the way was moved by somebody else")
        self._names.pop()
        self._passed.pop()
        self._move_to(above)

    def _go_down(self, here: int, name: str) -> None:
        inner = os.open(name, REAL_DIRECTORY, dir_fd=here)
        self._names.append(name)
        self._passed.append(_identity(here))
        self._move_to(inner)

    def _move_to(self, directory: int) -> None:
        before, self._here = self._here, directory
        if before is not None:
            with contextlib.suppress(OSError):  # it was only read
                os.close(before)


def _identity(descriptor: int) -> _Identity:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino
