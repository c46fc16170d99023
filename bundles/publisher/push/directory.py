"""A directory as a destination: a web server's on this machine, a network file system, a stick."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from bundles.filesystem.atomic import open_directory, read_limited, remove_leftovers, replace_file
from bundles.filesystem.trees import open_regular, pieces_of
from bundles.publisher.push.contents import Source, files_of
from bundles.publisher.push.destination import Sending
from bundles.publisher.site import explained


class Directory:
    """The directory at ``location``; it is made by the first write. Methods raise `PublishError`."""

    def __init__(self, location: str) -> None:
        self._root = Path(os.path.abspath(location))

    def __str__(self) -> str:
        return str(self._root)

    def files(self) -> dict[str, int]:
        with explained(self._root):
            return files_of(self._root) if os.path.lexists(self._root) else {}

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        return {path: size for path, size in self.files().items() if path in paths}

    def read(self, path: str, limit: int) -> bytes | None:
        with explained(self._root / path):
            try:
                return read_limited(self._root / path, limit)
            except FileNotFoundError:
                return None

    def write(self, sources: Sequence[Source], watch: Sending) -> None:
        with explained(self._root):
            for source in sources:
                self._write(source, watch)
                watch.sent(source.path, source.size)

    def _write(self, source: Source, watch: Sending) -> None:
        place = self._root / source.path
        make_directories(place.parent)
        with open_directory(place.parent) as parent:
            remove_leftovers(parent)
            if source.data is not None:
                replace_file(parent, place.name, [source.data], mode=0o644)
            else:
                with open_regular(source.file) as stream:
                    replace_file(parent, place.name, _watched(stream, source, watch), mode=0o644)

    def remove(self, paths: Iterable[str]) -> None:
        with explained(self._root):
            for path in paths:
                (self._root / path).unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing is held open."""


def _watched(stream: BinaryIO, source: Source, watch: Sending) -> Iterator[bytes]:
    have = 0
    for piece in pieces_of(stream):
        yield piece
        have += len(piece)
        watch.moved(source.path, have)


def make_directories(directory: Path) -> None:
    """Make what is missing of a path so that any web server may read it, whatever the umask; raises ``OSError``."""
    if directory.is_dir():
        return
    make_directories(directory.parent)
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
