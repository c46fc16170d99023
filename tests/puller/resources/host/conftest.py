"""A simulated machine with a host name, ``/etc/hosts``, time zones and locales, and manifests applied to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.reporting.report import Event
from puller.resources.host import host_entry, hostname, timezone
from puller.system import trusted_files
from puller.system.commands import Command, Completed
from puller.system.protocol import System
from tests.simulators.locales import Locales, LocalesHere, LocalesInNoop, make_locales, redirect_locales

ZONES = ("Europe/Berlin", "Europe/Paris", "UTC", "Etc/UTC")


class KilledSystem(LocalesHere):
    """A machine on which a run is killed before one of its changes."""

    def __init__(self, dies_after: int, locales: Locales) -> None:
        super().__init__(locales)
        self.changes: list[str] = []
        self._dies_after = dies_after

    def replace_file(self, path: str, *arguments: Any, **options: Any) -> None:
        self._act(path)
        super().replace_file(path, *arguments, **options)

    def make_link(self, path: str, *arguments: Any, **options: Any) -> None:
        self._act(path)
        super().make_link(path, *arguments, **options)

    def write_kernel(self, path: str, data: bytes) -> None:
        self._act(path)
        super().write_kernel(path, data)

    def execute(self, command: Command) -> Completed:
        self._act(command.arguments[0])
        return super().execute(command)

    def _act(self, path: str) -> None:
        if len(self.changes) == self._dies_after:
            raise KeyboardInterrupt
        self.changes.append(Path(path).name)


class HostMachine:
    """A machine whose files are below a directory of the test."""

    def __init__(self, load: Callable[..., Any], directory: Path) -> None:
        self._load, self._directory = load, directory
        self.etc = directory / "etc"
        self.hosts, self.hostname = self.etc / "hosts", self.etc / "hostname"
        self.localtime, self.timezone = self.etc / "localtime", self.etc / "timezone"
        self.zones = directory / "zoneinfo"
        self.kernel = directory / "proc/kernel/hostname"
        for path in (self.etc, self.zones, self.kernel.parent):
            path.mkdir(parents=True)
        for zone in ZONES:
            (self.zones / zone).parent.mkdir(exist_ok=True)
            (self.zones / zone).write_bytes(b"TZif2" + bytes(40))
        self.kernel.write_text("old\n")
        self.locales = make_locales(directory)
        self.i18n = directory / "i18n"
        self.changes: list[str] = []

    def apply(self, *entries: str, noop: bool = False, dies_after: int = -1) -> dict[str, Event]:
        """Apply resources as one bundle, and return their events by reference."""
        local = KilledSystem(dies_after, self.locales)
        self.changes = local.changes
        system: System = LocalesInNoop(self.locales) if noop else local
        text = "resources:\n" + "".join(f"  - {entry}\n" for entry in entries)
        pending = PendingRefreshes(self._directory / "owed.json", "web", noop=True)
        settings = Settings(diffs=True, noop=noop, state_directory=self._directory / "state")
        engine = Engine(self._load(text), system, lambda url: b"", pending, settings)
        return {event.reference: event for event in engine.apply()}

    def converge(self, entry: str) -> Event:
        """Apply a resource: in a dry run, for real, and again. Return the event of the real run."""
        (foretold,) = self.apply(entry, noop=True).values()
        assert self.changes == []
        (done,) = self.apply(entry).values()
        assert not done.errors, done.errors
        assert foretold.differences == done.differences
        assert foretold.diff == done.diff
        (again,) = self.apply(entry).values()
        assert (again.state, self.changes) == ("stable", [])
        return done


@pytest.fixture
def machine(load: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostMachine:
    """Return a machine without ``/etc/hosts``, ``/etc/hostname`` and ``/etc/localtime``."""
    machine = HostMachine(load, tmp_path)
    monkeypatch.setattr(host_entry, "HOSTS", str(machine.hosts))
    monkeypatch.setattr(hostname, "HOSTNAME", str(machine.hostname))
    monkeypatch.setattr(trusted_files, "PROC_SYS", str(tmp_path / "proc"))
    redirect_locales(tmp_path, monkeypatch)
    monkeypatch.setattr(timezone, "ETC", str(machine.etc))
    monkeypatch.setattr(timezone, "ZONES", str(machine.zones))
    return machine
