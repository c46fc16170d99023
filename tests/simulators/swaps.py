"""A simulated kernel with swap, below a directory: ``swaps`` has the form of ``/proc/swaps``."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from puller.resources.kernel import fstab, mount_changes, mount_table, swap
from puller.system.commands import Command, Completed
from puller.system.protocol import Attributes
from tests.simulators.mounts import FIRST, MountingSystem

HEADER = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


class SwappingSystem(MountingSystem):
    """A machine whose kernel uses swap files. ``is_full`` are a full memory and a full disk."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.swaps = root / "swaps"
        self.is_memory_full = self.is_disk_full = False

    def redirect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the type use the files of this machine."""
        self.swaps.write_text(HEADER)
        self.fstab.write_text("# by hand\n")
        self.mountinfo.write_text(FIRST)
        (self.root / "systemd").mkdir()
        monkeypatch.setattr(swap, "SWAPS", str(self.swaps))
        monkeypatch.setattr(fstab, "FSTAB", str(self.fstab))
        monkeypatch.setattr(mount_table, "MOUNTINFO", str(self.mountinfo))
        monkeypatch.setattr(mount_changes, "SYSTEMD", str(self.root / "systemd"))

    def execute(self, command: Command) -> Completed:
        program, *arguments = command.arguments
        name = Path(program).name
        if name not in ("swapon", "swapoff"):
            return super().execute(command)
        self.executed += 1
        self._act(name)
        path, options = arguments[-1], arguments[: arguments.index("--")]
        lines = self.swaps.read_text().splitlines(keepends=True)
        others = [line for line in lines if not line.startswith(f"{path}\t")]
        if name == "swapoff":
            if self.is_memory_full:
                return _completed(f"swapoff: {path}: swapoff failed: Cannot allocate memory")
            if len(others) == len(lines):
                return _completed(f"swapoff: {path}: swapoff failed: Invalid argument")
        else:
            content = Path(path).read_bytes()
            if content[4086:4096] != b"SWAPSPACE2":
                return _completed(f"swapon: {path}: read swap header failed")
            priority = options[1] if options else "-2"
            others.append(f"{path}\tfile\t\t{len(content) // 1024 - 4}\t\t0\t\t{priority}\n")
        self.swaps.write_text("".join(others))
        return _completed("")

    def replace_file(self, path: str, *arguments: object, **options: object) -> None:
        if self.is_disk_full and path != str(self.fstab):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().replace_file(path, *arguments, **options)

    def make(self, path: Path, size: int) -> None:
        """Make a swap file."""
        chunks: Iterable[bytes] = swap._content(size)
        super(MountingSystem, self).replace_file(
            str(path), chunks, Attributes(os.geteuid(), os.getegid(), 0o600), None
        )


def _completed(error: str) -> Completed:
    return Completed(255 if error else 0, None, timed_out=False, stdout="", stderr=error, duration=0.0)
