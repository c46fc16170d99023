"""Members of an archive, as it says that it holds them, made safe before anything is done with them.

* A path cannot lead outside: it is a ``MemberPath``. Of the spellings that archives from the world use, a leading
  ``./`` and the final ``/`` of a directory are understood.
* A symbolic link cannot lead outside either: see ``link_target``.
* Permissions are those of an ordinary file: no setuid, setgid or sticky bit, writable by nobody but the owner.
"""

from enum import Enum
from typing import NoReturn

import msgspec

from bundles.errors import FormatError
from bundles.filesystem.trees import kind_of
from bundles.format.paths import MemberPath, shown

LONGEST_TARGET = 4095
"""Bytes in the target of a symbolic link; what Linux takes."""


class Type(Enum):
    """The kind of thing that a member becomes on disk."""

    FILE = "a file"
    DIRECTORY = "a directory"
    LINK = "a symbolic link"
    HARD_LINK = "a hard link"


class Member(msgspec.Struct, frozen=True):
    """One file, directory or link."""

    path: MemberPath
    type: Type
    mode: int = 0o644
    """Permission bits, as they are set."""
    size: int = 0
    """Of the contents, in bytes; only files have any."""
    modified: int | None = None
    """Seconds since 1970."""
    target: str = ""
    """Of a symbolic link as it is written; of a hard link, the path of another member."""


def parse_path(name: bytes, *, directory: bool = False) -> MemberPath | None:
    """The path that a name in an archive means; ``None`` for the directory that everything is put into.

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
    """The target of the symbolic link at ``path``; raises ``FormatError`` when it could lead outside.

    It may go up only at its start, and not above the root. Up to there it passes real directories, as members are
    never put through a link; from there on it goes down, by names or by other links, each of which stays inside for
    the same reason. A ``..`` after a name could leave through a link before it (CVE-2025-4517).
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
    # The leading ".." are counted against the directories that the link itself is in, each of which is a real one.
    up = next((count for count, part in enumerate(parts) if part != ".."), len(parts))
    if up > len(path.parts) - 1:
        raise FormatError(where, f"{what}, which is outside")
    if ".." in parts[up:]:
        raise FormatError(where, f"{what}, which may be outside: '..' is only allowed at the start")
    return text


def file_mode(mode: int) -> int:
    """The permissions of a file, for those that an archive gives; none at all are not meant."""
    return (mode & 0o755) | 0o600 if mode & 0o777 else 0o644


def directory_mode(mode: int) -> int:
    """The permissions of a directory, for those that an archive gives; none at all are not meant."""
    return (mode & 0o755) | 0o700 if mode & 0o777 else 0o755


def refuse_kind(path: MemberPath, mode: int) -> NoReturn:
    """Raise ``FormatError`` for something at ``path`` that is not for archives, by its ``st_mode``."""
    raise FormatError(shown(path.text), f"is {kind_of(mode)}", expected="a file, a directory or a link")
