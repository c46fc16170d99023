"""Simulated package manager, accounts and mounts: the agent's commands change objects in memory."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from puller.resources.accounts import account_databases, user_state
from puller.system.local import LocalSystem
from tests.simulators import accounts, mounts, packages

if TYPE_CHECKING:
    import pytest

    from puller.system.commands import Command, Completed

_OF_ACCOUNTS = {
    "useradd",
    "usermod",
    "userdel",
    "groupadd",
    "groupmod",
    "groupdel",
    "gpasswd",
    "chage",
    "chpasswd",
}
_OF_PACKAGES = {"dpkg-query", "apt-cache", "apt-get", "apt-mark", "dpkg", "dpkg-deb", "debconf-communicate"}
_OF_MOUNTS = {"mount", "umount"}
_CHANGING = re.compile(r"^[0-9]+ | 0:[0-9]+", re.MULTILINE)


class Tools:
    """Simulators of packages, accounts and mounts of a host."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        directory.mkdir()
        self.debian = packages.Debian(repository={"tool": ["1.0"]})
        self.accounts = accounts.Accounts(directory / "etc")
        self.mounts = mounts.MountingSystem(directory)
        self.mounts.fstab.write_text("# by hand\n")
        self.mounts.mountinfo.write_text(mounts.FIRST)
        (directory / "mnt").mkdir()
        (directory / "homes").mkdir()
        self.directory = directory
        self._replace(monkeypatch)

    def _replace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(account_databases, "DIRECTORY", str(self.directory / "etc"))
        monkeypatch.setattr(user_state, "HOMES", str(self.directory / "homes"))
        monkeypatch.setattr(account_databases, "PROC", str(self.directory / "mnt"))
        monkeypatch.setattr("puller.resources.kernel.mount_changes.PROC", str(self.directory / "mnt"))
        monkeypatch.setattr("puller.resources.kernel.fstab.FSTAB", str(self.mounts.fstab))
        monkeypatch.setattr("puller.resources.kernel.mount_table.MOUNTINFO", str(self.mounts.mountinfo))
        execute, query = LocalSystem.execute, LocalSystem.query
        children, read = LocalSystem.children, LocalSystem.read

        def executed(system: LocalSystem, command: Command) -> Completed:
            simulator = self._of(command.arguments)
            if simulator is None:
                return execute(system, command)
            system.executed += 1
            completed: Completed = simulator.execute(command)
            return completed

        def queried(system: LocalSystem, command: Command) -> Completed:
            simulator = self._of(command.arguments)
            completed: Completed = query(system, command) if simulator is None else simulator.query(command)
            return completed

        def listed(system: LocalSystem, path: str) -> list[tuple[str, os.stat_result]]:
            is_simulated = path == "/var/lib/apt/lists"
            status: list[tuple[str, os.stat_result]] = (
                self.debian.children(path) if is_simulated else children(system, path)
            )
            return status

        def content(system: LocalSystem, path: str, looked_at: os.stat_result | None = None) -> bytes:
            is_simulated = path == "/var/lib/apt/extended_states"
            data: bytes = self.debian.read(path) if is_simulated else read(system, path, looked_at)
            return data

        monkeypatch.setattr(LocalSystem, "execute", executed)
        monkeypatch.setattr(LocalSystem, "query", queried)
        monkeypatch.setattr(LocalSystem, "children", listed)
        monkeypatch.setattr(LocalSystem, "read", content)
        monkeypatch.setattr(LocalSystem, "user_id", lambda system, name: self.accounts.user_id(name))
        monkeypatch.setattr(LocalSystem, "group_id", lambda system, name: self.accounts.group_id(name))

    def _of(self, arguments: Any) -> Any:
        program = arguments[0]
        if program in _OF_ACCOUNTS:
            return self.accounts
        if program in _OF_MOUNTS or list(arguments[:2]) == ["systemctl", "daemon-reload"]:
            return self.mounts
        return self.debian if program in _OF_PACKAGES else None

    def picture(self) -> dict[str, object]:

        return {
            "packages": {
                name: self.debian.versions(name)
                for name in self.debian.packages
                if self.debian.versions(name)
            },
            "passwd": self.accounts.passwd.lines,
            "group": self.accounts.group.lines,
            "fstab": self.mounts.fstab.read_text(),
            "mounts": _CHANGING.sub("", self.mounts.mountinfo.read_text()),
        }
