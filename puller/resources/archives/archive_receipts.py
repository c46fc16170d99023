"""Receipts of archives that were extracted into a directory, and removal of leftover files.

* A receipt belongs to a directory. It lists the archives that were extracted there, by path and checksum.
* Before the first file is written, the receipt marks the new archive as *begun* and earlier archives as *replaced*.
  After the last file it marks the new archive as *finished*. Neither another version nor half of an archive
  therefore counts as complete.
* A separate file lists the members of each archive. It is read only during an extraction.
* The checksum of the archive file is cached until the file changes.
* A damaged or unknown receipt only shows that an extraction took place. The next receipt sets it aside.
* Removal deletes recorded files only, relative to the descriptor of a real directory, and never through a link.
  Changed files, directories with content and mounted file systems stay.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from bundles.filesystem.atomic import read_limited
from bundles.filesystem.trees import Counted, open_regular, pieces_of
from puller.state import Directories, decode, set_aside, write_state
from puller.system.local_paths import REAL_DIRECTORY

FORMAT = 2
_LARGEST = 16 * 1024 * 1024  # bytes; an archive has few top-level names
_LARGEST_MEMBERS = 512 * 1024 * 1024  # bytes; enough for the maximum number of members with long names
_LONGEST_NAME = 200  # bytes; file systems allow 255
_Document = TypeVar("_Document")


class Made(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Attributes of a file, link or directory after extraction, to detect later changes."""

    kind: str
    """``file``, ``link`` or ``directory``."""
    size: int = 0
    modified: int = 0
    """Nanoseconds since 1970."""
    target: str = ""
    """The target of a link."""


Members = dict[str, Made]
"""Extracted members by path below the directory."""


class Filling(msgspec.Struct, frozen=True, kw_only=True):
    """The extraction of one archive into a directory."""

    archive: str
    """The path of the archive on this machine."""
    sha256: str
    creates: str = ""
    """The value of ``creates``, if set."""
    entries: tuple[str, ...] = ()
    """Top-level names of the extracted members."""
    finished: bool = False
    replaced_by: str = ""
    """The path of the archive that replaced it or some of its members."""
    stripped: int = 0
    """The value of ``strip_components``."""

    @property
    def key(self) -> tuple[str, ...]:
        """The identity within the directory."""
        return (self.archive, self.sha256, *([str(self.stripped)] if self.stripped else []))

    def is_another(self, other: "Filling") -> bool:
        """Return whether the extracted paths or contents certainly differ."""
        if (self.archive, self.stripped) != (other.archive, other.stripped):
            return True
        return bool(self.sha256) and self.sha256 != other.sha256

    def __str__(self) -> str:
        text = f"{self.archive} (sha256 {self.sha256[:12]}…)"
        if self.replaced_by:
            return f"{text}, replaced by {self.replaced_by}"
        return text if self.finished else f"{text}, begun and not finished"


