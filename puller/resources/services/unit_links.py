"""Links by which a unit is enabled, masked or called by another name, which no manifest has."""

import contextlib
import os
from collections.abc import Iterator

DIRECTORY = "/etc/systemd/system"
"""Where ``systemctl enable``, ``link`` and ``mask`` make links of the system's units."""

_WANTED_BY = (".wants", ".requires", ".upholds")


def links_of(name: str) -> Iterator[str]:
    """The paths in ``DIRECTORY`` that are about a unit, whether or not its name is given with its ending.

    These are its own, other names that lead to it, and those in the directories of what wants it.
    """
    names = {name, f"{name}.service"}
    with contextlib.suppress(OSError):  # a machine without systemd
        for entry in os.listdir(DIRECTORY):
            path = os.path.join(DIRECTORY, entry)
            if entry in names or _target(path) in names:
                yield path
            elif entry.endswith(_WANTED_BY):
                yield from (inner for inner in _paths(path, names) if os.path.lexists(inner))


def _paths(directory: str, names: set[str]) -> Iterator[str]:
    return (os.path.join(directory, name) for name in names)


def _target(path: str) -> str:
    """The name that a link leads to; empty when it is none."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return ""
