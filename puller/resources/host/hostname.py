"""The ``hostname`` resource: the name of the machine, now and at the next boot (``docs/resources/hostname.md``).

* The kernel is changed first, so that ``/etc/hostname`` never has a name that the kernel rejects.
* ``hostnamectl`` is not used: it needs D-Bus, and it also changes the name that DHCP has set.
* With ``hosts``, the line of ``127.0.1.1`` in ``/etc/hosts`` has the name. The machine then resolves it without DNS.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from foundation.differences import ABSENT, Difference, added, changed, unified
from puller.errors import ResourceError, reason
from puller.resources.base import Properties, PropertyError
from puller.resources.claims import Claim, EditedPlace, Use
from puller.resources.host import host_entry
from puller.resources.host.host_entry import HostsLine, is_host_name, parse, same_names
from puller.resources.host.single import SingleValue
from puller.resources.read_once import EditedFile
from puller.system import trusted_files

HOSTNAME = "/etc/hostname"
OWN_ADDRESS = "127.0.1.1"
"""The address of Debian for the name of a machine without a permanent address."""

_LONGEST = 64  # bytes, the limit of the kernel
_LINES = re.compile(r"[^\n]*\n|[^\n]+")


class HostnameProperties(Properties, frozen=True):
    """The properties of the host name. The resource name is the host name."""

    domain: str | None = None
    """The domain of the name in ``/etc/hosts``. The default is the domain in the name."""
    hosts: bool = False
    """Also enter the name in ``/etc/hosts``, with the address ``127.0.1.1``."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names in ``/etc/hosts``: the full name first."""
        short = self.name.partition(".")[0]
        full = f"{self.name}.{self.domain}" if self.domain else self.name
        return (full,) if full == short else (full, short)


class HostnameState(msgspec.Struct, frozen=True):
    """The name in the kernel, in ``/etc/hostname``, and in ``/etc/hosts``. ``None``: missing."""

    running: str
    kept: str | None
    hosts: tuple[str, ...] | None = None