def has_one_purpose(first: Filling, other: Filling) -> bool:
    """Return whether two archives of a directory have the same purpose, so that only one of them can stay."""
    return first.creates == other.creates and (bool(first.creates) or first.archive == other.archive)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A directory and the archives that were extracted into it, in this order."""

    directory: str
    """The canonical path of the directory."""
    fillings: tuple[Filling, ...] = ()
    lost: bool = False
    """Whether an earlier receipt was invalid, so that the directory may have unrecorded members."""
    format: int = FORMAT

    def find(self, desired: Filling) -> Filling | None:
        """Return the extraction with the archive, checksum and stripped paths of ``desired``, or the most similar one.

        All extractions of one archive are similar, with the same checksum more so. The last one of equals counts.
        """
        results = [filling for filling in self.fillings if filling.archive == desired.archive]

        def similarity(filling: Filling) -> tuple[bool, bool]:
            return filling.sha256 == desired.sha256, filling.stripped == desired.stripped

        return max(reversed(results), key=similarity, default=None)


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """The checksum of a file with this identity (see ``identity_of``)."""

    archive: str
    sha256: str
    file: tuple[int, ...]
    format: int = FORMAT


class Receipts:
    """The receipts in one directory. Methods raise ``OSError``."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = default_directory() if directory is None else directory

    def place(self, directory: str) -> Place:
        """Return the receipt of the canonical directory, or an empty one."""
        real = os.path.realpath(directory)
        try:
            place = _read(self._place_path(real), Place)
        except ValueError:
            return Place(directory=real, lost=True)
        return place if place and place.directory == real else Place(directory=real)

    def save(self, place: Place) -> None:
        """Save the receipt of a directory, replacing an older one."""
        self._write(self._place_path(place.directory), place, Place)

    def begin(self, directory: str, filling: Filling) -> None:
        """Record that the extraction has begun. Earlier extractions keep their state."""
        place = self.place(directory)
        others = [other for other in place.fillings if other.key != filling.key]
        known = next((other for other in place.fillings if other.key == filling.key), filling)
        begun = msgspec.structs.replace(known, finished=False)
        self.save(msgspec.structs.replace(place, fillings=(*others, begun)))

    def members(self, place: Place, filling: Filling) -> Members | None:
        """Return all members of an extraction, or ``None`` if they are unknown."""
        try:
            return _read(self._members_path(place, filling), Members, _LARGEST_MEMBERS)
        except ValueError:
            return None

    def save_members(self, place: Place, filling: Filling, members: Members) -> None:
        """Save the members, after the receipt lists the extraction and before the first member is moved into place."""
        self._write(self._members_path(place, filling), members, Members)

    def forget_members(self, place: Place, filling: Filling) -> None:
        """Remove the members of an extraction, before its removal from the receipt."""
        self._members_path(place, filling).unlink(missing_ok=True)

    def filler(self, path: str) -> tuple[Place, Filling] | None:
        """Return the last extraction that created ``path``, in any directory."""
        directory, name = os.path.split(path)
        real = os.path.join(os.path.realpath(directory), name)
        above = real
        while above != "/":
            above = os.path.dirname(above)
            place = self.place(above)
            for filling in reversed(place.fillings):
                if self._brought(place, filling, os.path.relpath(real, above)):
                    return place, filling
        return None

    def _brought(self, place: Place, filling: Filling, path: str) -> bool:
        if path.partition("/")[0] not in filling.entries:
            return False
        members = self.members(place, filling)
        return members is None or path in members

    def places_of(self, archive: str) -> Iterator[tuple[Place, Filling]]:
        """Yield every directory that an archive was extracted into."""
        for path in sorted(self._directory.glob("*.place.json")):
            try:
                place = _read(path, Place)
            except ValueError:
                continue
            for filling in place.fillings if place else ():
                if place and filling.archive == archive:
                    yield place, filling

    def fingerprint(self, archive: str) -> Fingerprint | None:
        """Return the cached checksum of the archive at this path."""
        try:
            result = _read(self._fingerprint_path(archive), Fingerprint)
        except ValueError:
            return None
        return result if result and result.archive == archive else None

    def remember(self, fingerprint: Fingerprint) -> None:
        """Cache a checksum, replacing an older one."""
        self._write(self._fingerprint_path(fingerprint.archive), fingerprint, Fingerprint)

    def forget(self, archive: str) -> None:
        """Remove the cached checksum of an archive. Receipts of its extractions stay."""
        self._fingerprint_path(archive).unlink(missing_ok=True)

    def _write(self, path: Path, document: Any, kind: Any) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.path.lexists(path) and not _is_understood(path, kind):
            set_aside(path)
        write_state(path, msgspec.json.encode(document))

    def _place_path(self, directory: str) -> Path:
        return self._directory / f"{_file_name(directory)}.place.json"

    def _members_path(self, place: Place, filling: Filling) -> Path:
        return self._directory / f"{_digest(place.directory, *filling.key)}.members.json"

    def _fingerprint_path(self, archive: str) -> Path:
        return self._directory / f"{_file_name(archive)}.json"


def default_directory() -> Path:
    """Return the directory of receipts for the user that runs Puller."""
    return Directories.of_user().state / "archives"


