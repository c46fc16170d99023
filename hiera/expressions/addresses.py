"""The ``ipaddr`` filters, for addresses with or without a prefix, compatible with Ansible.

An invalid address returns false, and a list returns its valid addresses. The query selects a part of the address. Only
features of the standard library's ``ipaddress`` are supported.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hiera.errors import ExpressionError

if TYPE_CHECKING:
    Interface: TypeAlias = IPv4Interface | IPv6Interface

_WHOLE: Final[dict[str, Callable[[Interface], Any]]] = {
    "address": lambda ip: str(ip.ip),
    "address/prefix": lambda ip: f"{ip.ip}/{ip.network.prefixlen}",
    "broadcast": lambda ip: str(ip.network.broadcast_address),
    # The addresses of the network and of broadcasts are excluded, except in networks without further ones (RFC 3021).
    "first_usable": lambda ip: str(ip.network[1 if ip.network.num_addresses > 2 else 0]),
    "host": lambda ip: f"{ip.ip}/{ip.network.prefixlen}",
    "hostmask": lambda ip: str(ip.hostmask),
    "last_usable": lambda ip: str(ip.network[-2 if ip.network.num_addresses > 2 else -1]),
    "netmask": lambda ip: str(ip.netmask),
    "network": lambda ip: str(ip.network.network_address),
    "network/prefix": lambda ip: str(ip.network),
    "prefix": lambda ip: ip.network.prefixlen,
    "revdns": lambda ip: ip.ip.reverse_pointer + ".",
    "size": lambda ip: ip.network.num_addresses,
    "subnet": lambda ip: str(ip.network),
    "version": lambda ip: ip.version,
}
_ONLY: Final[dict[str, Callable[[Interface], bool]]] = {
    "ipv4": lambda ip: ip.version == 4,
    "ipv6": lambda ip: ip.version == 6,
    "link-local": lambda ip: ip.ip.is_link_local,
    "loopback": lambda ip: ip.ip.is_loopback,
    "multicast": lambda ip: ip.ip.is_multicast,
    "private": lambda ip: ip.ip.is_private,
    "public": lambda ip: ip.ip.is_global,
}


def ipaddr(value: Any, query: str | int = "") -> Any:
    """Return the address if it is valid, or the requested part: ``network``, ``prefix``, or a number for that host."""
    if isinstance(value, (list, tuple)):
        return [found for item in value if (found := ipaddr(item, query)) is not False]
    address = _parsed(value)
    return False if address is None else _answer(value, address, query)


def ipv4(value: Any, query: str | int = "") -> Any:
    """``ipaddr`` for IPv4 addresses only."""
    return ipaddr(ipaddr(value, "ipv4"), query)


def ipv6(value: Any, query: str | int = "") -> Any:
    """``ipaddr`` for IPv6 addresses only."""
    return ipaddr(ipaddr(value, "ipv6"), query)


def ipwrap(value: Any) -> Any:
    """Return an IPv6 address in brackets, as in URLs. Other values are returned unchanged."""
    if isinstance(value, (list, tuple)):
        return [ipwrap(item) for item in value]
    address = _parsed(value)
    if address is None or address.version == 4:
        return value
    text, slash, prefix = str(value).partition("/")
    return f"[{text}]{slash}{prefix}"


def _parsed(value: Any) -> Interface | None:
    try:
        # A number is invalid here, although the library accepts it.
        return ip_interface(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _answer(value: Any, address: Interface, query: str | int) -> Any:
    if isinstance(query, int):
        return _host(address, query)
    if query.isascii() and query.isdecimal():
        return _host(address, int(query))
    if query == "":
        # A mask becomes the length of the prefix.
        return str(address) if "/" in str(value) and address.version == 4 else value
    if query in _WHOLE:
        return _WHOLE[query](address)
    if query in _ONLY:
        return value if _ONLY[query](address) else False
    network = _parsed(query)
    if network is None:
        raise ExpressionError(
            "", f"ipaddr knows no {query!r}, only {', '.join([*_WHOLE, *_ONLY])}, or a network"
        )
    return value if address.version == network.version and address.ip in network.network else False


def _host(address: Interface, number: int) -> str | bool:
    try:
        return f"{address.network[number]}/{address.network.prefixlen}"
    except IndexError:
        return False
