"""The state of a scaffold and its target: changed, stable, purged and foreign files, attributes and differences.

* Reading the state changes nothing, and never follows a link below the target.
* The target may be a link to a directory. The scaffold then manages that directory, and the link stays. The link is
  checked like links in the path of the target.
* Only declared attributes (owner, group, mode) are managed.
* Files always get their attributes. A directory gets them only when it is created, because an existing one may be
  a system directory such as ``/etc``.
"""

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from foundation.differences import (
    ABSENT,
    DIFF_LIMIT,
    Difference,
    DifferenceKind,
    changed,
    presence,
    secret,
    unified,
)
from puller.errors import ResourceError
from puller.resources.base import Context
from puller.resources.content_sources import sha256, short
from puller.resources.owned_paths import OwnedPaths, Receipt, own_file
from puller.resources.paths import (
    attribute_differences,
    directories_of,
    group_id,
    kind,
    mode_owned_by,
    printable,
    require_makeable,
    user_id,
)
from puller.resources.scaffolds.scaffold_tree import Tree
from puller.system.protocol import Attributes, System
from puller.values.file_mode import FileMode

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
    status = system.lstat(name)
    if status is None or not stat.S_ISLNK(status.st_mode):
        return name
    root = system.resolve(name)
    if root == name:
        raise ResourceError(f"{name} is a link to {os.path.realpath(name)}, which does not exist")
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
    system: System, root: str, path: str, status: os.stat_result, desired: bytes, recognise: Recognise
) -> bool:
    if not stat.S_ISREG(status.st_mode):
        return False
    if status.st_size == len(desired) and system.read(f"{root}/{path}") == desired:
        return True
    return recognise(path, desired, root)


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
    items: dict[str, os.stat_result] = {}
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
                items[path] = found
        if itself is not None and directory not in directories and directory not in owned.above:
            if children:
                others.append(directory)
            else:
                items[directory] = itself
    return Foreign(dict(sorted(items.items())), tuple(reversed(others)))


def with_own_leftovers(
    system: System, target: Target, tree: Tree, receipt: Receipt, owned: OwnedPaths
) -> Target:
    """Return the target with files that the scaffold created earlier and no longer renders.

    Excludes files that another resource owns now.
    """
    items: dict[str, os.stat_result] = {}
    for path in receipt.files:
        if owned.is_owned(path):
            continue
        if path not in tree.files and (result := own_file(system, target.root, path, receipt)) is not None:
            items[path] = result
    directories = sorted(
        (
            path
            for path in receipt.directories
            if path and path not in tree.directories and not owned.is_kept(path)
        ),
        reverse=True,
    )
    return msgspec.structs.replace(target, foreign=Foreign(items, tuple(directories)))


def gives_way(status: os.stat_result) -> bool:
    """Return whether a rendered file may replace it. Only directories and devices may hold other data."""
    mode = status.st_mode
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def in_the_way(target: Target) -> set[str]:
    """Return the foreign paths that obstruct a file or directory of the scaffold."""
    items = sorted(target.foreign.things)
    result = {path for path in items if path in target.directories or path in target.files}
    for file in target.files:
        below = f"{file}/"
        index = bisect_left(items, below)
        while index < len(items) and items[index].startswith(below):
            result.add(items[index])
            index += 1
    return result


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


def _obstacle(target: Target, path: str, status: os.stat_result, desired: str) -> ResourceError:
    where = printable(target.path(path))
    return ResourceError(
        f"{where} is {kind(status.st_mode)}", expected=desired, hint="purge: true would replace it"
    )


IsProgram = Callable[[str], bool | None]
"""Returns whether the template at a path is executable, in the form of ``Ownership.of_file``."""


class Ownership(msgspec.Struct, frozen=True):
    """The desired attributes. ``None`` is not managed."""

    uid: int | None = None
    gid: int | None = None
    mode: FileMode | None = None
    owner: str = ""
    """In the author's spelling, for messages."""
    group: str = ""

    @classmethod
    def resolve(
        cls, owner: str | int | None, group: str | int | None, mode: FileMode | None, context: Context
    ) -> "Ownership":
        """Look up the names and return their ownership. Raises ``ResourceError`` for an unknown name."""
        return cls(
            None if owner is None else user_id(owner, context),
            None if group is None else group_id(group, context),
            mode,
            str(owner),
            str(group),
        )

    def of_draft(self, status: os.stat_result | None, mode: int) -> Attributes:
        """Return the attributes of a file that is written. ``mode`` is the draft's mode."""
        is_kept = status is not None and stat.S_ISREG(status.st_mode)
        uid, gid = (status.st_uid, status.st_gid) if status and is_kept else (os.geteuid(), os.getegid())
        return Attributes(
            uid if self.uid is None else self.uid,
            gid if self.gid is None else self.gid,
            mode if self.mode is None else self.mode.over(stat.S_IFREG | mode),
        )

    def of_file(
        self, found: os.stat_result, *, is_program: bool | None, is_written: bool = False
    ) -> Attributes:
        """Return the attributes of a regular file that exists. Attributes that are not managed stay.

        ``is_program``: whether its template is executable. ``None`` leaves the execute bits to ``mode``, because a post
        command may have set them. ``is_written``: the file gets new content.
        """
        uid = found.st_uid if self.uid is None else self.uid
        gid = found.st_gid if self.gid is None else self.gid
        mode, actual = self.mode or FileMode.ANY, mode_owned_by(uid, gid, found, is_written=is_written)
        if is_program is None:
            return Attributes(uid, gid, mode.over(actual))
        return Attributes(uid, gid, mode.over_copy(actual, is_program=is_program))

    def of_directory(self) -> Attributes:
        """Return the attributes of a new directory."""
        return Attributes(
            os.geteuid() if self.uid is None else self.uid,
            os.getegid() if self.gid is None else self.gid,
            stat.S_IMODE(FileMode.NEW_DIRECTORY)
            if self.mode is None
            else self.mode.searchable().over(FileMode.NEW_DIRECTORY),
        )

    def differences(
        self, path: str, found: os.stat_result, *, is_program: bool | None, is_written: bool
    ) -> Sequence[Difference]:
        """Return the differences of the attributes of a regular file. ``is_written``: it gets new content."""
        attributes = self.of_file(found, is_program=is_program, is_written=is_written)
        return attribute_differences(found, attributes, self.owner, self.group, printable(path))


