"""The current state of a scaffold's target: the paths of its files, and foreign paths.

* Reading the state changes nothing, and never follows a link below the target.
* The target may be a link to a directory. The scaffold then manages that directory, and the link stays. The link is
  checked like links in the path of the target.
"""

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Mapping

import msgspec

from puller.errors import ResourceError
from puller.resources.owned_paths import OwnedPaths
from puller.resources.paths import directories_of, kind, printable, require_makeable
from puller.resources.receipts import Receipt, own_file
from puller.resources.scaffolds.scaffold_tree import Tree
from puller.system.protocol import System

Found = os.stat_result | None
"""The ``lstat`` of a path. ``None``: missing."""

Recognise = Callable[[str, bytes, str], bool]
"""Returns whether a file is in sync despite other content. Arguments: path, rendered bytes, target."""


class Foreign(msgspec.Struct, frozen=True):
    """The paths below a target that do not belong to its scaffold."""

    things: Mapping[str, os.stat_result] = {}
    """Files, links and special files, and empty directories, by path."""
    directories: tuple[str, ...] = ()
    """Directories without files of the scaffold, innermost first."""


class Target(msgspec.Struct, frozen=True):
    """The current state of the target. Paths are relative to ``root``."""

    root: str
    itself: Found
    """The ``lstat`` of ``root``."""
    files: Mapping[str, Found]
    """The ``lstat`` at the path of each rendered file."""
    directories: Mapping[str, Found]
    """The ``lstat`` of each parent directory of rendered files, parents first."""
    same: frozenset[str]
    """Files with the desired content."""
    foreign: Foreign
    """Only collected for a purge."""

    def path(self, path: str) -> str:
        """Return the absolute path."""
        return f"{self.root}/{path}"

    def missing_directories(self) -> list[str]:
        """Return the directories to make. The empty path is the target itself."""
        missing = [path for path, found in self.directories.items() if found is None]
        return missing if self.itself is not None else ["", *missing]


def look_at(
    system: System, name: str, tree: Tree, *, recognise: Recognise, purged: Callable[[], OwnedPaths] | None
) -> Target:
    """Compare a directory with a tree.

    ``purged`` returns the paths that a purge leaves to other resources. ``None`` disables the purge. Raises
    ``OSError``, and ``ResourceError`` for a dangling link.
    """
    root = _resolved(system, name)
    itself = system.lstat(root)
    directories: dict[str, Found] = {}
    for path in directories_of(tree.files):
        directories[path] = _look_below(system, root, itself, path, directories)
    files = {path: _look_below(system, root, itself, path, directories) for path in tree.files}
    same = {
        path
        for path, found in files.items()
        if found is not None and _is_same(system, root, path, found, tree.files[path].data, recognise)
    }
    foreign = Foreign()
    if purged is not None and itself is not None and stat.S_ISDIR(itself.st_mode):
        foreign = find_foreign(system, root, itself.st_dev, (files, directories), purged())
    return Target(root, itself, files, directories, frozenset(same), foreign)


def _resolved(system: System, name: str) -> str:
    found = system.lstat(name)
    if found is None or not stat.S_ISLNK(found.st_mode):
        return name
    root = system.resolve(name)
    if root == name:
        raise ResourceError(f"{name} is a link to {os.path.realpath(name)}, where nothing is")
    return root


def _look_below(
    system: System, root: str, itself: Found, path: str, directories: Mapping[str, Found]
) -> Found:
    """Return the ``lstat`` of a path if its parent is a real directory, else ``None``."""
    above = path.rpartition("/")[0]
    parent = directories[above] if above else itself
    if parent is None or not stat.S_ISDIR(parent.st_mode):
        return None
    return system.lstat(f"{root}/{path}")


