"""The filters ``ipaddr``, ``ipv4``, ``ipv6`` and ``ipwrap``, compatible with the collection ``ansible.utils``.

* Text without an address returns false. An address for which a query does not hold returns null. A list returns the
  answers of its items, without false and null.
* A number, also as text, is the address with this value.
* An unknown query is an error, and so is a query of a network for an address without a prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Interface, IPv6Interface, ip_interface, ip_network
from socket import AF_INET6, inet_ntop
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from hiera.errors import ExpressionError
from hiera.values import described

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

    Interface: TypeAlias = IPv4Interface | IPv6Interface
    Network: TypeAlias = IPv4Network | IPv6Network


class _Address(NamedTuple):
    """An address, with the length of its network's prefix."""

    text: str
    """The address as the caller wrote it. A number is written as its address."""
    interface: Interface
    has_prefix: bool
    """Whether the caller wrote a prefix or a mask."""

    @property
    def ip(self) -> str:
        return _text(self.interface.ip)

    @property
    def network(self) -> Network:
        return self.interface.network

    @property
    def prefix(self) -> int:
        return self.network.prefixlen

    @property
    def with_prefix(self) -> str:
        return f"{self.ip}/{self.prefix}"

    @property
    def size(self) -> int:
        return self.network.num_addresses

    @property
    def names_network(self) -> bool:
        """Whether the address is the first address of a network, and so no host."""
        return self.size > 1 and self.interface.ip == self.network.network_address

    @property
    def is_reserved(self) -> bool:
        """Whether the address is the address of the network or its broadcast address."""
        return self.size > 2 and self.interface.ip in (self.network[0], self.network[-1])

    def usable(self, query: str) -> tuple[int, int] | None:
        """Return the first and the last number of a host, or ``None`` for a single address.

        A network of two addresses reserves none of them (RFC 3021). Raises ExpressionError for an address without a
        prefix.
        """
        if not self.has_prefix:
            raise ExpressionError(
                "", f"ipaddr({query!r}) requires an address with a prefix, not {self.text!r}"
            )
        first, last = int(self.network[0]), int(self.network[-1])
        return None if self.size == 1 else (first, last) if self.size == 2 else (first + 1, last - 1)

    def at(self, number: int) -> str:
        """Return the address with this number, in the family of this address."""
        return _text(type(self.interface.ip)(number))


def _text(ip: IPv4Address | IPv6Address) -> str:
    """Return the text of an address. Python versions differ in the text of an IPv4 address inside IPv6."""
    return str(ip) if ip.version == 4 else inet_ntop(AF_INET6, ip.packed)


# -- queries ---------------------------------------------------------------------------------------


def _host(a: _Address) -> str | None:
    is_network = a.names_network and not (a.interface.version == 4 and a.size == 2)
    return None if is_network else a.with_prefix


def _host_ip(a: _Address) -> str | None:
    return a.ip if a.interface.version == 6 or _host(a) else None


def _host_of_network(a: _Address) -> str | None:
    return a.with_prefix if a.size == 2 or (a.size > 2 and not a.names_network) else None


def _usable_end(query: str, index: int) -> Callable[[_Address], str | None]:
    def end(a: _Address) -> str | None:
        usable = a.usable(query)
        return None if usable is None else a.at(usable[index])

    return end


def _neighbour(query: str, distance: int) -> Callable[[_Address], str | None]:
    def neighbour(a: _Address) -> str | None:
        usable, number = a.usable(query), int(a.interface.ip) + distance
        return a.at(number) if usable is not None and usable[0] <= number <= usable[1] else None

    return neighbour


def _usable_range(a: _Address) -> str | None:
    usable = a.usable("range_usable")
    return None if usable is None else f"{a.at(usable[0])}-{a.at(usable[1])}"


def _peer(a: _Address) -> str:
    """Return the other end of a point-to-point network with two hosts. Raises ExpressionError for other networks."""
    a.usable("peer")
    if a.size == 2:
        return a.at(int(a.interface.ip) ^ 1)
    if a.size == 4 and not a.is_reserved:
        return a.at(int(a.interface.ip) ^ 3)
    raise ExpressionError("", f"ipaddr('peer') requires a host of a network with two hosts, not {a.text!r}")


def _to_ipv4(a: _Address) -> str | bool:
    if isinstance(a.interface, IPv4Interface):
        return a.text
    number, prefix = int(a.interface.ip), a.prefix - 96
    is_embedded = number >> 32 in (0, 0xFFFF) and prefix >= 0
    return str(IPv4Interface((number & 0xFFFFFFFF, prefix))) if is_embedded else False


def _to_ipv6(a: _Address) -> str:
    return a.text if a.interface.version == 6 else f"::ffff:{a.ip}/{96 + a.prefix}"


