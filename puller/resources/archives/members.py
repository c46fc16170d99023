"""An archive file, opened once, and its members, checked before extraction: paths, kinds of archive and size limits.

* A path cannot leave the directory: it is a ``MemberPath``. A leading ``./`` and the final ``/`` of a directory are
  accepted.
* A symbolic link cannot leave the directory either: see ``link_target``.
* Permissions are limited: setuid, setgid and sticky bits are cleared, and only the owner may write.
* Limits count the bytes that are actually read, headers and padding included. Declared sizes are not trusted.
  Extraction stops at a limit.
* All reads use one descriptor, so the extracted bytes are the verified bytes, even if the path later points to another
  file.
* A file that this run downloaded, and that no other process could open, is read in place. Any other file is copied to
  a private file while it is hashed, because its owner may write to it at any time.
* If the file system is full, the error states the place, the size of the content and the free space.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, StrEnum
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from bundles.errors import FormatError
from bundles.filesystem.atomic import naming
from bundles.filesystem.trees import Counted, kind_of, open_regular, pieces_of
from bundles.format.fields import MemberPath, shown
from foundation.quantities import bytes_text
from puller.errors import ChangedMeanwhile, ResourceError
from puller.resources.archives.archive_receipts import identity_of
from puller.system.local_paths import open_safely

LONGEST_TARGET = 4095
"""Maximum length of a symbolic link's target in bytes, as in Linux."""


class Type(Enum):
    """The file type of a member on disk."""

    FILE = "a file"
    DIRECTORY = "a directory"
    LINK = "a symbolic link"
    HARD_LINK = "a hard link"


class Member(msgspec.Struct, frozen=True):
    """One file, directory or link."""

    path: MemberPath
    type: Type
    mode: int = 0o644
    """Permission bits after extraction."""
    size: int = 0
    """The size of the content in bytes, only for files."""
    modified: int | None = None
    """Seconds since 1970."""
    target: str = ""
    """The target of a symbolic link as written, or the path of the member that a hard link refers to."""


def parse_path(name: bytes, *, directory: bool = False) -> MemberPath | None:
    """Parse a member's name. Returns ``None`` for the extraction directory itself.

    Raises ``FormatError``.
    """
    plain = name
    while plain.startswith(b"./"):
        plain = plain[2:]
    if directory:
        plain = plain if plain == b"/" else plain.removesuffix(b"/")
        if plain in (b"", b".") and name:
            return None
    return MemberPath.parse(plain)


def link_target(path: MemberPath, target: bytes) -> str:
    """Return the target of the symbolic link at ``path``. Raises ``FormatError`` if it could lead outside.

    ``..`` is only allowed at the start, and not above the root. These components pass real directories, because members
    are never extracted through a link. The other components lead down, by names or by other links that stay inside
    under the same rule. A ``..`` after a name could leave through an earlier link (CVE-2025-4517).
    """
    where, detail = shown(path.text), f"is a symbolic link to {shown(target)}"
    try:
        text = target.decode()
    except UnicodeDecodeError:
        raise FormatError(where, f"{detail}, which is not UTF-8") from None
    if not text or len(target) > LONGEST_TARGET or not text.isprintable():
        raise FormatError(where, f"{detail}", expected="a path")
    if text.startswith("/"):
        raise FormatError(where, f"{detail}, which is absolute")
    components = [part for part in text.split("/") if part not in ("", ".")]
    # Leading ".." components count against the directories of the link, which are all real directories.
    up = next((count for count, part in enumerate(components) if part != ".."), len(components))
    if up > len(path.parts) - 1:
        raise FormatError(where, f"{detail}, which is outside")
    if ".." in components[up:]:
        raise FormatError(where, f"{detail}, which may be outside: '..' is only allowed at the start")
    return text


