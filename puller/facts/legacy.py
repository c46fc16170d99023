"""Facter's legacy flat names, as aliases of facts in the tree.

They are looked up through the tree, so that a custom fact or ``--fact os.family=…`` shows under both names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from foundation.quantities import megabytes
from puller.facts.fact_values import ABSENT, find

PATHS = {
    "architecture": "os.architecture",
    "bios_release_date": "dmi.bios.release_date",
    "bios_vendor": "dmi.bios.vendor",
    "bios_version": "dmi.bios.version",
    "boardassettag": "dmi.board.asset_tag",
    "boardmanufacturer": "dmi.board.manufacturer",
    "boardproductname": "dmi.board.product",
    "boardserialnumber": "dmi.board.serial_number",
    "chassisassettag": "dmi.chassis.asset_tag",
    "chassistype": "dmi.chassis.type",
    "clientcert": "networking.fqdn",
    "domain": "networking.domain",
    "fqdn": "networking.fqdn",
    "gid": "identity.group",
    "hardwareisa": "processors.isa",
    "hardwaremodel": "os.hardware",
    "hostname": "networking.hostname",
    "id": "identity.user",
    "ipaddress": "networking.ip",
    "ipaddress6": "networking.ip6",
    "lsbdistcodename": "os.distro.codename",
    "lsbdistdescription": "os.distro.description",
    "lsbdistid": "os.distro.id",
    "lsbdistrelease": "os.distro.release.full",
    "lsbmajdistrelease": "os.distro.release.major",
    "lsbminordistrelease": "os.distro.release.minor",
    "macaddress": "networking.mac",
    "manufacturer": "dmi.manufacturer",
    "memoryfree": "memory.system.available",
    "memoryfree_mb": "memory.system.available_bytes",
    "memorysize": "memory.system.total",
    "memorysize_mb": "memory.system.total_bytes",
    "netmask": "networking.netmask",
    "netmask6": "networking.netmask6",
    "network": "networking.network",
    "network6": "networking.network6",
    "operatingsystem": "os.name",
    "operatingsystemmajrelease": "os.release.major",
    "operatingsystemrelease": "os.release.full",
    "osfamily": "os.family",
    "physicalprocessorcount": "processors.physicalcount",
    "processorcount": "processors.count",
    "productname": "dmi.product.name",
    "scope6": "networking.scope6",
    "selinux": "os.selinux.enabled",
    "selinux_config_mode": "os.selinux.config_mode",
    "selinux_config_policy": "os.selinux.config_policy",
    "selinux_current_mode": "os.selinux.current_mode",
    "selinux_enforced": "os.selinux.enforced",
    "selinux_policyversion": "os.selinux.policy_version",
    "serialnumber": "dmi.product.serial_number",
    "sshdsakey": "ssh.dsa.key",
    "sshecdsakey": "ssh.ecdsa.key",
    "sshed25519key": "ssh.ed25519.key",
    "sshrsakey": "ssh.rsa.key",
    "swapfree": "memory.swap.available",
    "swapfree_mb": "memory.swap.available_bytes",
    "swapsize": "memory.swap.total",
    "swapsize_mb": "memory.swap.total_bytes",
    "uptime": "system_uptime.uptime",
    "uptime_days": "system_uptime.days",
    "uptime_hours": "system_uptime.hours",
    "uptime_seconds": "system_uptime.seconds",
    "uuid": "dmi.product.uuid",
}

# ``ipaddress_eth0`` and similar names: the part before the interface's name, and the interface's fact.
INTERFACE_PATHS = {
    "ipaddress": "ip",
    "ipaddress6": "ip6",
    "macaddress": "mac",
    "mtu": "mtu",
    "netmask": "netmask",
    "netmask6": "netmask6",
    "network": "network",
    "network6": "network6",
    "scope6": "scope6",
}


def lookup(facts: Mapping[str, Any], name: str) -> Any:
    """Return the value of a legacy name, or ``ABSENT``."""
    if name in PATHS:
        value = find(facts, PATHS[name].split("."))
        return megabytes(value) if name.endswith("_mb") and isinstance(value, int) else value
    if name == "interfaces":
        return ",".join(sorted(_interfaces(facts))) or ABSENT
    start, _, interface = name.partition("_")
    if interface and start in INTERFACE_PATHS:
        return find(_interfaces(facts), (interface, INTERFACE_PATHS[start]))
    return ABSENT


def is_name(name: str) -> bool:
    """Return whether a fact may have this legacy name on some machine."""
    return (
        name in PATHS
        or name == "interfaces"
        or name.startswith(tuple(f"{start}_" for start in INTERFACE_PATHS))
    )


def names(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the legacy names that may have a value on this machine."""
    yield from PATHS
    yield "interfaces"
    for interface in _interfaces(facts):
        yield from (f"{start}_{interface}" for start in INTERFACE_PATHS)


def _interfaces(facts: Mapping[str, Any]) -> dict[str, Any]:
    result = find(facts, ("networking", "interfaces"))
    return result if isinstance(result, dict) else {}
