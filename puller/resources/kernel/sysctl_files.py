"""Files of kernel parameters, ``sysctl.d(5)``: read, edited as the text that they are, and in the order of the boot.

* Of several lines for one key in a file the last counts. A line for all keys of a pattern counts for no single one that
  has a line of its own anywhere.
* An edit keeps everything but the value: comments, blank lines, the dash that ignores failures, how a key is written.
* At boot the files of all directories are read by the order of their names; of one name only that of the first
  directory. ``/etc/sysctl.conf`` is the last where it is read at all.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from puller.errors import ResourceError
from puller.resources.base import Context
from puller.resources.kernel.parameters import normalized
from puller.resources.paths import PathState
from puller.system.protocol import Attributes, System

DIRECTORIES = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)
"""The first has precedence."""
LAST = "/etc/sysctl.conf"

_LINE = re.compile(
    r"(?P<start>\s*-?\s*)(?P<key>[^\s=#;-][^=]*?)(?P<between>\s*=[^\S\n]*)(?P<value>[^\n]*?)(?P<end>\s*)"
)
_LINES = re.compile(r"[^\n]*\n|[^\n]+")  # at no other character: a form feed ends no line
_Identity = tuple[object, ...]


class Edit(msgspec.Struct, frozen=True):
    """A line that a file is to have: a key as it is written, and its value; ``None``: no such line."""

    key: str
    value: str | None


def parse(text: str) -> dict[str, str]:
    """The values in a file, by normalised key."""
    found = (_LINE.fullmatch(line) for line in text.split("\n"))
    return {normalized(match["key"]): match["value"] for match in found if match}


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits made; what is new stands at the end, in their order."""
    lines = _LINES.findall(text)
    places: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        if match := _LINE.fullmatch(line):
            places.setdefault(normalized(match["key"]), []).append(index)
    for edit in edits:
        found = places.setdefault(normalized(edit.key), [])
        if edit.value is None:
            for index in found:
                lines[index] = ""
            found.clear()
        elif found:
            lines[found[-1]] = _with_value(lines[found[-1]], edit.value)
        else:
            found.append(len(lines))
            _append(lines, f"{edit.key} = {edit.value}\n")
    return "".join(lines)


def _with_value(line: str, value: str) -> str:
    match = _LINE.fullmatch(line)
    return f"{match['start']}{match['key']}{match['between']}{value}{match['end']}" if match else line


def _append(lines: list[str], line: str) -> None:
    if (last := next((one for one in reversed(lines) if one), "\n"))[-1] != "\n":
        lines[lines.index(last)] += "\n"
    lines.append(line)


class ParameterFile:
    """One file, which many resources keep a line in; read again only when it has changed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.real = path
        """Where it is, behind links that may be followed."""
        self._changes = -1
        self._found: _Identity | None = ()
        self._values: Mapping[str, str] = {}

    @classmethod
    def of(cls, context: Context, path: str) -> "ParameterFile":
        """The one that all resources of a run share."""
        shared: dict[str, ParameterFile] = context.shared.setdefault(cls, {})
        return shared.get(path) or shared.setdefault(path, cls(path))

    def values(self, context: Context) -> Mapping[str, str]:
        """The values in it, by normalised key. Raises ``OSError``, ``ResourceError``."""
        if (changes := context.changes()) != self._changes:
            found = self._look(context.system)
            if (identity := _identity(found)) != self._found:
                self._values = {} if found is None else parse(_decoded(context.system.read(self.real)))
                self._found = identity
            self._changes = changes
        return self._values

    def forget(self) -> None:
        """It was changed just now."""
        self._changes, self._found = -1, ()

    def write(self, system: System, edits: Iterable[Edit]) -> None:
        """Make all edits by one write; its owner, group and mode stay, a new one is root's and 0644."""
        found, before, after = self.plan(system, edits)
        if before != after:
            directory = os.path.dirname(self.real)
            if found is None and not system.is_directory(directory):
                system.make_directory(directory, Attributes(os.geteuid(), os.getegid(), 0o755))
                found = system.lstat(self.real)
            system.replace_file(self.real, [after], _attributes(found), found)
        self.forget()

    def plan(self, system: System, edits: Iterable[Edit]) -> tuple[os.stat_result | None, bytes, bytes]:
        """The file's ``lstat``, its content, and what the edits make of it."""
        found = self._look(system)
        before = b"" if found is None else system.read(self.real)
        return found, before, edited(_decoded(before), edits).encode("utf-8", "surrogateescape")

    def _look(self, system: System) -> os.stat_result | None:
        self.real = system.resolve(self.path)
        found = system.lstat(self.real)
        if (kind := PathState(found).kind) not in ("absent", "present"):
            raise ResourceError(f"{self.path} is a {kind}, wanted a file")
        return found


class BootFiles:
    """All files that are read at boot; read again only when one of them has changed."""

    def __init__(self) -> None:
        self._changes = -1
        self._identities: list[_Identity] = []
        self._last: dict[str, tuple[str, str]] = {}
        """By normalised key the file that sets it last, and the value."""
        self._paths: frozenset[str] = frozenset()

    @classmethod
    def of(cls, context: Context) -> "BootFiles":
        """The one that all resources of a run share, as the machine is now."""
        shared: BootFiles = context.shared.setdefault(cls, cls())
        if (changes := context.changes()) != shared._changes:
            shared._look()
            shared._changes = changes
        return shared

    def reads(self, path: str) -> bool:
        """Whether a file is read at boot: not one elsewhere, or with a name that another directory has, too."""
        return path in self._paths

    def last(self, key: str) -> tuple[str, str] | None:
        """The file that sets a normalised key last, and the value."""
        return self._last.get(key)

    def _look(self) -> None:
        paths = [*_in_order()]
        identities = [(path, *(_identity(_stat(path)) or ())) for path in paths]
        if identities != self._identities:
            self._identities, self._paths = identities, frozenset(paths)
            self._last = {key: (path, value) for path in paths for key, value in _read(path).items()}


def _in_order() -> Iterator[str]:
    by_name: dict[str, str] = {}
    for directory in DIRECTORIES:
        try:
            names = os.listdir(directory)
        except OSError:  # it is not there, or nobody may see what is in it
            continue
        for name in names:
            if name.endswith(".conf"):
                by_name.setdefault(name, f"{directory}/{name}")
    yield from (by_name[name] for name in sorted(by_name))
    yield LAST


def _read(path: str) -> dict[str, str]:
    """What a file of somebody says; nothing of one that cannot be read."""
    try:
        with open(path, "rb", buffering=0, opener=_without_waiting) as stream:
            return parse(_decoded(stream.readall() or b""))
    except OSError:
        return {}


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _identity(found: os.stat_result | None) -> _Identity | None:
    if found is None:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _attributes(found: os.stat_result | None) -> Attributes:
    if found is None:
        return Attributes(os.geteuid(), os.getegid(), 0o644)
    return Attributes(found.st_uid, found.st_gid, found.st_mode & 0o7777)


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")
