"""The plan of a directory tree, from one walk of the directory and its source: paths to make, write, set and remove.

* The walk never follows links. It never enters other file systems or paths that another resource owns.
* Paths that exist only in the source are created. With ``purge``, paths that exist only in the directory are removed,
  contents before their directory. A directory stays if anything in it stays.
"""

import os
import stat
from collections.abc import Iterator

import msgspec

from foundation.differences import ABSENT, Difference, changed, presence, secret
from puller.errors import ResourceError
from puller.resources.base import Context
from puller.resources.content_sources import sha256, short
from puller.resources.owned_paths import OwnedPaths
from puller.resources.paths import (
    attribute_differences,
    group_id,
    kind,
    mode_owned_by,
    parents,
    printable,
    require_trusted_source,
    user_id,
)
from puller.system.protocol import Attributes, System
from puller.values.file_mode import FileMode

_IN_MEMORY = 1024 * 1024  # bytes; larger files are compared in chunks
_Found = dict[str, os.stat_result]


class DesiredAttributes:
    """Desired owner, group and mode of paths in a tree. Raises ``ResourceError`` for an unknown user or group."""

    def __init__(
        self, owner: str | int | None, group: str | int | None, mode: FileMode | None, context: Context
    ) -> None:
        self.owner, self.group = owner, group
        self._uid = None if owner is None else user_id(owner, context)
        self._gid = None if group is None else group_id(group, context)
        self._mode = mode or FileMode.ANY
        self._directory_mode = self._mode.searchable()
        self.gives_set_id = self._mode.gives_set_id

    def of_new(self, source: os.stat_result) -> Attributes:
        """Return the attributes of a new file or directory. ``source`` is the ``lstat`` of its source."""
        actual = FileMode.NEW_DIRECTORY if stat.S_ISDIR(source.st_mode) else FileMode.NEW_FILE
        return Attributes(self._uid or 0, self._gid or 0, self._of(actual, source))

    def of(
        self, found: os.stat_result, source: os.stat_result | None, *, is_written: bool = False
    ) -> Attributes:
        """Return the attributes of an existing path. ``source`` is the ``lstat`` of its source, if it has one.

        ``is_written``: it gets new content.
        """
        uid = found.st_uid if self._uid is None else self._uid
        gid = found.st_gid if self._gid is None else self._gid
        return Attributes(uid, gid, self._of(mode_owned_by(uid, gid, found, is_written=is_written), source))

    def _of(self, actual: int, source: os.stat_result | None) -> int:
        if stat.S_ISDIR(actual):
            return self._directory_mode.over(actual)
        if source is None:
            return self._mode.over(actual)
        return self._mode.over_copy(actual, is_program=bool(source.st_mode & stat.S_IXUSR))

    def differences(
        self, path: str, found: os.stat_result, source: os.stat_result | None, *, is_written: bool = False
    ) -> list[Difference]:
        """Return the differences of the attributes. ``is_written``: the file gets new content."""
        attributes = self.of(found, source, is_written=is_written)
        return attribute_differences(found, attributes, self.owner, self.group, printable(path))


class Plan(msgspec.Struct, frozen=True):
    """The changes below a directory. Paths are relative to it. Directories come before their contents."""

    source: _Found = {}
    """The ``lstat`` results of the sources of ``made``, ``written`` and ``attributes``."""
    made: list[str] = []
    """Directories."""
    written: dict[str, os.stat_result | None] = {}
    """Files to write, with the ``lstat`` result of the current path."""
    attributes: _Found = {}
    """Paths that only get other attributes."""
    removed: _Found = {}
    in_the_way: dict[str, str] = {}
    """Obstacles: paths of another kind than in the source, each with a description."""
    differences: dict[str, list[Difference]] = {}
    in_source: set[str] = set()
    """All paths of the source."""

    @property
    def changed(self) -> list[str]:
        """All paths that are not removed."""
        return [*self.made, *self.written, *self.attributes]

    def remove(self, path: str, found: os.stat_result) -> None:
        """Plan the removal of a path that is not in the source. Call this for a directory before its contents."""
        self.removed[path] = found
        detail = "present" if stat.S_ISREG(found.st_mode) else kind(found.st_mode)
        self.differences[path] = [presence(detail, ABSENT, printable(path))]

    def removals(self) -> Iterator[tuple[str, os.stat_result]]:
        """Return the paths to remove, contents before their directory."""
        return reversed(self.removed.items())


