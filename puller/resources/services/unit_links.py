"""Names of systemd units, their ``[Install]`` sections (systemd.unit(5)), their links, and what Puller records of them.

Links that enable, mask or alias units:

* systemctl creates these links, so manifests do not declare them.
* An incomplete name means a service, as in systemctl(1): ``cron`` is ``cron.service``.
* The section is read as ``systemctl enable`` reads it.

Puller records facts about units from one run to the next:

* ``Installs``: the ``[Install]`` section by which a unit was enabled. systemd reports *enabled* for links that an
  earlier section asked for.
* ``Restarts``: how often systemd had restarted a unit. A unit that keeps crashing is *active* most of the time, and
  only its count grows. The record is written when a count changes, so a run without a change writes nothing.
* ``Masks``: the units that Puller has masked. A mask is a link to ``/dev/null`` and does not show its creator. The
  record identifies the link itself, so a link that another user created again does not match. A unit is recorded
  before it is masked, so the mask of an interrupted run counts as Puller's.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from puller.errors import ResourceError
from puller.resources.base import Declared
from puller.resources.services.unit_files import UNIT_DIRECTORIES
from puller.resources.services.unit_state import Unit
from puller.state import StateFile
from puller.system.local_paths import RealPaths
from puller.system.protocol import System
from puller.system.systemd_units import Boot, is_started_by_bus
from puller.values.foreign_text import MARK

SUFFIXES = frozenset(
    (
        "service",
        "socket",
        "device",
        "mount",
        "automount",
        "swap",
        "target",
        "path",
        "timer",
        "slice",
        "scope",
    )
)


def unit_of(name: str) -> str:
    """Return the full name of a unit."""
    return name if name.rpartition(".")[2] in SUFFIXES and "." in name else f"{name}.service"


DIRECTORY = "/etc/systemd/system"
"""Directory in which ``systemctl enable``, ``link`` and ``mask`` create links of the system's units."""

_MASK = "/dev/null"
_WANTED_BY = (".wants", ".requires", ".upholds")


def links_of(name: str) -> Iterator[str]:
    """Yield the paths in ``DIRECTORY`` that belong to a unit. The name may omit its suffix.

    These are the unit itself, its aliases, and links in the ``.wants`` and similar directories of other units.
    """
    unit = unit_of(name)
    names = {unit, aliased_unit(unit, RealPaths())}
    with contextlib.suppress(OSError):  # a machine without systemd
        for entry in os.listdir(DIRECTORY):
            path = os.path.join(DIRECTORY, entry)
            if entry in names or _target(path) in names:
                yield path
            elif entry.endswith(_WANTED_BY):
                yield from (inner for inner in _paths(path, names) if os.path.lexists(inner))


def aliased_unit(unit: str, paths: RealPaths) -> str:
    """Return the unit that a name resolves to on this machine: ``sshd.service`` is a link to ``ssh.service``."""
    for directory in UNIT_DIRECTORIES:
        path = f"{directory}/{unit}"
        target = paths.directory(path)
        if target != paths.of(path):
            name = os.path.basename(target)
            is_unit = target != _MASK and unit_of(name) == name
            return name if is_unit else unit
        if os.path.lexists(path):
            break
    return unit


def contradictory_links(services: Sequence[Any], declared: Declared) -> Iterator[tuple[Any, Any, str]]:
    """Find declared links that enable a unit against ``enable`` of its service, or disable it."""
    enable = {unit_of(one.name): one for one in services if one.scope == "system" and one.enable is not None}
    for properties in (*declared("link"), *declared("file")) if enable else ():
        above, _, unit = properties.name.rpartition("/")
        service = enable.get(unit)
        if service is None or not above.endswith(_WANTED_BY) or os.path.dirname(above) != DIRECTORY:
            continue
        if (properties.ensure == "absent") is (service.enable is True):
            yield (
                service,
                properties,
                f"does not agree with enable: {str(service.enable).lower()} of the service",
            )


def _paths(directory: str, names: set[str]) -> Iterator[str]:
    return (os.path.join(directory, name) for name in names)


