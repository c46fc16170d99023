"""The user that a command runs as, and work done as another user.

* The databases of users and groups supply the complete login: ids, all groups, home and shell.
* Work in directories of a user is done by a child process with the user's ids, which cannot regain root. Links or file
  names that the user puts there give the child no access beyond the user's own.
* The child does not run another program. Its exceptions are raised in the parent.
"""

import contextlib
import grp
import os
import pwd
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import NoReturn, Self

import msgspec

from puller.errors import ResourceError
from puller.system import processes


class Identity(msgspec.Struct, frozen=True):
    """A user with the primary group and all supplementary groups of a login."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @classmethod
    def find(cls, user: str | int, group: str | int | None = None) -> Self:
        """Return the identity of a user by name or id, optionally with another primary group.

        Raises ``ResourceError`` for an unknown user or group.
        """
        entry = _entry(user)
        gid = entry.pw_gid if group is None else _group_id(group)
        groups = tuple(os.getgrouplist(entry.pw_name, gid))
        return cls(entry.pw_name, entry.pw_uid, gid, groups, entry.pw_dir, entry.pw_shell or "/bin/sh")

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of a login that name the user."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


def _entry(user: str | int) -> pwd.struct_passwd:
    try:
        if isinstance(user, int) or (user.isascii() and user.isdecimal()):
            return pwd.getpwuid(int(user))
        return pwd.getpwnam(user)
    except (KeyError, OverflowError) as error:
        raise ResourceError(f"user is {user!r}, an unknown user") from error


def _group_id(group: str | int) -> int:
    if isinstance(group, int) or (group.isascii() and group.isdecimal()):
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise ResourceError(f"group is {group!r}, an unknown group") from error


# Work in a child process that runs as the user.

LIMIT = 60.0
"""Seconds for the child process. The files may be on a server that does not answer, or the user may stop the child."""
_LOOK = 0.5  # seconds between checks for signals
_CHUNK = 65536


class _Failure(msgspec.Struct):
    """The exception of the child. ``number`` is the ``errno`` of an ``OSError``."""

    sentence: str
    number: int = 0
    path: str | None = None


def act_as(identity: Identity, act: Callable[[], object]) -> None:
    """Call ``act`` as a user. Raises its ``OSError`` or ``ResourceError``, and ``ResourceError`` after a timeout.

    1. Fork. The child takes the user's ids, acts, and reports the result.
    2. Wait for the report, or for the timeout.
    3. Reap the child in every case.
    """
    reading, writing = os.pipe()
    # 1. Fork
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child never waits for a thread
        child = os.fork()
    if child == 0:
        _child(identity, act, writing)
    os.close(writing)
    try:
        # 2. Wait
        text = _read(reading, time.monotonic() + LIMIT)
    finally:
        # 3. Reap
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # its work is done
        os.waitpid(child, 0)
    _raise(identity, text)


def _child(identity: Identity, act: Callable[[], object], writing: int) -> NoReturn:
    """Act in the child process. Never returns, because the stack belongs to the parent."""
    text = _Failure("ended without a result")
    try:
        become(identity)
        act()
        text = _Failure("")
    except OSError as error:
        text = _Failure(error.strerror or str(error), error.errno or 0, str(error.filename or ""))
    except BaseException as error:  # noqa: BLE001  must not unwind the parent's stack in the child
        text = _Failure(str(error) or type(error).__name__)
    finally:
        try:
            os.write(writing, msgspec.json.encode(text))
        finally:
            os._exit(0)


def become(identity: Identity) -> None:
    """Irrevocably give this process the ids of a user."""
    os.umask(0o077)
    if os.geteuid() == identity.uid == os.getuid():
        return
    os.setgroups([identity.gid])
    os.setresgid(identity.gid, identity.gid, identity.gid)
    os.setresuid(identity.uid, identity.uid, identity.uid)


def _read(descriptor: int, deadline: float) -> bytes | None:
    """Return the report of the child, ``None`` after the timeout."""
    text = b""
    while (remaining := deadline - time.monotonic()) > 0:
        processes.check_command()
        if select.select([descriptor], [], [], min(remaining, _LOOK))[0]:
            piece = os.read(descriptor, _CHUNK)
            if not piece:
                return text
            text += piece
    return None


def _raise(identity: Identity, text: bytes | None) -> None:
    if text is None:
        raise ResourceError(f"the change as {identity.name} was not finished within {LIMIT:g} s")
    try:
        failure = msgspec.json.decode(text, type=_Failure)
    except msgspec.DecodeError:
        raise ResourceError(f"the change as {identity.name} was interrupted") from None
    if failure.number:
        raise OSError(failure.number, failure.sentence, failure.path or None)
    if failure.sentence:
        raise ResourceError(failure.sentence)
