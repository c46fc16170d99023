"""The machine: ``processors``, ``memory``, ``dmi``, ``virtual``, ``is_virtual`` and ``hypervisors``.

* The last three name the container or virtual machine of this system. They are determined from files.
* A container has priority over the machine below it. ``hypervisors`` names both.
* A marker file counts only outside of the kernel's first process namespace: a container's image that is started as a
  virtual machine contains ``/.dockerenv`` too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foundation.quantities import bytes_text, hertz_text
from puller.facts.fact_values import present

if TYPE_CHECKING:
    from puller.facts.machine import Machine

_PROCESSORS = "/sys/devices/system/cpu"
DMI = "/sys/class/dmi/id"

_DMI_FILES = {
    "bios": {"release_date": "bios_date", "vendor": "bios_vendor", "version": "bios_version"},
    "board": {
        "asset_tag": "board_asset_tag",
        "manufacturer": "board_vendor",
        "product": "board_name",
        "serial_number": "board_serial",
    },
    "product": {"name": "product_name", "serial_number": "product_serial", "uuid": "product_uuid"},
}

# SMBIOS specification, 7.4.1 "System Enclosure or Chassis Types", in Facter's spelling.
_CHASSIS = (
    *("Other", None, "Desktop", "Low Profile Desktop", "Pizza Box", "Mini Tower", "Tower", "Portable"),
    *("Laptop", "Notebook", "Hand Held", "Docking Station", "All in One", "Sub Notebook", "Space-Saving"),
    *("Lunch Box", "Main System Chassis", "Expansion Chassis", "SubChassis", "Bus Expansion Chassis"),
    *("Peripheral Chassis", "Storage Chassis", "Rack Mount Chassis", "Sealed-Case PC", "Multi-system"),
    *("CompactPCI", "AdvancedTCA", "Blade", "Blade Enclosure", "Tablet", "Convertible", "Detachable"),
)


def processors(machine: Machine) -> dict[str, Any]:
    """Return ``processors``: ``count`` is the number of logical processors, ``physicalcount`` of sockets."""
    lines = [line.partition(":") for line in machine.need("/proc/cpuinfo").splitlines()]
    pairs = [(name.strip(), value.strip()) for name, _, value in lines]
    speeds = [value for name, value in pairs if name in ("cpu MHz", "clock")]
    return {
        "processors": present(
            {
                "count": sum(name.partition(" ")[0] == "processor" for name, _ in pairs),
                "physicalcount": _sockets(machine, pairs),
                "models": [value for name, value in pairs if name in ("model name", "cpu")],
                "isa": machine.uname().machine,
                "speed": hertz_text(_megahertz(speeds[-1]) * 1_000_000) if speeds else None,
                **_topology(machine),
            }
        )
    }


def _megahertz(text: str) -> int:
    """Return megahertz from ``2596.120`` on x86, ``3425.000000MHz`` on POWER."""
    return int(float(text.removesuffix("MHz")))


def _sockets(machine: Machine, pairs: list[tuple[str, str]]) -> int | None:
    result = {value for name, value in pairs if name == "physical id"}
    if not result:
        result = {
            machine.hint(f"{_PROCESSORS}/{name}/topology/physical_package_id")
            for name in _processor_names(machine)
        }
    return len(result - {""}) or None


def _processor_names(machine: Machine) -> list[str]:
    return [name for name in machine.names(_PROCESSORS) if name.startswith("cpu") and name[3:].isdigit()]


def _topology(machine: Machine) -> dict[str, int]:
    """Return ``cores`` of a socket and ``threads`` of a core, from the first online processor."""
    for name in _processor_names(machine):
        threads = _count(machine.value(f"{_PROCESSORS}/{name}/topology/thread_siblings_list"))
        siblings = _count(machine.value(f"{_PROCESSORS}/{name}/topology/core_siblings_list"))
        if threads and siblings:
            return {"cores": siblings // threads, "threads": threads}
    return {}


def _count(processors: str | None) -> int:
    """Return the size of a list such as ``0-3,8,10-11``."""
    count = 0
    for part in processors.split(",") if processors else ():
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count


def memory(machine: Machine) -> dict[str, Any]:
    """Return ``memory``: ``system``, and ``swap`` if it exists."""
    lines = (line.split() for line in machine.need("/proc/meminfo").splitlines())
    sizes = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 1}
    # Kernels before 3.14 lack MemAvailable.
    free = sizes["MemFree"] + sizes.get("Buffers", 0) + sizes.get("Cached", 0)
    facts = {"system": _usage(sizes["MemTotal"], sizes.get("MemAvailable", free))}
    if sizes.get("SwapTotal"):
        facts["swap"] = _usage(sizes["SwapTotal"], sizes["SwapFree"])
    return {"memory": facts}


def _usage(total: int, available: int) -> dict[str, Any]:
    used = total - available
    return {
        "total": bytes_text(total),
        "total_bytes": total,
        "available": bytes_text(available),
        "available_bytes": available,
        "used": bytes_text(used),
        "used_bytes": used,
        "capacity": f"{used / total * 100:.2f}%",
    }


def dmi(machine: Machine) -> dict[str, Any]:
    """Return ``dmi``, the firmware's description of the machine. Only root can read the serial numbers."""
    facts: dict[str, Any] = {
        part: present({name: machine.value(f"{DMI}/{file}") for name, file in files.items()})
        for part, files in _DMI_FILES.items()
    }
    facts["chassis"] = _chassis(machine)
    facts["manufacturer"] = machine.value(f"{DMI}/sys_vendor")
    return {"dmi": facts} if (facts := {name: value for name, value in facts.items() if value}) else {}


