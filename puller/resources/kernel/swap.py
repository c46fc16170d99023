"""The ``swap`` resource: a swap file, its use by the kernel, and its entry in fstab (``docs/resources/swap.md``).

* A file is written whole, with the header of swap(5) and zeros, and then appears in one step. A run that is killed, or
  a full disk, leaves the old file.
* Only a file with this header is replaced or removed. All other files stay.
* The kernel stops using a file before it is replaced or removed. If its pages do not fit into memory, nothing changes.
* A file in a directory of another user is refused, because that user could read the memory of all programs.
"""

import itertools
import os
import re
import secrets
import struct
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from foundation.differences import ABSENT, Difference, added, changed, presence, removed, unified
from foundation.problems import ProblemCode
from foundation.quantities import bytes_text
from puller.errors import ResourceError
from puller.resources.base import Declared, Properties, PropertyError, Resource, missing_property
from puller.resources.claims import Claim, Use
from puller.resources.kernel import fstab
from puller.resources.kernel.fstab import SWAP, Edit, Entry, Fields
from puller.resources.kernel.mount_changes import tell_systemd
from puller.resources.kernel.mount_plan import fstab_file
from puller.resources.kernel.mount_table import Mounts
from puller.resources.paths import PathState, check_managed
from puller.resources.tool import Tool
from puller.system.local_paths import Spellings
from puller.system.protocol import Attributes
from puller.system.trusted_files import distrust_of_way
from puller.values.common_properties import Reference

SWAPS = "/proc/swaps"

