"""The fact groups ``networking`` (host names, interfaces, addresses, DHCP servers, the primary interface) and ``ssh``.

* The host name comes from the kernel. The domain comes from the resolver, else from ``resolv.conf``.
* The primary interface has the default route, IPv4 before IPv6. Without a default route, it is the first interface
  with an address that other hosts can reach. Its facts are also at the top of the group.
* A silent name service costs one second, once. The other facts of the group are unaffected.
* The DHCP server of an interface comes from the lease files of systemd-networkd, NetworkManager and dhclient.
* ``ssh`` has the public host keys, with the fingerprints for SSHFP records (RFC 4255, RFC 6594, RFC 7479).
"""

from __future__ import annotations

import socket
from base64 import b64decode
from typing import TYPE_CHECKING, Any

from puller.facts.fact_values import present

if TYPE_CHECKING:
    from puller.facts.machine import Address, Link, Machine


_CLIENT_DIRECTORIES = ("/var/lib/dhcp", "/var/lib/dhclient", "/var/lib/NetworkManager")


def dhcp_server(machine: Machine, index: int, name: str) -> str | None:
    """Return the server from a lease of systemd-networkd, NetworkManager or dhclient, in this order, or ``None``."""
    files = [f"/run/systemd/netif/leases/{index}"]
    files += _files(machine, "/var/lib/NetworkManager", "internal-", f"-{name}.lease")
    for file in files:
        server = _after("SERVER_ADDRESS=", machine.hint(file))
        if server:
            return server
    return _dhclient_server(machine, name)


def _dhclient_server(machine: Machine, name: str) -> str | None:
    for directory in _CLIENT_DIRECTORIES:
        for file in _files(machine, directory, "dhclient", ""):
            text = machine.hint(file)
            # Leases are appended, so the last lease is in force.
            if f'interface "{name}"' in text:
                return _after("dhcp-server-identifier ", text[text.rindex("lease {") :].replace(";", "\n"))
    return None


def _files(machine: Machine, directory: str, start: str, end: str) -> list[str]:
    # Only root may list some of these directories. Other users skip them without a problem.
    names = machine.names(directory) if machine.may_list(directory) else []
    names = [name for name in names if name.startswith(start) and name.endswith(end)]
    return [f"{directory}/{name}" for name in names if ".lease" in name]


def _after(mark: str, text: str) -> str | None:
    return text.partition(mark)[2].partition("\n")[0].strip() or None


_RESOLVER_LIMIT = 1.0  # seconds

# include/uapi/linux/if_addr.h, with Facter's words (and spelling) for the first eight bits.
FLAGS = (
    "temporary",
    "noad",
    "optimistic",
    "dadfailed",
    "homeaddress",
    "deprecated",
    "tentative",
    "permanent",
)


def networking(machine: Machine) -> dict[str, Any]:
    """Return the group ``networking``."""
    facts = _names(machine)
    try:
        interfaces = _interfaces(machine, machine.links(), machine.addresses())
    except OSError as error:
        machine.note("networking interfaces", error)
        return {"networking": facts}
    facts["interfaces"] = interfaces
    primary = _primary(machine, interfaces)
    if primary:
        chosen = {
            name: value for name, value in interfaces[primary].items() if not name.startswith("bindings")
        }
        facts |= {"primary": primary, **chosen}
    return {"networking": facts}


def _names(machine: Machine) -> dict[str, Any]:
    hostname, _, domain = machine.uname().nodename.partition(".")
    if hostname in ("", "(none)"):
        machine.note("networking", "this machine has no host name")
        return {}
    domain = domain or _domain_of(machine, hostname) or _configured_domain(machine)
    return present(
        {
            "hostname": hostname,
            "domain": domain or None,
            "fqdn": f"{hostname}.{domain}" if domain else hostname,
        }
    )


def _domain_of(machine: Machine, hostname: str) -> str:
    """Return the domain that the resolver adds to the host name: from ``/etc/hosts``, DNS or any configured source."""
    try:
        name = machine.canonical_name(hostname, min(_RESOLVER_LIMIT, machine.limit / 2)) or ""
    except TimeoutError as error:
        machine.note(f"networking: resolving {hostname!r}", error)
        return ""
    except (OSError, UnicodeError):  # unknown to the resolver, which is a valid configuration
        return ""
    return name.removeprefix(f"{hostname}.").rstrip(".") if name.startswith(f"{hostname}.") else ""


def _configured_domain(machine: Machine) -> str:
    lines = [line.split() for line in machine.hint("/etc/resolv.conf").splitlines()]
    result = {words[0]: words[1].rstrip(".") for words in reversed(lines) if len(words) > 1}
    return result.get("domain") or result.get("search") or ""


def _interfaces(machine: Machine, links: list[Link], addresses: list[Address]) -> dict[str, Any]:
    facts = {link.name: _link_facts(machine, link, links) for link in links}
    for address in addresses:
        interface = facts.setdefault(address.name, {})
        interface.setdefault("bindings6" if ":" in address.address else "bindings", []).append(
            _binding(address)
        )
    return {name: interface | _main_addresses(interface) for name, interface in facts.items()}


def _link_facts(machine: Machine, link: Link, links: list[Link]) -> dict[str, Any]:
    mac = _bonded_mac(machine, link, links) or link.mac
    # Six bytes at least, since tunnels have their own IPv4 address here.
    usable = mac.count(":") >= 5 and mac.strip("0:")
    return present(
        {
            "mac": mac if usable else None,
            "mtu": link.mtu,
            "dhcp": dhcp_server(machine, link.number, link.name),
        }
    )