def stripped(member: Member, count: int) -> Member | None:
    """Return the member without the first ``count`` components of its path. ``None`` if nothing of it remains.

    The target of a symbolic link stays, and is checked again from its new place. Raises ``FormatError`` for a link that
    would lead outside, and for a hard link to a member that is left out.
    """
    if count == 0:
        return member
    parts = member.path.parts[count:]
    if not parts:
        return None
    path = MemberPath.parse("/".join(parts).encode())
    if member.type is Type.LINK:
        link_target(path, member.target.encode())
        return msgspec.structs.replace(member, path=path)
    if member.type is not Type.HARD_LINK:
        return msgspec.structs.replace(member, path=path)
    target = "/".join(member.target.split("/")[count:])
    if not target:
        detail = f"is a hard link to {shown(member.target)}, which strip_components leaves out"
        raise FormatError(shown(member.path.text), detail)
    return msgspec.structs.replace(member, path=path, target=target)


def file_mode(mode: int) -> int:
    """Return the permissions of a file for its mode in the archive. A mode without permissions gives the default."""
    return (mode & 0o755) | 0o600 if mode & 0o777 else 0o644


def directory_mode(mode: int) -> int:
    """Return the permissions of a directory for its mode in the archive.

    A mode without permissions gives the default.
    """
    return (mode & 0o755) | 0o700 if mode & 0o777 else 0o755


def refuse_kind(path: MemberPath, mode: int) -> NoReturn:
    """Raise ``FormatError`` for an unsupported file type, given by its ``st_mode``."""
    raise FormatError(shown(path.text), f"is {kind_of(mode)}", expected="a file, a directory or a link")


# Kinds of archive, recognized by the file name's ending.


class Kind(StrEnum):
    """A kind of archive, as messages name it."""

    TAR = "tar"
    TAR_BZ2 = "tar.bz2"
    TAR_GZ = "tar.gz"
    TAR_XZ = "tar.xz"
    TAR_ZST = "tar.zst"
    ZIP = "zip"


ENDINGS = {
    ".tar.gz": Kind.TAR_GZ,
    ".tgz": Kind.TAR_GZ,
    ".tar.xz": Kind.TAR_XZ,
    ".txz": Kind.TAR_XZ,
    ".tar.bz2": Kind.TAR_BZ2,
    ".tbz2": Kind.TAR_BZ2,
    ".tar.zst": Kind.TAR_ZST,
    ".tzst": Kind.TAR_ZST,
    ".tar": Kind.TAR,
    ".zip": Kind.ZIP,
}
"""All endings, as messages show them."""


def find_kind(name: str) -> Kind | None:
    """Return the kind of archive by its file name, in any case. ``None`` if the ending is unsupported."""
    lower = name.lower()
    result = (kind for ending, kind in ENDINGS.items() if lower.endswith(ending) and lower != ending)
    return next(result, None)


# Size limits, counted during extraction.

MIB = 1024 * 1024
GIB = 1024 * MIB


class Limits(msgspec.Struct, frozen=True):
    """Upper bounds. Sizes are in bytes."""

    archive: int = 8 * GIB
    """The downloaded file."""
    size: int = 32 * GIB
    """The total uncompressed size."""
    entries: int = 500_000
    """Files, directories and links."""
    directory: int = 256 * MIB
    """The table of contents of a zip, which is held in memory."""
    ratio: int = 200
    """The maximum ratio of uncompressed to compressed size. Text reaches 5 to 10, and deflate at most 1030."""
    ratio_from: int = 64 * MIB
    """The uncompressed size below which any ratio is allowed, because one large empty file is harmless."""


LIMITS = Limits()


class Budget:
    """The remaining limits for one archive of ``archive_size`` bytes. Methods raise ``FormatError``.

    Unlike the budgets of expressions and templates, which limit time and text, it limits the compression ratio.
    """

    def __init__(self, limits: Limits, archive_size: int) -> None:
        self._limits = limits
        self._archive_size = archive_size
        self._entries = 0
        self._size = 0

    def take_entry(self) -> None:
        self._entries += 1
        if self._entries > self._limits.entries:
            raise FormatError("", f"holds more than {self._limits.entries} files, directories and links")

    def take(self, count: int) -> None:
        self._size += count
        limits = self._limits
        if self._size > limits.size:
            raise FormatError("", f"holds more than {limits.size} bytes")
        if self._size > limits.ratio_from and self._size > self._archive_size * limits.ratio:
            detail = f"holds more than {limits.ratio} times its own {self._archive_size} bytes"
            raise FormatError("", detail)


