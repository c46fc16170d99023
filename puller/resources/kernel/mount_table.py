"""The mounts that the kernel tells this process of (proc(5), ``mountinfo``), read once for all mounts of a run.

* Of several mounts at one point the topmost counts. One that is hidden, as something is mounted above it in the tree of
  directories, is not there for anybody.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec

from puller.resources.base import Context
from puller.resources.kernel.fstab import decoded

MOUNTINFO = "/proc/self/mountinfo"


class Mounted(msgspec.Struct, frozen=True):
    """One mount."""

    number: int
    parent: int
    device: str
    """``major:minor``."""
    root: str
    """The directory of the file system that is mounted."""
    point: str
    options: tuple[str, ...]
    """Of this mount."""
    type: str
    source: str
    of_all: tuple[str, ...]
    """The options of the file system, whichever mount it is looked at by."""
    propagation: frozenset[str] = frozenset()
    """``shared``, ``slave`` and ``unbindable``, as far as they hold; a private mount has none of them."""

    @property
    def all_options(self) -> tuple[str, ...]:
        """Both, each once."""
        return (*dict.fromkeys((*self.options, *self.of_all)),)


class MountTable:
    """All mounts of this process."""

    def __init__(self, text: str) -> None:
        self.mounts = [*map(_parsed, text.splitlines())]

    def at(self, point: str) -> list[Mounted]:
        """The mounts at a point, the topmost last."""
        return [mount for mount in self._by_point.get(point, ()) if self._is_reachable(mount)]

    def below(self, point: str) -> list[str]:
        """The points of mounts below one."""
        return [mount.point for mount in self.mounts if mount.point.startswith(f"{point.rstrip('/')}/")]

    def holding(self, path: str) -> Mounted | None:
        """The mount that a path without links is in."""
        while True:
            if mounts := self.at(path):
                return mounts[-1]
            if path in ("/", ""):
                return None
            path = path.rpartition("/")[0] or "/"

    @cached_property
    def _by_point(self) -> Mapping[str, list[Mounted]]:
        found: dict[str, list[Mounted]] = {}
        for mount in self.mounts:
            found.setdefault(mount.point, []).append(mount)
        return found

    @cached_property
    def _by_number(self) -> Mapping[int, Mounted]:
        return {mount.number: mount for mount in self.mounts}

    def _is_reachable(self, mount: Mounted) -> bool:
        """Whether nothing is mounted over a directory on the way from its parent's point to its own."""
        parent = self._by_number.get(mount.parent)
        if parent is None or parent is mount:
            return True
        covers = (one for above in _above(mount.point, parent.point) for one in self._by_point.get(above, ()))
        return not any(one.parent == parent.number for one in covers) and self._is_reachable(parent)


def _above(path: str, end: str) -> Iterator[str]:
    """The directories above a path, down to one of them, which is not among them."""
    path = path.rpartition("/")[0]
    while len(path) > len(end.rstrip("/")):
        yield path
        path = path.rpartition("/")[0]


def _parsed(line: str) -> Mounted:
    own, _, shared = line.partition(" - ")
    number, parent, device, root, point, options, *optional = own.split(" ")
    kind, source, of_all = shared.split(" ")[:3]
    return Mounted(
        int(number), int(parent), device, decoded(root), decoded(point), (*options.split(","),),
        kind, decoded(source), (*decoded(of_all).split(","),), frozenset(map(_propagation, optional)) - {""},
    )  # fmt: skip


def _propagation(field: str) -> str:
    """Return the word of mount(8) for an optional field of mountinfo."""
    return {"shared": "shared", "master": "slave", "unbindable": "unbindable"}.get(
        field.partition(":")[0], ""
    )


class Mounts:
    """The table of a run, read again when something has been changed."""

    def __init__(self) -> None:
        self._changes: tuple[int, int] | None = None
        self._table = MountTable("")

    @classmethod
    def current(cls, context: Context) -> MountTable:
        """The table as it is now. Raises ``OSError``."""
        shared: Mounts = context.shared.setdefault(cls, cls())
        changes = (context.changes(), context.system.executed)
        if changes != shared._changes:
            with open(MOUNTINFO, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
                shared._table = MountTable(stream.read())
            shared._changes = changes
        return shared._table
