"""Comparison of mounts with their declarations: devices by all their names, directories by their location.

* Source names of file systems without a device (``tmpfs``, ``proc``) are arbitrary, so they are not compared.
* ``UUID=`` and similar tags are resolved in ``/dev/disk``, without starting a process or reading a device.
"""

import os
import stat
from collections.abc import Sequence

from puller.errors import ResourceError
from puller.resources.kernel.fstab import Fields
from puller.resources.kernel.mount_table import Mounted, MountTable, content_of_overlay, is_bind

DISK = "/dev/disk"
SYS_BLOCK = "/sys/block"

_TAGS = {
    "UUID": "by-uuid",
    "LABEL": "by-label",
    "PARTUUID": "by-partuuid",
    "PARTLABEL": "by-partlabel",
    "ID": "by-id",
}
WITHOUT_DEVICE = frozenset(
    (
        *("tmpfs", "ramfs", "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs"),
        *("securityfs", "mqueue", "hugetlbfs", "configfs", "bpf", "pstore", "efivarfs", "binfmt_misc"),
        *("fusectl", "selinuxfs", "rpc_pipefs", "overlay"),
    )
)
"""Types whose source name is arbitrary."""
_WHOLE = frozenset(
    (
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "f2fs",
        "vfat",
        "exfat",
        "iso9660",
        "squashfs",
        "tmpfs",
        "ramfs",
        "overlay",
    )
)
"""Types whose ordinary mounts always show the whole file system."""
_OTHER_NAMES = {"nfs": "nfs4", "cifs": "smb3", "ntfs": "fuseblk", "ntfs-3g": "fuseblk"}


def is_wanted(wanted: Fields, mount: Mounted, table: MountTable) -> bool:
    """Return whether the mount matches the declaration. Raises ``ResourceError`` if this cannot be determined."""
    return _same_type(wanted.type, wanted.options, mount) and _same_device(wanted, mount, table)


def _same_type(desired: str, options: Sequence[str], mount: Mounted) -> bool:
    if is_bind(options) or desired in ("auto", mount.type, f"{mount.type}.{mount.source}"):
        return True
    return _OTHER_NAMES.get(desired) == mount.type or (desired == "fuse" and mount.type.startswith("fuse."))


def _same_device(desired: Fields, mount: Mounted, table: MountTable) -> bool:
    device = desired.device
    if is_bind(desired.options):
        return _where(device, table) == (mount.device, mount.root)
    if desired.type in WITHOUT_DEVICE:
        has_same_content = content_of_overlay(desired.options) <= content_of_overlay(mount.of_all)
        return has_same_content and not (desired.type in ("tmpfs", "ramfs", "overlay") and _is_part(mount))
    if device == mount.source:
        return not _is_part(mount)
    result = find_device(device)
    if result is None:
        raise ResourceError(f"unknown device {device} in {DISK}, so the mounted file system is unknown")
    if not result.startswith("/") or result.startswith("//"):
        return result.rstrip("/") == mount.source.rstrip("/")
    return _is_at(result, mount) and not _is_part(mount)


def _is_part(mount: Mounted) -> bool:
    """Return whether a bind mount shows a directory of a file system instead of the whole file system.

    Ordinary mounts of subvolumes and of servers also show a directory, and the root of a container may do so.
    """
    return mount.type in _WHOLE and mount.root != "/" and mount.point != "/"


def find_device(device: str) -> str | None:
    """Return the path of a tagged device, ``None`` if it is missing. Return other devices unchanged."""
    tag, equals, value = device.partition("=")
    if not equals or tag not in _TAGS:
        return device
    value = value.strip('"')
    names = dict.fromkeys((_as_udev_has_it(value), value.lower(), value.upper()))
    paths = (f"{DISK}/{_TAGS[tag]}/{name}" for name in names)
    return next((os.path.realpath(path) for path in paths if os.path.exists(path)), None)


def is_device_missing(device: str, kind: str) -> bool:
    """Return whether the device, file or directory is known to be missing."""
    if kind in WITHOUT_DEVICE:
        return False
    result = find_device(device)
    if result is None:
        return os.path.isdir(DISK)  # only udev maintains this directory
    return result.startswith("/") and not result.startswith("//") and not os.path.exists(result)


def _as_udev_has_it(label: str) -> str:
    """Return a label as udev's file name, with unusual characters in hexadecimal."""
    return "".join(item if item.isalnum() or item in "#+-.:=@_" else _hexadecimal(item) for item in label)


def _hexadecimal(character: str) -> str:
    if not character.isascii():
        return character
    return f"\\x{ord(character):02x}"


def _is_at(path: str, mount: Mounted) -> bool:
    real = os.path.realpath(path)
    if mount.source.startswith("/") and real == os.path.realpath(mount.source):
        return True
    try:
        status = os.stat(real)
    except FileNotFoundError:
        return False
    if stat.S_ISBLK(status.st_mode):
        return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}" == mount.device
    return _backing_file(mount.source) == real


def _backing_file(source: str) -> str | None:
    """Return the backing file of a loop device."""
    try:
        with open(f"{SYS_BLOCK}/{os.path.basename(source)}/loop/backing_file", encoding="utf-8") as stream:
            return stream.read().rstrip("\n")
    except OSError:
        return None


def _where(path: str, table: MountTable) -> tuple[str, str] | None:
    """Return the file system of a path, and the path inside it."""
    real = os.path.realpath(path)
    holding = table.holding(real)
    if holding is None:
        return None
    below = real.removeprefix(holding.point.rstrip("/"))
    return holding.device, (holding.root.rstrip("/") + below).rstrip("/") or "/"
