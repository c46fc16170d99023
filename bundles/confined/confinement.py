"""The rights that a process gives up before it speaks to the network; none of them can be had back.

=================  ====================================================================================================
user and group     those of ``_puller``, or of ``nobody`` on a host that has none, where the agent is root
capabilities       none; no new privileges by starting a program
files              read: the system's, and the agent's own code. Written, made, removed: none (Landlock, kernel 5.13)
system calls       no programs, processes and threads, no signals, nothing of other processes, no changes of files, no
                   ports to listen on; where it has the user of the agent, no services of this machine
                   (``seccomp.py``)
limits             no byte into a file, no core dump, no process, 128 descriptors, 1 GiB of memory, shared or not
=================  ====================================================================================================
"""

import ctypes
import os
import pwd
import resource
import sys
from collections.abc import Iterable

from bundles.confined import landlock, seccomp

USERS = ("_puller", "nobody")
"""The users that are tried, in this order, where none is named."""
_NOBODY = 65534

_MEMORY = 1 << 30
_DESCRIPTORS = 128
LANDLOCK, SECCOMP = "landlock", "seccomp"
"""The protections that a kernel may lack."""

_SET_DUMPABLE, _SET_NO_NEW_PRIVILEGES = 4, 38
_CAPABILITIES_VERSION = 0x20080522

# What names, certificates and the loading of libraries need.
_SYSTEM = (
    "/usr", "/lib", "/lib64", "/dev/null", "/dev/urandom", "/etc/ca-certificates", "/etc/crypto-policies",
    "/etc/gai.conf", "/etc/host.conf", "/etc/hosts", "/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf",
    "/etc/pki", "/etc/protocols", "/etc/resolv.conf", "/etc/services", "/etc/ssl", "/proc/self", "/run/systemd/resolve",
)  # fmt: skip


def confine(user: str, readable: Iterable[str] = ()) -> list[str]:
    """Give up all that speaking to the network does not need.

    ``user`` is a name or a number; empty: the first of `USERS`; ``root``: root's user, without its capabilities. It is
    looked at only where this process is root. ``readable`` are files and directories beside the system's. Returns the
    protections that the kernel lacks. Raises ``OSError`` and ``LookupError`` where that cannot be done.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    allowed = [*_SYSTEM, sys.prefix, sys.base_prefix, *filter(None, sys.path), *readable]
    _limit()
    agents = os.geteuid()
    if agents == 0:
        _become(*_identity(user))
    _drop_capabilities(libc)
    if libc.prctl(_SET_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no new privileges")
    # Others with the same user may not look into this one's memory, which has credentials.
    libc.prctl(_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)
    missing = [] if landlock.restrict(libc, allowed) else [LANDLOCK]
    # Services of this machine do for a user what it may do: as much as the agent, where it has that user.
    return missing if seccomp.restrict(libc, local=os.geteuid() != agents) else [*missing, SECCOMP]


def _limit() -> None:
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_NPROC: 0,  # root has no such limit, so seccomp refuses new processes and threads, too
        resource.RLIMIT_NOFILE: _DESCRIPTORS,  # each pipe and socket has buffers in the kernel
        resource.RLIMIT_DATA: _MEMORY,
        resource.RLIMIT_AS: _mapped() + _MEMORY,  # shared memory is not data, but it is mapped
    }
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _mapped() -> int:
    """Return the bytes that this process has mapped: libraries for the most part."""
    try:
        with open("/proc/self/statm", "rb") as stream:
            return int(stream.read().split()[0]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return _MEMORY


def _identity(user: str) -> tuple[int, int]:
    for name in (user,) if user else USERS:
        try:
            found = pwd.getpwuid(int(name)) if (name.isascii() and name.isdecimal()) else pwd.getpwnam(name)
        except KeyError:
            continue
        return found.pw_uid, found.pw_gid
    if user.isascii() and user.isdecimal():
        return int(user), int(user)
    if user:
        raise LookupError(f"there is no user {user}")
    return _NOBODY, _NOBODY


def _become(uid: int, gid: int) -> None:
    if uid == 0:
        return
    try:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:  # in a container without that right, or without that user
        way = "`network_user: root` leaves it root's, and takes all of its rights"
        raise PermissionError(f"it may not become user {uid} ({error.strerror}); {way}") from None


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    header = _CAPABILITIES_VERSION.to_bytes(4, sys.byteorder) + bytes(4)
    if libc.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")
