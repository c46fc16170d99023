"""The tree of files that a scaffold renders in memory from its source directory.

* Rendering only reads, and only below the source and the manifest's directory. Links are followed inside the source.
* A tree that renders differently each time is refused, because every run would change it.
* Binary files are copied byte for byte, unless they look like templates.
* A source directory with too many files or bytes is refused before it is read.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from foundation.problems import ProblemCode
from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.errors import ResourceError, reason
from puller.resources.paths import directories_of, printable
from puller.system.protocol import System
from puller.templates.rendering import OWN, Delimiters, errors_explained, load, render_tree, seen_by, walk
from puller.templates.scope import Engine, Template, seen_from
from puller.templates.template_errors import Budget, TemplateError
from puller.values.foreign_text import MARK, holds_wide, is_wide

# The source directory, read into memory.

MOST_ENTRIES = 100_000
"""Limit on files and directories of one source."""
MOST_BYTES = 256 * 1024 * 1024
"""Limit on the total size of its files."""
_DEEPEST = 100  # nested directories


class ScaffoldSource(msgspec.Struct, frozen=True):
    """The files of a source by relative path, with ``/``."""

    texts: Mapping[str, str]
    """Bytes outside UTF-8 are decoded with ``surrogateescape``, so that they are preserved."""
    binary: frozenset[str]
    """Files that are not templates."""
    executable: frozenset[str]
    marked: frozenset[str]
    """Text files with a byte order mark, which ``texts`` omits."""

    @property
    def templates(self) -> dict[str, str]:
        """The files that are templates."""
        return {path: text for path, text in self.texts.items() if path not in self.binary}


def read_source(directory: str, name: str, system: System, delimiters: tuple[str, ...]) -> ScaffoldSource:
    """Read all files below ``directory``. ``name`` is its name in messages.

    ``delimiters`` are the opening delimiters of templates. Raises ``ResourceError``.
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
        """Yield the path, real path and status of each file. ``above`` are the real paths of the parent directories."""
        for name, entry in sorted(self.system.children(directory), key=lambda child: child[0]):
            path, real, result = prefix + name, os.path.join(directory, name), entry
            if stat.S_ISLNK(result.st_mode):
                real, result = self.follow(path, real)
            self.count(path, result)
            if stat.S_ISREG(result.st_mode):
                yield path, real, result
            elif not stat.S_ISDIR(result.st_mode):
                raise self.error(path, "is neither a file nor a directory")
            elif len(above) == _DEEPEST:
                raise self.error(path, f"is deeper than {_DEEPEST} directories")
            elif real in (*above, directory):
                raise self.error(path, "is a link to a directory that it is in")
            else:
                yield from self.files(real, f"{path}/", (*above, directory))

    def follow(self, path: str, link: str) -> tuple[str, os.stat_result]:
        """Return the target of a link. Raises ``ResourceError`` if it is missing or outside the source."""
        real = os.path.realpath(link)
        if os.path.commonpath((self.root, real)) != self.root:
            raise self.error(path, f"is a link to {printable(real)}, outside of the source")
        status = self.system.lstat(real)
        if status is None:
            raise self.error(path, "is a link to nothing")
        return real, status

    def count(self, path: str, found: os.stat_result) -> None:
        if not path.isprintable():
            raise self.error(path, "has a name that cannot be printed")
        self.entries += 1
        self.bytes += found.st_size if stat.S_ISREG(found.st_mode) else 0
        if self.entries > MOST_ENTRIES or self.bytes > MOST_BYTES:
            detail = f"more than {MOST_ENTRIES} files, or {MOST_BYTES >> 20} MiB"
            raise ResourceError(f"source {self.name} holds {detail}, which is too much for a scaffold")

    def refuse_lookalike(self, path: str, data: bytes, *, is_text: bool) -> None:
        """Raise ``ResourceError`` for a template in another encoding, which would be copied without rendering."""
        is_other = not is_text and b"\0" not in data
        results = [
            mark for mark in self.delimiters if (is_other and mark.encode() in data) or holds_wide(mark, data)
        ]
        if results:
            raise self.error(path, f"is not UTF-8 text, but holds {results[0]!r} as a template would")

    def error(self, path: str, what: str) -> ResourceError:
        return ResourceError(f"{self.name}/{printable(path)}: {what}")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


_BEGINNINGS = {"jinja": ("{{", "{%"), "go": ("{{",), "jet": ("[[",)}