def _target(path: str) -> str:
    """Return the name of a link's target, empty if the path is not a link."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return ""


_SUFFIXES = {"WantedBy": "wants", "RequiredBy": "requires", "UpheldBy": "upholds"}


class Install(msgspec.Struct, frozen=True):
    """The names in an ``[Install]`` section, including the sections of units in ``Also=``."""

    wants: tuple[tuple[str, str], ...] = ()
    """Units that should start this unit, each with the suffix of its link directory."""
    aliases: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def starters(self) -> list[str]:
        """Units that should start this unit."""
        return list(dict.fromkeys(name for name, _ in self.wants))

    def links(self, unit: str) -> Iterator[str]:
        """Yield the paths of all links, relative to a directory of units."""
        yield from (f"{name}.{suffix}/{unit}" for name, suffix in self.wants)
        yield from (name for name in self.aliases if name != unit)


class InstallSections:
    """The ``[Install]`` sections of units in ``directories``. Methods raise ``OSError``."""

    def __init__(self, system: System, directories: Sequence[str]) -> None:
        self._system = system
        self._directories = directories

    def of(self, unit: str, fragment: str = "") -> Install:
        """Return the section of a unit. ``fragment`` is the unit file, if it is known."""
        values: dict[str, list[str]] = {}
        for text in self._texts(unit, fragment):
            for name, value in _settings(text):
                words = values.setdefault(name, [])
                words.extend(value.split()) if value else words.clear()
        # A name with an unknown specifier may be any name.
        known = {
            name: [word for one in words if (word := _expand(one, unit))] for name, words in values.items()
        }
        wants = [(name, suffix) for key, suffix in _SUFFIXES.items() for name in known.get(key, ())]
        return Install(tuple(wants), tuple(known.get("Alias", ())), tuple(known.get("Also", ())))

    def missing_links(self, unit: str, install: Install) -> list[str]:
        """Return the links that the section requires but no unit directory contains."""
        return [
            link
            for link in install.links(unit)
            if not any(self._system.lstat(f"{directory}/{link}") for directory in self._directories)
        ]

    def _texts(self, unit: str, fragment: str) -> Iterator[str]:
        names = [unit]
        if "@" in unit:
            names.append(f"{unit.partition('@')[0]}@.{unit.rpartition('.')[2]}")
        candidates = [f"{directory}/{name}" for name in names for directory in self._directories]
        for path in filter(None, [fragment, *candidates]):
            if (text := self._read(path)) is not None:
                yield text
                break
        drop_ins = {
            name: f"{directory}/{name}"
            for directory in reversed([f"{path}.d" for path in candidates])
            for name in self._names(directory)
        }
        for _, path in sorted(drop_ins.items()):
            if (text := self._read(path)) is not None:
                yield text

    def _names(self, directory: str) -> list[str]:
        try:
            return [name for name, _ in self._system.children(directory) if name.endswith(".conf")]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _read(self, path: str) -> str | None:
        try:
            path = os.path.realpath(path)
            if not self._system.exists(path):
                return None
            return self._system.read(path).decode(errors="replace").removeprefix(MARK)  # as systemd does
        except (OSError, ResourceError):  # systemd reports an unreadable unit file
            return None


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of all ``[Install]`` sections."""
    section, continued = "", ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(("#", ";")):  # also between continued lines
            continue
        if stripped.endswith("\\"):
            continued += f"{stripped[:-1]} "
            continue
        stripped, continued = f"{continued}{stripped}", ""
        if stripped.startswith("["):
            section = stripped
        elif section == "[Install]" and "=" in stripped:
            name, _, value = stripped.partition("=")
            yield name.strip(), value.strip()


def _expand(word: str, unit: str) -> str:
    """Return a name with its specifiers replaced. Empty if a specifier is unknown."""
    prefix = unit.rpartition(".")[0]
    name, _, instance = prefix.partition("@")
    for specifier, value in (("%n", unit), ("%N", prefix), ("%p", name), ("%i", instance)):
        word = word.replace(specifier, value)
    return "" if "%" in word else word


# Start at boot, and reasons why enabling a unit would have no effect (``puller.system.systemd_units``).

_TRIGGERS = (".socket", ".timer", ".path", ".automount")


