"""Canonical paths: one text for all spellings of a path on this machine.

* Links in the parent directories are resolved. The last name stays as it is, unless the caller asks for its target.
* Links that the catalog declares count as if they existed, so that the first run and the second one agree.
* A missing top-level directory gets its usual target: ``/lib`` is ``/usr/lib`` on every system with a merged ``/usr``.
* Each directory is read once. Ten thousand files in a hundred directories cost a hundred system calls.
"""

import os
from collections.abc import Iterable, Mapping

_USUAL = {
    "/bin": "usr/bin",
    "/sbin": "usr/sbin",
    "/lib": "usr/lib",
    "/lib32": "usr/lib32",
    "/lib64": "usr/lib64",
    "/libx32": "usr/libx32",
    "/var/run": "/run",
    "/var/lock": "/run/lock",
}
"""Targets of links that every supported distribution has (hier(7))."""
_MOST_LINKS = 40
"""Number of links in one path, after which Linux fails with ``ELOOP``."""


class RealPaths:
    """Canonical paths of one machine. ``links`` are declared links with their targets."""

    def __init__(self, links: Mapping[str, str] | None = None) -> None:
        self._directories: dict[str, str] = {"/": "/", "": "/"}
        self._targets: dict[str, str | None] = {}
        self._passed: dict[str, frozenset[str]] = {}
        self._links: dict[str, str] = {}
        if links:
            plain = RealPaths()
            self._links = {plain.of(path): target for path, target in links.items()}

    def of(self, path: str) -> str:
        """Return the path with a canonical parent directory."""
        above, _, name = path.rstrip("/").rpartition("/")
        above = self.directory(above)
        return f"{above}/{name}" if above != "/" else f"/{name}"

    def directory(self, path: str) -> str:
        """Return the path with all links resolved, including the last name. Reads each directory once."""
        if (known := self._directories.get(path)) is not None:
            return known
        unknown = [path]
        while (above := unknown[-1].rstrip("/").rpartition("/")[0]) not in self._directories:
            unknown.append(above)
        for each in reversed(unknown):  # top down, because a path may be deeper than the stack
            known = self._directories[each] = self._resolved(each)
        return self._directories[path]

    def links_on(self, path: str) -> frozenset[str]:
        """Return the canonical paths of all links in the parent directories of a path."""
        above = path.rstrip("/").rpartition("/")[0]
        self.directory(above)
        return self._passed.get(above, frozenset())

    def moved(self, paths: Iterable[str]) -> frozenset[str]:
        """Return the parent directories of ``paths`` whose canonical path is different."""
        parents = {path.rpartition("/")[0] for path in paths}
        return frozenset(
            parent for parent in parents if parent[:1] == "/" and self.directory(parent) != parent
        )

    def _resolved(self, path: str) -> str:
        above, _, name = path.rstrip("/").rpartition("/")
        here = self.directory(above) if above else "/"
        passed = set(self._passed.get(above, ()))
        waiting = [name]
        links = 0
        while waiting:
            part = waiting.pop()
            if part in ("", "."):
                continue
            if part == "..":
                here = os.path.dirname(here)
                continue
            place = f"/{part}" if here == "/" else f"{here}/{part}"
            target = self._target(place)
            if target is None or links >= _MOST_LINKS:
                here = place
                continue
            links += 1
            passed.add(place)
            here = "/" if target.startswith("/") else here
            waiting += reversed(target.split("/"))
        if passed:
            self._passed[path] = frozenset(passed)
        return here

    def _target(self, path: str) -> str | None:
        """Return the target of a link, ``None`` for other kinds."""
        if path not in self._targets:
            self._targets[path] = self._links.get(path) or _read_link(path)
        return self._targets[path]


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return _USUAL.get(path)
    except (OSError, ValueError):  # another kind of file, or a name that cannot exist
        return None
