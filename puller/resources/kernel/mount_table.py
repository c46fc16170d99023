"""The kernel's table of mounts (proc(5), ``mountinfo``), and the comparison of declared mounts with it.

* The table is read once for all mounts of a run.
* If several mounts share a mount point, the topmost counts. A mount hidden by another mount above it counts as missing.
* Devices are compared by all their names, directories by their location. ``UUID=`` and similar tags are resolved in
  ``/dev/disk``, without starting a process or reading a device. Source names of file systems without a device
  (``tmpfs``, ``proc``) are arbitrary, so they are not compared.
* Options are compared if the kernel shows them under the same name, or if they are flags. All other options come from
  fstab: options of mount(8) and systemd, options that a file system does not show, and options that a server changes.
* Sizes, ids and permissions are compared as numbers.
"""

import grp
import os
import pwd
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from puller.errors import ResourceError
from puller.resources.base import Context
from puller.resources.kernel.fstab import Fields, decoded

MOUNTINFO = "/proc/self/mountinfo"


class Mounted(msgspec.Struct, frozen=True):
    """One mount."""

    number: int
    parent: int
    device: str
    """``major:minor``."""
    root: str
    """The mounted directory, relative to the root of the file system."""
    point: str
    options: tuple[str, ...]
    """Options of this mount."""
    type: str
    source: str
    of_all: tuple[str, ...]
    """Options of the file system, equal for all its mounts."""
    propagation: frozenset[str] = frozenset()
    """``shared``, ``slave`` and ``unbindable``, where they apply. Empty for a private mount."""

    @property
    def all_options(self) -> tuple[str, ...]:
        """Options of the mount and of the file system, without duplicates."""
        return (*dict.fromkeys((*self.options, *self.of_all)),)


class MountTable:
    """All mounts of this process."""

    def __init__(self, text: str) -> None:
        self.mounts = [*map(_parsed, text.splitlines())]

    def at(self, point: str) -> list[Mounted]:
        """Return the mounts at a point, the topmost last."""
        return [mount for mount in self._by_point.get(point, ()) if self._is_reachable(mount)]

    def below(self, point: str) -> list[str]:
        """Return the mount points below a point."""
        return [mount.point for mount in self.mounts if mount.point.startswith(f"{point.rstrip('/')}/")]

    def holding(self, path: str) -> Mounted | None:
        """Return the mount that contains a path without links."""
        while True:
            if mounts := self.at(path):
                return mounts[-1]
            if path in ("/", ""):
                return None
            path = path.rpartition("/")[0] or "/"

    @cached_property
    def _by_point(self) -> Mapping[str, list[Mounted]]:
        result: dict[str, list[Mounted]] = {}
        for mount in self.mounts:
            result.setdefault(mount.point, []).append(mount)
        return result

    @cached_property
    def _by_number(self) -> Mapping[int, Mounted]:
        return {mount.number: mount for mount in self.mounts}

    def _is_reachable(self, mount: Mounted) -> bool:
        """Return whether no other mount covers a directory between its parent's mount point and its own."""
        parent = self._by_number.get(mount.parent)
        if parent is None or parent is mount:
            return True
        covers = (
            cover for above in _above(mount.point, parent.point) for cover in self._by_point.get(above, ())
        )
        return not any(cover.parent == parent.number for cover in covers) and self._is_reachable(parent)


def _above(path: str, end: str) -> Iterator[str]:
    """Yield the directories above a path, up to but excluding ``end``."""
    path = path.rpartition("/")[0]
    while len(path) > len(end.rstrip("/")):
        yield path
        path = path.rpartition("/")[0]


def _parsed(line: str) -> Mounted:
    own, _, shared = line.partition(" - ")
    number, parent, device, root, point, options, *optional = own.split(" ")
    kind, source, of_all = shared.split(" ")[:3]
    return Mounted(
        int(number), int(parent), device, decoded(root), decoded(point), (*options.split(","),),
        kind, decoded(source), (*decoded(of_all).split(","),), frozenset(map(_propagation, optional)) - {""},
    )  # fmt: skip


def _propagation(field: str) -> str:
    """Return the word of mount(8) for an optional field of mountinfo."""
    return {"shared": "shared", "master": "slave", "unbindable": "unbindable"}.get(
        field.partition(":")[0], ""
    )


