"""The ``host_entry`` resource: a host in ``/etc/hosts``, with addresses and aliases (``docs/resources/host_entry.md``).

* All entries are written together.
* A name that another line gives another address is a note, because programs may use either address.

Edits of the file as text (hosts(5)): an entry is the lines whose first name is the name of the entry.

* All other lines stay, byte by byte. A changed line keeps its place, its separators and its comment.
* Names are compared without case, addresses by value: ``2001:DB8::0:7`` is ``2001:db8::7``.
* A line with an invalid address or without a name belongs to no entry.
"""

import ipaddress
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import msgspec

from foundation.differences import ABSENT, Difference, changed, presence, unified
from puller.resources.base import Declared, Properties, PropertyError, Resource, missing_property
from puller.resources.claims import Claim, EditedPlace, Use, agree
from puller.resources.read_once import EditedFile
from puller.system.local_paths import Spellings

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


_ENSURE = ("present", "absent")


class HostEntryProperties(Properties, frozen=True):
    """The properties of an entry. The name is the host name."""

    address: str | tuple[str, ...] = ()
    """The IP address, or a list of addresses. Each has its own line."""
    aliases: tuple[str, ...] = ()
    """Further names of the host, after its name."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses as a list."""
        return (self.address,) if isinstance(self.address, str) else self.address

    @property
    def edit(self) -> Edit:
        """The desired lines."""
        return Edit(self.name, () if self.ensure == "absent" else self.addresses, self.aliases)


class HostEntryState(msgspec.Struct, frozen=True):
    """The lines of the entry: addresses and aliases of each."""

    addresses: tuple[str, ...] = ()
    aliases: tuple[tuple[str, ...], ...] = ()


