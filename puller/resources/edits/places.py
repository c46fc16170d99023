"""The files that are edited: found, followed if they may be, and read once however many resources edit them.

* A link at the path is followed when it and its target belong to one and the same user; what is on the way to either is
  judged as for every type (``puller.system.safe_paths``).
* What was read is good until a resource has changed something, and then as long as the file is the same.
"""

import os
import stat
from typing import TYPE_CHECKING

import msgspec

from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Context
from puller.resources.edits.text import Text
from puller.resources.paths import PathState
from puller.system.protocol import System

if TYPE_CHECKING:  # which knows texts and nothing of files
    from puller.resources.edits.plan import Plan

LARGEST = 16 * 1024 * 1024
"""Bytes of a file that is edited."""


class Place(msgspec.Struct, frozen=True):
    """A file as it was read; ``found`` is ``None`` when it is not there."""

    path: str
    """As written."""
    real: str
    """Without the link at its end."""
    found: os.stat_result | None
    text: Text


class Texts:
    """The files of one run; kept in ``Context.shared``."""

    def __init__(self) -> None:
        self._changes = -1
        self._fresh: set[str] = set()
        self._places: dict[str, Place] = {}
        self.plans: dict[str, tuple[Text, Plan]] = {}
        """What all edits of a path come to, and on which text."""
        self.predicted: dict[str, Text] = {}
        """In noop: the texts that the edits so far would have left, by real path."""

    @classmethod
    def of(cls, context: Context) -> "Texts":
        """The texts of this run."""
        found: Texts = context.shared.setdefault(cls, cls())
        return found

    def at(self, path: str, context: Context) -> Place:
        """The file at a path as it is now. Raises ``OSError``, and ``ResourceError`` for what is not edited."""
        if (changes := context.changes()) != self._changes:
            self._fresh.clear()
            self._changes = changes
        if path not in self._fresh:
            self._places[path] = self._current(path, context.system)
            self._fresh.add(path)
        return self._places[path]

    def forget(self) -> None:
        """A file was written: whatever is looked at next is looked at anew."""
        self._fresh.clear()

    def _current(self, path: str, system: System) -> Place:
        real, found = _find(path, system)
        known = self._places.get(path)
        if known and known.real == real and _identity(known.found) == _identity(found):
            return known
        if found is None:
            return Place(path, real, None, Text.missing())
        if not stat.S_ISREG(found.st_mode):
            raise ResourceError(
                f"{path} is a {PathState(found).kind}, and only regular files are edited",
                code=ProblemCode.CHANGE_REFUSED,
            )
        if found.st_size > LARGEST:
            raise ResourceError(
                f"{path} has {found.st_size} bytes, and files of more than {LARGEST} are not edited",
                code=ProblemCode.CHANGE_REFUSED,
            )
        data = system.read(real, found)
        try:
            return Place(path, real, found, Text.of(data))
        except ResourceError as error:
            raise ResourceError(f"{path} {error}", code=error.code) from None


def _find(path: str, system: System) -> tuple[str, os.stat_result | None]:
    """Where the file really is; raises ``ResourceError`` for a link that is not followed."""
    found = system.lstat(path)
    if found is None or not stat.S_ISLNK(found.st_mode):
        return path, found
    real = system.resolve(path)
    target = None if real == path else system.lstat(real)
    if target is None:
        raise ResourceError(f"{path} is a link that leads to nothing", code=ProblemCode.CHANGE_REFUSED)
    if target.st_uid != found.st_uid:
        whose = f"is a link of user {found.st_uid} to a file of user {target.st_uid}"
        raise ResourceError(f"{path} {whose}, so it is not followed", code=ProblemCode.CHANGE_REFUSED)
    return real, target


def _identity(found: os.stat_result | None) -> tuple[int, ...] | None:
    if found is None:
        return None
    return found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns
