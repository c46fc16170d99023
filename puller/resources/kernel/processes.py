"""The processes that hold a mount: they have something open there, are there, or run a program of it (proc(5))."""

import os
from collections.abc import Iterator
from functools import cached_property

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

    @cached_property
    def _paths(self) -> dict[str, set[str]]:
        numbers = sorted(filter(str.isdecimal, os.listdir(PROC)), key=int)
        return {number: {*_paths(f"{PROC}/{number}")} for number in numbers}


def some(names: list[str]) -> str:
    """Some of many, for a message."""
    from bundles.first_few import first_few  # only for messages

    return first_few(names, _MOST_NAMED)


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
