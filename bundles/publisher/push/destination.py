"""Destinations of a push: the interface of all kinds, retries, and the local directory.

A file appears under its name when it is complete. Failures are `PublishError`. A temporary failure is a
`PassingError` and is retried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

import tenacity

from bundles.errors import PublishError
from bundles.filesystem.safe_paths import OutputTree
from bundles.filesystem.trees import open_regular, pieces_of
from bundles.publisher.push.plan import Source, files_of
from bundles.publisher.site import explained

_T = TypeVar("_T")
_ATTEMPTS = 5
_LONGEST_PAUSE = 20.0
"""Seconds."""


class PassingError(PublishError):
    """A temporary failure of a destination."""


class Sending(Protocol):
    """Receives the progress of copying, in any thread."""

    def moved(self, path: str, have: int) -> None:
        """Receive the number of bytes of a file sent so far. The number decreases after a restart."""
        ...

    def sent(self, path: str, size: int) -> None:
        """Receive each completed file, with its size in bytes."""
        ...


class Destination(Protocol):
    """A place to copy a site to."""

    def files(self) -> dict[str, int] | None:
        """Return the files of the site with their sizes in bytes, or ``None`` if this kind cannot list files."""
        ...

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """Request the sizes in bytes of the existing files among ``paths``. An unknown size is -1."""
        ...

    def read(self, path: str, limit: int) -> bytes | None:
        """Return the contents of one file of at most ``limit`` bytes, or ``None`` if it is missing."""
        ...

    def write(self, sources: Sequence[Source], watch: Sending) -> None:
        """Copy files. They become visible to readers in this order, or at the same time."""
        ...

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files. A missing file is not an error."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...

    def __str__(self) -> str:
        """Return the location, without credentials."""
        ...


def retried(action: Callable[[], _T]) -> _T:
    """Return the result of ``action``. After a temporary failure, retry it with increasing pauses."""
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(PassingError),
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=tenacity.wait_random_exponential(multiplier=0.5, max=_LONGEST_PAUSE),
        reraise=True,
    )(action)


# Local directories: a web server on this machine, a network file system, a USB drive.


class Directory:
    """The directory at ``location``, created by the first write. Methods raise `PublishError`."""

    def __init__(self, location: str) -> None:
        self._tree = OutputTree(location)
        self._root = Path(self._tree.root)

    def __str__(self) -> str:
        return str(self._root)

    def files(self) -> dict[str, int]:
        with explained(self._root):
            return files_of(self._root) if self._tree.exists() else {}

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        return {path: size for path, size in self.files().items() if path in paths}

    def read(self, path: str, limit: int) -> bytes | None:
        with explained(self._root / path):
            try:
                return self._tree.read(path, limit)
            except FileNotFoundError:
                return None

    def write(self, sources: Sequence[Source], watch: Sending) -> None:
        with explained(self._root):
            for source in sources:
                self._write(source, watch)
                watch.sent(source.path, source.size)

    def _write(self, source: Source, watch: Sending) -> None:
        if source.data is not None:
            self._tree.write(source.path, [source.data])
        else:
            with open_regular(source.file) as stream:
                self._tree.write(source.path, _watched(stream, source, watch))

    def remove(self, paths: Iterable[str]) -> None:
        with explained(self._root):
            for path in paths:
                self._tree.remove(path)

    def close(self) -> None:
        with explained(self._root):
            self._tree.close()


def _watched(stream: BinaryIO, source: Source, watch: Sending) -> Iterator[bytes]:
    have = 0
    for piece in pieces_of(stream):
        yield piece
        have += len(piece)
        watch.moved(source.path, have)
