"""The state of a scaffold: changed, stable and purged files, their attributes and their differences.

* Only declared attributes (owner, group, mode) are managed.
* Files always get their attributes. A directory gets them only when it is created, because an existing one may be
  a system directory such as ``/etc``.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from foundation.differences import ABSENT, Difference, DifferenceKind, changed, presence, secret
from puller.resources.base import Context
from puller.resources.checksums import sha256, short
from puller.resources.diff import LIMIT, unified
from puller.resources.owners import attribute_differences, group_id, mode_owned_by, user_id
from puller.resources.paths import kind, printable
from puller.resources.scaffolds.scaffold_tree import Tree
from puller.resources.scaffolds.target import Target
from puller.system.protocol import Attributes, System
from puller.values.file_mode import FileMode

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

    def of_draft(self, found: os.stat_result | None, mode: int) -> Attributes:
        """Return the attributes of a file that is written. ``mode`` is the draft's mode."""
        is_kept = found is not None and stat.S_ISREG(found.st_mode)
        uid, gid = (found.st_uid, found.st_gid) if found and is_kept else (os.geteuid(), os.getegid())
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
        if found := tuple(_of_file(target, tree, path, ownership, system, is_program)):
            differences[path] = found
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


def _unwanted(path: str, found: os.stat_result) -> Difference:
    is_file = stat.S_ISREG(found.st_mode)
    return presence("present" if is_file else kind(found.st_mode), ABSENT, printable(path))


def _of_file(
    target: Target, tree: Tree, path: str, ownership: Ownership, system: System, is_program: IsProgram
) -> Iterator[Difference]:
    found = target.files[path]
    if found is None:
        yield presence(ABSENT, "present", printable(path))
    elif not stat.S_ISREG(found.st_mode):
        yield presence(kind(found.st_mode), "present", printable(path))
    else:
        is_written = path not in target.same
        if is_written:
            yield (
                secret("content", printable(path))
                if tree.secret
                else _of_content(path, target.path(path), found, tree.files[path].data, system)
            )
        yield from ownership.differences(path, found, is_program=is_program(path), is_written=is_written)


def _of_content(path: str, place: str, found: os.stat_result, wanted: bytes, system: System) -> Difference:
    name, size = printable(path), len(wanted)
    if found.st_size != size:  # compare sizes only, to avoid reading a large file
        return changed("content", f"{found.st_size} bytes", f"{size} bytes", name)
    digests = sha256(system.read_chunks(place)), sha256([wanted])
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


def _diff_of_file(place: str, found: os.stat_result | None, wanted: bytes, system: System) -> str:
    name = printable(place)
    if found is None or not stat.S_ISREG(found.st_mode):
        return unified(b"", wanted, name) or ""
    if found.st_size > LIMIT:  # too large to diff, so do not read it
        return f"{name}: {found.st_size} bytes become {len(wanted)} bytes, too large for a diff\n"
    return unified(system.read(place), wanted, name) or ""
