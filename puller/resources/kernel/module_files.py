"""Kernel modules according to the kernel and modprobe: loaded, built-in and available modules, and their configuration.

* ``/proc/modules``, ``modules.builtin`` and ``modules.dep`` describe the running kernel. Containers lack them.
* In the directories of modprobe.d(5) and modules-load.d(5), a file hides files of the same name in later directories.
* Names with ``-`` and ``_`` are equal.
"""

import os
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, Self

import msgspec

from puller.resources.base import Context

ROOT = ""
"""Prefix of every path. Tests set it."""

LOADED_AT_BOOT = "/etc/modules-load.d"
CONFIGURED = "/etc/modprobe.d"
_LOAD = (LOADED_AT_BOOT, "/run/modules-load.d", "/usr/local/lib/modules-load.d", "/usr/lib/modules-load.d")
_CONFIGURE = (
    CONFIGURED,
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
_SUFFIX = re.compile(r"\.ko(\.\w+)?$")
_NEVER = re.compile(r"(/usr)?/bin/(true|false)|:")

_Identity = tuple[int, ...]


def normalized(name: str) -> str:
    """Return a name in the kernel's spelling."""
    return name.replace("-", "_")


class Line(NamedTuple):
    """A line of modprobe.d, or a name in modules-load.d, whose ``command`` is ``load``."""

    path: str
    command: str
    module: str
    """In the kernel's spelling."""
    rest: str = ""

    @property
    def is_never(self) -> bool:
        """Whether this line prevents loading the module by its name."""
        return self.command == "install" and _NEVER.fullmatch(self.rest) is not None


class Loaded(msgspec.Struct, frozen=True):
    """A line of ``/proc/modules``."""

    references: str
    """The number of users, or ``-`` if the kernel cannot unload modules."""
    users: tuple[str, ...]
    """The modules that use it, and ``[permanent]``."""

    @property
    def is_in_use(self) -> bool:
        """Whether the kernel would refuse to unload it."""
        return self.references != "0" or "[permanent]" in self.users

    @property
    def by(self) -> str:
        """The users as a phrase."""
        return f"in use by {', '.join(self.users)}" if self.users else f"in use ({self.references} times)"


class Modules:
    """All modules of the machine, shared by all resources of a run. Read once, and again after a change."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None
        self._directories: list[_Identity | None] = []
        self._files: dict[str, tuple[_Identity, tuple[Line, ...]]] = {}
        self._lines: dict[str, list[Line]] = {}

    @classmethod
    def of(cls, context: Context) -> Self:
        """Return the current modules, shared by the run. Raises ``OSError``."""
        result: Self = context.shared.setdefault(cls, cls())
        seen = (context.changes(), context.system.executed)
        if result._seen != seen:
            result.__dict__.pop("loaded", None)
            # Puller replaces files by a rename, which changes their directory. A command may have changed anything.
            is_known = result._seen is not None and result._seen[1] == seen[1]
            if not (is_known and result._directories == _identities()):
                result._read_files()
            result._seen = seen
        return result

    def read_again(self, path: str) -> None:
        """Read one file again after it was written or removed. Raises ``OSError``."""
        above, name = os.path.split(path)
        alike = _LOAD if above == f"{ROOT}{LOADED_AT_BOOT}" else _CONFIGURE
        if any(os.path.lexists(f"{ROOT}{item}/{name}") for item in alike if f"{ROOT}{item}" != above):
            self._read_files()  # a file of one directory may hide the file of another
            return
        _, before = self._files.pop(path, (None, ()))
        for line in before:
            self._lines[line.module].remove(line)
        if (identity := _identity(path)) is not None:
            self._files[path] = identity, tuple(lines_of(path))
            for line in self._files[path][1]:
                self._lines.setdefault(line.module, []).append(line)
        self._directories = _identities()

    @cached_property
    def loaded(self) -> dict[str, Loaded] | None:
        """The loaded modules by name, ``None`` if ``/proc/modules`` is missing."""
        text = _text(f"{ROOT}/proc/modules")
        if text is None:
            return None
        modules = {}
        for line in text.splitlines():
            name, _, references, users, *_ = f"{line} - -".split(" ")
            modules[name] = Loaded(
                references, tuple(user for user in users.split(",") if user not in ("", "-"))
            )
        return modules

    @cached_property
    def built_in(self) -> frozenset[str]:
        """The modules that are built into the running kernel."""
        return frozenset(_names(_text(f"{self._of_kernel}/modules.builtin") or ""))

    @cached_property
    def available(self) -> frozenset[str] | None:
        """The modules that the running kernel can load, ``None`` if its modules are not installed."""
        text = _text(f"{self._of_kernel}/modules.dep")
        return None if text is None else frozenset(_names(text))

    def lines(self, name: str) -> list[Line]:
        """Return all lines about a module."""
        return self._lines.get(normalized(name), [])

    def parameter(self, name: str, key: str) -> str | None:
        """Return the value of a parameter of a loaded module, ``None`` if it is not readable."""
        try:
            text = _text(f"{ROOT}/sys/module/{normalized(name)}/parameters/{key}")
        except OSError:  # some parameters are write-only
            return None
        return None if text is None else text.strip()

    @property
    def _of_kernel(self) -> str:
        return f"{ROOT}/lib/modules/{os.uname().release}"

    def _read_files(self) -> None:
        known, self._files, self._lines = self._files, {}, {}
        self._directories = _identities()
        for path in (*_paths(_LOAD), *_paths(_CONFIGURE)):
            if (identity := _identity(path)) is None:  # a dangling link
                continue
            before = known.get(path)
            is_same = before is not None and before[0] == identity
            lines = before[1] if before and is_same else tuple(lines_of(path))
            self._files[path] = identity, lines
            for line in lines:
                self._lines.setdefault(line.module, []).append(line)


def lines_of(path: str) -> Iterator[Line]:
    """Yield the lines of a file in one of the directories. Raises ``OSError``."""
    text = _text(path) or ""
    if "/modules-load.d/" in path:
        # As systemd reads it: only these characters end lines, and only these blanks are stripped.
        names = (line.strip(" \t") for line in re.split("[\0\r\n]", text))
        yield from (Line(path, "load", normalized(name)) for name in names if name and name[0] not in "#;")
        return
    for line in text.replace("\\\n", " ").splitlines():
        words = line.split(None, 2)
        if len(words) > 1 and not words[0].startswith("#"):
            yield Line(path, words[0], normalized(words[1]), words[2].strip() if len(words) > 2 else "")


def _identity(path: str) -> _Identity | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _identities() -> list[_Identity | None]:
    """Return the identities of the directories."""
    return [_identity(f"{ROOT}{directory}") for directory in (*_LOAD, *_CONFIGURE)]


def _paths(directories: tuple[str, ...]) -> list[str]:
    """Return the effective files: for each name, the first."""
    result: dict[str, str] = {}
    for directory in (f"{ROOT}{one}" for one in directories):
        try:
            names = os.listdir(directory)
        except FileNotFoundError:
            continue
        for name in names:
            if name.endswith(".conf"):
                result.setdefault(name, f"{directory}/{name}")
    return sorted(result.values())


def _names(text: str) -> Iterator[str]:
    """Yield the module at the start of each line of ``modules.builtin`` or ``modules.dep``."""
    for line in text.splitlines():
        path = line.partition(":")[0]
        yield normalized(_SUFFIX.sub("", path[path.rfind("/") + 1 :]))


def _text(path: str) -> str | None:
    """Return the content of a system file, ``None`` if it is missing."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
