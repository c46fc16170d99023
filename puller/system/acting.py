"""Work in places of a user, done as that user: by a child of this process that has their ids and no way back.

* What the user has put there (links, names of files of others) leads the child to nothing that the user cannot reach.
* The child runs no other program, and what it raises is raised here.
"""

import contextlib
import os
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import NoReturn

import msgspec

from puller.errors import ResourceError
from puller.system import signals
from puller.system.identity import Identity

LIMIT = 60.0
"""Seconds that the child may take: its files may lie on a server that does not answer, and the user may stop it."""
_LOOK = 0.5  # seconds between looks at signals of ours
_CHUNK = 65536


class _Failure(msgspec.Struct):
    """What the child has raised; ``number`` is the ``errno`` of an ``OSError``."""

    sentence: str
    number: int = 0
    path: str | None = None


def act_as(identity: Identity, act: Callable[[], object]) -> None:
    """Call ``act`` as a user; raises the ``OSError`` or ``ResourceError`` that it raises, and one if it takes too long.

    1. Fork; the child takes the user's ids, acts, and says how that went.
    2. Wait for what it says, or for the end of its time.
    3. Collect it, whatever happened.
    """
    reading, writing = os.pipe()
    # 1. Fork
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # the child calls nothing that could wait for a thread
        child = os.fork()
    if child == 0:
        _child(identity, act, writing)
    os.close(writing)
    try:
        # 2. Wait
        said = _read(reading, time.monotonic() + LIMIT)
    finally:
        # 3. Collect
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it has nothing left to do
        os.waitpid(child, 0)
    _raise(identity, said)


def _child(identity: Identity, act: Callable[[], object], writing: int) -> NoReturn:
    """Never returns: what is on the stack of the parent is the parent's."""
    said = _Failure("ended without a word")
    try:
        become(identity)
        act()
        said = _Failure("")
    except OSError as error:
        said = _Failure(error.strerror or str(error), error.errno or 0, str(error.filename or ""))
    except BaseException as error:  # noqa: BLE001  it would unwind the parent's stack, in the child
        said = _Failure(str(error) or type(error).__name__)
    finally:
        try:
            os.write(writing, msgspec.json.encode(said))
        finally:
            os._exit(0)


def become(identity: Identity) -> None:
    """Give this process the ids of a user, for good."""
    os.umask(0o077)
    if os.geteuid() == identity.uid == os.getuid():
        return
    os.setgroups([identity.gid])
    os.setresgid(identity.gid, identity.gid, identity.gid)
    os.setresuid(identity.uid, identity.uid, identity.uid)


def _read(descriptor: int, deadline: float) -> bytes | None:
    """All that the child says; ``None`` when its time is over."""
    said = b""
    while (left := deadline - time.monotonic()) > 0:
        signals.check_command()
        if select.select([descriptor], [], [], min(left, _LOOK))[0]:
            piece = os.read(descriptor, _CHUNK)
            if not piece:
                return said
            said += piece
    return None


def _raise(identity: Identity, said: bytes | None) -> None:
    if said is None:
        raise ResourceError(f"what is done as {identity.name} was not done within {LIMIT:g} s")
    try:
        failure = msgspec.json.decode(said, type=_Failure)
    except msgspec.DecodeError:
        raise ResourceError(f"what is done as {identity.name} was ended on its way") from None
    if failure.number:
        raise OSError(failure.number, failure.sentence, failure.path or None)
    if failure.sentence:
        raise ResourceError(failure.sentence)