def identity_of(found: os.stat_result) -> tuple[int, ...]:
    """Return numbers that change with every change of a file. No user can set the last one, the change time."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: Path, kind: type[_Document], limit: int = _LARGEST) -> _Document | None:
    """Return the document at ``path``, or ``None`` if it is missing. Raises ``ValueError`` for an invalid one."""
    try:
        document = decode(read_limited(path, limit), kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise ValueError(f"{path}: is a directory") from None
    if getattr(document, "format", FORMAT) != FORMAT:
        raise ValueError(f"{path}: is of another format")
    return document


def _is_understood(path: Path, kind: Any) -> bool:
    try:
        return _read(path, kind, _LARGEST_MEMBERS) is not None
    except ValueError:
        return False


def _file_name(path: str) -> str:
    name = quote(path, safe="")
    return name if len(name) <= _LONGEST_NAME else _digest(path)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


# Removal of leftover files of an older archive.

Removable = Mapping[str, Sequence[Made]]
"""All paths of earlier archives below the directory, each with its possible attributes."""

IS_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_IS_IN_USE = (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY)


def stat_at(directory: int, name: str) -> os.stat_result | None:
    """Return the ``lstat`` of a name in an open directory, or ``None`` if it is missing."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


@contextmanager
def opened(directory: int, path: str) -> Iterator[int]:
    """Open a directory below an open one, without following links."""
    with ExitStack() as stack:
        for name in filter(None, path.split("/")):
            directory = os.open(name, REAL_DIRECTORY, dir_fd=directory)
            stack.callback(os.close, directory)
        yield directory


def made_of(directory: int, name: str) -> Made:
    """Return the attributes of the file, link or directory ``name`` in an open directory."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        return Made("directory")
    if stat.S_ISLNK(status.st_mode):
        return Made("link", target=os.readlink(name, dir_fd=directory))
    kind = "file" if stat.S_ISREG(status.st_mode) else "other"
    return Made(kind, status.st_size, status.st_mtime_ns)


def attributes_at(directory: int, path: str) -> Made | None:
    """Return the attributes at a path below a directory, or ``None`` if it is missing or below a link."""
    above, name = os.path.split(path)
    try:
        with opened(directory, above) as parent:
            return made_of(parent, name)
    except OSError as error:
        if error.errno not in IS_NOT_THERE:
            raise
        return None


def digest_at(directory: int, path: str) -> str:
    """Return the SHA-256 of a regular file below an open directory."""
    above, name = os.path.split(path)
    with opened(directory, above) as parent, open_regular(Path(name), directory=parent) as stream:
        return Counted(pieces_of(stream)).exhaust().sha256


def everything_below(directory: int, above: str = "") -> Iterator[tuple[str, Made]]:
    """Yield everything below an open directory by path, each directory before its contents."""
    for name in sorted(os.listdir(directory)):
        made = made_of(directory, name)
        yield above + name, made
        if made.kind == "directory":
            with opened(directory, name) as inner:
                yield from everything_below(inner, f"{above}{name}/")


def is_all_removable(target: int, path: str, removable: Removable) -> bool:
    """Return whether ``path`` and everything below it are unchanged members of earlier archives."""
    directory, name = os.path.split(path)
    with opened(target, directory) as parent:
        if made_of(parent, name) not in removable.get(path, ()):
            return False
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return True
        with opened(parent, name) as inner:
            return all(
                made in removable.get(below, ()) for below, made in everything_below(inner, f"{path}/")
            )


def remove(target: int, paths: Iterable[str], removable: Removable) -> list[str]:
    """Remove unchanged paths. Returns changed files and links, which stay. Raises ``OSError``."""
    device = os.fstat(target).st_dev
    changed = []
    for path in sorted(paths, reverse=True):  # the contents of a directory before the directory
        directory, name = os.path.split(path)
        try:
            with opened(target, directory) as parent:
                if os.fstat(parent).st_dev == device and not _remove(parent, name, removable[path]):
                    changed.append(path)
        except OSError as error:
            if error.errno not in IS_NOT_THERE:
                raise
    return changed[::-1]


def _remove(parent: int, name: str, variants: Sequence[Made]) -> bool:
    made = made_of(parent, name)
    if made not in variants:
        return made.kind == "directory"  # a directory that others created stays without a report
    if made.kind != "directory":
        os.unlink(name, dir_fd=parent)
        return True
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno not in _IS_IN_USE:
            raise
    return True
