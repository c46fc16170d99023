"""``locale`` and ``localedef`` with an archive that is a list of names. ``tests/system`` uses the real programs."""

from pathlib import Path

import pytest

from puller.resources import locale
from puller.resources.locale_files import Entry, normal, with_charset
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem

BUILT_IN = ("C", "C.utf8", "POSIX")
SUPPORTED = """\
# locales that can be generated
de_DE.UTF-8 UTF-8
de_DE ISO-8859-1
de_DE@euro ISO-8859-15
en_US.UTF-8 UTF-8
fr_FR.UTF-8 UTF-8
xx_XX.UTF-8 UTF-8
"""
BROKEN = "xx_XX.UTF-8"
"""A locale whose source is there, and has an error."""


class Locales:
    """The locales of a machine: an archive, and those that packages contain."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self.packaged: list[str] = []
        self.ran: list[str] = []

    @property
    def names(self) -> list[str]:
        """The names in the archive."""
        return self.archive.read_text().split() if self.archive.exists() else []

    def run(self, command: Command) -> Completed:
        """Return the result of a command."""
        program, *arguments = command.arguments
        program = Path(program).name
        if program == "locale":
            assert arguments == ["-a"]
            return _completed("\n".join(sorted([*BUILT_IN, *self.packaged, *self.names])))
        assert program == "localedef"
        if arguments == ["--list-archive"]:
            return _completed("\n".join(self.names))
        if arguments[0] == "--delete-from-archive":
            self.ran.append(f"delete {arguments[1]}")
            self._write([name for name in self.names if name != arguments[1]])
            return _completed("")
        flag, _, source, _, charset, name = arguments
        assert flag == "-c"
        self.ran.append(f"generate {name}")
        if name == BROKEN:
            return _completed("[error] cannot open locale definition file", 4)
        assert Path(source).exists()
        names = {normal(name), with_charset(Entry(name, charset))}
        self._write([*self.names, *sorted(names - {*self.names})])
        # The real program fails for a source with warnings as well.
        return _completed("[warning] a duplicate", 1 if name.startswith("fr_") else 0)

    def _write(self, names: list[str]) -> None:
        self.archive.parent.mkdir(parents=True, exist_ok=True)
        self.archive.write_text("".join(f"{name}\n" for name in names))


class LocalesHere(LocalSystem):
    """A machine with these locales."""

    def __init__(self, locales: Locales) -> None:
        super().__init__()
        self._locales = locales

    def query(self, command: Command) -> Completed:
        return self._locales.run(command)

    def execute(self, command: Command) -> Completed:
        if command.arguments == ["true"]:
            return super().execute(command)
        self.executed += 1
        return self._locales.run(command)


class LocalesInNoop(NoopSystem):
    """The same machine in noop."""

    def __init__(self, locales: Locales) -> None:
        super().__init__()
        self._locales = locales

    def query(self, command: Command) -> Completed:
        return self._locales.run(command)


def make_locales(directory: Path) -> Locales:
    """Return a Debian without generated locales: ``etc``, ``i18n`` and ``lib`` in a directory."""
    (directory / "i18n/locales").mkdir(parents=True)
    (directory / "i18n/SUPPORTED").write_text(SUPPORTED)
    for name in ("de_DE", "de_DE@euro", "en_US", "fr_FR", BROKEN.partition(".")[0]):
        (directory / "i18n/locales" / name).touch()
    (directory / "etc").mkdir(exist_ok=True)
    (directory / "etc/debian_version").write_text("12.0\n")
    return Locales(directory / "lib/locale-archive")


def redirect_locales(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the type use the files of ``make_locales``."""
    monkeypatch.setattr(locale, "ETC", f"{directory}/etc")
    monkeypatch.setattr(locale, "SOURCES", (f"{directory}/local", f"{directory}/i18n"))
    monkeypatch.setattr(locale, "ARCHIVE", f"{directory}/lib/locale-archive")


def _completed(text: str, status: int = 0) -> Completed:
    return Completed(status, None, timed_out=False, stdout=text, stderr="", duration=0.0)