def _bonded_mac(machine: Machine, link: Link, links: list[Link]) -> str:
    """Return the own address of a bond's member from the bond's file, since the link shows the bond's address."""
    master = next((other.name for other in links if other.number == link.master), None)
    text = machine.hint(f"/proc/net/bonding/{master}") if master else ""
    section = text.partition(f"Slave Interface: {link.name}\n")[2].partition("Slave Interface:")[0]
    return section.partition("Permanent HW addr: ")[2].partition("\n")[0].strip()


def _binding(address: Address) -> dict[str, Any]:
    family = socket.AF_INET6 if ":" in address.address else socket.AF_INET
    packed = socket.inet_pton(family, address.address)
    bits = len(packed) * 8
    mask = (1 << bits) - (1 << (bits - address.prefix))
    network = int.from_bytes(packed) & mask
    binding: dict[str, Any] = {
        "address": address.address,
        "netmask": socket.inet_ntop(family, mask.to_bytes(len(packed))),
        "network": socket.inet_ntop(family, network.to_bytes(len(packed))),
    }
    if family == socket.AF_INET6:
        binding["scope6"] = _scope(packed)
        binding["flags"] = [name for bit, name in enumerate(FLAGS) if address.flags >> bit & 1]
    return binding


def _scope(packed: bytes) -> str:
    """Return the scope by RFC 4291, 2.4 to 2.5.7: ``host``, ``link``, ``site`` or ``global``."""
    if packed == bytes(15) + b"\1":
        return "host"
    return {0xFE80: "link", 0xFEC0: "site"}.get(int.from_bytes(packed[:2]) & 0xFFC0, "global")


def _main_addresses(interface: dict[str, Any]) -> dict[str, Any]:
    """Return ``ip``, ``netmask`` and ``network`` of the address that other hosts use, and the same for IPv6."""
    facts: dict[str, Any] = {}
    for key, suffix in (("bindings", ""), ("bindings6", "6")):
        bindings = interface.get(key)
        if bindings:
            chosen = next((binding for binding in bindings if _is_public(binding["address"])), bindings[0])
            facts |= {f"ip{suffix}": chosen["address"], f"netmask{suffix}": chosen["netmask"]}
            facts[f"network{suffix}"] = chosen["network"]
            facts |= {"scope6": chosen["scope6"]} if suffix else {}
    return facts


def _is_public(address: str) -> bool:
    """Return whether an address is neither loopback nor link-local, nor (IPv6) site-local, RFC 4193."""
    if ":" not in address:
        return not address.startswith(("127.", "169.254."))
    first = int.from_bytes(socket.inet_pton(socket.AF_INET6, address)[:2])
    return address != "::1" and first & 0xFFC0 != 0xFE80 and first & 0xFE00 != 0xFC00


def _primary(machine: Machine, interfaces: dict[str, Any]) -> str | None:
    for name in (_default_route(machine), _default_route6(machine)):
        if name in interfaces:
            return name
    for name, interface in interfaces.items():
        bindings = interface.get("bindings", []) + interface.get("bindings6", [])
        if any(_is_public(binding["address"]) for binding in bindings):
            return name
    return None


def _default_route(machine: Machine) -> str | None:
    """Return the interface of the default route. The kernel lists routes by metric, the preferred one first."""
    for line in machine.hint("/proc/net/route").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == fields[7] == "00000000" and fields[0] != "*":
            return fields[0]
    return None


def _default_route6(machine: Machine) -> str | None:
    """Return the interface of the default route with the lowest metric. ``lo`` marks unreachable networks.

    The fields of a line are destination, prefix length, ..., metric (5), ..., interface (9).
    """
    lines = [line.split() for line in machine.hint("/proc/net/ipv6_route").splitlines()]
    routes = [(int(fields[5], 16), fields[9]) for fields in lines if fields[:2] == ["0" * 32, "00"]]
    usable = [route for route in routes if route[1] != "lo"]
    return min(usable)[1] if usable else None


_DIRECTORY = "/etc/ssh"

# Facter's name of a key, and the number of its algorithm in SSHFP records.
_KINDS = {"rsa": 1, "dsa": 2, "ecdsa": 3, "ed25519": 4}


def ssh(machine: Machine) -> dict[str, Any]:
    """Return the group ``ssh``, which requires host keys."""
    keys = {kind: machine.value(f"{_DIRECTORY}/ssh_host_{kind}_key.pub") for kind in _KINDS}
    facts = {kind: _key(kind, line) for kind, line in keys.items() if line and len(line.split()) > 1}
    return {"ssh": facts} if facts else {}


def _key(kind: str, line: str) -> dict[str, Any]:
    algorithm, key = line.split()[:2]
    import hashlib  # 2 % of an idle apply that reads only the host name

    data = b64decode(key)
    # The record's format requires SHA-1. Trust does not depend on it.
    sha1 = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    sha256 = hashlib.sha256(data).hexdigest()
    number = _KINDS[kind]
    return {
        "type": algorithm,
        "key": key,
        "fingerprints": {"sha1": f"SSHFP {number} 1 {sha1}", "sha256": f"SSHFP {number} 2 {sha256}"},
    }
