"""Files and URIs of a level, after the facts are interpolated, glob patterns of paths, and sources of files.

* A source is a directory, or a mapping from path to text that replaces it.
* Paths are absolute, with ``/``. A missing file is a valid result. Any other failure is a ``DocumentError``.
* Each file is read at most once, and only when a level that the facts select needs it.
"""

import errno
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from hiera import regex
from hiera.errors import ConfigError, DocumentError, LimitError
from hiera.tree import ruby_values
from hiera.tree.explain import Step
from hiera.tree.interpolation import Interpolator, Invocation
from hiera.tree.schema import LevelConfig

MAX_BYTES = 64 * 1024 * 1024


class Kind(Enum):
    """The kind of a path, with links followed."""

    FILE = "file"
    DIRECTORY = "directory"
    NOTHING = "nothing"


class Entry(NamedTuple):
    """A name in a directory. ``kind`` is the kind of a link's target."""

    name: str
    kind: Kind
    is_link: bool


class Documents(Protocol):
    """A source of files for the resolver. Every method may raise ``DocumentError``."""

    def kind(self, path: str) -> Kind:
        """Return the kind of the path."""
        ...

    def read(self, path: str) -> bytes:
        """Return the bytes of an existing file. Raises ``DocumentError``."""
        ...

    def entries(self, path: str) -> list[Entry]:
        """Return the names in a directory, sorted bytewise. Empty for other paths."""
        ...


class Files:
    """Files on disk. Raises ``DocumentError`` for unreadable files, ``LimitError`` for files that are too large."""

    def kind(self, path: str) -> Kind:
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return Kind.NOTHING
            raise DocumentError(path, error.strerror or str(error)) from None
        except ValueError as error:  # a NUL byte in an interpolated path
            raise DocumentError(repr(path), str(error)) from None
        return Kind.DIRECTORY if stat.S_ISDIR(mode) else Kind.FILE

    def read(self, path: str) -> bytes:
        try:
            with open(path, "rb", opener=_open_at_once) as file:
                # Check the open file, since the path may name another file by now.
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise DocumentError(path, "not a regular file")
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise DocumentError(path, error.strerror or str(error)) from None
        if len(data) > MAX_BYTES:
            raise LimitError(path, f"larger than {MAX_BYTES} bytes")
        return data

    def entries(self, path: str) -> list[Entry]:
        try:
            with os.scandir(path) as result:
                entries = [self._entry(entry) for entry in result]
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return []
            raise DocumentError(path, error.strerror or str(error)) from None
        # Ruby sorts the bytes of names, in any locale.
        return sorted(entries, key=lambda entry: os.fsencode(entry.name))

    def _entry(self, entry: "os.DirEntry[str]") -> Entry:
        """Return an entry. Only a link needs another system call, for its target."""
        if entry.is_symlink():
            return Entry(entry.name, self.kind(entry.path), True)
        return Entry(entry.name, Kind.DIRECTORY if entry.is_dir() else Kind.FILE, False)


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting, since a named pipe without a writer would block forever."""
    return os.open(path, flags | os.O_NONBLOCK)


class Texts:
    """Files from a mapping of paths to their contents, below an imaginary directory ``root``."""

    def __init__(self, files: Mapping[str, str | bytes], root: str = "/") -> None:
        self._files = {posixpath.normpath(posixpath.join(root, path)): data for path, data in files.items()}
        self._directories: dict[str, dict[str, Kind]] = {}
        for path in self._files:
            self._place(path, Kind.FILE)

    def _place(self, path: str, kind: Kind) -> None:
        while path != "/":
            path, name = posixpath.split(path)
            self._directories.setdefault(path, {})[name] = kind
            kind = Kind.DIRECTORY

    def kind(self, path: str) -> Kind:
        path = posixpath.normpath(path)
        if path in self._files:
            return Kind.FILE
        return Kind.DIRECTORY if path in self._directories else Kind.NOTHING

    def read(self, path: str) -> bytes:
        data = self._files[posixpath.normpath(path)]
        return data.encode() if isinstance(data, str) else data

    def entries(self, path: str) -> list[Entry]:
        names = self._directories.get(posixpath.normpath(path), {})
        return [Entry(name, names[name], False) for name in sorted(names, key=str.encode)]


def join(directory: str, path: str) -> str:
    """Return ``path`` relative to ``directory``: absolute paths stay, leading ``..`` are resolved by name."""
    if path.startswith("/"):
        return path
    head, _, remainder = path.partition("/")
    while head in ("..", "."):
        directory = (posixpath.dirname(directory.rstrip("/")) or "/") if head == ".." else directory
        head, _, remainder = remainder.partition("/")
    path = f"{head}/{remainder}" if remainder else head
    return posixpath.join(directory, path) if path else directory


# Patterns of paths, matched like Ruby's ``Dir.glob``.
#
# * ``*``, ``?``, ``[a-z]``, ``{a,b}`` and ``\`` have the meaning of the shell. ``**/`` matches any number of
#   directories.
# * A name that begins with a dot matches only a pattern with a dot. ``**/`` skips such directories and symbolic
#   links.
# * The results have the order of a walk with sorted names. Alternatives in braces keep their written order.

MAX_ALTERNATIVES = 10_000

_SPECIAL = re.compile(r"[*?\[\\]")


Parts = tuple[str, ...]


def expand(pattern: str, documents: Documents) -> list[str]:
    """Return the paths of all files (no directories) that the absolute ``pattern`` matches, perhaps with duplicates."""
    results: list[str] = []
    for alternative in _braces(pattern):
        if not alternative.endswith("/"):  # such a pattern matches directories only
            results += _walk("/", [tuple(part for part in alternative.split("/") if part)], documents)
    return results


def _braces(pattern: str) -> list[str]:
    """Expand ``a{b,c}d`` to ``abd`` and ``acd``. A brace without its partner is an ordinary character."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop(0)
        alternatives = _alternatives(text)
        if alternatives is None:
            done.append(text)
        else:
            waiting = alternatives + waiting
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise LimitError(pattern, f"more than {MAX_ALTERNATIVES} alternatives in braces")
    return done


