"""This machine as resources see it: files, users and commands, behind one small protocol.

* Looking and changing are different methods; a noop run is given a system whose changes raise (``puller.system.noop``).
* Only *not found* means absent: ``lstat`` gives ``None`` for it and raises for everything else.
* A change names what was looked at, and is refused when the path is not any more that.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from puller.errors import ResourceError

if TYPE_CHECKING:  # starting programs is imported when one is started: most resources need none
    from puller.system.commands import Command, Completed
    from puller.system.identity import Identity

UNKNOWN_ID = -1
"""In noop, the id of somebody whom an earlier resource would have made: different from that of whoever is there now."""

AccountKind = Literal["user", "group"]

_SET_ID = stat.S_ISUID | stat.S_ISGID
_EXECUTABLE = 0o111


class Attributes(msgspec.Struct, frozen=True):
    """Who owns a path and what may be done with it: ids, and permission bits."""

    uid: int
    gid: int
    mode: int


class System(Protocol):
    """The machine as a resource may ask of it. Methods raise ``OSError``, or ``ResourceError`` with a sentence."""

    executed: int
    """How many commands have changed something so far: an answer about many things is good until it grows."""

    def lstat(self, path: str) -> os.stat_result | None:
        """The path itself, links not followed; ``None`` when nothing is there."""

    def resolve(self, path: str) -> str:
        """The path without links, if they may be followed; as it is when nothing is there."""

    def is_directory(self, path: str) -> bool:
        """Whether a directory is there, links followed if they may be; in noop as this run would have left it."""

    def exists(self, path: str) -> bool:
        """Whether anything is there, links followed; in noop as this run would have left it."""

    def expect(self, path: str, kind: str) -> None:
        """In noop: this run would have left a new ``file``, a ``directory`` or ``absent`` here. Otherwise nothing."""

    def expect_link(self, path: str, target: str) -> None:
        """In noop: this run would have left a link here, which leads to an absolute path. Otherwise nothing."""

    def expect_content(self, path: str, content: bytes | None, attributes: Attributes | None = None) -> None:
        """In noop: later resources see a file with this content here, or nothing for ``None``. Otherwise nothing."""

    def will_be_written(self, path: str, *, below: bool = False) -> bool:
        """In noop: whether this run would have put a file here, or have changed its content; or one ``below``."""

    def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
        """The content of a regular file; a link, FIFO or device in its place is an error.

        So is any file but the one that was ``looked_at``, if that is given, and one that has another size by now.
        """

    def holds(self, path: str, content: bytes) -> bool:
        """Whether what was just looked at, and was a regular file, has this content and no more."""

    def read_chunks(self, path: str, looked_at: os.stat_result | None = None) -> Iterator[bytes]:
        """Yield the content of a regular file, piece by piece.

        With ``looked_at``, a file that is another one by now, or is written to meanwhile, is an error.
        """

    def children(self, path: str) -> list[tuple[str, os.stat_result]]:
        """The entries of a directory, by name, each with its ``lstat``; a link in the directory's place is an error."""

    def labels(self, path: str) -> dict[str, bytes]:
        """The extended attributes of the path itself, access control lists among them, as far as they can be read."""

    def note(self, path: str, key: str) -> str | None:
        """The note that ``set_note`` has left on a file; ``None`` when there is none."""

    def user_id(self, name: str) -> int | None:
        """``None`` when there is no such user."""

    def group_id(self, name: str) -> int | None:
        """``None`` when there is no such group."""

    def expect_account(self, kind: AccountKind, name: str, number: int | None) -> None:
        """In noop: this run would have made it, with this id or ``UNKNOWN_ID``; ``None``: removed it."""

    def expected_accounts(self, kind: AccountKind) -> Mapping[str, int | None]:
        """In noop: all that were expected, by name; ``user_id`` and ``group_id`` know them. Otherwise nothing."""

    def query(self, command: "Command") -> "Completed":
        """Run a command that only looks: a guard, a status query. Done in noop too."""

    # ``within`` is a directory above the path: from there on no link is followed, whatever was put there meanwhile.

    def replace_file(
        self,
        path: str,
        chunks: Iterable[bytes],
        attributes: Attributes,
        looked_at: os.stat_result | None,
        *,
        within: str = "",
        verify: Callable[[str], None] | None = None,
    ) -> None:
        """Put a regular file in place, atomically; the labels of a replaced regular file are kept.

        ``verify`` is told the path of the private copy, which is in the same directory and has its owner, mode and
        suffix already; what it raises leaves the old file in place, and so does a copy that is another one afterwards.
        """

    def make_directory(self, path: str, attributes: Attributes, *, within: str = "") -> None:
        """Make a directory, which appears as it should be, and its missing parents with mode 0755."""

    def make_link(
        self,
        path: str,
        target: str,
        looked_at: os.stat_result | None,
        owner: tuple[int, int] | None = None,
    ) -> None:
        """Put a symbolic link in the place of a file or link, or of nothing, atomically.

        ``owner`` is the ids of user and group; those of the running process when not given.
        """

    def rename(self, path: str, to: str, looked_at: os.stat_result) -> None:
        """Give what is at a path another name in its directory; an empty directory of that name is replaced."""

    def set_labels(self, path: str, labels: Mapping[str, bytes], looked_at: os.stat_result) -> None:
        """Give the path itself these extended attributes and no others, as far as others can be removed."""

    def set_attributes(
        self,
        path: str,
        attributes: Attributes,
        looked_at: os.stat_result,
        content: Iterable[bytes] | None = None,
        *,
        within: str = "",
    ) -> None:
        """Set owner, group and mode of the path itself, never through a link. A link has no mode of its own.

        A regular file for which ``requires_new_file`` holds is replaced by a new one with ``content``. Pass the bytes
        that the file was compared with. Without ``content``, the present content is copied, and a file with several
        names is refused.
        """

    def set_note(self, path: str, key: str, text: str, *, within: str = "") -> None:
        """Leave a note on a regular file, for as long as nobody puts another file into its place."""

    def remove(self, path: str, looked_at: os.stat_result, *, within: str = "") -> None:
        """Remove a file, link or empty directory."""

    def removing(self, within: str) -> AbstractContextManager[None]:
        """Let all removals ``within`` a directory share one open directory until the end of the context.

        Each path should be near the path before, so that removing a deep tree takes linear time.
        """

    def remove_tree(self, path: str, looked_at: os.stat_result) -> None:
        """Remove a directory and all below it; links are removed, never followed."""

    def write_kernel(self, path: str, data: bytes) -> None:
        """Write to a file of the kernel, such as one below ``/proc/sys``, all at once and into the file itself."""

    def execute(self, command: "Command") -> "Completed":
        """Run a command that changes something."""

    def act_as(self, identity: "Identity", act: Callable[[], object]) -> None:
        """Call what changes something in places of a user as that user, in a process of its own."""


