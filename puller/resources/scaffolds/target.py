"""The target of a scaffold as it is: what is where its files belong, and what else is there.

* Looking changes nothing, and never follows a link below the target: what is behind one is not in the target.
* The target itself may be a link to a directory; then that directory is meant, and the link is left alone. It is judged
  as the links on the way to the target are.
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
"""The ``lstat`` of what is there; ``None`` is nothing."""

Recognise = Callable[[str, bytes, str], bool]
"""Whether a file is as wanted though it holds other bytes than were rendered: path, rendered bytes, target."""


class Foreign(msgspec.Struct, frozen=True):
    """Everything below a target that does not belong to its scaffold."""

    things: Mapping[str, os.stat_result] = {}
    """Files, links and what else there is, and directories that are empty, by path."""
    directories: tuple[str, ...] = ()
    """Directories that hold nothing else; each behind those in it."""


class Target(msgspec.Struct, frozen=True):
    """The target as it was found; paths are relative to ``root``."""

    root: str
    itself: Found
    """Of ``root``."""
    files: Mapping[str, Found]
    """At the path of each rendered file."""
    directories: Mapping[str, Found]
    """At each directory that rendered files are in, a directory before those in it."""
    same: frozenset[str]
    """Files that hold what is wanted."""
    foreign: Foreign
    """Looked for only where it is to be purged."""

    def path(self, path: str) -> str:
        """The absolute one."""
        return f"{self.root}/{path}"

    def missing_directories(self) -> list[str]:
        """The directories that are made; the empty path is the target itself."""
        missing = [path for path, found in self.directories.items() if found is None]
        return missing if self.itself is not None else ["", *missing]


def look_at(
    system: System, name: str, tree: Tree, *, recognise: Recognise, purged: Callable[[], OwnedPaths] | None
) -> Target:
    """Compare a directory with a tree.

    ``purged`` returns the paths that a purge leaves to other resources. ``None``: nothing is purged. Raises
    ``OSError``, and ``ResourceError`` for a link to nothing.
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
    """The ``lstat`` of a path, when what is above it is a directory and no link to one."""
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
                # A link to a directory is none here, so the walk never leaves the target.
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
    """Return the target with the files that the scaffold made earlier and does not render any more.

    A file that another resource owns now is not among them.
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
    """Whether a rendered file replaces it: what is no directory or device holds nothing that is lost."""
    mode = found.st_mode
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def in_the_way(target: Target) -> set[str]:
    """Return the foreign things that stand where a file or directory of the scaffold belongs."""
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
    """Raise ``ResourceError`` for what no file or directory of the scaffold may replace."""
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