class Mounts:
    """The mount table of a run. It is read again after a change."""

    def __init__(self) -> None:
        self._changes: tuple[int, int] | None = None
        self._table = MountTable("")

    @classmethod
    def current(cls, context: Context) -> MountTable:
        """Return the current table. Raises ``OSError``."""
        shared: Mounts = context.shared.setdefault(cls, cls())
        changes = (context.changes(), context.system.executed)
        if changes != shared._changes:
            with open(MOUNTINFO, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
                shared._table = MountTable(stream.read())
            shared._changes = changes
        return shared._table


# Comparison of mount options.

NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "9p", "afs", "fuse.sshfs"})
"""Network file systems, whose servers can change options."""

_FLAGS = {
    **{flag: (flag, True) for flag in ("ro", "nosuid", "nodev", "noexec", "nodiratime", "sync", "dirsync")},
    **{flag: (flag, True) for flag in ("noatime", "relatime", "lazytime", "nosymfollow")},
    "rw": ("ro", False),
    "suid": ("nosuid", False),
    "dev": ("nodev", False),
    "exec": ("noexec", False),
    "async": ("sync", False),
    "diratime": ("nodiratime", False),
    "symfollow": ("nosymfollow", False),
}
ATIMES = frozenset({"noatime", "relatime", "strictatime"})
"""Access times of a mount point. Exactly one option applies."""
FLAGS_OF_MOUNT = {
    "nosuid": ("nosuid", "suid"),
    "nodev": ("nodev", "dev"),
    "noexec": ("noexec", "exec"),
    "nodiratime": ("nodiratime", "diratime"),
    "nosymfollow": ("nosymfollow", "symfollow"),
}
"""Flags of a mount point, beside ``ro`` and the access times, with the words that set and clear them."""
_OF_EACH_MOUNT = frozenset({"ro", *FLAGS_OF_MOUNT, *ATIMES})
PROPAGATIONS = frozenset(
    f"{recursive}{kind}" for recursive in ("", "r") for kind in ("shared", "slave", "private", "unbindable")
)
"""How mounts below a mount point reach other mount points."""
OF_CONTENT = ("lowerdir=", "upperdir=", "workdir=", "lowerdir+=", "datadir+=")
"""Options of an overlay that define its layers. No remount changes them."""
_EXCLUDE = {"noatime": "relatime", "relatime": "noatime"}

_ONLY_IN_FSTAB = frozenset(
    (
        *("defaults", "auto", "noauto", "nofail", "_netdev", "user", "nouser", "users", "owner", "noowner"),
        *("group", "nogroup", "loop", "bind", "rbind"),
    )
)
_NEVER_SHOWN = ("x-", "X-", "comment=", "loop=", "offset=", "sizelimit=", "helper=", "uhelper=")

# Defaults that the kernel omits from the table.
_UNSHOWN = {
    ("proc", "hidepid"): "0",
    ("proc", "gid"): "0",
    ("tmpfs", "mode"): "1777",
    ("tmpfs", "uid"): "0",
    ("tmpfs", "gid"): "0",
    ("tmpfs", "size"): "the default",
}
_HIDEPID = {"off": "0", "noaccess": "1", "invisible": "2", "ptraceable": "4"}
_MODES = frozenset({"mode", "umask", "fmask", "dmask", "ptmxmode"})
_SIZE = re.compile(r"([0-9]+)([kmgtpe]?)", re.IGNORECASE)
_PAGE = 4096  # bytes


def is_bind(options: Iterable[str]) -> bool:
    """Return whether the options make a bind mount."""
    return not {"bind", "rbind"}.isdisjoint(options)


def is_only_in_fstab(option: str) -> bool:
    """Return whether the kernel does not have this option."""
    return option in _ONLY_IN_FSTAB or option.startswith(_NEVER_SHOWN)


def of_kernel(options: Iterable[str]) -> frozenset[str]:
    """Return the options that a remount could change."""
    return frozenset(option for option in options if not is_only_in_fstab(option))


def is_of_mount(option: str) -> bool:
    """Return whether an option belongs to the mount point instead of the file system."""
    name = _FLAGS[option][0] if option in _FLAGS else option
    return name in _OF_EACH_MOUNT or option in PROPAGATIONS