def _alternatives(text: str) -> list[str] | None:
    """Return the alternatives of the first pair of braces."""
    depth = start = 0
    commas: list[int] = []
    escaped = False
    for position, char in enumerate(text):
        if escaped or char == "\\":
            escaped = not escaped
        elif char == "{":
            start, depth = (position, 1) if depth == 0 else (start, depth + 1)
        elif char == "," and depth == 1:
            commas.append(position)
        elif char == "}" and depth:
            depth -= 1
            if depth == 0:
                bounds = [start, *commas, position]
                between = [text[left + 1 : right] for left, right in pairwise(bounds)]
                return [text[:start] + part + text[position + 1 :] for part in between]
    return None


def _walk(directory: str, tails: list[Parts], documents: Documents) -> Iterator[str]:
    """Yield files below ``directory`` that match any of ``tails``: in one walk, depth first, with sorted names."""
    tails = _with_no_directories(tails)
    if len(tails) == 1 and not _SPECIAL.search(tails[0][0]):  # a plain name needs no directory listing
        name, *_ = tails[0]
        path = posixpath.join(directory, name)
        yield from _enter(path, documents.kind(path), [tails[0][1:]], documents)
        return
    deep = [tail for tail in tails if tail[0] == "**" and len(tail) > 1]
    for entry in documents.entries(directory):
        matched = [tail[1:] for tail in tails if tail not in deep and _matches(tail[0], entry.name)]
        may_enter = entry.kind is Kind.DIRECTORY and not entry.is_link and not entry.name.startswith(".")
        tails_there = (deep if may_enter else []) + matched
        yield from _enter(posixpath.join(directory, entry.name), entry.kind, tails_there, documents)


def _with_no_directories(tails: list[Parts]) -> list[Parts]:
    """Return ``tails`` with variants in which ``**/`` matches no directory."""
    result: list[Parts] = []
    for tail in tails:
        while tail[0] == "**" and len(tail) > 1:
            result.append(tail)
            tail = tail[1:]
        result.append(tail)
    return list(dict.fromkeys(result))


def _enter(path: str, kind: Kind, tails: list[Parts], documents: Documents) -> Iterator[str]:
    deeper = [tail for tail in tails if tail]
    if kind is Kind.FILE and len(deeper) < len(tails):
        yield path
    elif kind is Kind.DIRECTORY and deeper:
        yield from _walk(path, deeper, documents)