def _chassis(machine: Machine) -> dict[str, Any]:
    number = machine.value(f"{DMI}/chassis_type") or ""
    known = number.isascii() and number.isdecimal() and 1 <= int(number) <= len(_CHASSIS)
    return present(
        {
            "asset_tag": machine.value(f"{DMI}/chassis_asset_tag"),
            "type": _CHASSIS[int(number) - 1] if known else None,
        }
    )


# PROC_PID_INIT_INO in include/linux/proc_ns.h: the same on every kernel since 3.8.
_FIRST_PROCESS_NAMESPACE = "pid:[4026531836]"

# Names of real hardware, and of systems that host virtual machines.
_HOSTS = ("physical", "xen0", "openvzhn")

_CONTAINER_NAMES = {"systemd-nspawn": "systemd_nspawn", "lxc-libvirt": "lxc"}

# Parts of the product name in the firmware, in the order of the search.
_PRODUCTS = {
    "VMware": "vmware",
    "VirtualBox": "virtualbox",
    "Parallels": "parallels",
    "KVM": "kvm",
    "RHEV Hypervisor": "rhev",
    "oVirt Node": "ovirt",
    "HVM domU": "xenhvm",
    "Bochs": "bochs",
    "OpenBSD": "vmm",
    "OpenStack": "kvm",
    "BHYVE": "bhyve",
}


def virtual(machine: Machine) -> dict[str, Any]:
    """Return the three facts together, since they need the same evidence."""
    result = container(machine)
    below = hypervisor(machine)
    name = result[0] if result else below or "physical"
    facts: dict[str, Any] = {"virtual": name, "is_virtual": name not in _HOSTS}
    hypervisors = dict([result] if result else []) | (_details(machine, below) if below else {})
    return facts | ({"hypervisors": hypervisors} if hypervisors else {})


def container(machine: Machine) -> tuple[str, dict[str, str]] | None:
    """Return Facter's name of this container, and its identity from the manager."""
    name = _container_name(machine)
    if name is None:
        return None
    match name:
        case "docker" | "podman":
            details = {"id": _mounted_identity(machine)}
        case "lxc":
            path = machine.hint("/proc/1/cgroup").partition("/lxc/")[2].partition("\n")[0]
            details = {"name": path.partition("/")[0] or None}
        case "systemd_nspawn":
            details = {"id": machine.value("/etc/machine-id")}
        case _:
            details = {}
    return name, present(details)


def _container_name(machine: Machine) -> str | None:
    manager = machine.hint("/run/systemd/container").strip() or _declared(machine)
    if manager:
        return _CONTAINER_NAMES.get(manager, manager.replace("-", "_"))
    groups = machine.hint("/proc/1/cgroup")
    for mark, name in (("docker", "docker"), ("libpod", "podman"), ("/lxc", "lxc")):
        if mark in groups:
            return name
    if _mounted_identity(machine):
        return "podman" if machine.has("/run/.containerenv") else "docker"
    return _marked(machine)


