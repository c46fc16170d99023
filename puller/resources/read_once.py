"""Files of the system that many resources read or edit, cached for a run until they change.

* While no resource has changed anything, the cached value is returned without a system call.
* After a change by any resource, the files are read again if their identity has changed.

An `EditedFile` has one line for each of many resources, and is edited by one write. Bytes that are not UTF-8 are
preserved. UTF-16 and UTF-32 are refused. Owner, group, mode and labels stay. A new file belongs to root and has mode
0644.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Context
from puller.resources.paths import PathState
from puller.system.protocol import Attributes, System
from puller.values.foreign_text import IS_WIDE, is_wide

T = TypeVar("T")
_Identity = tuple[int, ...] | None


class ReadOnce(Generic[T]):
    """The value that ``parse`` returns for the content of files, by path. Missing files are omitted.

    ``Context.shared`` holds one instance for all resources of a run.
    """

    def __init__(self, paths: Sequence[str], parse: Callable[[Mapping[str, bytes]], T]) -> None:
        self._paths = paths
        self._parse = parse
        self._changes = -1
        self._identities: list[_Identity] | None = None
        self._value: T

    def current(self, context: Context) -> T:
        """Return the value for the current files. Raises ``OSError``, and the exceptions of ``parse``."""
        changes = context.changes()
        if self._identities is None or changes != self._changes:
            identities = [_identity(path) for path in self._paths]
            if identities != self._identities:
                self._value = self._parse(dict(_contents(self._paths)))
                self._identities = identities
            self._changes = changes
        return self._value


def _identity(path: str) -> _Identity:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _contents(paths: Sequence[str]) -> list[tuple[str, bytes]]:
    results = []
    for path in paths:
        try:
            with open(path, "rb", buffering=0) as stream:
                results.append((path, stream.readall()))
        except FileNotFoundError:
            continue
    return results


_Value = TypeVar("_Value")
Editing = Callable[[str], str]
"""Returns the new text for the old text."""


class EditedFile(Generic[_Value]):
    """The file at ``path``.

    ``parse`` returns the value of its text. Methods raise ``OSError`` and ``ResourceError``.
    """

    def __init__(self, path: str, parse: Callable[[str], _Value]) -> None:
        self.path = path
        self.real = path
        """The real path, behind permitted links."""
        self._parse = parse
        self._changes: int | None = None
        self._identity: tuple[int, ...] | None = None
        self._value = parse("")

    @classmethod
    def of(cls, context: Context, path: str, parse: Callable[[str], _Value]) -> "EditedFile[_Value]":
        """Return the instance that all resources of a run share."""
        shared: dict[str, EditedFile[_Value]] = context.shared.setdefault(cls, {})
        return shared.get(path) or shared.setdefault(path, cls(path, parse))

    def current(self, context: Context) -> _Value:
        """Return the current value of the file. A missing file is empty."""
        if (changes := context.changes()) != self._changes:
            result = self._look(context.system)
            if (identity := _identity_of(result)) != self._identity:
                content = b"" if result is None else context.system.read(self.real)
                self._value, self._identity = self._parse(self._decoded(content)), identity
            self._changes = changes
        return self._value

    def plan(self, system: System, edit: Editing) -> tuple[os.stat_result | None, bytes, bytes]:
        """Return the file's ``lstat``, its content, and the edited content."""
        result = self._look(system)
        before = b"" if result is None else system.read(self.real)
        return result, before, edit(self._decoded(before)).encode("utf-8", "surrogateescape")

    def write(self, system: System, edit: Editing) -> bool:
        """Edit the file by one write and return whether it changed. A missing directory is made."""
        status, before, after = self.plan(system, edit)
        if before == after:
            return False
        directory = os.path.dirname(self.real)
        if status is None and not system.is_directory(directory):
            system.make_directory(directory, Attributes(os.geteuid(), os.getegid(), 0o755))
            status = system.lstat(self.real)
        system.replace_file(self.real, [after], _attributes(status), status)
        self._changes = None
        return True

    def _look(self, system: System) -> os.stat_result | None:
        self.real = system.resolve(self.path)
        status = system.lstat(self.real)
        if (kind := PathState(status).kind) not in ("absent", "present"):
            raise ResourceError(
                f"{self.path} is a {kind}", code=ProblemCode.CHANGE_REFUSED, expected="a file"
            )
        return status

    def _decoded(self, content: bytes) -> str:
        # Keep a UTF-8 byte order mark in the first word, as the programs that read the file do.
        if is_wide(content):
            raise ResourceError(f"{self.path} {IS_WIDE}")
        return content.decode("utf-8", "surrogateescape")


def _identity_of(status: os.stat_result | None) -> tuple[int, ...] | None:
    if status is None:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _attributes(status: os.stat_result | None) -> Attributes:
    if status is None:
        return Attributes(os.geteuid(), os.getegid(), 0o644)
    return Attributes(status.st_uid, status.st_gid, status.st_mode & 0o7777)
