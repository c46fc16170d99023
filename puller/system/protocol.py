"""The machine as resources use it: a small protocol for files, users and commands.

* Queries and changes are separate methods. In noop, the system rejects changes (``puller.system.noop``).
* Only *not found* means absent: ``lstat`` returns ``None`` for it and raises all other errors.
* A change receives the previous ``lstat`` result, and is refused if the path has changed since.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from puller.errors import ResourceError

if TYPE_CHECKING:  # imported only when a program is started
    from puller.system.commands import Command, Completed
    from puller.system.identity import Identity

UNKNOWN_ID = -1
"""In noop, the id of an account that an earlier resource would create. Differs from all existing ids."""

AccountKind = Literal["user", "group"]

_SET_ID = stat.S_ISUID | stat.S_ISGID
_EXECUTABLE = 0o111


class Attributes(msgspec.Struct, frozen=True):
    """Owner ids and permission bits of a path."""

    uid: int
    gid: int
    mode: int


class System(Protocol):
    """The interface between resources and the machine.

    Methods raise ``OSError``, or ``ResourceError`` with a sentence.
    """

    executed: int
    """The number of executed commands that may have changed the machine. Cached query results expire when it grows."""

    def lstat(self, path: str) -> os.stat_result | None:
        """Return the ``lstat`` of a path, ``None`` if it is missing."""

    def resolve(self, path: str) -> str:
        """Return the path without links, if they may be followed. Return a missing path unchanged."""

    def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory, through permitted links. In noop, as this run would leave it."""

    def exists(self, path: str) -> bool:
        """Return whether the path exists, through links. In noop, as this run would leave it."""

    def expect(self, path: str, kind: str) -> None:
        """In noop, record that this run would leave a new ``file``, a ``directory`` or ``absent`` here.

        Else do nothing.
        """

    def expect_link(self, path: str, target: str) -> None:
        """In noop, record that this run would leave a link to an absolute path here. Else do nothing."""

    def expect_content(self, path: str, content: bytes | None, attributes: Attributes | None = None) -> None:
        """In noop, show later resources a file with this content here, or no file for ``None``. Else do nothing."""

    def will_be_written(self, path: str, *, below: bool = False) -> bool:
        """Return whether, in noop, this run would create or change a file here, or ``below``."""

    def through_links(self, path: str) -> str:
        """Return the path after following links that, in noop, this run would create. Else return it unchanged."""

    def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
        """Return the content of a regular file. A link, FIFO or device in its place is an error.

        Another file or size than ``looked_at`` is also an error.
        """

    def holds(self, path: str, content: bytes) -> bool:
        """Return whether a regular file, which was just checked, has exactly this content."""

    def read_chunks(self, path: str, looked_at: os.stat_result | None = None) -> Iterator[bytes]:
        """Yield the content of a regular file in pieces.

        Another file than ``looked_at``, or a change meanwhile, is an error.
        """

    def children(self, path: str) -> list[tuple[str, os.stat_result]]:
        """Return the entries of a directory by name, each with its ``lstat``. A link to a directory is an error."""

    def labels(self, path: str) -> dict[str, bytes]:
        """Return the readable extended attributes of the path itself, including access control lists."""

    def note(self, path: str, key: str) -> str | None:
        """Return the note that ``set_note`` left on a file, ``None`` if it has none."""

    def user_id(self, name: str) -> int | None:
        """Return the id of a user, ``None`` if the user is unknown."""

    def group_id(self, name: str) -> int | None:
        """Return the id of a group, ``None`` if the group is unknown."""

    def expect_account(self, kind: AccountKind, name: str, number: int | None) -> None:
        """In noop, record that this run would create an account with this id or ``UNKNOWN_ID``, or remove it
        (``None``).
        """

    def expected_accounts(self, kind: AccountKind) -> Mapping[str, int | None]:
        """Return, in noop, all expected accounts by name. ``user_id`` and ``group_id`` include them. Else empty."""

    def query(self, command: "Command") -> "Completed":
        """Run a read-only command, such as a guard or a status query. Also runs in noop."""

    # ``within`` is a directory above the path. Links below it are never followed, even if they appear meanwhile.

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
        """Atomically write a regular file. A replaced regular file passes on its labels.

        ``verify`` receives the path of a private copy in the same directory, with the final owner, mode and suffix. If
        it raises, or if the copy has changed afterwards, the old file stays.
        """

    def make_directory(self, path: str, attributes: Attributes, *, within: str = "") -> None:
        """Make a directory, which appears with its final attributes, and its missing parents with mode 0755."""

    def make_link(
        self,
        path: str,
        target: str,
        looked_at: os.stat_result | None,
        owner: tuple[int, int] | None = None,
    ) -> None:
        """Atomically create a symbolic link, or replace a file or link by it.

        ``owner`` contains the ids of user and group. Default: the running process's ids.
        """

    def rename(self, path: str, to: str, looked_at: os.stat_result) -> None:
        """Rename a path within its directory. An empty directory with the new name is replaced."""

    def set_labels(self, path: str, labels: Mapping[str, bytes], looked_at: os.stat_result) -> None:
        """Set these extended attributes of the path itself, and remove all others that can be removed."""

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

        A regular file for which ``requires_new_file`` holds is replaced by a new file with ``content``. Pass the bytes
        that the file was compared with. Without ``content``, the present content is copied, and a file with several
        names is refused.
        """

    def set_note(self, path: str, key: str, text: str, *, within: str = "") -> None:
        """Leave a note on a regular file, which is lost when the file is replaced."""

    def remove(self, path: str, looked_at: os.stat_result, *, within: str = "") -> None:
        """Remove a file, link or empty directory."""

    def removing(self, within: str) -> AbstractContextManager[None]:
        """Let all removals ``within`` a directory share one open directory until the end of the context.

        Each path should be near the path before, so that removing a deep tree takes linear time.
        """

    def remove_tree(self, path: str, looked_at: os.stat_result) -> None:
        """Remove a directory with its contents. Links are removed, never followed."""

    def write_kernel(self, path: str, data: bytes) -> None:
        """Write a value to a kernel file, such as one below ``/proc/sys``, in place and in one call."""

    def execute(self, command: "Command") -> "Completed":
        """Run a command that may change the machine."""

    def act_as(self, identity: "Identity", act: Callable[[], object]) -> None:
        """Call ``act`` as a user, in a separate process, to make changes in the user's directories."""