def _declared(machine: Machine) -> str | None:
    """Return the manager's declaration in the environment of the first process, which only root can read."""
    for setting in machine.hint("/proc/1/environ").split("\0"):
        if setting.startswith("container="):
            return setting.partition("=")[2] or None
    return None


def _marked(machine: Machine) -> str | None:
    if machine.link("/proc/self/ns/pid") == _FIRST_PROCESS_NAMESPACE:
        return None
    if machine.has("/run/.containerenv"):
        return "podman"
    return "docker" if machine.has("/.dockerenv") else None


def _mounted_identity(machine: Machine) -> str | None:
    """Return the container's identity: Docker and Podman mount a host name file from a directory with this name."""
    for line in machine.hint("/proc/self/mountinfo").splitlines():
        fields = line.split()
        if fields[4:5] == ["/etc/hostname"]:
            return next((part for part in fields[3].split("/") if _is_identity(part)), None)
    return None


def _is_identity(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)


def hypervisor(machine: Machine) -> str | None:
    """Return Facter's name of the hypervisor, or ``None`` on hardware."""
    if "Google" in machine.hint(f"{DMI}/bios_vendor"):
        return "gce"
    return _xen(machine) or _openvz(machine) or _by_firmware(machine) or _by_devices(machine)


def _xen(machine: Machine) -> str | None:
    product = machine.hint(f"{DMI}/product_name")
    if machine.hint("/sys/hypervisor/type").strip() != "xen" and "HVM domU" not in product:
        return None
    if "control_d" in machine.hint("/proc/xen/capabilities"):
        return "xen0"
    hardware = "HVM domU" in product or machine.hint("/sys/hypervisor/guest_type").strip() in ("HVM", "PVH")
    return "xenhvm" if hardware else "xenu"


def _openvz(machine: Machine) -> str | None:
    # CloudLinux has /proc/vz without OpenVZ, and /proc/lve/list.
    if not machine.names("/proc/vz") or machine.has("/proc/lve/list"):
        return None
    return "openvzhn" if _openvz_identity(machine) == 0 else "openvzve"


def _openvz_identity(machine: Machine) -> int:
    for line in machine.hint("/proc/self/status").splitlines():
        if line.startswith("envID:"):
            return int(line.split()[1])
    return 0


def _by_firmware(machine: Machine) -> str | None:
    product = machine.hint(f"{DMI}/product_name")
    for mark, name in _PRODUCTS.items():
        if mark in product:
            return name
    vendor = machine.hint(f"{DMI}/sys_vendor")
    if vendor.startswith("Microsoft") and "Surface" not in product:
        return "hyperv"
    if "Amazon EC2" in machine.hint(f"{DMI}/bios_vendor") and ".metal" not in product:
        return "kvm"
    return _emulated(machine) if vendor.strip() == "QEMU" else None


def _emulated(machine: Machine) -> str:
    """Return ``kvm`` for QEMU with KVM, else ``qemu``: on x86, KVM offers its clock to guests."""
    by_itself = machine.uname().machine == "x86_64" and "kvm-clock" not in _clocks(machine)
    return "qemu" if by_itself else "kvm"


def _clocks(machine: Machine) -> str:
    return machine.hint("/sys/devices/system/clocksource/clocksource0/available_clocksource")


def _by_devices(machine: Machine) -> str | None:
    """Detect small monitors, whose guests lack firmware tables, but have a paravirtual clock or virtio devices."""
    clocks = _clocks(machine)
    if "hyperv_clocksource" in clocks:
        return "hyperv"
    return "kvm" if "kvm-clock" in clocks or machine.names("/sys/bus/virtio/devices") else None


def _details(machine: Machine, name: str) -> dict[str, Any]:
    """Return the entry of ``hypervisors``: its name there, and its known properties."""
    match name:
        case "kvm" | "gce":
            vendor = machine.hint(f"{DMI}/sys_vendor")
            providers = {"Google": "google", "OpenStack": "openstack", "Amazon": "amazon"}
            return {"kvm": {known: True for mark, known in providers.items() if vendor.startswith(mark)}}
        case "xen0" | "xenu" | "xenhvm":
            return {"xen": {"context": "hvm" if name == "xenhvm" else "pv", "privileged": name == "xen0"}}
        case "openvzhn" | "openvzve":
            return {"openvz": {"id": _openvz_identity(machine), "host": name == "openvzhn"}}
    return {name: {}}
