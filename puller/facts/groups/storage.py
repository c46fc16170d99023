"""``disks``, ``partitions`` and ``mountpoints``, from ``/proc``, ``/sys`` and udev's database.

* No device is opened and no tool is run: udev's database contains the results of ``blkid``.
* A file server that does not answer affects only the sizes of mounts of its file system type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foundation.quantities import bytes_text, percent_text
from puller.facts.fact_values import present, within

if TYPE_CHECKING:
    from puller.facts.machine import Machine

_BLOCK = "/sys/block"
_SECTOR = 512  # unit of the kernel, independent of the device's own block size

_SYSTEM_MOUNTS = ("/proc/", "/sys/")
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\043": "#", "\\134": "\\"}


def mountpoints(machine: Machine) -> dict[str, Any]:
    """Return ``mountpoints`` by path. Sizes are left out if the file system does not provide them."""
    facts: dict[str, Any] = {}
    silent: set[str] = set()
    for device, path, kind, options in _mounts(machine):
        is_system = kind == "autofs" or (f"{path}/".startswith(_SYSTEM_MOUNTS) and kind != "tmpfs")
        if not is_system:
            facts[path] = {"device": device, "filesystem": kind, "options": options.split(",")}
            facts[path] |= _sizes(machine, path, kind, silent)
    return {"mountpoints": facts}


def _mounts(machine: Machine) -> list[tuple[str, str, str, str]]:
    """Return device, path, type and options of every mount. For the escapes see fstab(5)."""
    lines = machine.need("/proc/self/mounts").splitlines()
    fields = [[_unescaped(field) for field in line.split(" ")[:4]] for line in lines]
    return [(_device(machine, name), path, kind, options) for name, path, kind, options in fields]


def _unescaped(field: str) -> str:
    if "\\" in field:
        for escape, letter in _ESCAPES.items():
            field = field.replace(escape, letter)
    return field


def _device(machine: Machine, name: str) -> str:
    """Return the device. ``/dev/root`` is replaced by the name on the kernel's command line."""
    if name != "/dev/root":
        return name
    words = machine.hint("/proc/cmdline").split()
    root = next((word.removeprefix("root=") for word in words if word.startswith("root=")), name)
    if root.startswith("PARTUUID="):
        link = machine.link(f"/dev/disk/by-partuuid/{root.removeprefix('PARTUUID=')}")
        return f"/dev/{link.rpartition('/')[2]}" if link else name
    return root if root.startswith("/dev/") else name


def _sizes(machine: Machine, path: str, kind: str, silent: set[str]) -> dict[str, Any]:
    """Return sizes of a mount. After a timeout, all mounts of this type are skipped, to avoid adding up timeouts."""
    if kind in silent:
        machine.note(f"mountpoints {path}", f"its sizes are not read, because another {kind} gave no answer")
        return {}
    try:
        sizes = within(machine.limit / 4, machine.sizes, path)
    except OSError as error:
        machine.note(f"mountpoints {path}", error)
        if isinstance(error, TimeoutError):
            silent.add(kind)
        return {}
    total = sizes.f_blocks * sizes.f_frsize
    available = sizes.f_bavail * sizes.f_frsize
    used = total - sizes.f_bfree * sizes.f_frsize
    return {
        "size": bytes_text(total),
        "size_bytes": total,
        "available": bytes_text(available),
        "available_bytes": available,
        "used": bytes_text(used),
        "used_bytes": used,
        "capacity": percent_text(used, used + available),
    }


def disks(machine: Machine) -> dict[str, Any]:
    """Return ``disks``: block devices with hardware."""
    facts = {
        name: _disk(machine, f"{_BLOCK}/{name}") for name in machine.names(_BLOCK) if _is_disk(machine, name)
    }
    return {"disks": facts} if facts else {}


def _is_disk(machine: Machine, name: str) -> bool:
    return machine.has(f"{_BLOCK}/{name}/device")


def _disk(machine: Machine, path: str) -> dict[str, Any]:
    udev = _udev(machine, path)
    rotational = machine.value(f"{path}/queue/rotational")
    return present(
        {
            **_size(machine, path),
            "model": machine.value(f"{path}/device/model"),
            "vendor": machine.value(f"{path}/device/vendor"),
            "type": rotational and ("ssd" if rotational == "0" else "hdd"),
            "serial": udev.get("ID_SERIAL_SHORT") or machine.value(f"{path}/device/serial"),
            "wwn": udev.get("ID_WWN_WITH_EXTENSION") or udev.get("ID_WWN"),
        }
    )


def _size(machine: Machine, path: str) -> dict[str, Any]:
    size = int(machine.value(f"{path}/size") or 0) * _SECTOR
    return {"size": bytes_text(size), "size_bytes": size}


def partitions(machine: Machine) -> dict[str, Any]:
    """Return ``partitions`` of disks, including device-mapper volumes and loop devices in use."""
    facts: dict[str, dict[str, Any]] = {}
    for name in machine.names(_BLOCK):
        facts |= _partitions_of(machine, name)
    for device, path, kind, _ in reversed(_mounts(machine)):
        if device in facts:
            facts[device] |= {"filesystem": facts[device].get("filesystem", kind), "mount": path}
    return {"partitions": facts} if machine.has(_BLOCK) else {}


def _partitions_of(machine: Machine, name: str) -> dict[str, dict[str, Any]]:
    path = f"{_BLOCK}/{name}"
    if _is_disk(machine, name):
        pieces = [part for part in machine.names(path) if machine.has(f"{path}/{part}/partition")]
        return {f"/dev/{part}": _partition(machine, f"{path}/{part}") for part in pieces}
    if volume := machine.value(f"{path}/dm/name"):
        return {f"/dev/mapper/{volume}": _partition(machine, path)}
    if file := machine.value(f"{path}/loop/backing_file"):
        return {f"/dev/{name}": _partition(machine, path) | {"backing_file": file}}
    return {}


def _partition(machine: Machine, path: str) -> dict[str, Any]:
    udev = _udev(machine, path)
    return present(
        {
            **_size(machine, path),
            "filesystem": udev.get("ID_FS_TYPE"),
            "uuid": udev.get("ID_FS_UUID"),
            "label": udev.get("ID_FS_LABEL"),
            "partuuid": udev.get("ID_PART_ENTRY_UUID"),
            "partlabel": udev.get("ID_PART_ENTRY_NAME"),
        }
    )


def _udev(machine: Machine, path: str) -> dict[str, str]:
    """Return udev's properties of a block device. Empty if udev does not run."""
    number = machine.value(f"{path}/dev")
    lines = machine.hint(f"/run/udev/data/b{number}").splitlines() if number else []
    return dict(line[2:].partition("=")[::2] for line in lines if line.startswith("E:"))