def requires_new_file(found: os.stat_result, attributes: Attributes) -> bool:
    """Return whether a regular file must be replaced to get these attributes.

    A process that has opened or mapped a file can write to it as long as it likes, whatever owner and mode the file has
    later. So an inode is never kept

    1. if it belonged to another user, or other users lose the permission to write it;
    2. if it becomes a program, or gets a set-id bit: nobody may have prepared its content.
    """
    if not stat.S_ISREG(found.st_mode):
        return False
    same_owner, same_group = found.st_uid == attributes.uid, found.st_gid == attributes.gid
    # 1. Former writers
    if not same_owner and found.st_uid not in (0, os.geteuid()):
        return True
    kept = attributes.mode if same_group else attributes.mode & ~stat.S_IWGRP
    if found.st_mode & ~kept & (stat.S_IWGRP | stat.S_IWOTH):
        return True
    # 2. New programs
    had = found.st_mode if same_owner and same_group else found.st_mode & ~_SET_ID
    return bool(attributes.mode & ~had & (_SET_ID | _EXECUTABLE))


def require_one_name(path: str, found: os.stat_result) -> None:
    """Raise ``ResourceError`` for a file with other names: who has put somebody else's file here is not given it."""
    if not stat.S_ISDIR(found.st_mode) and found.st_nlink > 1:
        what = f"has {found.st_nlink} names (hard links), so it may be somebody else's file"
        raise ResourceError(f"{path}: {what}, and its owner, group and mode are not changed")