def _to_6to4(a: _Address) -> str | bool:
    """Return the 6to4 prefix of an IPv4 host (RFC 3056), and an address with such a prefix unchanged."""
    if a.interface.version == 6:
        return a.text if _is_within(a, "2002::/16") and not a.names_network else False
    if a.names_network or not (_is_public(a) or not _is_global(a)):
        return False
    text = a.interface.ip.packed.hex()
    return f"2002:{text[:4]}:{text[4:]}::1/48"


_QUERIES: Final[dict[str, Callable[[_Address], Any]]] = {
    "": lambda a: a.with_prefix if a.has_prefix else a.ip,
    "6to4": _to_6to4,
    "address": _host_ip,
    **dict.fromkeys(
        ("address/prefix", "gateway", "gw", "host/prefix", "hostnet", "router"),
        lambda a: False if a.is_reserved else a.with_prefix,
    ),
    "bool": lambda a: True,
    "broadcast": lambda a: _text(a.network.broadcast_address) if a.size > 2 else None,
    "cidr": lambda a: a.with_prefix,
    # The address of the network and the broadcast address are excluded, except in a network of two (RFC 3021).
    "first_usable": _usable_end("first_usable", 0),
    "host": _host,
    **dict.fromkeys(("hostmask", "wildcard"), lambda a: _text(a.network.hostmask)),
    "int": lambda a: f"{int(a.interface.ip)}/{a.prefix}" if a.has_prefix else int(a.interface.ip),
    "ip": _host_ip,
    "ip/prefix": _host_of_network,
    "ip_netmask": lambda a: f"{a.ip} {_text(a.network.netmask)}" if _host_of_network(a) else None,
    "ipv4": _to_ipv4,
    "ipv6": _to_ipv6,
    "last_usable": _usable_end("last_usable", 1),
    "net": lambda a: a.with_prefix if a.names_network else None,
    "netmask": lambda a: _text(a.network.netmask),
    **dict.fromkeys(("network", "network_id"), lambda a: _text(a.network.network_address)),
    **dict.fromkeys(("network/prefix", "subnet"), lambda a: f"{_text(a.network.network_address)}/{a.prefix}"),
    "network_netmask": lambda a: f"{_text(a.network.network_address)} {_text(a.network.netmask)}",
    "network_wildcard": lambda a: f"{_text(a.network.network_address)} {_text(a.network.hostmask)}",
    "next_usable": _neighbour("next_usable", 1),
    "peer": _peer,
    "prefix": lambda a: a.prefix,
    "previous_usable": _neighbour("previous_usable", -1),
    "range_usable": _usable_range,
    "revdns": lambda a: a.interface.ip.reverse_pointer + ".",
    "size": lambda a: a.size,
    "size_usable": lambda a: max(a.size - 2, 0) if a.size > 2 else 2 * (a.size - 1),
    "type": lambda a: "network" if a.names_network else "address",
    "version": lambda a: a.interface.version,
    "wrap": lambda a: _wrapped(a) if a.interface.version == 6 else a.text,
}


def _wrapped(a: _Address) -> str:
    return f"[{a.ip}]/{a.prefix}" if a.has_prefix else f"[{a.ip}]"


# -- conditions ------------------------------------------------------------------------------------

# IANA's registries of special-purpose addresses: the blocks that are not globally reachable, and the parts of them
# that are. Python versions differ here, so ``is_global`` would depend on the host.
_LOCAL_BLOCKS: Final = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
    *("203.0.113.0/24", "240.0.0.0/4", "::/128", "::1/128", "::ffff:0:0/96", "64:ff9b:1::/48", "100::/64"),
    *("2001::/23", "2001:db8::/32", "2002::/16", "fc00::/7", "fe80::/10"),
)
_GLOBAL_PARTS: Final = (
    *("192.0.0.9/32", "192.0.0.10/32", "2001:1::1/128", "2001:1::2/128", "2001:3::/32", "2001:4:112::/48"),
    *("2001:20::/28", "2001:30::/28"),
)


def _is_within(a: _Address, *blocks: str) -> bool:
    return any(a.interface.ip in ip_network(block) for block in blocks)


def _is_global(a: _Address) -> bool:
    return not _is_within(a, *_LOCAL_BLOCKS) or _is_within(a, *_GLOBAL_PARTS)


def _is_public(a: _Address) -> bool:
    ip = a.interface.ip
    inverted = int(ip) ^ ((1 << ip.max_prefixlen) - 1)
    is_mask = any(bits & (bits + 1) == 0 for bits in (int(ip), inverted))
    return _is_global(a) and not ip.is_multicast and not is_mask