class HostEntry(Resource[HostEntryProperties, HostEntryState]):
    """The addresses and aliases of a host."""

    type_name = "host_entry"
    properties_type = HostEntryProperties
    unused = {"absent": frozenset({"address", "aliases"})}  # noqa: RUF012  ClassVar in the base class
    providers = ("hosts",)
    removable = True

    def look(self) -> HostEntryState:
        own = [line for line in self._file.current(self.context) if line.is_of(self.properties.name)]
        return HostEntryState(tuple(line.written for line in own), tuple(line.names[1:] for line in own))

    def differences(self, actual: HostEntryState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        properties = self.properties
        is_present = bool(actual.addresses)
        if (properties.ensure == "present") is not is_present:
            return [presence("present" if is_present else ABSENT, properties.ensure)]
        if not is_present:
            return []
        differences, desired = [], properties.addresses
        if sorted(map(_comparable, actual.addresses)) != sorted(map(_comparable, desired)):
            differences.append(changed("address", " ".join(actual.addresses), " ".join(desired)))
        others = (names for names in actual.aliases if not same_names(names, properties.aliases))
        if (different := next(others, None)) is not None:
            differences.append(changed("aliases", " ".join(different), " ".join(properties.aliases)))
        return differences

    def change(self, differences: Sequence[Difference], actual: HostEntryState) -> None:
        del differences
        self.change_together([(self, actual)])

    @classmethod
    def change_together(
        cls, members: "Sequence[tuple[HostEntry, HostEntryState]]"
    ) -> Mapping[int, Exception]:
        """Write all entries at once."""
        first, _ = members[0]
        edits = [resource.properties.edit for resource, _ in members]
        first._file.write(first.context.system, partial(edited, edits=edits))
        return {}

    def noop_message(self, differences: Sequence[Difference], actual: HostEntryState) -> str:
        del differences
        self._file.plan(self.context.system, lambda text: text)  # raises for a file that cannot be edited
        name = self.properties.name
        if self.properties.ensure == "absent":
            return f"Would have removed {name} from {HOSTS}"
        return f"Would have {'changed' if actual.addresses else 'added'} {name} in {HOSTS}"

    @property
    def notes(self) -> Sequence[str]:
        if self.properties.ensure == "absent":
            return ()
        lines = self._file.current(self.context)
        return [*_notes(lines, self.properties)]

    def final_ensure(self, actual: HostEntryState) -> str:
        return "present" if actual.addresses else "absent"

    def describe(self, actual: HostEntryState) -> dict[str, Any]:
        if not actual.addresses:
            return {"ensure": "absent"}
        return {"ensure": "present", "address": list(actual.addresses), "aliases": list(actual.aliases[0])}

    # The edit of the file, for diffs and the end of a trial

    @property
    def _file(self) -> EditedFile[tuple[HostsLine, ...]]:
        return EditedFile.of(self.context, HOSTS, parse)

    def changed_paths(self, actual: HostEntryState) -> Iterable[str]:
        del actual
        return [self._file.real]

    @classmethod
    def edited_file(cls, properties: HostEntryProperties) -> str:
        del properties
        return HOSTS

    def edited_place(self, actual: HostEntryState) -> EditedPlace:
        del actual
        result, content, _ = self._file.plan(self.context.system, lambda text: text)
        return EditedPlace(self._file.path, self._file.real, None if result is None else content)

    @classmethod
    def edited_content(cls, properties: HostEntryProperties, content: bytes | None) -> bytes | None:
        text = (content or b"").decode("utf-8", "surrogateescape")
        after = edited(text, [properties.edit])
        return None if after == text else after.encode("utf-8", "surrogateescape")

    @classmethod
    def finds_part(cls, properties: HostEntryProperties, content: bytes) -> bool:
        lines = parse(content.decode("utf-8", "surrogateescape"))
        return any(line.is_of(properties.name) for line in lines)

    def diff(self, actual: HostEntryState) -> str | None:
        return self.diff_together([(self, actual)])

    @classmethod
    def diff_together(cls, members: "Sequence[tuple[HostEntry, HostEntryState]]") -> str | None:
        file, system = members[0][0]._file, members[0][0].context.system
        edits = [resource.properties.edit for resource, _ in members]
        _, before, after = file.plan(system, partial(edited, edits=edits))
        return unified(before, after, file.path) if before != after else None

    # Loading

    @classmethod
    def whole(cls, properties: Any) -> Hashable | None:
        del properties
        return (cls.type_name, HOSTS)

    @classmethod
    def identity(cls, properties: Any, spellings: Spellings) -> Hashable:
        del spellings
        return str(properties.name).lower()

    @classmethod
    def agree(cls, first: HostEntryProperties, second: HostEntryProperties) -> HostEntryProperties:
        return agree(first, second, exact=("aliases",), rules={"address": _same_addresses})

    @classmethod
    def contradictions(cls, declared: Declared) -> Iterator[tuple[Any, Any, str]]:
        """Yield entries that give one name two addresses of a family."""
        owners: dict[str, HostEntryProperties] = {}
        for entry in declared(cls.type_name):
            if not isinstance(entry, HostEntryProperties) or entry.ensure != "present":
                continue
            for name in entry.edit.names:
                other = owners.setdefault(name.lower(), entry)
                if other is not entry and _contradict(other, entry):
                    yield other, entry, f"gives {name} another address"

    @classmethod
    def claims(cls, properties: HostEntryProperties) -> Iterator[Claim]:
        edit = properties.edit
        if not edit.addresses:
            yield Claim(HOSTS, Use.REMOVED_PART, editor=cls.type_name)
            return

        def rejects(text: str) -> bool:
            return edited(text, [edit]) != text and any(line.is_of(edit.name) for line in parse(text))

        lines = tuple(f"{address}\t{' '.join(edit.names)}" for address in edit.addresses)
        yield Claim(
            HOSTS,
            Use.PART,
            editor=cls.type_name,
            lines=lambda: lines,
            rejects=rejects if len(lines) == 1 else lambda text: False,
        )

    @classmethod
    def places(cls, properties: HostEntryProperties) -> Iterable[str]:
        del properties
        return (HOSTS,)

    @classmethod
    def is_whole(cls, properties: HostEntryProperties) -> bool:
        del properties
        return False

    @classmethod
    def check(cls, properties: HostEntryProperties) -> Iterator[PropertyError]:
        name, ensure, addresses = properties.name, properties.ensure, properties.addresses
        yield from check_host_names("name", [name])
        yield from check_host_names("aliases", properties.aliases)
        if ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {ensure!r}", expected="present or absent")
        if ensure == "present" and not addresses:
            yield missing_property("address", because=["ensure"], expected="an IP address")
        parsed = [find_address(address) for address in addresses]
        for address, value in zip(addresses, parsed, strict=True):
            if value is None:
                yield PropertyError("address", f"is {address!r}", expected="an IP address")
        if None not in parsed and len({*parsed}) < len(parsed):
            yield PropertyError("address", "has one address twice")
        names = [each.lower() for each in properties.edit.names]
        if len({*names}) < len(names):
            yield PropertyError("aliases", "has one name twice", because=["name"])
        if "localhost" in names and (
            ensure == "absent" or not all(value is None or value.is_loopback for value in parsed)
        ):
            because = ["ensure"] if ensure == "absent" else ["address"]
            yield PropertyError(
                "name" if names[0] == "localhost" else "aliases",
                "has localhost, which programs expect at a loopback address",
                because=because,
            )


class LeftoverHostEntry(HostEntry):
    """An entry that Puller added, to be ``absent``. Other lines of the file stay."""

    @classmethod
    def claims(cls, properties: HostEntryProperties) -> Iterator[Claim]:
        del properties
        return iter(())

    @classmethod
    def places(cls, properties: HostEntryProperties) -> Iterable[str]:
        del properties
        return ()


def _comparable(address: str) -> tuple[int, str]:
    value = find_address(address)
    return (0, address) if value is None else (value.version, value.exploded)


def _same_addresses(first: Any, other: Any) -> Any:
    lists = [(each,) if isinstance(each, str) else each for each in (first, other)]
    if sorted(map(_comparable, lists[0])) != sorted(map(_comparable, lists[1])):
        raise ValueError("two lists of addresses")
    return tuple(sorted(lists[0], key=_comparable))


def _contradict(first: HostEntryProperties, other: HostEntryProperties) -> bool:
    pairs = [{*map(_comparable, entry.addresses)} for entry in (first, other)]
    families = [{version for version, _ in addresses} for addresses in pairs]
    common = families[0] & families[1]
    return any(
        {pair for pair in pairs[0] if pair[0] == version} != {pair for pair in pairs[1] if pair[0] == version}
        for version in common
    )


def _notes(lines: Iterable[HostsLine], properties: HostEntryProperties) -> Iterator[str]:
    desired = [address for text in properties.addresses if (address := find_address(text)) is not None]
    names = {name.lower() for name in properties.edit.names}
    for line in lines:
        is_conflict = line.address not in desired and any(
            address.version == line.address.version for address in desired
        )
        both = [name for name in line.names if name.lower() in names]
        if is_conflict and both and not line.is_of(properties.name):
            yield f"{HOSTS}:{line.number} also gives {both[0]} the address {line.written}"
