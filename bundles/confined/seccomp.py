"""System calls that are refused to this process and its threads, by seccomp of the kernel.

A list of what is refused, and not of what is allowed: which calls a libc, OpenSSL and Python make changes with their
versions, and a host must not lose its agent by an upgrade of them. Refused is what starts programs or processes,
reaches into other processes, changes attributes of files, mounts or namespaces, or is a way into the kernel that
speaking HTTP has no use for. Numbers are those of the kernel's tables for the architecture; on others than these two
nothing is refused.
"""

import ctypes
import errno
import os
import struct

_SET_SECCOMP, _MODE_FILTER = 22, 2

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # of classic BPF
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in what the filter sees
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000

_THREAD = 0x10000  # CLONE_THREAD
_FAMILIES = (2, 10, 16)  # AF_INET, AF_INET6, and AF_NETLINK, which names need
_LOCAL = 1  # AF_UNIX

# With one number everywhere: clone3 is said not to be there, so that threads are started by clone.
_CLONE3 = 435
_EVERYWHERE = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_getfd": 438, "mount_setattr": 442, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
}  # fmt: skip
_X86_64 = {
    "shmget": 29, "shmat": 30, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "semget": 64, "msgget": 68,
    "truncate": 76, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "utime": 132, "setxattr": 188,
    "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199, "utimes": 235,
    "fchownat": 260, "futimesat": 261, "fchmodat": 268, "utimensat": 280,
    "ptrace": 101, "setpgid": 109, "setsid": 112, "rt_sigqueueinfo": 129, "personality": 135, "modify_ldt": 154,
    "pivot_root": 155, "chroot": 161, "mount": 165, "umount2": 166, "init_module": 175, "delete_module": 176,
    "tkill": 200, "tgkill": 234, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
    "unshare": 272, "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308,
    "process_vm_readv": 310, "process_vm_writev": 311, "finit_module": 313, "kexec_file_load": 320, "bpf": 321,
    "execveat": 322, "userfaultfd": 323,
}  # fmt: skip
_AARCH64 = {
    "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16,
    "truncate": 45, "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "utimensat": 88,
    "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "personality": 92, "unshare": 97, "kexec_load": 104,
    "init_module": 105, "delete_module": 106, "ptrace": 117, "kill": 129, "tkill": 130, "tgkill": 131,
    "rt_sigqueueinfo": 138, "setpgid": 154, "setsid": 157, "msgget": 186, "semget": 190, "shmget": 194, "shmat": 196,
    "add_key": 217, "request_key": 218, "keyctl": 219, "execve": 221, "rt_tgsigqueueinfo": 240,
    "perf_event_open": 241, "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270,
    "process_vm_writev": 271, "finit_module": 273, "bpf": 280, "execveat": 281, "userfaultfd": 282,
    "kexec_file_load": 294,
}  # fmt: skip

# The name of the machine: its number in the kernel, the calls, clone and socket.
_MACHINES = {
    "x86_64": (0xC000003E, _X86_64, 56, 41),
    "aarch64": (0xC00000B7, _AARCH64, 220, 198),
}
_SECOND_TABLE = 0x40000000
"""Calls from here on are the same ones in another table, of x86."""


def restrict(libc: ctypes.CDLL, *, local: bool) -> None:
    """Refuse the calls from now on, and without ``local`` sockets of this machine, too.

    No new privileges must be said before. Raises ``OSError`` when the kernel refuses. Does nothing on other
    architectures, and where the kernel has no seccomp.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return
    code = _program(*machine, (*_FAMILIES, _LOCAL) if local else _FAMILIES)
    program = ctypes.create_string_buffer(code, len(code))
    arguments = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(program))
    if libc.prctl(_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), arguments, 0, 0) != 0:
        error = ctypes.get_errno()
        # The answers of a kernel that was built without it, and of what confines the agent already.
        if error not in (errno.EINVAL, errno.EPERM):
            raise OSError(error, f"seccomp: {os.strerror(error)}")


def _program(
    architecture: int, calls: dict[str, int], clone: int, socket: int, families: tuple[int, ...]
) -> bytes:
    refused = _step(_RETURN, _REFUSE | errno.EPERM)
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        *(_step(_EQUAL, architecture, 1, 0), refused),
        _step(_LOAD, _NUMBER),
        *(_step(_AT_LEAST, _SECOND_TABLE, 0, 1), refused),
        *(_step(_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _REFUSE | errno.ENOSYS)),
    ]
    for number in sorted({*calls.values(), *_EVERYWHERE.values()}):
        steps += [_step(_EQUAL, number, 0, 1), refused]
    # A thread may be started, a process not.
    steps += [
        _step(_EQUAL, clone, 0, 4),
        _step(_LOAD, _FIRST_ARGUMENT),
        *(_step(_ANY_BIT, _THREAD, 1, 0), refused),
        _step(_RETURN, _ALLOW),
    ]
    steps += [_step(_EQUAL, socket, 0, 2 + len(families)), _step(_LOAD, _FIRST_ARGUMENT)]
    steps += [_step(_EQUAL, family, len(families) - at, 0) for at, family in enumerate(families)]
    steps += [refused, _step(_RETURN, _ALLOW)]
    return b"".join(steps)


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_so, if_not, value)