class RenderRequest(msgspec.Struct, frozen=True):
    """How to render a source."""

    source: str
    """An absolute path."""
    name: str
    """The path in the author's spelling, for messages."""
    engine: str
    delimiters: Delimiters = OWN
    skip_empty: bool = False
    sensitive: bool = False
    """Whether all content is hidden, even without secrets."""

    @property
    def beginnings(self) -> tuple[str, ...]:
        """The opening delimiters of the template."""
        remaining = self.delimiters[0]
        return (remaining,) if remaining else _BEGINNINGS[self.engine]


class Rendered(msgspec.Struct, frozen=True):
    """One file of a tree."""

    data: bytes
    executable: bool = False
    """Whether its template is executable."""
    is_secret: bool = False
    """Whether it may contain a secret."""

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.data)

    def chunks(self) -> Iterable[bytes]:
        """Return the content as one chunk."""
        return (self.data,)

    @property
    def mode(self) -> int:
        """The default permission bits."""
        return 0o755 if self.executable else 0o644


class Tree(msgspec.Struct, frozen=True):
    """The files of a target, by path."""

    files: Mapping[str, Rendered]
    directories: frozenset[str]
    """Parent directories of files, and source directories without rendered files."""
    secret: bool = False
    """Whether it may contain a secret and must be hidden."""


def render_source(request: RenderRequest, scope: Scope, files: BundleFiles, system: System) -> Tree:
    """Render the source. ``files`` are the bundle files that template functions can read. Raises ``ResourceError``."""
    source = read_source(request.source, request.name, system, request.beginnings)
    place = files.within(request.source)
    scope = scope if place is files else seen_from(place, scope)
    loaded = load(request.engine, request.delimiters, root=place, files=source.templates)
    engine = _Engine(loaded, source.binary)
    seen = seen_by(request.engine, scope, place)
    with errors_explained(seen, secret=request.sensitive, below=f"{request.name}/"):
        texts = render_tree(
            source.texts, engine, seen.dot, skip_empty=request.skip_empty, functions=seen.functions
        )
    is_secret = request.sensitive or engine.used_secret or seen.is_secret
    rendered = {
        path: Rendered(
            _encoded(MARK + text if path in source.marked else text, request.name, path),
            path in source.executable,
            is_secret,
        )
        for path, text in sorted(texts.items())
    }
    made = {path for path, is_file in walk(source.texts) if not is_file}
    directories = frozenset(made.union(directories_of(rendered)))
    return Tree(rendered, directories, is_secret)


def require_same(first: Tree, second: Tree) -> None:
    """Raise ``ResourceError`` if two renderings of a source differ."""
    for path in sorted({*first.files, *second.files}):
        one, other = first.files.get(path), second.files.get(path)
        if one == other:
            continue
        if one is None or other is None:
            raise ResourceError(
                f"{path}: is rendered one time and not another, so it would change in every run"
            )
        where = "" if first.secret else _where(one.data, other.data)
        raise ResourceError(f"{path}: renders differently each time, so it would change in every run{where}")


def _where(first: bytes, other: bytes) -> str:
    lines = zip(first.splitlines(), other.splitlines(), strict=False)
    for number, (line, another) in enumerate(lines, start=1):
        if line != another:
            return f": line {number} is {_shown(line)}, then {_shown(another)}"
    return ""


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


def _encoded(text: str, name: str, path: str) -> bytes:
    try:
        path.encode("utf-8")
        # Surrogates come from a file that is not UTF-8, or from a template that splits a character.
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ResourceError(f"{name}/{path!a}: cannot be written as UTF-8: {error.reason}") from error


class _Engine:
    """An engine that copies files that are not templates, and records the use of secrets."""

    def __init__(self, engine: Engine, binary: frozenset[str]) -> None:
        self.engine = engine
        self.binary = binary
        self.used_secret = False

    @property
    def name(self) -> str:
        return self.engine.name

    def compile(self, name: str, text: str) -> Template:
        if name in self.binary:
            return _Literal(text)
        try:
            return _Watched(self.engine.compile(name, text), self)
        except TemplateError as error:
            error.is_of_text = True
            raise


class _Literal:
    """A file that is copied unchanged."""

    def __init__(self, text: str) -> None:
        self.text = text

    def render(
        self,
        dot: Any,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        budget: Budget | None = None,
    ) -> str:
        del dot, functions, budget
        return self.text


class _Watched:
    """A template that reports to its owner whether a rendering used a secret."""

    def __init__(self, template: Template, owner: _Engine) -> None:
        self.template = template
        self.owner = owner

    def render(
        self,
        dot: Any,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        budget: Budget | None = None,
    ) -> str:
        text = self.template.render(dot, functions, budget=budget)
        self.owner.used_secret |= getattr(self.owner.engine, "used_secret", False)
        return text
