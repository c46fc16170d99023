"""The processes that hold a mount: they have something open there, are there, or run a program of it (proc(5))."""

import os
import stat
from collections.abc import Collection, Iterator
from functools import cached_property

from bundles.first_few import first_few

PROC = "/proc"
_MOST_NAMED = 8


class Processes:
    """All processes of this machine, looked at once."""

    def in_use(self, point: str) -> list[str]:
        """The processes that hold a mount, by name and number."""
        below = f"{point.rstrip('/')}/"
        return [
            f"{_name(number)} ({number})"
            for number, paths in self._paths.items()
            if any(path == point or path.startswith(below) for path in paths)
        ]

    def writers(self, mounts: Collection[int]) -> list[str]:
        """Return the processes that have a file open for writing in one of these mounts, by name and number."""
        if not mounts:
            return []
        return [
            f"{_name(number)} ({number})"
            for number in self._numbers
            if _writes_to(f"{PROC}/{number}", mounts)
        ]

    @cached_property
    def _numbers(self) -> list[str]:
        return sorted(filter(str.isdecimal, os.listdir(PROC)), key=int)

    @cached_property
    def _paths(self) -> dict[str, set[str]]:
        return {number: {*_paths(f"{PROC}/{number}")} for number in self._numbers}


def some(names: list[str]) -> str:
    """Some of many, for a message."""
    return first_few(names, _MOST_NAMED)


def _writes_to(process: str, mounts: Collection[int]) -> bool:
    """Return whether a process has a regular file open for writing in one of these mounts (proc(5), ``fdinfo``)."""
    try:
        numbers = os.listdir(f"{process}/fdinfo")
    except OSError:
        return False
    for number in numbers:
        try:
            with open(f"{process}/fdinfo/{number}", encoding="ascii", errors="replace") as stream:
                fields = dict(line.split(":", 1) for line in stream.read().splitlines() if ":" in line)
            is_open_for_writing = int(fields["flags"], 8) & os.O_ACCMODE != os.O_RDONLY
            if not is_open_for_writing or int(fields["mnt_id"]) not in mounts:
                continue
            # Pipes, sockets and devices can be written to on a read-only file system.
            if stat.S_ISREG(os.stat(f"{process}/fd/{number}").st_mode):
                return True
        except (OSError, KeyError, ValueError):  # it ends meanwhile, or is not ours to see
            continue
    return False


def _paths(process: str) -> Iterator[str]:
    """What a process has open; nothing of one that ends meanwhile, or that is not ours to see."""
    names = ["cwd", "root", "exe"]
    try:
        names += [f"fd/{number}" for number in os.listdir(f"{process}/fd")]
    except OSError:
        pass
    for name in names:
        try:
            yield os.readlink(f"{process}/{name}")
        except OSError:
            continue


def _name(number: str) -> str:
    try:
        with open(f"{PROC}/{number}/comm", encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return "a process"
