"""A directory as a destination: a web server's on this machine, a network file system, a stick."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from bundles.filesystem.output import OutputTree
from bundles.filesystem.trees import open_regular, pieces_of
from bundles.publisher.push.contents import Source, files_of
from bundles.publisher.push.destination import Sending
from bundles.publisher.site import explained


class Directory:
    """The directory at ``location``; it is made by the first write. Methods raise `PublishError`."""

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