class AtBoot:
    """The units of one manager at boot. Methods raise ``ResourceError``.

    ``is_behind``: in a dry run, systemd has not read the current files, so the files decide.
    """

    def __init__(self, sections: InstallSections, boot: Boot, *, is_behind: bool) -> None:
        self._sections = sections
        self._boot = boot
        self._is_behind = is_behind

    def started_by(self, unit: Unit) -> str:
        """Return the unit that starts ``unit`` at boot. Empty if no unit does."""
        if self._is_behind and unit.has_links:
            return next(filter(self._boot.reaches, self._install_of(unit).starters), "")
        return self._boot.starts(unit.node)

    def is_started(self, unit: Unit) -> bool:
        """Return whether a unit starts at every boot, or on request by D-Bus."""
        if unit.file_state in ("enabled-runtime", "transient"):
            return False
        if self.started_by(unit):
            return True
        return (
            unit.load == "loaded"
            and unit.file_state in ("static", "enabled")
            and self._is_started_by_bus(unit)
        )

    def why_not(self, unit: Unit) -> str:
        """Return why a unit would not start at boot if it were enabled. Empty if it would."""
        if self.is_started(unit) or unit.is_init_script:
            return ""
        if unit.file_state == "transient":
            return "it was made by a program and is gone with the next boot"
        if unit.file_state == "generated":
            return f"it was made from {unit.source or 'a file'} that names no unit which starts at boot"
        install = self._install_of(unit)
        names = [*install.starters, *install.aliases]
        if not names:
            return "it lacks an [Install] section, and no unit that starts at boot requires it"
        if any(map(self._boot.reaches, names)) or self._is_started_by_bus(unit):
            return ""
        default = self._boot.default or "the default target"
        return (
            f"its [Install] section names {', '.join(names)}, and a boot into {default} does not reach that"
        )

    def _install_of(self, unit: Unit) -> Install:
        """Return the ``[Install]`` section, combined with sections of triggers that are enabled with it."""
        sections, pending = {unit.id: self._sections.of(unit.id, unit.fragment)}, [unit.id]
        while pending:
            for name in sections[pending.pop()].also:
                if name not in sections:
                    sections[name] = self._sections.of(name)
                    pending.append(name)
        triggers = (unit.id, *(name for name in sections if name.endswith(_TRIGGERS)))
        wants = [pair for name in triggers for pair in sections[name].wants]
        return Install(tuple(wants), sections[unit.id].aliases)

    def _is_started_by_bus(self, unit: Unit) -> bool:
        return is_started_by_bus(unit.id, unit.fragment, self._sections.of(unit.id, unit.fragment).aliases)


T = TypeVar("T")

_LOOP = 2  # restarts between two runs; one restart is an accident
_OFTEN = 3600.0  # seconds between restarts on average, so that accidents of many days never count as a loop


class _Record(Generic[T]):
    """Values by the names of units, kept in a file. Without a file, or with a full disk, they last for the run."""

    def __init__(
        self,
        path: Path | None,
        kind: type[dict[str, T]],
        loss: str,
        warn: Callable[[str], None],
        *,
        noop: bool,
    ) -> None:
        self._file = StateFile(path, kind, loss) if path else None
        self._warn = warn
        self._noop = noop
        self._values: dict[str, T] | None = None

    def get(self, unit: str) -> T | None:
        return self._load().get(unit)

    def set(self, unit: str, value: T) -> None:
        values = self._load()
        if values.get(unit) == value:
            return
        self._values = {**values, unit: value}
        if self._file and not self._noop:
            with contextlib.suppress(OSError):
                self._file.save(self._values)

    def _load(self) -> dict[str, T]:
        if self._values is None:
            self._values = {}
            with contextlib.suppress(OSError):
                self._values = (self._file and self._file.load(self._warn, noop=self._noop)) or {}
        return self._values


