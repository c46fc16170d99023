"""The ``[Install]`` section of a unit, as ``systemctl enable`` reads it, and its links (systemd.unit(5))."""

import os
from collections.abc import Iterator, Sequence

import msgspec

from puller.errors import ResourceError
from puller.system.protocol import System
from puller.values.byte_order import MARK

_SUFFIXES = {"WantedBy": "wants", "RequiredBy": "requires", "UpheldBy": "upholds"}


class Install(msgspec.Struct, frozen=True):
    """The names in an ``[Install]`` section, with those of the section of each unit in ``Also=``."""

    wants: tuple[tuple[str, str], ...] = ()
    """Units that are to start this one, each with the ending of the directory of its links."""
    aliases: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def starters(self) -> list[str]:
        """The units that are to start this one."""
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
        # A name with another specifier than these may be any name.
        known = {
            name: [word for one in words if (word := _expand(one, unit))] for name, words in values.items()
        }
        wants = [(name, suffix) for key, suffix in _SUFFIXES.items() for name in known.get(key, ())]
        return Install(tuple(wants), tuple(known.get("Alias", ())), tuple(known.get("Also", ())))

    def missing_links(self, unit: str, install: Install) -> list[str]:
        """Return the links that the section asks for and that are in no directory of units."""
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
        except (OSError, ResourceError):  # systemd reports a unit file that cannot be read
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
    """Return a name with its specifiers replaced. Empty if it has one that is not known here."""
    prefix = unit.rpartition(".")[0]
    name, _, instance = prefix.partition("@")
    for specifier, value in (("%n", unit), ("%N", prefix), ("%p", name), ("%i", instance)):
        word = word.replace(specifier, value)
    return "" if "%" in word else word
