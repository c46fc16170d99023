"""``processors``, ``memory`` and ``dmi``: the parts of the machine."""

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