def requires_new_file(status: os.stat_result, attributes: Attributes) -> bool:
    """Return whether a regular file must be replaced to get these attributes.

    A process that has opened or mapped a file can write to it indefinitely, even after its owner and mode change. These
    changes therefore need a new inode:

    1. The file belonged to another user, or other users lose the permission to write it.
    2. The file becomes executable or gets a set-id bit. Another process may have prepared its content.
    """
    if not stat.S_ISREG(status.st_mode):
        return False
    same_owner, same_group = status.st_uid == attributes.uid, status.st_gid == attributes.gid
    # 1. Former writers
    if not same_owner and status.st_uid not in (0, os.geteuid()):
        return True
    retained = attributes.mode if same_group else attributes.mode & ~stat.S_IWGRP
    if status.st_mode & ~retained & (stat.S_IWGRP | stat.S_IWOTH):
        return True
    # 2. New programs
    had = status.st_mode if same_owner and same_group else status.st_mode & ~_SET_ID
    return bool(attributes.mode & ~had & (_SET_ID | _EXECUTABLE))


def require_one_name(path: str, status: os.stat_result) -> None:
    """Raise ``ResourceError`` for a file with hard links, which other users may have made to get it changed."""
    if not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1:
        detail = f"has {status.st_nlink} names (hard links), so it may be a file of another user"
        raise ResourceError(f"{path}: {detail}, and its owner, group and mode are not changed")