_ENSURE = ("present", "absent")
_SIZE = re.compile(r"([1-9][0-9]{0,8})([MGT])")
_UNITS = {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIGNATURE = b"SWAPSPACE2"
_HEADER = struct.Struct("<III16s")  # after 1024 bytes: version, last page, bad pages, UUID
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CHUNK = 1 << 20
_HIGHEST_PRIORITY = 32767
_UNSUITABLE = ("btrfs", "tmpfs", "ramfs", "overlay", "nfs", "nfs4", "cifs", "zfs", "squashfs")
"""File systems whose files the kernel refuses, or accepts only after further steps."""
_OF_TREES = ("overlay", "tmpfs")
"""Those of trees whose files are copied to another file system before a boot. They accept a file without its use."""
_ON, _OFF = Tool("swapon"), Tool("swapoff", timeout=1800.0)  # swapoff reads all pages into memory


class SwapProperties(Properties, frozen=True):
    """The properties of a swap file. The name is its path."""

    size: str | None = None
    """The size of the file: ``512M``, ``2G``, ``1T``."""
    priority: int | None = None
    """The priority of its use, 0 to 32767, the highest first. Unset: the kernel chooses."""
    active: bool = True
    """Whether the kernel uses the file now. False for trees that are not booted: only the file and fstab."""

    @property
    def fields(self) -> Fields:
        """The entry in fstab."""
        options = ("sw",) if self.priority is None else ("sw", f"pri={self.priority}")
        return Fields(self.name, "none", SWAP, options)

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        match = _SIZE.fullmatch(self.size or "")
        return int(match[1]) * _UNITS[match[2]] if match else 0


class SwapState(msgspec.Struct, frozen=True):
    """The state of a swap file."""

    status: os.stat_result | None
    is_swap: bool
    """Whether the file has the header of a swap file."""
    entry: Entry | None
    priority: int | None = None
    """The priority of its use. ``None``: the kernel does not use it."""

    @property
    def is_active(self) -> bool:
        """Whether the kernel uses the file."""
        return self.priority is not None

    @property
    def size(self) -> int:
        """The size in bytes, 0 for a missing file."""
        return 0 if self.status is None else self.status.st_size


class Swap(Resource[SwapProperties, SwapState]):
    """A swap file."""

    type_name = "swap"
    properties_type = SwapProperties
    removable = True
    unused = {"absent": frozenset({"size", "priority", "active"})}  # noqa: RUF012  ClassVar in the base class

    def look(self) -> SwapState:
        """Return the state. Raises ``OSError``, and ``ResourceError`` for several lines in fstab."""
        path, system = self.properties.name, self.context.system
        status = system.lstat(path)
        is_swap = PathState(status).kind == "present" and self._has_header()
        entries = fstab_file(self.context).current(self.context).get(path, ())
        if len(entries) > 1:
            lines = " and ".join(str(entry.number) for entry in entries)
            raise ResourceError(f"{fstab.FSTAB} has several lines for it ({lines})")
        return SwapState(status, is_swap, entries[0] if entries else None, self._priorities().get(path))

    def _has_header(self) -> bool:
        first = next(iter(self.context.system.read_chunks(self.properties.name)), b"")
        return first[_PAGE - len(_SIGNATURE) : _PAGE] == _SIGNATURE

    def _priorities(self) -> dict[str, int]:
        """Return the priorities of all swap of the kernel, by path."""
        try:
            with open(SWAPS, encoding="utf-8", errors="surrogateescape") as stream:
                lines = stream.read().splitlines()[1:]
        except FileNotFoundError:  # a kernel without swap
            return {}
        return {fstab.decoded(words[0]): int(words[4]) for words in map(str.split, lines)}

    def differences(self, actual: SwapState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        properties, differences = self.properties, list[Difference]()
        if properties.ensure == "absent":
            if actual.status is not None or actual.is_active:
                differences.append(presence("present", ABSENT))
            if actual.entry is not None:
                differences.append(removed("entry", str(actual.entry.fields), fstab.FSTAB))
            return differences
        if actual.status is None:
            differences.append(presence(ABSENT, "present"))
        elif not actual.is_swap:
            differences.append(presence("another file", "present"))
        elif actual.size != properties.bytes:
            differences.append(changed("size", bytes_text(actual.size), bytes_text(properties.bytes)))
        else:
            if (owner := actual.status.st_uid) != os.geteuid():
                differences.append(changed("owner", str(owner), str(os.geteuid())))
            if (mode := actual.status.st_mode & 0o7777) != 0o600:
                differences.append(changed("mode", f"{mode:04o}", "0600"))
        if properties.active and not actual.is_active:
            differences.append(added("active", "true"))
        elif properties.active and properties.priority not in (None, actual.priority):
            differences.append(changed("priority", str(actual.priority), str(properties.priority)))
        if actual.entry is None:
            differences.append(added("entry", str(properties.fields), fstab.FSTAB))
        elif not actual.entry.fields.same_as(properties.fields):
            entry = str(actual.entry.fields)
            differences.append(changed("entry", entry, str(properties.fields), fstab.FSTAB))
        return differences

    def change(self, differences: Sequence[Difference], actual: SwapState) -> None:
        """Change the file, its use, and its entry. Raises ``OSError`` and ``ResourceError``.

        1. Refuse another file, and a place that is unsuitable.
        2. Stop the use of a file that is replaced, removed, or gets another priority.
        3. Write the file. If that fails, the old file is used again.
        4. Write the entry.
        5. Start the use.
        """
        # 1. Refuse
        self._raise_predictable_failures(actual)
        properties, system, names = (
            self.properties,
            self.context.system,
            {each.property for each in differences},
        )
        is_absent = properties.ensure == "absent"
        is_written = not is_absent and bool(names & {"ensure", "size"})
        # 2. Stop
        is_stopped = actual.is_active and (is_absent or is_written or "priority" in names)
        if is_stopped:
            _OFF.execute(system, "--", properties.name)
        # 3. File
        if is_absent and actual.status is not None:
            system.remove(properties.name, actual.status)
        elif is_written:
            self._write_file(actual, was_active=is_stopped)
        elif names & {"owner", "mode"} and actual.status is not None:
            attributes = Attributes(os.geteuid(), os.getegid(), 0o600)
            system.set_attributes(properties.name, attributes, actual.status)
        # 4. Entry
        if fstab_file(self.context).write(system, partial(fstab.edited, edits=self._edits)):
            tell_systemd(system)
        # 5. Start
        if not is_absent and (is_stopped or (properties.active and not actual.is_active)):
            self._start(actual.priority if properties.priority is None else properties.priority)

    def _write_file(self, actual: SwapState, *, was_active: bool) -> None:
        """Write the file. Raises ``OSError`` and ``ResourceError``."""
        path, system = self.properties.name, self.context.system
        attributes = Attributes(os.geteuid(), os.getegid(), 0o600)
        try:
            system.replace_file(path, _content(self.properties.bytes), attributes, actual.status)
        except (OSError, ResourceError):
            if was_active:
                self._start(actual.priority)
            raise

    def _start(self, priority: int | None) -> None:
        # The kernel's own priorities are negative, and cannot be requested.
        options = [] if priority is None or priority < 0 else ["--priority", str(priority)]
        _ON.execute(self.context.system, *options, "--", self.properties.name)

    @property
    def _edits(self) -> list[Edit]:
        properties = self.properties
        return [Edit(properties.name, None if properties.ensure == "absent" else properties.fields)]

    def noop_message(self, differences: Sequence[Difference], actual: SwapState) -> str:
        self._raise_predictable_failures(actual)
        name, names = self.properties.name, {each.property for each in differences}
        if self.properties.ensure == "absent":
            return f"Would have removed the swap {name}"
        if actual.status is None:
            self.context.system.expect(name, "file")
            return f"Would have created the swap {name}"
        return f"Would have changed {', '.join(sorted(names))} of the swap {name}"

    def _raise_predictable_failures(self, actual: SwapState) -> None:
        """Raise ``ResourceError`` for another file, and for a place that is unsuitable for swap."""
        path, context = self.properties.name, self.context
        if (kind := PathState(actual.status).kind) not in ("absent", "present"):
            raise ResourceError(
                f"{path} is a {kind}", code=ProblemCode.CHANGE_REFUSED, expected="a swap file"
            )
        if actual.status is not None and not actual.is_swap:
            raise ResourceError(
                f"{path} is not a swap file, and stays as it is",
                code=ProblemCode.CHANGE_REFUSED,
                hint="choose another path, or remove the file",
            )
        if actual.status is not None and actual.status.st_nlink > 1:
            raise ResourceError(
                f"{path} has {actual.status.st_nlink} names (hard links)", code=ProblemCode.CHANGE_REFUSED
            )
        if self.properties.ensure == "absent":
            return
        if reason := distrust_of_way(path):
            raise ResourceError(
                f"{path} can be led elsewhere by another user: {reason}", code=ProblemCode.UNTRUSTED_PATH
            )
        mounted = Mounts.current(context).holding(context.system.resolve(os.path.dirname(path)))
        kind = "" if mounted is None else mounted.type
        if kind in _UNSUITABLE and (self.properties.active or kind not in _OF_TREES):
            raise ResourceError(
                f"{path} is on {kind}, which is unsuitable for swap files",
                code=ProblemCode.CHANGE_REFUSED,
                expected="a file system such as ext4 or xfs",
            )

    def diff(self, actual: SwapState) -> str | None:
        del actual
        file, system = fstab_file(self.context), self.context.system
        _, before, after = file.plan(system, partial(fstab.edited, edits=self._edits))
        return unified(before, after, fstab.FSTAB) if before != after else None

    def final_ensure(self, actual: SwapState) -> str:
        return ABSENT if actual.status is None else "present"

    def is_there(self, actual: SwapState) -> bool:
        return actual.status is not None or actual.entry is not None

    def describe(self, actual: SwapState) -> dict[str, Any]:
        described: dict[str, Any] = {"ensure": self.final_ensure(actual), "active": actual.is_active}
        if actual.status is not None:
            described |= {"size": actual.size, "is_swap": actual.is_swap}
        return described | ({} if actual.priority is None else {"priority": actual.priority})

    def changed_paths(self, actual: SwapState) -> None:
        """Return ``None``: a copy would hold the memory of programs, and the use has no path."""
        del actual

    def way_back(self, actual: SwapState) -> SwapProperties | None:
        """Return the old file and its use. ``None`` for sizes that a manifest cannot state."""
        size, remainder = divmod(actual.size, 1 << 20)
        if not actual.is_swap or remainder:
            return None
        fields = actual.entry.fields if actual.entry else None
        options = fields.options if fields else ()
        priority = next((int(each[4:]) for each in options if re.fullmatch(r"pri=[0-9]{1,5}", each)), None)
        name, active = self.properties.name, actual.is_active
        return SwapProperties(name=name, size=f"{size}M", priority=priority, active=active)

    # Loading

    @classmethod
    def identity(cls, properties: Any, spellings: Spellings) -> Hashable:
        return spellings.of(properties.name)

    @classmethod
    def claims(cls, properties: SwapProperties) -> Iterator[Claim]:
        is_absent, line = properties.ensure == "absent", str(properties.fields)
        yield Claim(properties.name, Use.ABSENT if is_absent else Use.WHOLE)
        yield Claim(
            fstab.FSTAB,
            Use.REMOVED_PART if is_absent else Use.PART,
            editor=cls.type_name,
            lines=lambda: () if is_absent else (line,),
        )

    @classmethod
    def subjects(cls, properties: SwapProperties) -> Iterable[str]:
        return (properties.name, fstab.FSTAB, cls.type_name)

    @classmethod
    def follows(cls, properties: SwapProperties, declared: Declared) -> Iterator[Reference]:
        """Yield the mounts above the file."""
        del declared
        path = properties.name
        while path := path.rpartition("/")[0]:
            yield Reference.to("mount", path)

    @classmethod
    def check(cls, properties: SwapProperties) -> Iterator[PropertyError]:
        yield from check_managed(properties.name)
        if not properties.name.isprintable():
            yield PropertyError("name", f"is {properties.name!r}", expected="a path on one line")
        if properties.ensure not in _ENSURE:
            yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present or absent")
        if properties.ensure == "present" and properties.size is None:
            yield missing_property("size", because=["ensure"], expected="a size such as '2G'")
        if properties.size is not None and not _SIZE.fullmatch(properties.size):
            yield PropertyError("size", f"is {properties.size!r}", expected="a size such as '512M' or '2G'")
        if properties.priority is not None and not 0 <= properties.priority <= _HIGHEST_PRIORITY:
            yield PropertyError("priority", f"is {properties.priority}", expected=f"0 to {_HIGHEST_PRIORITY}")

    @classmethod
    def is_whole(cls, properties: SwapProperties) -> bool:
        del properties
        return False


def _content(size: int) -> Iterator[bytes]:
    """Yield a swap file without holes: the header of mkswap(8) in the first page, and zeros."""
    page = bytearray(_PAGE)
    _HEADER.pack_into(page, 1024, 1, size // _PAGE - 1, 0, secrets.token_bytes(16))
    page[-len(_SIGNATURE) :] = _SIGNATURE
    yield bytes(page)
    yield bytes(_CHUNK - _PAGE)
    yield from itertools.repeat(bytes(_CHUNK), size // _CHUNK - 1)
