"""A root directory for this process alone: a tree, memory that takes what is written, and nothing else of the machine.

1. The process has ``/proc`` of its own processes, a few devices that hold nothing, and no setting of the kernel that
   could be written.
2. All that will be needed of this machine is mounted, read-only, at its own path: Python's modules, the bundle.
3. The root is changed, and the machine's own let go of: afterwards no path leads to it.
4. What could change the kernel itself, whatever the files, is taken from the commands that will be run.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from puller.errors import SourceError

_PLACE: Final = "/sys"
"""Where the private root is built: in these namespaces nothing else of it is looked at."""

_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS: Final = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}

# include/uapi/linux/prctl.h, capability.h and mount.h
_PR_CAPBSET_DROP: Final = 24
_DROPPED: Final = {
    "sys_module": 16,
    "sys_rawio": 17,
    "sys_boot": 22,
    "sys_time": 25,
    "mknod": 27,
    "syslog": 34,
}
_MNT_DETACH: Final = 2


def enter_private_root(tree: str, needed: Iterable[str]) -> None:
    """Change the root of this process, which has a mount namespace of its own, to a copy of ``tree``.

    ``needed``: paths of this machine that stay readable. Raises ``SourceError`` where the kernel refuses.
    """
    root = f"{_PLACE}/root"
    _mount("-t", "tmpfs", "-o", "mode=0755", "puller-trial", _PLACE)
    for name in ("tree", "upper", "work", "root"):
        os.mkdir(f"{_PLACE}/{name}")
    # By a path without commas and colons, which options of overlayfs would be cut at.
    _mount("--bind", tree, f"{_PLACE}/tree")
    layers = f"lowerdir={_PLACE}/tree,upperdir={_PLACE}/upper,workdir={_PLACE}/work"
    mode = os.stat(f"{_PLACE}/tree").st_mode & 0o7777
    os.chmod(f"{_PLACE}/upper", mode)
    _mount("-t", "overlay", "-o", layers, "overlay", root)
    _mount_kernel(root)
    for path in needed:  # after /dev, for a bundle may lie in /dev/shm
        _show(path, root)
    _change_root(root)
    for capability in _DROPPED.values():
        _libc_call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)


def _show(path: str, root: str) -> None:
    """Mount a file or directory of this machine, read-only, at its own path below ``root``."""
    target = Path(root + path)
    if os.path.isdir(path):
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount("--bind", "-o", "ro", path, str(target))


def _mount_kernel(root: str) -> None:
    for name in ("proc", "sys", "dev"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    _mount("-t", "proc", "-o", "nosuid,nodev,noexec", "proc", f"{root}/proc")
    _mount("--bind", "-o", "ro", f"{root}/proc/sys", f"{root}/proc/sys")
    _mount("-t", "sysfs", "-o", "ro,nosuid,nodev,noexec", "sysfs", f"{root}/sys")
    _mount("-t", "tmpfs", "-o", "mode=0755,nosuid", "dev", f"{root}/dev")
    for name in filter(lambda name: os.path.exists(f"/dev/{name}"), _DEVICES):
        Path(f"{root}/dev/{name}").touch()
        _mount("--bind", f"/dev/{name}", f"{root}/dev/{name}")
    for name, target in _LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")
    os.mkdir(f"{root}/dev/shm")  # noqa: S108  that of the private root
    _mount("-t", "tmpfs", "-o", "mode=1777,nosuid,nodev", "shm", f"{root}/dev/shm")  # noqa: S108


def _change_root(root: str) -> None:
    """Puts the old root over the new one, as pivot_root(2) describes, and takes it away."""
    os.chdir(root)
    _run("pivot_root", ".", ".")
    _libc_call("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def _mount(*arguments: str) -> None:
    _run("mount", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split())
        raise SourceError(f"{' '.join(command)}: a private root cannot be made here: {said}")


def _libc_call(name: str, *arguments: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        raise SourceError(f"{name}: a private root cannot be made here: {os.strerror(ctypes.get_errno())}")