def declared_flags(options: Iterable[str]) -> dict[str, bool]:
    """Return the final value of each flag that belongs to a mount point."""
    return {name: on for _, name, on in _flags([*options], bind=True)}


def has_propagation(mount: Mounted, word: str) -> bool:
    """Return whether a mount has a propagation type, as named by mount(8)."""
    kind = word if word in ("shared", "slave", "private", "unbindable") else word[1:]
    if kind == "private":
        return not mount.propagation
    # The kernel makes a slave mount private if it lacks a master.
    return kind in mount.propagation or (kind == "slave" and not mount.propagation)


def content_of_overlay(options: Iterable[str]) -> frozenset[str]:
    """Return the options that define the layers of an overlay."""
    return frozenset(option for option in options if option.startswith(OF_CONTENT))


def not_in_force(options: Sequence[str], mount: Mounted) -> list[str]:
    """Return the declared options that a mount lacks."""
    bind = is_bind(options)
    shown = {*mount.options} if bind else {*mount.options, *mount.of_all}
    missing = [option for option, name, on in _flags(options, bind=bind) if (name in shown) is not on]
    if bind and "rw" in options and "ro" not in options and "ro" in mount.of_all and "rw" not in missing:
        missing.append("rw")  # the mount is writable, but its file system is read-only
    missing += [word for word in _last_propagation(options) if not has_propagation(mount, word)]
    if bind or mount.type in NETWORK:
        return missing
    values = dict(option.split("=", 1) for option in (*mount.options, *mount.of_all) if "=" in option)
    for key, value in _values(options).items():
        result = values.get(key) or _UNSHOWN.get((mount.type, key))
        if result is not None and not _same_value(mount.type, key, value, result):
            missing.append(f"{key}={value}")
    return missing


def _last_propagation(options: Sequence[str]) -> list[str]:
    return [option for option in options if option in PROPAGATIONS][-1:]


def _flags(options: Sequence[str], *, bind: bool) -> Iterator[tuple[str, str, bool]]:
    """Yield the effective flags: the option, its name in the table, and whether it should be set.

    The last option wins.
    """
    result: dict[str, tuple[str, bool]] = {}
    for option in options:
        if option in _FLAGS:
            name, on = _FLAGS[option]
            result[name] = (option, on)
            result.pop(_EXCLUDE.get(option, ""), None)
    yield from (
        (option, name, on) for name, (option, on) in result.items() if not bind or name in _OF_EACH_MOUNT
    )


def _values(options: Sequence[str]) -> dict[str, str]:
    pairs = (option.split("=", 1) for option in options if "=" in option and not is_only_in_fstab(option))
    return {key: value.strip('"') for key, value in pairs}


def _same_value(kind: str, key: str, desired: str, result: str) -> bool:
    if desired == result or desired.endswith("%"):  # a percentage of the memory at mount time
        return True
    if key == "hidepid":
        return _HIDEPID.get(desired, desired) == _HIDEPID.get(result, result)
    if key in _MODES:
        return _octal(desired) == _octal(result)
    if key in ("uid", "gid"):
        return _id(key, desired) == _id(key, result)
    sizes = [_size(text) for text in (desired, result)]
    if None in sizes:
        return False
    if kind == "tmpfs" and key == "size":
        sizes = [-(-(size or 0) // _PAGE) for size in sizes]
    return sizes[0] == sizes[1]


def _octal(text: str) -> int | str:
    return int(text, 8) if re.fullmatch("[0-7]+", text) else text


def _id(key: str, text: str) -> int | str:
    find: Callable[[str], int] = (
        (lambda name: pwd.getpwnam(name).pw_uid) if key == "uid" else (lambda name: grp.getgrnam(name).gr_gid)
    )
    try:
        return int(text) if (text.isascii() and text.isdecimal()) else find(text)
    except KeyError:
        return text


def _size(text: str) -> int | None:
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    power = "kmgtpe".find(match[2].lower()) + 1 if match[2] else 0
    return int(match[1]) << 10 * power


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


def is_desired_mount(desired: Fields, mount: Mounted, table: MountTable) -> bool:
    """Return whether the mount matches the declaration. Raises ``ResourceError`` if this cannot be determined."""
    return _same_type(desired.type, desired.options, mount) and _same_device(desired, mount, table)


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