class ScaffoldState(msgspec.Struct, frozen=True):
    """The state of a target. Paths in the lists are relative to it."""

    target: Target | None = None
    """``None`` if the target is missing and should be."""
    differences: Mapping[str, tuple[Difference, ...]] = {}
    """The differences by path."""
    changed: tuple[str, ...] = ()
    """Files that are out of sync. For ``absent``, existing files with other content."""
    stable: tuple[str, ...] = ()
    """Files that are in sync. For ``absent``, existing files with the rendered content."""
    purged: tuple[str, ...] = ()
    """Foreign paths, if ``purge`` or the receipt requires their removal."""

    @property
    def exists(self) -> bool:
        """Whether the target directory exists."""
        itself = self.target.itself if self.target else None
        return itself is not None and stat.S_ISDIR(itself.st_mode)


def compare(
    target: Target, tree: Tree, ownership: Ownership, system: System, is_program: IsProgram
) -> ScaffoldState:
    """Return the state of a target whose files should be present."""
    differences: dict[str, tuple[Difference, ...]] = {}
    for path in tree.files:
        if results := tuple(_of_file(target, tree, path, ownership, system, is_program)):
            differences[path] = results
    changed, stable = tuple(differences), tuple(path for path in tree.files if path not in differences)
    for path, there in target.directories.items():
        if there is not None and not stat.S_ISDIR(there.st_mode):
            differences[path] = (presence(kind(there.st_mode), "a directory", printable(path)),)
    for path, thing in target.foreign.things.items():
        differences.setdefault(path, (_unwanted(path, thing),))
    return ScaffoldState(target, differences, changed, stable, tuple(target.foreign.things))


def remaining(target: Target) -> ScaffoldState:
    """Return the state of a target whose files should be absent. A directory in place of a file may stay."""
    there = {
        path: (_unwanted(path, found),)
        for path, found in target.files.items()
        if found is not None and not stat.S_ISDIR(found.st_mode)
    }
    changed = tuple(path for path in there if path not in target.same)
    return ScaffoldState(target, there, changed, tuple(path for path in there if path in target.same))


def _unwanted(path: str, status: os.stat_result) -> Difference:
    is_file = stat.S_ISREG(status.st_mode)
    return presence("present" if is_file else kind(status.st_mode), ABSENT, printable(path))


def _of_file(
    target: Target, tree: Tree, path: str, ownership: Ownership, system: System, is_program: IsProgram
) -> Iterator[Difference]:
    result = target.files[path]
    if result is None:
        yield presence(ABSENT, "present", printable(path))
    elif not stat.S_ISREG(result.st_mode):
        yield presence(kind(result.st_mode), "present", printable(path))
    else:
        is_written = path not in target.same
        if is_written:
            yield (
                secret("content", printable(path))
                if tree.secret
                else _of_content(path, target.path(path), result, tree.files[path].data, system)
            )
        yield from ownership.differences(path, result, is_program=is_program(path), is_written=is_written)


def _of_content(path: str, place: str, status: os.stat_result, desired: bytes, system: System) -> Difference:
    name, size = printable(path), len(desired)
    if status.st_size != size:  # compare sizes only, to avoid reading a large file
        return changed("content", f"{status.st_size} bytes", f"{size} bytes", name)
    digests = sha256(system.read_chunks(place)), sha256([desired])
    return changed("content", short(digests[0]), short(digests[1]), name)


def diff(state: ScaffoldState, tree: Tree, system: System) -> Iterator[str]:
    """Yield a unified diff of each file that changes."""
    if (target := state.target) is None:
        return
    for path, differences in state.differences.items():
        place = target.path(path)
        if differences[0].kind is DifferenceKind.REMOVED:
            yield f"{printable(place)}: removed\n"
        elif path in state.changed and path not in target.same:
            yield _diff_of_file(place, target.files[path], tree.files[path].data, system)


def _diff_of_file(place: str, status: os.stat_result | None, desired: bytes, system: System) -> str:
    name = printable(place)
    if status is None or not stat.S_ISREG(status.st_mode):
        return unified(b"", desired, name) or ""
    if status.st_size > DIFF_LIMIT:  # too large to diff, so do not read it
        return f"{name}: {status.st_size} bytes become {len(desired)} bytes, too large for a diff\n"
    return unified(system.read(place), desired, name) or ""