def _matches(pattern: str, name: str) -> bool:
    if name.startswith(".") and not pattern.startswith((".", "\\.")):
        return False
    return _regexp(pattern).fullmatch(name) is not None


@lru_cache(maxsize=256)
def _regexp(pattern: str) -> re.Pattern[str]:
    out: list[str | None] = []
    position = 0
    while position < len(pattern):
        match = _PART.match(pattern, position)
        part = match[0] if match else pattern[position]
        out.append(None if part[0] == "*" else _translated(part))
        position += len(part)
    try:
        return re.compile(regex.starred(out), re.DOTALL)
    except re.error:  # such as [z-a], which matches nothing
        return re.compile(r"(?!)")


_PART = re.compile(r"\*+|\?|\[[!^]?\]?[^\]]*\]|\\.", re.DOTALL)


def _translated(part: str) -> str:
    if part == "?":
        return "."
    if part[0] == "[" and len(part) > 1:
        negated = part[1] in "!^"
        inside = re.sub(r"([\[\]\\&~|^])", r"\\\1", part[2 if negated else 1 : -1].replace("\\", ""))
        return f"[{'^' if negated else ''}{inside}]"
    return re.escape(part[1:] if part[0] == "\\" and len(part) > 1 else part)


class Location(NamedTuple):
    """``place`` is the expanded location, ``original`` its text in the configuration, ``kind`` its type of file."""

    place: str
    original: str
    kind: Kind
    is_uri: bool = False


class Resolver:
    """Turns the locations in a level's configuration into paths. Raises ``LookupFailure`` and ``ConfigError``."""

    def __init__(
        self, interpolator: Interpolator, documents: Documents, invocation: Invocation, step: Step
    ) -> None:
        self._interpolator = interpolator
        self._documents = documents
        self._run = invocation
        self._step = step

    def locations(self, level: LevelConfig) -> list[Location] | None:
        """Return existing and missing locations, in order, or ``None`` for a level without ``location``."""
        if level.location is None:
            return None
        if level.location in ("uri", "uris"):
            return [self._uri(place) for place in level.places]
        datadir = self.text(level.datadir)
        if level.location in ("glob", "globs"):
            return [location for place in level.places for location in self._globbed(datadir, place)]
        if level.location == "mapped_paths":
            return self._mapped(datadir, *level.places)
        return [self._path(datadir, place, level.extension) for place in level.places]

    def text(self, template: str) -> str:
        """Return ``template`` with its variables replaced."""
        return ruby_values.to_s(self._interpolator.resolve(template, self._run, self._step, methods=False))

    def options(self, level: LevelConfig) -> Any:
        """Return the options of the level's function."""
        return self._interpolator.resolve(level.options, self._run, self._step, methods=False)

    def _path(self, datadir: str, template: str, extension: str = "") -> Location:
        path = self.text(template)
        path = join(datadir, path if path.endswith(extension) else path + extension)
        return Location(path, template, self._documents.kind(path))

    def _globbed(self, datadir: str, template: str) -> list[Location]:
        pattern = join(datadir, self.text(template))
        return [Location(path, pattern, Kind.FILE) for path in expand(pattern, self._documents)]

    def _uri(self, template: str) -> Location:
        uri = self.text(template)
        try:
            urlsplit(uri)
            valid = not any(char.isspace() for char in uri)
        except ValueError:
            valid = False
        if not valid:
            raise ConfigError("", f"bad URI(is not URI?): {ruby_values.inspect(uri)}")
        # The function of the level checks whether the URI exists.
        return Location(uri, template, Kind.FILE, is_uri=True)

    def _mapped(self, datadir: str, variable: str, name: str, template: str) -> list[Location]:
        """Return a path for each element of a variable. Inside the template the element has the name ``name``."""
        value = self._interpolator.variable(variable, "mapped_path[0]", self._run, self._step)
        if value is None or value in ("", [], {}):
            return []
        # Puppet crashes for a number here, because it calls ``empty?``.
        if isinstance(value, (int, float)):
            detail = f"mapped_paths requires a text, a list or a mapping, and '{variable}' is"
            raise ConfigError("", f"{detail} {ruby_values.inspect(value)}")
        locations = []
        for element in _elements(value):
            with self._interpolator.scope.binding(name, element):
                locations.append(self._path(datadir, template))
        return locations


def _elements(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) else [[name, item] for name, item in value.items()]