class Hostname(SingleValue[HostnameProperties, HostnameState]):
    """The host name of the machine."""

    type_name = "hostname"
    properties_type = HostnameProperties

    def look(self) -> HostnameState:
        running = self.context.system.read(_parameter()).decode("utf-8", "replace").strip()
        kept = _name_in(self._file.current(self.context))
        if not self.properties.hosts:
            return HostnameState(running, kept)
        line = next(filter(_is_own, self._hosts.current(self.context)), None)
        return HostnameState(running, kept, None if line is None else line.names)

    def differences(self, actual: HostnameState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        name, differences = self.properties.name, []
        if actual.running != name:
            differences.append(changed("name", actual.running, name))
        if actual.kept is None:
            differences.append(added("name", name, HOSTNAME))
        elif actual.kept != name:
            differences.append(changed("name", actual.kept, name, HOSTNAME))
        if self.properties.hosts and not same_names(actual.hosts or (), self.properties.names):
            current, desired = " ".join(actual.hosts or ()), " ".join(self.properties.names)
            differences.append(changed("hosts", current or ABSENT, desired, host_entry.HOSTS))
        return differences

    def change(self, differences: Sequence[Difference], actual: HostnameState) -> None:
        """Set the name. Raises ``OSError`` and ``ResourceError``.

        1. In the kernel, which may refuse it.
        2. In ``/etc/hosts``, so that the name can be resolved when the next boot sets it.
        3. In ``/etc/hostname``.
        """
        del differences
        name, system = self.properties.name, self.context.system
        # 1. Kernel
        if actual.running != name:
            try:
                system.write_kernel(_parameter(), f"{name}\n".encode())
            except OSError as error:
                raise ResourceError(f"the kernel refuses the name {name}: {reason(error)}") from None
        # 2. Hosts
        if self.properties.hosts:
            self._hosts.write(system, partial(_with_names, names=self.properties.names))
        # 3. File
        self._file.write(system, partial(_with_name, name=name))

    def noop_message(self, differences: Sequence[Difference], actual: HostnameState) -> str:
        del differences
        for file in self._files:
            file.plan(self.context.system, lambda text: text)  # raises for a file that cannot be edited
        name, words = self.properties.name, []
        if actual.running != name:
            words.append(f"changed the host name from {actual.running} to {name}")
        if actual.kept != name:
            words.append(f"set {name} in {HOSTNAME}")
        if self.properties.hosts and not same_names(actual.hosts or (), self.properties.names):
            words.append(f"set {' '.join(self.properties.names)} in {host_entry.HOSTS}")
        return f"Would have {', would have '.join(words)}"

    def describe(self, actual: HostnameState) -> dict[str, Any]:
        return {"ensure": self.properties.ensure, "name": actual.running, "kept": actual.kept}

    # The edited files

    @property
    def _file(self) -> EditedFile[str]:
        return EditedFile.of(self.context, HOSTNAME, str)

    @property
    def _hosts(self) -> EditedFile[tuple[HostsLine, ...]]:
        return EditedFile.of(self.context, host_entry.HOSTS, parse)

    @property
    def _files(self) -> Sequence[EditedFile[Any]]:
        return [self._file, *([self._hosts] if self.properties.hosts else [])]

    def changed_paths(self, actual: HostnameState) -> Iterable[str]:
        kernel = [_parameter()] if actual.running != self.properties.name else []
        return [*(file.real for file in self._files), *kernel]

    @classmethod
    def edited_file(cls, properties: HostnameProperties) -> str:
        return host_entry.HOSTS if properties.hosts else ""

    def edited_place(self, actual: HostnameState) -> EditedPlace | None:
        del actual
        if not self.properties.hosts:
            return None
        result, content, _ = self._hosts.plan(self.context.system, lambda text: text)
        return EditedPlace(self._hosts.path, self._hosts.real, None if result is None else content)

    @classmethod
    def edited_content(cls, properties: HostnameProperties, content: bytes | None) -> bytes | None:
        text = (content or b"").decode("utf-8", "surrogateescape")
        after = _with_names(text, properties.names) if properties.hosts else text
        return None if after == text else after.encode("utf-8", "surrogateescape")

    @classmethod
    def finds_part(cls, properties: HostnameProperties, content: bytes) -> bool:
        del properties
        return any(map(_is_own, parse(content.decode("utf-8", "surrogateescape"))))

    def diff(self, actual: HostnameState) -> str | None:
        del actual
        edits = [partial(_with_name, name=self.properties.name)]
        edits += [partial(_with_names, names=self.properties.names)] if self.properties.hosts else []
        texts = []
        for file, edit in zip(self._files, edits, strict=True):
            _, before, after = file.plan(self.context.system, edit)
            texts.append(unified(before, after, file.path) if before != after else None)
        return "".join(text for text in texts if text) or None

    # Loading

    @classmethod
    def places(cls, properties: HostnameProperties) -> Iterable[str]:
        return (HOSTNAME, *([host_entry.HOSTS] if properties.hosts else []))

    @classmethod
    def subjects(cls, properties: HostnameProperties) -> Iterable[str]:
        return (*cls.places(properties), "sysctl")  # the name is a kernel parameter too

    @classmethod
    def claims(cls, properties: HostnameProperties) -> Iterator[Claim]:
        name, names = properties.name, properties.names
        yield Claim(HOSTNAME, Use.PART, editor=cls.type_name, lines=lambda: (name,))
        if properties.hosts:
            line = f"{OWN_ADDRESS}\t{' '.join(names)}"
            yield Claim(host_entry.HOSTS, Use.PART, editor=cls.type_name, lines=lambda: (line,))

    @classmethod
    def is_whole(cls, properties: HostnameProperties) -> bool:
        del properties
        return False

    @classmethod
    def check(cls, properties: HostnameProperties) -> Iterator[PropertyError]:
        name, domain = properties.name, properties.domain
        if properties.ensure != "present":
            yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present")
        if not is_host_name(name) or len(name) > _LONGEST or name.lower() == "localhost":
            expected = f"a host name such as 'web01', with at most {_LONGEST} characters"
            yield PropertyError("name", f"is {name!r}", expected=expected)
        if domain is None:
            return
        if not is_host_name(domain):
            yield PropertyError("domain", f"is {domain!r}", expected="a domain such as 'example.com'")
        if "." in name:
            yield PropertyError("domain", f"is {domain!r}, and the name {name!r} has one", because=["name"])
        if not properties.hosts:
            yield PropertyError("domain", "requires hosts: true", because=["hosts"])


def _parameter() -> str:
    return f"{trusted_files.PROC_SYS}/kernel/hostname"


def _is_own(line: HostsLine) -> bool:
    return line.written == OWN_ADDRESS


def _name_in(text: str) -> str | None:
    """Return the name in ``/etc/hostname``: the first line that is neither empty nor a comment."""
    lines = (line.strip() for line in text.split("\n"))
    return next((line for line in lines if line and not line.startswith("#")), None)


def _with_name(text: str, name: str) -> str:
    """Return ``/etc/hostname`` with another name. Comments stay."""
    if _name_in(text) == name:
        return text
    comments = [line for line in _LINES.findall(text) if line.strip().startswith("#")]
    if comments and not comments[-1].endswith("\n"):
        comments[-1] += "\n"
    return "".join([*comments, f"{name}\n"])


def _with_names(text: str, names: Sequence[str]) -> str:
    """Return ``/etc/hosts`` with these names in the first line of the own address. All other lines stay."""
    own = next(filter(_is_own, parse(text)), None)
    if own is not None and same_names(own.names, names):
        return text
    lines: list[str] = _LINES.findall(text)
    if own is not None:
        lines[own.number - 1] = own.changed(OWN_ADDRESS, names)
        return "".join(lines)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines, f"{OWN_ADDRESS}\t{' '.join(names)}\n"])
