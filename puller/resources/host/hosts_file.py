"""Edits of ``/etc/hosts`` as text (hosts(5)): an entry is the lines whose first name is the name of the entry.

* All other lines stay, byte by byte. A changed line keeps its place, its separators and its comment.
* Names are compared without case, addresses by value: ``2001:DB8::0:7`` is ``2001:db8::7``.
* A line with an invalid address or without a name belongs to no entry.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from puller.resources.base import PropertyError

HOSTS = "/etc/hosts"

_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_FIELDS = re.compile(r"([ \t]*)([^\s#]+)([ \t]+)([^\s#]+(?:[ \t]+[^\s#]+)*)")
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_LONGEST = 253  # characters of a host name

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class HostsLine(NamedTuple):
    """A line with an address and names, in parts. ``number`` counts from 1."""

    number: int
    start: str
    written: str
    """The address as written."""
    between: str
    names: tuple[str, ...]
    end: str
    """A comment, blanks, and the end of the line."""

    @classmethod
    def find(cls, number: int, line: str) -> Self | None:
        """Return the parts of a line, ``None`` for any other line."""
        match = _FIELDS.match(line)
        if match is None or find_address(match[2]) is None:
            return None
        return cls(number, match[1], match[2], match[3], tuple(match[4].split()), line[match.end() :])

    @property
    def address(self) -> Address:
        """The address as a value."""
        return ipaddress.ip_address(self.written)

    def is_of(self, name: str) -> bool:
        """Return whether the line belongs to the entry of this name."""
        return self.names[0].lower() == name.lower()

    def changed(self, address: str, names: Sequence[str]) -> str:
        """Return the text of the line with another address and names, which stay as written if they are equal."""
        written = self.written if find_address(address) == self.address else address
        result = self.names if same_names(self.names, names) else names
        if (written, result) == (self.written, self.names):
            return self.text
        return f"{self.start}{written}{self.between}{' '.join(result)}{self.end}"

    @property
    def text(self) -> str:
        """The whole line. Blanks between names are single."""
        return f"{self.start}{self.written}{self.between}{' '.join(self.names)}{self.end}"


class Edit(NamedTuple):
    """The desired lines of an entry: one for each address. Without addresses, the entry is removed."""

    name: str
    addresses: tuple[str, ...]
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names of a line."""
        return (self.name, *self.aliases)


def parse(text: str) -> tuple[HostsLine, ...]:
    """Return all lines with an address and names."""
    lines = (HostsLine.find(number, line) for number, line in enumerate(_LINES.findall(text), start=1))
    return tuple(line for line in lines if line is not None)


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return the text after all edits.

    1. A line with a desired address keeps its place.
    2. A line with another address gets a desired address of its family that has no line.
    3. Remaining lines of the entry are removed, and lines for remaining addresses are appended.
    """
    lines: list[str] = _LINES.findall(text)
    for edit in edits:
        own = [line for line in parse("".join(lines)) if line.is_of(edit.name)]
        remaining = {address: parsed for address in edit.addresses if (parsed := find_address(address))}
        unused = []
        # 1. Equal addresses
        for line in own:
            equal = next((address for address, parsed in remaining.items() if parsed == line.address), None)
            if equal is None:
                unused.append(line)
            else:
                del remaining[equal]
                _replace(lines, line, equal, edit.names)
        # 2. Other addresses of the same family
        removed = []
        for line in unused:
            version = line.address.version
            similar = next(
                (address for address, parsed in remaining.items() if parsed.version == version), None
            )
            if similar is None:
                removed.append(line)
            else:
                del remaining[similar]
                _replace(lines, line, similar, edit.names)
        # 3. The rest
        for line in reversed(removed):
            del lines[line.number - 1]
        for address in remaining:
            if lines and not lines[-1].endswith("\n"):
                lines[-1] += "\n"
            lines.append(f"{address}\t{' '.join(edit.names)}\n")
    return "".join(lines)


def _replace(lines: list[str], line: HostsLine, address: str, names: Sequence[str]) -> None:
    # An unchanged line also keeps several blanks between its names.
    if (text := line.changed(address, names)) != line.text:
        lines[line.number - 1] = text


def same_names(first: Iterable[str], other: Iterable[str]) -> bool:
    """Return whether two lists have the same names in the same order."""
    return [name.lower() for name in first] == [name.lower() for name in other]


def find_address(text: str) -> Address | None:
    """Return the address in a text, ``None`` if it is invalid."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_host_name(name: str) -> bool:
    """Return whether a text can be a name in ``/etc/hosts``: labels of letters, digits, ``-`` and ``_``."""
    is_number = name.rpartition(".")[2].isdecimal()  # programs would read it as an address
    return len(name) <= _LONGEST and not is_number and all(map(_LABEL.fullmatch, name.split(".")))


def check_host_names(name: str, host_names: Iterable[str]) -> Iterator[PropertyError]:
    """Yield errors of a property with host names."""
    for host_name in host_names:
        if not is_host_name(host_name):
            message = f"is {host_name!r}" if name == "name" else f"has {host_name!r}"
            yield PropertyError(name, message, expected="a host name such as 'db.example.com'")
