"""The source of a scaffold: a directory of templates, read into memory.

* Nothing outside of the directory is read: a link is followed only to a file or directory inside of it.
* What is not text is copied byte for byte, unless it looks like a template all the same.
* A directory that is far too large to be one of templates is refused before it is read.
"""

import os
import stat
from collections.abc import Iterator, Mapping

import msgspec

from foundation.problems import ProblemCode
from puller.errors import ResourceError, reason
from puller.resources.tree_paths import printable
from puller.system.protocol import System
from puller.values.byte_order import MARK, holds_wide, is_wide

MOST_ENTRIES = 100_000
"""Files and directories of one source."""
MOST_BYTES = 256 * 1024 * 1024
"""Of all its files together."""
_DEEPEST = 100  # directories in one another


class ScaffoldSource(msgspec.Struct, frozen=True):
    """The files of a source by their paths, relative and with ``/``."""

    texts: Mapping[str, str]
    """What is not UTF-8 stands here with ``surrogateescape``, so that no byte is lost."""
    binary: frozenset[str]
    """Those that are no templates."""
    executable: frozenset[str]
    marked: frozenset[str]
    """Text files with a byte order mark, which is not in ``texts``."""

    @property
    def templates(self) -> dict[str, str]:
        """The files that are templates."""
        return {path: text for path, text in self.texts.items() if path not in self.binary}


def read_source(directory: str, name: str, system: System, delimiters: tuple[str, ...]) -> ScaffoldSource:
    """Read all files below ``directory``; ``name`` is what messages call it.

    ``delimiters`` are those that begin something in a template. Raises ``ResourceError``.
    """
    try:
        return _Reader(os.path.realpath(directory), name, system, delimiters).read()
    except OSError as error:
        where = os.path.relpath(error.filename, directory) if isinstance(error.filename, str) else "."
        place = name if where == "." else f"{name}/{printable(where)}"
        raise ResourceError(
            f"source {place} cannot be read: {reason(error)}", code=ProblemCode.MISSING_FILE, name=str(place)
        ) from error


class _Reader:
    def __init__(self, root: str, name: str, system: System, delimiters: tuple[str, ...]) -> None:
        self.root = root
        self.name = name
        self.system = system
        self.delimiters = delimiters
        self.entries = 0
        self.bytes = 0

    def read(self) -> ScaffoldSource:
        texts: dict[str, str] = {}
        binary, executable, marked = set(), set(), set()
        for path, real, found in self.files(self.root, "", ()):
            data = self.system.read(real)
            texts[path] = data.decode("utf-8", "surrogateescape")
            is_text = not is_wide(data) and _is_utf8(data)
            self.refuse_lookalike(path, data, is_text=is_text)
            if not is_text:
                binary.add(path)
            elif texts[path].startswith(MARK):
                texts[path] = texts[path].removeprefix(MARK)
                marked.add(path)
            if found.st_mode & stat.S_IXUSR:
                executable.add(path)
        if not texts:
            raise ResourceError(f"source {self.name} holds no files")
        return ScaffoldSource(texts, frozenset(binary), frozenset(executable), frozenset(marked))

    def files(
        self, directory: str, prefix: str, above: tuple[str, ...]
    ) -> Iterator[tuple[str, str, os.stat_result]]:
        """The path, real path and status of each file; ``above`` are the real paths of directories we came through."""
        for name, entry in sorted(self.system.children(directory), key=lambda child: child[0]):
            path, real, found = prefix + name, os.path.join(directory, name), entry
            if stat.S_ISLNK(found.st_mode):
                real, found = self.follow(path, real)
            self.count(path, found)
            if stat.S_ISREG(found.st_mode):
                yield path, real, found
            elif not stat.S_ISDIR(found.st_mode):
                raise self.error(path, "is neither a file nor a directory")
            elif len(above) == _DEEPEST:
                raise self.error(path, f"is deeper than {_DEEPEST} directories")
            elif real in (*above, directory):
                raise self.error(path, "is a link to a directory that it is in")
            else:
                yield from self.files(real, f"{path}/", (*above, directory))

    def follow(self, path: str, link: str) -> tuple[str, os.stat_result]:
        """Where a link of the source leads: inside of the source, or nowhere."""
        real = os.path.realpath(link)
        if os.path.commonpath((self.root, real)) != self.root:
            raise self.error(path, f"is a link to {printable(real)}, outside of the source")
        found = self.system.lstat(real)
        if found is None:
            raise self.error(path, "is a link to nothing")
        return real, found

    def count(self, path: str, found: os.stat_result) -> None:
        if not path.isprintable():
            raise self.error(path, "has a name that cannot be printed")
        self.entries += 1
        self.bytes += found.st_size if stat.S_ISREG(found.st_mode) else 0
        if self.entries > MOST_ENTRIES or self.bytes > MOST_BYTES:
            what = f"more than {MOST_ENTRIES} files, or {MOST_BYTES >> 20} MiB"
            raise ResourceError(f"source {self.name} holds {what}, which is too much for a scaffold")

    def refuse_lookalike(self, path: str, data: bytes, *, is_text: bool) -> None:
        """A template in another encoding must not be copied with its actions in it."""
        is_other = not is_text and b"\0" not in data
        found = [
            mark for mark in self.delimiters if (is_other and mark.encode() in data) or holds_wide(mark, data)
        ]
        if found:
            raise self.error(path, f"is not UTF-8 text, but holds {found[0]!r} as a template would")

    def error(self, path: str, what: str) -> ResourceError:
        return ResourceError(f"{self.name}/{printable(path)}: {what}")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
