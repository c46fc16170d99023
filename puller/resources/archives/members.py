"""Members of archives, checked before extraction: paths, kinds of archive and size limits.

* A path cannot leave the directory: it is a ``MemberPath``. A leading ``./`` and the final ``/`` of a directory are
  accepted.
* A symbolic link cannot leave the directory either: see ``link_target``.
* Permissions are limited: setuid, setgid and sticky bits are cleared, and only the owner may write.
* Limits count the bytes that are actually read, headers and padding included. Declared sizes are not trusted.
  Extraction stops at a limit.
"""

from enum import Enum, StrEnum
from typing import NoReturn

import msgspec

from bundles.errors import FormatError
from bundles.filesystem.trees import kind_of
from bundles.format.member_paths import MemberPath, shown

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
    where, what = shown(path.text), f"is a symbolic link to {shown(target)}"
    try:
        text = target.decode()
    except UnicodeDecodeError:
        raise FormatError(where, f"{what}, which is not UTF-8") from None
    if not text or len(target) > LONGEST_TARGET or not text.isprintable():
        raise FormatError(where, f"{what}", expected="a path")
    if text.startswith("/"):
        raise FormatError(where, f"{what}, which is absolute")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    # Leading ".." components count against the directories of the link, which are all real directories.
    up = next((count for count, part in enumerate(parts) if part != ".."), len(parts))
    if up > len(path.parts) - 1:
        raise FormatError(where, f"{what}, which is outside")
    if ".." in parts[up:]:
        raise FormatError(where, f"{what}, which may be outside: '..' is only allowed at the start")
    return text


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
    TAR_GZ = "tar.gz"
    ZIP = "zip"


ENDINGS = {".tar.gz": Kind.TAR_GZ, ".tgz": Kind.TAR_GZ, ".tar": Kind.TAR, ".zip": Kind.ZIP}
"""All endings, as messages show them."""


def find_kind(name: str) -> Kind | None:
    """Return the kind of archive by its file name, in any case. ``None`` if the ending is unsupported."""
    lower = name.lower()
    found = (kind for ending, kind in ENDINGS.items() if lower.endswith(ending) and lower != ending)
    return next(found, None)


# Size limits, counted during extraction.

MIB = 1024 * 1024
GIB = 1024 * MIB


class Limits(msgspec.Struct, frozen=True):
    """Upper bounds; sizes are bytes."""

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
            what = f"holds more than {limits.ratio} times its own {self._archive_size} bytes"
            raise FormatError("", what)
