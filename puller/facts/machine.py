"""The machine that facts are read from.

* Files are read below ``root``, so that a directory can replace ``/``. Information from the kernel or libc comes from
  methods, so that tests can replace them by recorded values.
* Only a missing file reads as ``None``. Any other failure is recorded in ``problems``, and never stops the gathering.
"""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from puller.facts.fact_values import LIMIT, FactError, within

if TYPE_CHECKING:
    from puller.facts.netlink import Address, Link


class Machine:
    """This machine, or files below ``root``. ``limit`` is the time in seconds that one source may take."""

    def __init__(self, root: str = "/", *, limit: float = LIMIT) -> None:
        self.root = root.rstrip("/")
        self.limit = limit
        self.problems: list[FactError] = []

    def note(self, where: str, what: str | OSError) -> None:
        """Record once that a source could not be read."""
        text = (what.strerror or str(what)) if isinstance(what, OSError) else what
        if not any((known.where, known.what) == (where, text) for known in self.problems):
            self.problems.append(FactError(where, text))

    # Files

    def read(self, path: str) -> str | None:
        """Return the text of a file, or ``None`` if it is missing or unreadable. Unreadable files are recorded."""
        try:
            return self._text(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.note(path, error)
            return None

    def need(self, path: str) -> str:
        """Return the text of a file that a group of facts requires. Raises ``FactError``."""
        try:
            return self._text(path)
        except OSError as error:
            raise FactError(path, error.strerror or str(error)) from error

    def hint(self, path: str) -> str:
        """Return the text of an optional file that most users cannot read, or empty text."""
        try:
            return self._text(path)
        except OSError:
            return ""

    def value(self, path: str) -> str | None:
        """Return an attribute of ``/sys``: one stripped line, or ``None`` if it is empty or missing."""
        return (self.read(path) or "").strip() or None

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted. A missing directory is empty."""
        try:
            return sorted(os.listdir(self.root + path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.note(path, error)
            return []

    def may_list(self, path: str) -> bool:
        """Return whether this user may list a directory."""
        return os.access(self.root + path, os.R_OK | os.X_OK)

    def has(self, path: str) -> bool:
        """Return whether a path exists."""
        return os.path.exists(self.root + path)

    def link(self, path: str) -> str:
        """Return the target of a symbolic link, or empty text if it cannot be read."""
        try:
            return os.readlink(self.root + path)
        except OSError:
            return ""

    def _text(self, path: str) -> str:
        with open(self.root + path, "rb") as stream:
            return stream.read().decode("utf-8", errors="replace")

    # Kernel and libc

    @property
    def environ(self) -> Mapping[str, str]:
        """Return the environment of this process."""
        return os.environ

    def uname(self) -> os.uname_result:
        """Return kernel name, release, machine and host name."""
        return os.uname()

    def clock_ticks(self) -> int:
        """Return ticks per second in ``/proc/PID/stat``."""
        return os.sysconf("SC_CLK_TCK")

    def zone(self) -> str:
        """Return the current abbreviation of the time zone."""
        return time.localtime().tm_zone

    def user_id(self) -> int:
        """Return the current user."""
        return os.geteuid()

    def account(self, uid: int) -> pwd.struct_passwd:
        """Return the account of a user. Raises ``KeyError`` for a user without an account, as in containers."""
        return pwd.getpwuid(uid)

    def group_name(self, gid: int) -> str:
        """Return the name of a group. Raises ``KeyError`` for a group without a name."""
        return grp.getgrgid(gid).gr_name

    def sizes(self, path: str) -> os.statvfs_result:
        """Return sizes of the file system mounted at ``path``. Raises ``OSError``, and can block forever."""
        return os.statvfs(path)

    def canonical_name(self, name: str, seconds: float) -> str | None:
        """Return the resolver's full name for a host. Raises ``OSError``, including ``TimeoutError``."""
        import socket  # 2 % of an idle apply, which uses no resolver

        # As bytes, because Python's codec for names rejects a label of 64 characters, which the kernel permits.
        host = name.encode() if name.isascii() else name
        answers = within(
            seconds, socket.getaddrinfo, host, None, 0, socket.SOCK_STREAM, 0, socket.AI_CANONNAME
        )
        return answers[0][3] or None

    def links(self) -> list[Link]:
        """Return network interfaces, in the kernel's order. Raises ``OSError``."""
        from puller.facts import netlink  # with ``socket``, see above

        return netlink.links()

    def addresses(self) -> list[Address]:
        """Return addresses of all interfaces, in the kernel's order. Raises ``OSError``."""
        from puller.facts import netlink  # with ``socket``, see above

        return netlink.addresses()
