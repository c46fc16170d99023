"""System calls that are refused to this process, by seccomp of the kernel.

* The filter is a list of refused calls. An upgrade of the libc, OpenSSL or Python changes which calls they make, and a
  host must not lose its agent by an upgrade.
* Refused are calls that start programs, processes or threads, change files, wait for connections, reach into other
  processes, reserve memory outside of the limits, or lead into parts of the kernel that HTTP does not use.
* The numbers come from the kernel's tables of the architecture. Other architectures than these two have no filter.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

_SET_SECCOMP, _MODE_FILTER = 22, 2

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # of classic BPF
_NUMBER, _ARCHITECTURE, _ARGUMENTS = (
    0,
    4,
    16,
)  # offsets in what the filter sees; arguments have eight bytes each
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000

_LOCAL, _NETLINK, _INTERNET = 1, 16, (2, 10)  # address families
_PROTOCOLS = (0, 6, 17)  # the default, TCP and UDP
_ROUTE = 0  # the protocol of netlink that the resolution of names uses
_NETLINK_ADDRESS = 12
"""Bytes of an address of netlink. Those of the internet are longer, so a port cannot be bound."""
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
    """An architecture: its number in the kernel, its refused calls, and the calls whose arguments are judged."""

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
"""Calls from here on are the same ones in another table, of x86."""


def restrict(libc: ctypes.CDLL, *, local: bool) -> bool:
    """Refuse the calls from now on, and without ``local`` sockets of this machine, too.

    No new privileges must be said before. Returns whether the filter is in force: other architectures have none, and
    neither has a kernel without seccomp. Raises ``OSError`` when the kernel refuses.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return False
    code = _program(machine, local=local)
    program = ctypes.create_string_buffer(code, len(code))
    arguments = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(program))
    if libc.prctl(_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), arguments, 0, 0) != 0:
        error = ctypes.get_errno()
        # The answers of a kernel that was built without it, and of what confines the agent already.
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
    """Return steps that are taken only if the loaded value is ``value``. They end with an answer."""
    return [_step(_EQUAL, value, 0, len(steps)), *steps]


def _argument(position: int) -> bytes:
    """Load the lower half of an argument: both architectures are little endian."""
    return _step(_LOAD, _ARGUMENTS + 8 * position)


def _only(values: Iterable[int]) -> list[bytes]:
    """Return steps that allow the call with these values, and refuse it with others."""
    return [*(step for value in values for step in _for(value, [_ALLOWED])), _REFUSED]
