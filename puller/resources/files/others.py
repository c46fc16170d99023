"""Paths below a directory that are another resource's: a tree of files does not touch them.

* A declared path, and what tools keep for a resource, are left to that resource, also where the tree's source has
  them; a link with all that is below it in the source, which would be written where it leads.
* Below a directory that another resource fills (a scaffold, an archive, another tree) and below Puller's own state
  nothing is done; nor where a bundle has something that is not read in this run: all that is known of it are paths.
"""

import os
from collections.abc import Iterable, Iterator

import msgspec

from puller.resources.base import Context, Part
from puller.resources.tree_paths import parents

_OfResource = tuple[str, Part | None]
"""A path, and the resource whose it is."""
_Owned = list[_OfResource]


class Others(msgspec.Struct, frozen=True):
    """The places of others below a directory; paths are relative to it."""

    places: frozenset[str] = frozenset()
    """The paths that they declare."""
    above: frozenset[str] = frozenset()
    """The directories that lead there."""
    filled: frozenset[str] = frozenset()
    """The directories of which all is theirs."""
    mounted: frozenset[str] = frozenset()
    """The paths at which another file system begins."""


def others_below(root: str, context: Context) -> Others:
    """All others in this run; raises ``ResourceError`` when it is not known what is declared, ``OSError``."""
    known, above = _Known.current(context), f"{os.path.realpath(root)}/"

    def below(found: Iterable[_OfResource]) -> Iterator[str]:
        for path, part in found:
            if path.startswith(above) and not _is_itself(part, root):
                yield path.removeprefix(above)

    places, filled = frozenset(below(known.places)), frozenset(below(known.filled))
    mounted = frozenset(below((point, None) for point in known.mounted))
    leading = frozenset(directory for path in (*places, *filled) for directory in parents(path))
    return Others(places, leading, filled, mounted)


def _is_itself(part: Part | None, root: str) -> bool:
    return part is not None and part.properties.name == root and part.type.type_name == "file"


class _Known(msgspec.Struct):
    """Absolute paths of all that a run has, whichever links they are written with: looked for once for all trees.

    As long as no resource has changed anything, they lead where they did.
    """

    changes: int
    """The number of changes that were begun when they were looked for."""
    places: _Owned
    filled: _Owned
    mounted: list[str]

    @classmethod
    def current(cls, context: Context) -> "_Known":
        known: _Known | None = context.shared.get(cls)
        changes = context.changes()
        if known is None or known.changes != changes:
            known = context.shared[cls] = cls._found(context, changes)
        return known

    @classmethod
    def _found(cls, context: Context, changes: int) -> "_Known":
        from puller.system.mounts import mount_points

        real, every = _RealPaths(), context.resources()
        places: _Owned = [(real.of(path), one) for one in every for path in one.type.places(one.properties)]
        places += [(real.of(path), one) for one in every for path in one.type.tool_paths(one.properties)]
        filled: _Owned = [(real.of(path), one) for one in every for path in one.type.fills(one.properties)]
        links = (one for one in every if one.reference.startswith("link#"))
        filled += [(real.of(one.properties.name), one) for one in links]
        own = [] if context.state_directory is None else [str(context.state_directory)]
        filled += [(real.of(path), None) for path in (*context.elsewhere(), *own)]
        return cls(changes, places, filled, mount_points())


class _RealPaths:
    """Paths without links on the way; where one is a link itself, it stays one."""

    def __init__(self) -> None:
        self._directories: dict[str, str] = {}

    def of(self, path: str) -> str:
        directory, name = os.path.split(path)
        if directory not in self._directories:  # few directories hold all that is declared
            self._directories[directory] = os.path.realpath(directory)
        return os.path.join(self._directories[directory], name)
