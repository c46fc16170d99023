"""Paths below a directory that are another resource's: a tree of files does not touch them.

* A declared path itself is left to its own resource, also where the tree's source has it; a link with all that is
  below it in the source, which would be written where it leads.
* Below a directory that another resource fills (a scaffold, an archive, another tree) and below Puller's own state
  nothing is done; nor where a bundle has something that is not read in this run: all that is known of it are paths.
"""

import os
from collections.abc import Iterable, Iterator

import msgspec

from puller.resources.base import Context
from puller.resources.tree_paths import parents


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
    from puller.system.mounts import mount_points

    below = _Below(root)
    parts = [
        part for part in context.resources() if part.properties.name != root or part.type.type_name != "file"
    ]
    places = {*below.of(place for part in parts for place in part.type.places(part.properties))}
    filled = {*below.of(place for part in parts for place in part.type.fills(part.properties))}
    filled.update(below.of(part.properties.name for part in parts if part.reference.startswith("link#")))
    filled.update(below.of(context.elsewhere()))
    if context.state_directory is not None:
        filled.update(below.of([str(context.state_directory)]))
    mounted = frozenset(below.of(mount_points()))
    above = {directory for path in (*places, *filled) for directory in parents(path)}
    return Others(frozenset(places), frozenset(above), frozenset(filled), mounted)


class _Below:
    """Absolute paths below a directory, whichever links they are written with."""

    def __init__(self, root: str) -> None:
        self._above = f"{os.path.realpath(root)}/"
        self._real: dict[str, str] = {}

    def of(self, paths: Iterable[str]) -> Iterator[str]:
        """Those of the paths that are below, relative to the directory."""
        for path in paths:
            directory, name = os.path.split(path)
            if directory not in self._real:  # few directories hold all that is declared
                self._real[directory] = os.path.realpath(directory)
            real = os.path.join(self._real[directory], name)
            if real.startswith(self._above):
                yield real.removeprefix(self._above)