class Installs:
    """The ``[Install]`` sections by which units were enabled."""

    def __init__(self, path: Path | None, warn: Callable[[str], None], *, noop: bool) -> None:
        loss = "changed [Install] sections are noticed only where a link is missing"
        self._record = _Record(path, dict[str, Install], loss, warn, noop=noop)

    def is_other(self, unit: str, install: Install) -> bool:
        """Return whether a unit was enabled by another section than ``install``."""
        return self._record.get(unit) not in (None, install)

    def remember(self, unit: str, install: Install) -> None:
        """Record that a unit is enabled by this section."""
        self._record.set(unit, install)


class Count(msgspec.Struct, frozen=True):
    """The restarts of a unit, and when this count was first seen (seconds since 1970)."""

    restarts: int
    seen: float
    interval: float = 0.0
    """Seconds between the restarts of a crash loop, else 0."""


class Restarts:
    """The record of restarts by systemd."""

    def __init__(self, path: Path | None, warn: Callable[[str], None], *, noop: bool) -> None:
        loss = "services that are restarted again and again are noticed by the run after the next one"
        self._record = _Record(path, dict[str, Count], loss, warn, noop=noop)
        self._answers: dict[str, str] = {}

    def since_last_run(self, unit: str, restarts: int, age: float | None) -> str:
        """Return how often a running unit was restarted since the last run. Empty if it is not a crash loop.

        A loop is over when the process has run for twice as long as it did before (``age``, in seconds).
        """
        if unit not in self._answers:
            before = self._record.get(unit)
            count = _next(before, restarts, age) if before else Count(restarts, time.time())
            if before is None or (count.restarts, count.interval) != (before.restarts, before.interval):
                self._record.set(unit, count)
            lately = f"every {max(count.interval, 1.0):.0f} seconds lately"
            self._answers[unit] = (
                f"systemd has restarted it {restarts} times, {lately}" if count.interval else ""
            )
        return self._answers[unit]

    def begin(self, unit: str) -> None:
        """Reset the count, as systemd does when a unit is started."""
        self._answers.pop(unit, None)
        self._record.set(unit, Count(0, time.time()))


def _next(before: Count, restarts: int, age: float | None) -> Count:
    """Return the count that follows ``before``, with the interval of a crash loop that begins or goes on."""
    now = time.time()
    grown = restarts - before.restarts
    interval = max(now - before.seen, 1.0) / grown if grown >= _LOOP else before.interval
    goes_on = grown >= _LOOP or (grown >= 0 and age is not None and age < 2 * interval)
    return Count(restarts, now, interval if goes_on and interval < _OFTEN else 0.0)


_MaskRecord = dict[str, tuple[int, int] | None]
"""By unit: inode and change time (nanoseconds) of the link. ``None``: the unit was about to be masked."""


class _Document(msgspec.Struct, forbid_unknown_fields=True, tag_field="format", tag=1):
    units: _MaskRecord = {}


class Masks:
    """The record of masks in ``directory``, stored in the file ``path``. Methods raise ``OSError``."""

    def __init__(
        self, system: System, directory: str, path: Path | None, warn: Callable[[str], None], *, noop: bool
    ) -> None:
        self._system = system
        self._directory = directory
        self._warn = warn
        self._noop = noop
        loss = "units that Puller has masked stay masked until an administrator unmasks them"
        self._file = StateFile(path, _Document, loss) if path else None

    def is_ours(self, unit: str) -> bool:
        """Return whether Puller's mask of a unit still exists unchanged."""
        record = self._load()
        return unit in record and record[unit] in (None, self._link(unit))

    def begin(self, unit: str) -> None:
        """Record that a unit is about to be masked."""
        self._save({**self._load(), unit: None})

    def finish(self, unit: str) -> None:
        """Record that a unit was masked."""
        self._save({**self._load(), unit: self._link(unit)})

    def forget(self, unit: str) -> None:
        """Record that Puller's mask of a unit was removed."""
        self._save({name: link for name, link in self._load().items() if name != unit})

    def _link(self, unit: str) -> tuple[int, int] | None:
        status = self._system.lstat(f"{self._directory}/{unit}")
        return (status.st_ino, status.st_ctime_ns) if status else None

    def _load(self) -> _MaskRecord:
        return ((self._file and self._file.load(self._warn, noop=self._noop)) or _Document()).units

    def _save(self, record: _MaskRecord) -> None:
        if self._file:
            self._file.save(_Document(record))
