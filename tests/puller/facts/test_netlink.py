"""The kernel's answers about links and addresses, compared with other sources on the same machine."""

import errno
import socket
import struct
from pathlib import Path

import pytest

from puller.facts import machine
from puller.facts.machine import Address, Link


def test_links_are_those_that_the_socket_module_and_sysfs_know() -> None:
    links = machine.links()

    assert [(link.number, link.name) for link in links] == socket.if_nameindex()
    for link in links:
        directory = Path("/sys/class/net", link.name)
        assert str(link.mtu) == (directory / "mtu").read_text().strip()
        assert link.mac == (directory / "address").read_text().strip()


def test_the_loopback_interface_has_its_address() -> None:
    (number,) = [link.number for link in machine.links() if link.name == "lo"]

    loopback = [address for address in machine.addresses() if address.name == "lo"]
    assert (number, "127.0.0.1", 8) in [(found.number, found.address, found.prefix) for found in loopback]


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def test_the_bodies_of_messages_are_read_to_the_last_attribute() -> None:
    body = struct.pack("=BxHiII", 0, 1, 7, 0, 0)
    body += attribute(3, b"bond0\0") + attribute(1, bytes.fromhex("525400123456"))
    body += (
        attribute(99, b"not known")
        + attribute(4, struct.pack("=I", 9000))
        + attribute(10, struct.pack("=I", 3))
    )

    assert list(machine.parse_links([body])) == [Link(7, "bond0", "52:54:00:12:34:56", 9000, 3)]


def test_our_end_of_a_tunnel_and_the_label_of_an_alias_are_taken() -> None:
    tunnel = struct.pack("=BBBBI", socket.AF_INET, 32, 0x80, 0, 5)
    tunnel += attribute(1, socket.inet_aton("10.8.0.5")) + attribute(2, socket.inet_aton("10.8.0.6"))
    alias = struct.pack("=BBBBI", socket.AF_INET, 24, 0, 0, 2)
    alias += attribute(1, socket.inet_aton("192.0.2.7")) + attribute(3, b"eth0:1\0")
    other = struct.pack("=BBBBI", socket.AF_PACKET, 0, 0, 0, 2)

    assert list(machine.parse_addresses([tunnel, alias, other], {5: "tun0", 2: "eth0"})) == [
        Address(5, "tun0", "10.8.0.6", 32, 0x80),
        Address(2, "eth0:1", "192.0.2.7", 24, 0),
    ]


def test_attributes_that_are_cut_off_end_the_reading() -> None:
    body = struct.pack("=BxHiII", 0, 1, 7, 0, 0) + attribute(3, b"eth0\0") + b"\0\0\0\0\0\0"

    assert list(machine.parse_links([body])) == [Link(7, "eth0", "", 0, 0)]


def test_an_error_of_the_kernel_is_raised() -> None:
    data = struct.pack("=IHHII", 20, 2, 0, 1, 0) + struct.pack("=i", -errno.EPERM)

    with pytest.raises(PermissionError):
        list(machine._messages(data))
