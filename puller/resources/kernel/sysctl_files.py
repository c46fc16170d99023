"""Files of kernel parameters, ``sysctl.d(5)``: read, edited as the text that they are, and in the order of the boot.

* Of several lines for one key in a file the last counts. A line for all keys of a pattern counts for no single one that
  has a line of its own anywhere.
* An edit keeps everything but the value: comments, blank lines, the dash that ignores failures, how a key is written.
* At boot the files of all directories are read by the order of their names; of one name only that of the first
  directory. ``/etc/sysctl.conf`` is read where a link among them leads to it, as on Debian 12 and Red Hat's; Debian 13
  has neither.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

import msgspec

from puller.resources.base import Context
from puller.resources.kernel.parameters import normalized

DIRECTORIES = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)
"""The first has precedence."""
OLD = "/etc/sysctl.conf"

_START = re.compile(r"\s*+(?:-\s*+)?")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")  # at no other character: a form feed ends no line
_Identity = tuple[object, ...]


class Edit(msgspec.Struct, frozen=True):
    """A line that a file is to have: a key as it is written, and its value; ``None``: no such line."""

    key: str
    value: str | None


class _Line(NamedTuple):
    """A line with a key and a value, in parts; a ``-`` before the key lets sysctl(8) go on where it fails."""

    start: str
    key: str
    between: str
    value: str
    end: str

    @classmethod
    def find(cls, line: str) -> Self | None:
        """The parts of a line; ``None`` for a comment, or what is no such line."""
        # No pattern for the whole of it: it would take the square of the time on a line of a megabyte of blanks.
        left, equals, right = line.partition("=")
        start = match[0] if (match := _START.match(left)) else ""
        key = left[len(start) :].rstrip()
        if not equals or not key or key[0] in "#;-":
            return None
        body = right.removesuffix("\n")
        value = body.strip()
        blanks = body[: len(body) - len(body.lstrip())]
        between = left[len(start) + len(key) :] + equals + blanks
        return cls(start, key, between, value, right[len(blanks) + len(value) :])


def parse(text: str) -> dict[str, str]:
    """The values in a file, by normalised key."""
    found = map(_Line.find, text.split("\n"))
    return {normalized(line.key): line.value for line in found if line}


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits made; what is new stands at the end, in their order."""
    lines = _LINES.findall(text)
    places: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        if found_line := _Line.find(line):
            places.setdefault(normalized(found_line.key), []).append(index)
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
    found = _Line.find(line)
    return line if found is None else "".join(found._replace(value=value))


def _append(lines: list[str], line: str) -> None:
    if (last := next((one for one in reversed(lines) if one), "\n"))[-1] != "\n":
        lines[lines.index(last)] += "\n"
    lines.append(line)


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
    for name in sorted(by_name):
        path = by_name[name]
        yield OLD if os.path.islink(path) and os.path.realpath(path) == OLD else path


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


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")
