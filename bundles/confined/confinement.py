"""Restrictions of a process before it uses the network. They cannot be lifted again.

=================  ====================================================================================================
user and group     ``_puller``, or ``nobody`` on a host without that user, if the agent runs as root
capabilities       none, and starting a program gives no new privileges
files              read only the system's files and the agent's code. No writing, creating or removing (Landlock,
                   kernel 5.13)
system calls       no programs, processes, threads, signals, access to other processes, file changes or listening
                   ports. With the user of the agent, also no services of this machine (seccomp)
limits             no writes to files, no core dump, no processes, 128 descriptors, 1 GiB of memory, shared or not
=================  ====================================================================================================

Kernels without Landlock (before 5.13, or switched off) leave the protection of files to the user and the
capabilities.
"""

import contextlib
import ctypes
import errno
import os
import pwd
import resource
import stat
import struct
import sys
from collections.abc import Iterable

# Access to files, by Landlock of the kernel. Source: Documentation/userspace-api/landlock.rst of the kernel.

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_VERSION = 1
_PATH_BENEATH = 1
_READ_FILE, _READ_DIRECTORY = 1 << 2, 1 << 3
_BIND_TCP = 1
_SCOPES = 0b11  # abstract sockets and signals of other processes
# The number of file access rights in each version of the interface. The rights are numbered from the first.
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_MOST_RIGHTS = 16


def landlock_version(libc: ctypes.CDLL) -> int:
    """Return the version of the kernel's interface, or 0 without Landlock."""
    return max(int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))), 0)


