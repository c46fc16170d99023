"""Check of a name and its addresses in the system's resolver."""

import ipaddress
import socket

from bundles.deadline import Deadline
from puller.checks.kinds import Answer, Dns, NotCarriedOut

_FAMILIES = {None: socket.AF_UNSPEC, "A": socket.AF_INET, "AAAA": socket.AF_INET6}
_NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)


def ask(check: Dns, deadline: Deadline) -> Answer:
    """Resolve the name.

    Raises ``NotCarriedOut`` if the resolver does not answer, which differs from an unknown name.
    """
    del deadline
    record = check.type or "address"
    try:
        entries = socket.getaddrinfo(check.name, None, _FAMILIES[check.type], socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _NO_SUCH_NAME:
            return Answer([f"{check.name} has no {record}: {error.strerror}"])
        raise NotCarriedOut(f"{check.name}: {error.strerror}") from error
    except UnicodeError as error:
        raise NotCarriedOut(f"{check.name}: is not a valid host name: {error}") from error
    addresses = sorted({_plain(str(entry[4][0])) for entry in entries})
    answer = f"{check.name} has {', '.join(addresses)}"
    if check.addresses and {*addresses} != (expected := {_plain(address) for address in check.addresses}):
        return Answer([f"{answer}, expected {', '.join(sorted(expected))}"])
    return Answer([], answer)


def _plain(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        raise NotCarriedOut(f"{address!r} is not an IP address") from None