class Walk:
    """One walk of the directory ``root``, and of its ``source`` if it has one."""

    def __init__(
        self,
        root: str,
        source: str,
        expected: DesiredAttributes,
        owned: OwnedPaths,
        system: System,
        *,
        purge: bool,
        sensitive: bool,
    ) -> None:
        self._root, self._source, self._desired_attributes, self._owned, self._system = (
            root,
            source,
            expected,
            owned,
            system,
        )
        self._purge, self._sensitive = purge, sensitive
        self._gives_set_id = expected.gives_set_id
        self._plan = Plan()
        self._extra: _Found = {}
        self._held: set[str] = set(owned.above)
        self._waiting: list[tuple[str, bool, bool]] = []
        """Directories to visit: the path, whether the source has it, and whether it exists."""

    def plan(self, *, is_there: bool) -> Plan:
        """Return the whole plan. Raises ``OSError``, and ``ResourceError`` for a source with other kinds of files."""
        self._waiting.append(("", bool(self._source), is_there))
        while self._waiting:
            self._directory(*self._waiting.pop())
        for path in (path for path in self._extra if path not in self._held):
            self._plan.remove(path, self._extra[path])
        return self._plan

    def _directory(self, directory: str, in_source: bool, is_there: bool) -> None:
        prefix = f"{directory}/" if directory else ""
        there = self._children(self._root, directory) if is_there else {}
        for name, entry in self._children(self._source, directory).items() if in_source else ():
            path, result = prefix + name, there.pop(name, None)
            self._plan.in_source.add(path)
            if not is_text(path):
                raise ResourceError(f"source {self._source}: the name of {printable(path)} is not UTF-8")
            if path in self._owned.filled:
                continue
            if stat.S_ISDIR(entry.st_mode):
                self._desired_directory(path, entry, result)
            elif stat.S_ISREG(entry.st_mode):
                self._desired_file(path, entry, result)
            else:
                detail = f"{printable(path)} is {kind(entry.st_mode)}, expected files and directories only"
                raise ResourceError(f"source {self._source}: {detail}")
        for name, result in there.items():
            self._other(prefix + name, result)

    def _children(self, root: str, directory: str) -> _Found:
        return dict(sorted(self._system.children(f"{root}/{directory}" if directory else root)))

    # Paths of the source

    def _desired_directory(self, path: str, entry: os.stat_result, status: os.stat_result | None) -> None:
        is_there = status is not None and stat.S_ISDIR(status.st_mode)
        self._waiting.append((path, True, is_there))
        if path in self._owned.places:
            return
        if status is None:
            self._note(path, "absent", "a directory")
            self._plan.made.append(path)
            self._plan.source[path] = entry
        elif is_there:
            self._compare_attributes(path, status, entry)
        else:
            self._block(path, status, "a directory")

    def _desired_file(self, path: str, entry: os.stat_result, status: os.stat_result | None) -> None:
        if path in self._owned.places:
            return
        if self._gives_set_id:
            require_trusted_source(f"{self._source}/{path}")
        if status is not None and not _gives_way(status):
            self._block(path, status, "a file")
            return
        if status is None or not stat.S_ISREG(status.st_mode):
            self._note(path, "absent" if status is None else kind(status.st_mode), "present")
        elif not self._is_same(path, entry, status):
            attributes = self._desired_attributes.differences(path, status, entry, is_written=True)
            self._plan.differences[path] = [self._content_difference(path, entry, status), *attributes]
        else:
            self._compare_attributes(path, status, entry)
            return
        self._plan.written[path] = status
        self._plan.source[path] = entry

    def _is_same(self, path: str, entry: os.stat_result, found: os.stat_result) -> bool:
        if entry.st_size != found.st_size:
            return False
        mine, theirs, system = f"{self._source}/{path}", f"{self._root}/{path}", self._system
        if entry.st_size <= _IN_MEMORY:
            return system.read(mine) == system.read(theirs)
        return sha256(system.read_chunks(mine)) == sha256(system.read_chunks(theirs))

    def _content_difference(self, path: str, entry: os.stat_result, found: os.stat_result) -> Difference:
        if self._sensitive:
            return secret("content", printable(path))
        if entry.st_size != found.st_size:  # compare sizes only, to avoid reading a large file again
            return changed("content", f"{found.st_size} bytes", f"{entry.st_size} bytes", printable(path))
        digests = [sha256(self._system.read_chunks(f"{root}/{path}")) for root in (self._root, self._source)]
        return changed("content", short(digests[0]), short(digests[1]), printable(path))

    def _compare_attributes(
        self, path: str, status: os.stat_result, source: os.stat_result | None = None
    ) -> None:
        desired = self._desired_attributes.of(status, source)
        if (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) != (
            desired.uid,
            desired.gid,
            desired.mode,
        ):
            self._plan.differences[path] = self._desired_attributes.differences(path, status, source)
            self._plan.attributes[path] = status
            if source is not None:
                self._plan.source[path] = source

    def _block(self, path: str, found: os.stat_result, expected: str) -> None:
        self._note(path, kind(found.st_mode), expected)
        self._plan.in_the_way[path] = f"{printable(path)} is {kind(found.st_mode)}, expected {expected}"

    def _note(self, path: str, actual: str, expected: str) -> None:
        self._plan.differences[path] = [presence(actual, expected, printable(path))]

    # Other paths

    def _other(self, path: str, status: os.stat_result) -> None:
        owned, is_directory = self._owned, stat.S_ISDIR(status.st_mode)
        if self._purge:
            if owned.is_owned(path):  # with its contents
                self._held.update((path, *parents(path)))
                return
            self._extra[path] = status
        elif self._source or path in owned.filled or path in owned.mounted:
            return
        elif path not in owned.places and _has_attributes(status):
            self._compare_attributes(path, status)
        if is_directory:
            self._waiting.append((path, False, True))


def is_text(path: str) -> bool:
    """Return whether the name is valid UTF-8. Other names cannot be recorded, so they are not changed."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _gives_way(status: os.stat_result) -> bool:
    """Return whether replacing it by a file loses no data."""
    mode = status.st_mode
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _has_attributes(status: os.stat_result) -> bool:
    """Return whether its attributes are managed. Links lack own attributes, and the system manages devices."""
    mode = status.st_mode
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
