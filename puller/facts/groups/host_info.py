"""``host.info``: the facts of the single-document tools, under the names that their manifests use.

* They are derived from the facts of other groups.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from puller.facts.groups import hardware, operating_system

if TYPE_CHECKING:
    from puller.facts.machine import Machine

_PLATFORMS = {"rhel": "redhat", "ol": "oracle", "amzn": "amazon"}

_FAMILIES = {
    "debian": "debian ubuntu linuxmint raspbian cumuluslinux uos",
    "rhel": "redhat centos rocky almalinux oracle amazon scientific cloudlinux xenserver",
    "fedora": "fedora",
    "suse": "suse sles sled opensuse opensuse-leap opensuse-tumbleweed opensuse-microos",
    "gentoo": "gentoo",
    "slackware": "slackware",
    "arch": "arch",
    "alpine": "alpine",
    "coreos": "coreos",
    "solus": "solus",
}
_FAMILY_OF = {name: family for family, names in _FAMILIES.items() for name in names.split()}

_SYSTEMS = {
    "gce": "kvm",
    "openvzhn": "openvz",
    "openvzve": "openvz",
    "systemd_nspawn": "systemd-nspawn",
    "virtualbox": "vbox",
    "xen0": "xen",
    "xenhvm": "xen",
    "xenu": "xen",
}


def host(machine: Machine) -> dict[str, Any]:
    """Return the group ``host``."""
    system = machine.uname()
    description = operating_system.os_release(machine)
    name = description.get("ID", "").lower()
    platform = _PLATFORMS.get(name, name)
    virtualization, role = _virtualization(machine)
    return {
        "host": {
            "info": {
                "hostname": system.nodename,
                "os": system.sysname.lower(),
                "platform": platform,
                "platformFamily": _FAMILY_OF.get(platform, ""),
                "platformVersion": _version(machine, platform, description),
                "kernelVersion": system.release,
                "kernelArch": system.machine,
                "virtualizationSystem": virtualization,
                "virtualizationRole": role,
                "hostId": _identity(machine),
                "uptime": int(float(machine.need("/proc/uptime").split()[0])),
                "bootTime": _boot_time(machine),
                "procs": sum(name.isdigit() for name in machine.names("/proc")),
            }
        }
    }


def _version(machine: Machine, platform: str, description: dict[str, str]) -> str:
    """Return the version, with the minor release if the distribution has a file for it."""
    if platform == "debian":
        return (machine.read("/etc/debian_version") or "").partition("\n")[0].strip()
    if _FAMILY_OF.get(platform) in ("rhel", "fedora"):
        words = (machine.read("/etc/redhat-release") or "").rpartition("release ")[2].split()
        return words[0] if words else description.get("VERSION_ID", "")
    if platform == "alpine":
        return (machine.read("/etc/alpine-release") or "").strip()
    return description.get("VERSION_ID", "")


def _virtualization(machine: Machine) -> tuple[str, str]:
    """Return system and role, both empty on hardware without virtual machines."""
    name = hardware.virtual(machine)["virtual"]
    if name != "physical":
        return _SYSTEMS.get(name, name), "host" if name in ("xen0", "openvzhn") else "guest"
    modules = [line.split(" ")[0] for line in machine.hint("/proc/modules").splitlines()]
    for module, system in (("kvm", "kvm"), ("vboxdrv", "vbox")):
        if module in modules:
            return system, "host"
    return "", ""


def _identity(machine: Machine) -> str:
    """Return the UUID of the firmware, which only root can read, else of the installation, else of this boot."""
    firmware = machine.hint(f"{hardware.DMI}/product_uuid").strip().lower()
    installation = machine.hint("/etc/machine-id").strip()
    if not firmware and len(installation) == 32:
        ends = (0, 8, 12, 16, 20, 32)
        return "-".join(installation[start:end] for start, end in pairwise(ends))
    return firmware or machine.hint("/proc/sys/kernel/random/boot_id").strip()


def _boot_time(machine: Machine) -> int:
    lines = machine.need("/proc/stat").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime "))
