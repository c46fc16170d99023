"""Files of the system that many resources read, cached for a run until they change.

* While no resource has changed anything, the cached value is returned without a system call.
* After a change by any resource, the files are read again if their identity has changed.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from puller.resources.base import Context

T = TypeVar("T")
_Identity = tuple[int, ...] | None


class ReadOnce(Generic[T]):
    """The value that ``parse`` returns for the content of files, by path. Missing files are omitted.

    ``Context.shared`` holds one instance for all resources of a run.
    """

    def __init__(self, paths: Sequence[str], parse: Callable[[Mapping[str, bytes]], T]) -> None:
        self._paths = paths
        self._parse = parse
        self._changes = -1
        self._identities: list[_Identity] | None = None
        self._value: T

    def current(self, context: Context) -> T:
        """Return the value for the current files. Raises ``OSError``, and the exceptions of ``parse``."""
        changes = context.changes()
        if self._identities is None or changes != self._changes:
            identities = [_identity(path) for path in self._paths]
            if identities != self._identities:
                self._value = self._parse(dict(_contents(self._paths)))
                self._identities = identities
            self._changes = changes
        return self._value


def _identity(path: str) -> _Identity:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _contents(paths: Sequence[str]) -> list[tuple[str, bytes]]:
    results = []
    for path in paths:
        try:
            with open(path, "rb", buffering=0) as stream:
                results.append((path, stream.readall()))
        except FileNotFoundError:
            continue
    return results
