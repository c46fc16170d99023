"""The repository files of a machine, checked together before a change.

* A package manager that rejects one of these files may be unable to read any repository. A new file is therefore tried
  together with all other files before it is installed. An installed file is checked as well.
* The package manager checks each state of these files once. The last accepted state is recorded, so a run without a
  change starts no process.
* A dry run checks the files that the real run would leave.
"""

import contextlib
import os
from collections.abc import Mapping

from puller.resources.base import Context
from puller.resources.packages.layouts import Layout
from puller.resources.packages.manager import Job
from puller.resources.packages.repository_properties import RepositoryProperties
from puller.state.state_file import StateFile

Listing = dict[str, tuple[int, int]]
"""Files that declare repositories: the inode and the time of its last change in nanoseconds, by path."""

_PLANNED = (0, 0)


class Sources:
    """The files of one package manager that declare repositories, for one run."""

    def __init__(self, layout: Layout, context: Context) -> None:
        self._layout = layout
        self._system = context.system
        self._changes = context.changes
        self._noop = context.noop
        self._planned: dict[str, bytes | None] = {}
        self._texts: dict[str, bytes] = {}
        self._listing: Listing = {}
        self._places: dict[tuple[str, str], list[str]] = {}
        self._read_after = -1
        self._accepted: Listing | None = None
        state = context.state_directory
        loss = "Puller checks again whether the package manager can read them"
        self._file = StateFile(state / "sources.json", Listing, loss) if state else None
        self._log = context.log

    @classmethod
    def of(cls, layout: Layout, context: Context) -> "Sources":
        """Return the sources that all repositories of a run share."""
        shared = context.shared.setdefault(cls, {})
        key = (context.system, layout)
        if key not in shared:
            shared[key] = cls(layout, context)
        sources: Sources = shared[key]
        return sources

    def plan(self, path: str, content: bytes | None) -> None:
        """Record a file that the real run would write or remove (``None``), for the rest of a dry run."""
        self._planned[path] = content
        self._read_after = -1

    def declaring(
        self, properties: RepositoryProperties, *, apart_from: str
    ) -> dict[tuple[str, str], list[str]]:
        """Return the files except ``apart_from`` that declare the repository, by URL and suite."""
        self._read()
        return {
            entry: paths
            for entry in sorted(self._layout.wanted_entries(properties))
            if (paths := [path for path in self._places.get(entry, ()) if path != apart_from])
        }

    def texts(self) -> Mapping[str, bytes]:
        """Return the contents of all readable files."""
        self._read()
        return self._texts

    def problem(self, job: Job, name: str, changed: Mapping[str, bytes]) -> str:
        """Return why the package manager rejects the files with ``changed`` in place. Empty if it accepts them.

        Raises ``ResourceError`` if the package manager cannot run.
        """
        self._read()
        is_as_it_is = self._layout.asks and not changed and _PLANNED not in self._listing.values()
        if is_as_it_is and self._listing == self._last_accepted():
            return ""
        problem = self._layout.find_problem(job, name, {**self._texts, **changed})
        if is_as_it_is and not problem:
            self._accept(self._listing)
        return problem

    def _accept(self, listing: Listing) -> None:
        self._accepted = listing
        if self._file and not self._noop:
            with contextlib.suppress(OSError):  # on a full disk the next run checks again
                self._file.save(listing)

    def _last_accepted(self) -> Listing:
        if self._accepted is None:
            self._accepted = {}
            with contextlib.suppress(OSError):
                self._accepted = (self._file and self._file.load(self._log, noop=self._noop)) or {}
        return self._accepted

    def _read(self) -> None:
        """Read the files again if a resource has changed anything since."""
        changes = self._changes()
        if self._read_after == changes and not self._noop:
            return
        self._read_after = changes
        self._texts, self._listing, self._places = {}, {}, {}
        for path in self._layout.places(self._system):
            self._read_file(path)
        for path, content in self._planned.items():
            if content is not None:
                self._texts[path], self._listing[path] = content, _PLANNED
        for path, content in self._texts.items():
            for entry in dict.fromkeys(self._layout.entries(path, content.decode(errors="replace"))):
                self._places.setdefault(entry, []).append(path)

    def _read_file(self, path: str) -> None:
        """Read a file, unless it cannot be read, or a dry run cannot predict its content."""
        if self._noop and self._is_planned(path):
            self._listing[path] = _PLANNED
            return
        if (source := read_source(path)) is not None:
            content, status = source
            self._texts[path], self._listing[path] = content, (status.st_ino, status.st_ctime_ns)

    def _is_planned(self, path: str) -> bool:
        system = self._system
        is_to_go = os.path.lexists(path) and not system.exists(path)
        return path in self._planned or is_to_go or system.will_be_written(path)


def read_source(path: str) -> tuple[bytes, os.stat_result] | None:
    """Return the content and the state of a file. ``None`` if it cannot be read, which the package manager reports."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not block
        with open(descriptor, "rb") as stream:
            return stream.read(), os.fstat(stream.fileno())
    except OSError:
        return None