def _is_same(
    system: System, root: str, path: str, found: os.stat_result, wanted: bytes, recognise: Recognise
) -> bool:
    if not stat.S_ISREG(found.st_mode):
        return False
    if found.st_size == len(wanted) and system.read(f"{root}/{path}") == wanted:
        return True
    return recognise(path, wanted, root)


def find_foreign(
    system: System,
    root: str,
    device: int,
    rendered: tuple[Mapping[str, Found], Mapping[str, Found]],
    owned: OwnedPaths,
) -> Foreign:
    """Return everything below ``root`` that neither the scaffold renders nor another resource owns.

    ``device`` is the file system of ``root``. Other file systems are left alone. ``rendered`` are the files and the
    directories of the scaffold.
    """
    files, directories = rendered
    things: dict[str, os.stat_result] = {}
    others: list[str] = []
    waiting: list[tuple[str, os.stat_result | None]] = [("", None)]
    while waiting:
        directory, itself = waiting.pop()
        children = system.children(f"{root}/{directory}" if directory else root)
        for name, found in children:
            path = f"{directory}/{name}" if directory else name
            # An undeclared mount point is refused later, so that the run reports it.
            if path in owned.places or path in owned.filled or path in owned.with_work:
                continue
            if stat.S_ISDIR(found.st_mode):
                # A link to a directory does not count, so the walk never leaves the target.
                if found.st_dev == device:
                    waiting.append((path, found))
            elif path not in files or not gives_way(found):
                things[path] = found
        if itself is not None and directory not in directories and directory not in owned.above:
            if children:
                others.append(directory)
            else:
                things[directory] = itself
    return Foreign(dict(sorted(things.items())), tuple(reversed(others)))


def with_own_leftovers(
    system: System, target: Target, tree: Tree, receipt: Receipt, owned: OwnedPaths
) -> Target:
    """Return the target with files that the scaffold created earlier and no longer renders.

    Excludes files that another resource owns now.
    """
    things: dict[str, os.stat_result] = {}
    for path in receipt.files:
        if owned.is_owned(path):
            continue
        if path not in tree.files and (found := own_file(system, target.root, path, receipt)) is not None:
            things[path] = found
    directories = sorted(
        (
            path
            for path in receipt.directories
            if path and path not in tree.directories and not owned.is_kept(path)
        ),
        reverse=True,
    )
    return msgspec.structs.replace(target, foreign=Foreign(things, tuple(directories)))


def gives_way(found: os.stat_result) -> bool:
    """Return whether a rendered file may replace it. Only directories and devices may hold other data."""
    mode = found.st_mode
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def in_the_way(target: Target) -> set[str]:
    """Return the foreign paths that obstruct a file or directory of the scaffold."""
    things = sorted(target.foreign.things)
    found = {path for path in things if path in target.directories or path in target.files}
    for file in target.files:
        below = f"{file}/"
        index = bisect_left(things, below)
        while index < len(things) and things[index].startswith(below):
            found.add(things[index])
            index += 1
    return found


def require_possible(system: System, name: str, target: Target) -> None:
    """Raise ``ResourceError`` for obstacles that the scaffold must not replace."""
    if target.itself is None:
        require_makeable(os.path.dirname(target.root), system)
    elif not stat.S_ISDIR(target.itself.st_mode):
        raise ResourceError(f"{name} is {kind(target.itself.st_mode)}", expected="a directory")
    purged = {*target.foreign.things, *target.foreign.directories}
    for path, found in target.directories.items():
        if found is not None and not stat.S_ISDIR(found.st_mode) and path not in purged:
            raise _obstacle(target, path, found, "a directory")
    for path, found in target.files.items():
        if found is not None and not gives_way(found) and path not in purged:
            raise _obstacle(target, path, found, "a file")


def _obstacle(target: Target, path: str, found: os.stat_result, wanted: str) -> ResourceError:
    where = printable(target.path(path))
    return ResourceError(
        f"{where} is {kind(found.st_mode)}", expected=wanted, hint="purge: true would replace it"
    )