_CONDITIONS: Final[dict[str, Callable[[_Address], bool]]] = {
    "link-local": lambda a: _is_within(a, "169.254.0.0/16", "fe80::/10"),
    **dict.fromkeys(("lo", "loopback"), lambda a: _is_within(a, "127.0.0.0/8", "::1/128")),
    "multicast": lambda a: a.interface.ip.is_multicast,
    "private": lambda a: not _is_global(a),
    "public": _is_public,
    "unicast": lambda a: not a.interface.ip.is_multicast,
}


# -- filters ---------------------------------------------------------------------------------------


def ipaddr(value: Any, query: str | int = "", version: int | None = None) -> Any:
    """Return the address if it is valid, or the requested part: ``network``, ``prefix``, or a number for that host.

    ``version``: 4 or 6, to accept only addresses of this family. Raises ExpressionError for an unknown query, and for
    null, mappings and fractions.
    """
    if isinstance(value, (list, tuple)):
        return [answer for item in value if (answer := _answered(item, query, version))]
    if not isinstance(value, (str, int)):
        raise ExpressionError("", f"ipaddr requires text, a number or a list, not {described(value)}")
    return _answered(value, query, version)


def _answered(value: Any, query: str | int, version: int | None) -> Any:
    if isinstance(value, (list, tuple)):
        return ipaddr(value, query, version)
    address = _parsed(value, version)
    return False if address is None else _answer(address, query)


def ipv4(value: Any, query: str | int = "") -> Any:
    """``ipaddr`` for IPv4 addresses only."""
    return ipaddr(value, query, 4)


def ipv6(value: Any, query: str | int = "") -> Any:
    """``ipaddr`` for IPv6 addresses only."""
    return ipaddr(value, query, 6)


def ipwrap(value: Any) -> Any:
    """Return an IPv6 address in brackets, as in URLs, and an IPv4 address in its standard form.

    Other texts, booleans and items of a list are returned unchanged. Raises ExpressionError for other values.
    """
    if isinstance(value, (list, tuple)):
        return [ipaddr(item, "wrap") if _is_address(item) else item for item in value]
    if not isinstance(value, (str, bool)):
        raise ExpressionError("", f"ipwrap requires text or a list, not {described(value)}")
    return ipaddr(ipaddr(value), "wrap") if _is_address(value) else value


def _is_address(value: Any) -> bool:
    return isinstance(value, (str, int)) and ipaddr(value) is not False


def _parsed(value: Any, version: int | None) -> _Address | None:
    """Return the address, or ``None`` if the value is invalid or of the other family."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if not is_number and not (isinstance(value, str) and "%" not in value):  # a zone is no part of an address
        return None
    text = str(value)
    number, slash, prefix = text.partition("/")
    try:
        if not (number.isascii() and number.isdecimal() and (not slash or prefix.isdecimal())):
            parsed = _Address(text, ip_interface(text), bool(slash))
        else:
            parsed = _of_number(int(number), int(prefix) if slash else None, version)
    except ValueError:
        return None
    return parsed if version in (None, parsed.interface.version) else None


def _of_number(number: int, prefix: int | None, version: int | None) -> _Address:
    """Return the address with this number. Raises ValueError if it is too large."""
    is_ipv4 = version != 6 and number < 1 << 32 and (prefix is None or prefix <= 32)
    interface: Interface
    if is_ipv4:
        interface = IPv4Interface((number, 32 if prefix is None else prefix))
    else:
        interface = IPv6Interface((number, 128 if prefix is None else prefix))
    return _Address(f"{_text(interface.ip)}/{interface.network.prefixlen}", interface, prefix is not None)


def _answer(address: _Address, query: Any) -> Any:
    if isinstance(query, str) and query in _QUERIES:
        return _QUERIES[query](address)
    if isinstance(query, str) and query in _CONDITIONS:
        return address.text if _CONDITIONS[query](address) else None
    try:
        index = int(str(query))
    except ValueError:
        return _within(address, query)
    if address.size == 1:
        return address.with_prefix if address.has_prefix else address.ip
    try:
        return f"{_text(address.network[index])}/{address.prefix}"
    except IndexError:
        return False


def _within(address: _Address, query: Any) -> str | None:
    """Return the address if its network is a part of the network ``query``. Raises ExpressionError."""
    block = _parsed(query, None)
    if block is None:
        known = ", ".join(sorted({*_QUERIES, *_CONDITIONS} - {""}))
        raise ExpressionError("", f"unknown query {query!r} of ipaddr: use {known}, a number or a network")
    outer, inner = block.network, address.network
    is_part = (
        outer.version == inner.version
        and outer.prefixlen <= inner.prefixlen
        and inner.network_address in outer
    )
    return address.text if is_part else None