def restrict_files(libc: ctypes.CDLL, readable: Iterable[str]) -> bool:
    """Allow this process to read files below ``readable``, and nothing else. Missing paths are ignored.

    If the kernel supports it, listening on ports and signals to other processes are rejected, too. Returns whether the
    rules are in force, which requires Landlock. Raises ``OSError`` if the kernel rejects the rules.
    """
    result = landlock_version(libc)
    if result == 0:
        return False
    rights = (1 << _RIGHTS.get(result, _MOST_RIGHTS)) - 1
    words = [rights, _BIND_TCP, _SCOPES][: 1 if result < 4 else 2 if result < 6 else 3]
    attributes = b"".join(word.to_bytes(8, "little") for word in words)
    ruleset = _called(libc, _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    try:
        for path in readable:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                _allow(libc, ruleset, path)
        _called(libc, _RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    finally:
        os.close(ruleset)
    return True


def _allow(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        rights = _READ_FILE | (_READ_DIRECTORY if is_directory else 0)
        rule = rights.to_bytes(8, "little") + descriptor.to_bytes(4, "little")
        _called(libc, _ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint(0))
    finally:
        os.close(descriptor)


def _called(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    answer = int(libc.syscall(number, *arguments))
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return answer


# Rejected system calls, by seccomp of the kernel.
#
# * The filter lists rejected calls. A list of allowed calls could break with an upgrade of libc, OpenSSL or Python.
# * Rejected calls start programs, processes or threads, change files, listen for connections, reach into other
#   processes, reserve memory outside of the limits, or use parts of the kernel that HTTP does not need.
# * The numbers come from the kernel's tables for each architecture. Only these two architectures have a filter.

_SET_SECCOMP, _MODE_FILTER = 22, 2

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # of classic BPF
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in the data of the filter; arguments have 8 bytes
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000

_LOCAL, _NETLINK, _INTERNET = 1, 16, (2, 10)  # address families
_PROTOCOLS = (0, 6, 17)  # the default, TCP and UDP
_ROUTE = 0  # the protocol of netlink that the resolution of names uses
_NETLINK_ADDRESS = 12
"""Size in bytes of a netlink address. Internet addresses are longer, so a port cannot be bound."""
_WRITING = 0o3 | 0o100 | 0o1000 | 0o20000000
"""Flags of ``open``: write, create, truncate, temporary file."""

# glibc falls back to clone if clone3 is missing.
_CLONE3 = 435
_EVERYWHERE = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_open": 434, "openat2": 437, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442,
    "quotactl_fd": 443, "memfd_secret": 447, "process_mrelease": 448, "fchmodat2": 452, "statmount": 457,
    "listmount": 458, "setxattrat": 463, "removexattrat": 466, "open_tree_attr": 467, "file_setattr": 469,
}  # fmt: skip
_X86_64 = {
    "shmget": 29, "shmat": 30, "accept": 43, "listen": 50, "socketpair": 53, "clone": 56, "fork": 57, "vfork": 58,
    "execve": 59, "kill": 62, "semget": 64, "msgget": 68, "truncate": 76, "ftruncate": 77, "rename": 82, "mkdir": 83,
    "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "chmod": 90, "fchmod": 91, "chown": 92,
    "fchown": 93, "lchown": 94, "ptrace": 101, "syslog": 103, "setpgid": 109, "setsid": 112, "rt_sigqueueinfo": 129,
    "utime": 132, "mknod": 133, "uselib": 134, "personality": 135, "mlock": 149, "mlockall": 151, "vhangup": 153,
    "modify_ldt": 154, "pivot_root": 155, "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164,
    "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170,
    "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179,
    "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198,
    "fremovexattr": 199, "tkill": 200, "io_setup": 206, "remap_file_pages": 216, "clock_settime": 227,
    "tgkill": 234, "utimes": 235, "mbind": 237, "mq_open": 240, "mq_unlink": 241, "kexec_load": 246, "add_key": 248,
    "request_key": 249, "keyctl": 250, "inotify_init": 253, "inotify_add_watch": 254, "migrate_pages": 256,
    "mkdirat": 258, "mknodat": 259, "fchownat": 260, "futimesat": 261, "unlinkat": 263, "renameat": 264,
    "linkat": 265, "symlinkat": 266, "fchmodat": 268, "unshare": 272, "splice": 275, "tee": 276, "vmsplice": 278,
    "move_pages": 279, "utimensat": 280, "fallocate": 285, "accept4": 288, "inotify_init1": 294,
    "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "fanotify_init": 300, "fanotify_mark": 301,
    "name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "renameat2": 316, "memfd_create": 319,
    "kexec_file_load": 320, "bpf": 321, "execveat": 322, "userfaultfd": 323, "mlock2": 325,
}  # fmt: skip
_AARCH64 = {
    "io_setup": 0, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15,
    "fremovexattr": 16, "inotify_init1": 26, "inotify_add_watch": 27, "mknodat": 33, "mkdirat": 34, "unlinkat": 35,
    "symlinkat": 36, "linkat": 37, "renameat": 38, "umount2": 39, "mount": 40, "pivot_root": 41, "truncate": 45,
    "ftruncate": 46, "fallocate": 47, "chroot": 51, "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55,
    "vhangup": 58, "quotactl": 60, "vmsplice": 75, "splice": 76, "tee": 77, "utimensat": 88, "acct": 89,
    "personality": 92, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
    "clock_settime": 112, "syslog": 116, "ptrace": 117, "kill": 129, "tkill": 130, "tgkill": 131,
    "rt_sigqueueinfo": 138, "reboot": 142, "setpgid": 154, "setsid": 157, "sethostname": 161, "setdomainname": 162,
    "settimeofday": 170, "adjtimex": 171, "mq_open": 180, "mq_unlink": 181, "msgget": 186, "semget": 190,
    "shmget": 194, "shmat": 196, "socketpair": 199, "listen": 201, "accept": 202, "add_key": 217,
    "request_key": 218, "keyctl": 219, "clone": 220, "execve": 221, "swapon": 224, "swapoff": 225, "mlock": 228,
    "mlockall": 230, "remap_file_pages": 234, "mbind": 235, "migrate_pages": 238, "move_pages": 239,
    "rt_tgsigqueueinfo": 240, "perf_event_open": 241, "accept4": 242, "fanotify_init": 262, "fanotify_mark": 263,
    "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270,
    "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "renameat2": 276, "memfd_create": 279, "bpf": 280,
    "execveat": 281, "userfaultfd": 282, "mlock2": 284, "kexec_file_load": 294,
}  # fmt: skip


class _Machine:
    """An architecture: its number in the kernel, its rejected calls, and the calls with checked arguments."""

    def __init__(
        self, number: int, refused: dict[str, int], *, socket: int, bind: int, opens: dict[int, int]
    ) -> None:
        """``opens`` are the calls that open a file, each with the position of its flags."""
        self.number = number
        self.refused = sorted({*refused.values(), *_EVERYWHERE.values()})
        self.socket, self.bind, self.opens = socket, bind, opens


_MACHINES = {
    "x86_64": _Machine(0xC000003E, _X86_64, socket=41, bind=49, opens={2: 1, 257: 2}),
    "aarch64": _Machine(0xC00000B7, _AARCH64, socket=198, bind=200, opens={56: 2}),
}
_SECOND_TABLE = 0x40000000
"""Number of the first call in a second table of x86 with the same calls."""


def restrict_system_calls(libc: ctypes.CDLL, *, local: bool) -> bool:
    """Reject system calls from now on, and without ``local`` also sockets of this machine.

    Requires "no new privileges" first. Returns whether the filter is in force, which requires a known architecture and
    a kernel with seccomp. Raises ``OSError`` if the kernel rejects it.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return False
    code = _program(machine, local=local)
    program = ctypes.create_string_buffer(code, len(code))
    arguments = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(program))
    if libc.prctl(_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), arguments, 0, 0) != 0:
        error = ctypes.get_errno()
        # Errors of a kernel without seccomp, and of a sandbox around the agent.
        if error not in (errno.EINVAL, errno.EPERM):
            raise OSError(error, f"seccomp: {os.strerror(error)}")
        return False
    return True


def _program(machine: _Machine, *, local: bool) -> bytes:
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        *(_step(_EQUAL, machine.number, 1, 0), _REFUSED),
        _step(_LOAD, _NUMBER),
        *(_step(_AT_LEAST, _SECOND_TABLE, 0, 1), _REFUSED),
        *_for(_CLONE3, [_step(_RETURN, _REFUSE | errno.ENOSYS)]),
    ]
    for number in machine.refused:
        steps += _for(number, [_REFUSED])
    for number, position in machine.opens.items():
        steps += _for(number, [_argument(position), _step(_ANY_BIT, _WRITING, 0, 1), _REFUSED, _ALLOWED])
    steps += _for(machine.bind, [_argument(2), *_only((_NETLINK_ADDRESS,))])
    sockets: list[bytes] = []
    for family in _INTERNET:
        sockets += _for(family, [_argument(2), *_only(_PROTOCOLS)])
    sockets += _for(_NETLINK, [_argument(2), *_only((_ROUTE,))])
    if local:
        sockets += _for(_LOCAL, [_ALLOWED])
    steps += _for(machine.socket, [_argument(0), *sockets, _REFUSED])
    return b"".join([*steps, _ALLOWED])


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_so, if_not, value)


_REFUSED, _ALLOWED = _step(_RETURN, _REFUSE | errno.EPERM), _step(_RETURN, _ALLOW)


def _for(value: int, steps: list[bytes]) -> list[bytes]:
    """Return steps for the case that the loaded value is ``value``. They end with a decision."""
    return [_step(_EQUAL, value, 0, len(steps)), *steps]


def _argument(position: int) -> bytes:
    """Load the lower half of an argument: both architectures are little endian."""
    return _step(_LOAD, _ARGUMENTS + 8 * position)


def _only(values: Iterable[int]) -> list[bytes]:
    """Return steps that allow the call with these values, and reject it with other values."""
    return [*(step for value in values for step in _for(value, [_ALLOWED])), _REFUSED]


USERS = ("_puller", "nobody")
"""The default users, in order of preference."""
_NOBODY = 65534

_MEMORY = 1 << 30
_DESCRIPTORS = 128
LANDLOCK, SECCOMP = "landlock", "seccomp"
"""The protections that a kernel may lack."""

_SET_DUMPABLE, _SET_NO_NEW_PRIVILEGES = 4, 38
_CAPABILITIES_VERSION = 0x20080522

# Files for host names, certificates and the loading of libraries.
_SYSTEM = (
    "/usr", "/lib", "/lib64", "/dev/null", "/dev/urandom", "/etc/ca-certificates", "/etc/crypto-policies",
    "/etc/gai.conf", "/etc/host.conf", "/etc/hosts", "/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf",
    "/etc/pki", "/etc/protocols", "/etc/resolv.conf", "/etc/services", "/etc/ssl", "/proc/self", "/run/systemd/resolve",
)  # fmt: skip


def confine(user: str, readable: Iterable[str] = ()) -> list[str]:
    """Give up all privileges that the network does not require.

    ``user`` is a name or a number. Empty: the first of `USERS`. ``root``: the user root without its capabilities. A
    process that does not run as root ignores ``user``. ``readable`` are further files and directories. Returns the
    protections that the kernel lacks. Raises ``OSError`` and ``LookupError`` if the confinement fails.
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
    # Other processes of the same user must not read this memory, which contains credentials.
    libc.prctl(_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)
    missing = [] if restrict_files(libc, allowed) else [LANDLOCK]
    # Local services trust a user. With the agent's own user, they would act with the agent's rights.
    return missing if restrict_system_calls(libc, local=os.geteuid() != agents) else [*missing, SECCOMP]


def _limit() -> None:
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_NPROC: 0,  # not enforced for root, so seccomp rejects new processes and threads, too
        resource.RLIMIT_NOFILE: _DESCRIPTORS,  # each pipe and socket has buffers in the kernel
        resource.RLIMIT_DATA: _MEMORY,
        resource.RLIMIT_AS: _mapped() + _MEMORY,  # shared memory is not data, but it is mapped
    }
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _mapped() -> int:
    """Return the number of bytes that this process has mapped, mostly libraries."""
    try:
        with open("/proc/self/statm", "rb") as stream:
            return int(stream.read().split()[0]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return _MEMORY


def _identity(user: str) -> tuple[int, int]:
    for name in (user,) if user else USERS:
        try:
            result = pwd.getpwuid(int(name)) if (name.isascii() and name.isdecimal()) else pwd.getpwnam(name)
        except KeyError:
            continue
        return result.pw_uid, result.pw_gid
    if user.isascii() and user.isdecimal():
        return int(user), int(user)
    if user:
        raise LookupError(f"unknown user {user}")
    return _NOBODY, _NOBODY


def _become(uid: int, gid: int) -> None:
    if uid == 0:
        return
    try:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:  # a container may lack the right or the user
        route = "with `network_user: root` it stays root, without any capabilities"
        raise PermissionError(f"it cannot become user {uid} ({error.strerror}); {route}") from None


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    header = _CAPABILITIES_VERSION.to_bytes(4, sys.byteorder) + bytes(4)
    if libc.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")