# An archive file that is opened once.

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def needing_space(where: str, directory: int, what: str, need: Callable[[], int | None]) -> Iterator[None]:
    """Raise ``ResourceError`` instead of *no space left*. ``need`` returns the required bytes, if known.

    ``directory`` is an open directory on the file system in question.
    """
    result = os.statvfs(directory)  # measured before, because a failed write leaves no free space
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise

        size, free = need(), bytes_text(result.f_bavail * result.f_frsize)
        space = "space" if size is None else bytes_text(size)
        full = "no space left on the file system" if error.errno == errno.ENOSPC else "no quota left"
        raise ResourceError(f"{where}: {full}: needs {space} for {what}, {free} were free") from error


_TICK = 20_000_000  # nanoseconds; the kernel's file timestamps advance in steps of up to 10 ms
_COPY = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Opened(msgspec.Struct, frozen=True):
    """An open archive and its expected checksum."""

    path: str
    """The path for messages. It may refer to another file by now."""
    stream: BinaryIO
    sha256: str
    is_ours: bool = False
    """Whether these bytes were hashed and no other user could ever change them."""


@contextmanager
def open_archive(path: str) -> Iterator[BinaryIO]:
    """Open the regular file at ``path``.

    Raises ``OSError``, and ``ResourceError`` for links as ``open_safely`` does.
    """
    directory, name = os.path.split(path)
    with naming(path), open_safely(directory) as parent:
        stream = open_regular(Path(name), directory=parent)
    with stream:
        yield stream


def measure(path: str) -> tuple[str, tuple[int, ...]]:
    """Return the SHA-256 and the identity of the file at ``path``. The identity is empty if the file may have changed.

    A file that changed a moment ago could change again without a new timestamp.
    """
    with open_archive(path) as stream:
        before = os.fstat(stream.fileno())
        is_settled = time.time_ns() - before.st_ctime_ns > _TICK
        digest = Counted(_pieces(stream, before.st_size)).exhaust().sha256
        is_same = identity_of(before) == identity_of(os.fstat(stream.fileno()))
    return digest, identity_of(before) if is_settled and is_same else ()


def measure_when_settled(path: str) -> tuple[str, tuple[int, ...]]:
    """Run ``measure`` on a file that has just changed, after waiting until another change would be visible."""
    with open_archive(path) as stream:
        remaining = _TICK - (time.time_ns() - os.fstat(stream.fileno()).st_ctime_ns)
    if 0 <= remaining <= _TICK:
        time.sleep((remaining + _TICK) / 1e9)
    return measure(path)


@contextmanager
def kept(archive: Opened, directory: int, where: str) -> Iterator[BinaryIO]:
    """Yield the bytes of ``archive`` that no other user can change, from a copy in ``directory`` if necessary.

    Raises ``ChangedMeanwhile`` for another checksum, and ``ResourceError`` if the space for a copy is insufficient.
    ``where`` is for messages.
    """
    archive.stream.seek(0)
    if archive.is_ours:
        yield archive.stream
        return
    size = os.fstat(archive.stream.fileno()).st_size
    with _nameless(directory) as copy:
        with needing_space(where, directory, f"a private copy of {archive.path}", lambda: size):
            digest = _copy(archive.stream, copy, size)
        if digest != archive.sha256:
            detail = f"sha256 is {digest}, expected {archive.sha256}"
            raise ChangedMeanwhile(f"{archive.path}: {detail}: another process changed it meanwhile")
        copy.seek(0)
        yield copy


def _pieces(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file of ``size`` bytes. Ends after that size, even if another process keeps appending."""
    have = 0
    for piece in pieces_of(stream):
        yield piece
        have += len(piece)
        if have > size:
            return


def _copy(stream: BinaryIO, copy: BinaryIO, size: int) -> str:
    counted = Counted(_pieces(stream, size))
    for piece in counted:
        copy.write(piece)
    copy.flush()
    return counted.sha256


def _nameless(directory: int) -> BinaryIO:
    """Create a file without a name, which disappears with its descriptor."""
    name = f"{os.urandom(6).hex()}.copy"
    descriptor = os.open(name, _COPY, 0o600, dir_fd=directory)
    os.unlink(name, dir_fd=directory)  # so that no other process can open it and no kill leaves it
    return open(descriptor, "w+b")
