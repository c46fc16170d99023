"""Data from outside of the manifest: files of this host, files beside the manifest, its Hiera tree, options, and
defaults of libraries.

Lowest precedence first (``docs/data.md``): the ``data.yaml`` of each library of the bundle, below all data of the
bundle. Above the bundle's data: site data (``puller.data.site_data``), then ``data.yaml`` and ``data.d/*.yaml`` in name
order, then ``.hiera`` beside the manifest, then ``--data`` files, then ``--set``. Each is a separate document, with
optional hierarchy and overrides. Its expressions use the data of all sources (``puller.data.bundle_data``). A document
of the site must also be valid without bundles, over the documents below it: otherwise its last good copy is used.

CCM reads ``.env`` and ``.hiera`` beside a manifest, or in the current directory. ``.env`` adds variables to
``environ``. Each line is ``NAME=value``, with optional double quotes. Another user must not choose data for root. A
file that another user owns or can write is ignored with a warning, and so is a link.

The Hiera tree beside a manifest: a missing tree is not an error. An unreadable tree rejects the manifest at once, not
at the first lookup. The code of the tree is imported only for existing trees, because most manifests have none.
"""

import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bundles.filesystem.atomic import read_limited
from foundation.problems import DependsOn, Location, Problem, ProblemCode
from hiera import parsing
from hiera.document.document import Chosen, Document
from hiera.document.layers import Explanation
from hiera.errors import DocumentError, HieraError, KeyNotFound, UndefinedError
from hiera.sops import is_sealed
from hiera.sops.identities import NO_IDENTITIES, Identities
from hiera.tree.ruby_values import printable
from hiera.values import MISSING, merge_deep, merge_sources, parse_path
from puller.bundle_paths import FileTree
from puller.errors import ConfigurationError, UsageError, file_problem, reason
from puller.system.trusted_files import trusted

if TYPE_CHECKING:
    from hiera.document.annotations import Annotations
    from hiera.tree.explain import Step
    from hiera.tree.lookup import Tree

SIZE_LIMIT = 16 * 1024 * 1024
"""The maximum size of a document in bytes."""


class Origin(StrEnum):
    """The origin of a document, lowest precedence first."""

    LIBRARY = "library"
    MANIFEST = "manifest"
    PARENT = "parent manifest"
    SITE = "site data"
    HOST = "this host"
    COMMAND_LINE = "command line"


class DataSource(msgspec.Struct, frozen=True):
    """The data of one document on this host, with their explanation."""

    origin: Origin
    named: str | Callable[[], str]
    """The name, or a function that finds it by reading a text again."""
    data: Mapping[str, Any]
    """If the source ``is_open``: the data that can be resolved without the other sources."""
    document: Document | None = None
    """The source of the data, if it is a document."""
    explanation: Explanation | None = None
    """How the data were merged."""
    unresolved: Mapping[object, str] = {}
    """The errors of top-level keys that cannot be resolved here. A higher source replaces their values."""
    joins_lists: bool = False
    """Whether its lists are appended to lower lists, as for data of a parent manifest."""
    chosen: Chosen | None = None
    """Its sections with expressions or secrets. ``None`` without both."""
    is_open: bool = False
    """Whether expressions remain to be resolved, over the data of all sources (``puller.data.bundle_data``)."""

    @property
    def name(self) -> str:
        """The name in messages: a path, a URL, ``--set port``."""
        return self.named if isinstance(self.named, str) else self.named()

    @property
    def annotations(self) -> "Annotations | None":
        """The annotations in comments of the document."""
        return self.document.annotations if self.document else None

    def over(self, data: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """Return its data merged over lower data."""
        merge = merge_deep if self.joins_lists else merge_sources
        for path in self.replaced:
            data = _without(data, path, self.data)
        return merge(data, self.data) if data else self.data

    @property
    def replaced(self) -> Collection[tuple[str, ...]]:
        """The paths of values that replace lower values instead of merging."""
        return self.document.replaced if self.document is not None else ()

    def shows_below(self, key: Any) -> bool:
        """Return whether lower sources affect the value of its key."""
        value = self.data[key]
        if self.replaced and (str(key),) in self.replaced:
            return False
        return isinstance(value, Mapping) or (self.joins_lists and isinstance(value, list))


class Surroundings(msgspec.Struct, frozen=True):
    """The facts, the environment and the keys of this host for documents."""

    facts: Mapping[str, Any]
    environ: Mapping[str, str]
    identities: Identities = NO_IDENTITIES
    """The keys for documents that SOPS encrypted."""

    def parse(self, text: str, name: str) -> Document:
        """Return a document with its encrypted values as secrets. Raise ``HieraError`` with file and line."""
        return Document.parse(text, name, opened=self._opened)

    def _opened(self, value: Any, text: str, source: str) -> Any:
        if not is_sealed(text):
            return value
        from hiera.sops.reading import opened_document  # 7 % of an idle apply, and most documents are plain

        return opened_document(value, text, source, self.identities)

    def resolve(self, text: str, name: str, origin: Origin, below: Iterable[DataSource] = ()) -> DataSource:
        """Return the data of a document over the sources ``below``. Raise ``HieraError`` with file and line."""
        document = self.parse(text, name)
        is_unknown = _is_of_bundle if origin in _OF_HOST else _must_be_known
        resolved = document.resolve(self.facts, self.environ, data=merged(below), is_replaced=is_unknown)
        source = DataSource(origin, name, resolved.data, document, resolved.explanation)
        if document.is_final:
            return source
        chosen = document.choose(self.facts, self.environ)
        return msgspec.structs.replace(source, chosen=chosen, is_open=True)

    def choose(self, document: Document, named: str, origin: Origin) -> DataSource:
        """Return the sections of a document of a bundle. Raise ``HieraError`` with file and line."""
        chosen = document.choose(self.facts, self.environ)
        if not document.is_final:
            return DataSource(origin, named, {}, document, chosen=chosen, is_open=True)
        resolved = chosen.merged()
        return DataSource(origin, named, resolved.data, document, resolved.explanation)

    def load(
        self, paths: Iterable[Path], origin: Origin, below: Iterable[DataSource] = ()
    ) -> tuple[DataSource, ...]:
        """Return all sources: ``below``, then the documents at ``paths``, with increasing precedence.

        Files of the command line may be writable by others. Raise ``ConfigurationError``.
        """
        sources = list(below)
        for path in paths:
            try:
                text = read(path) if origin is Origin.COMMAND_LINE else read_trusted(path)
                if origin is Origin.HOST and not text.strip():
                    # A full disk leaves an empty file. Without its data this host would get the defaults.
                    raise ConfigurationError(f"{path}: is empty", hint="write {} for a host without data")
                sources.append(self.resolve(text, str(path), origin, sources))
            except HieraError as error:
                raise ConfigurationError(problems=error.problems) from error
        return tuple(sources)


_OF_HOST = (Origin.HOST, Origin.COMMAND_LINE)


def _without(data: Mapping[Any, Any], path: tuple[str, ...], above: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return ``data`` without the value at a path, if ``above`` has a value there."""
    first, *remainder = path
    key = next((key for key in above if str(key) == first), None)
    if key is None or key not in data:
        return data
    if not remainder:
        return {name: value for name, value in data.items() if name != key}
    below, over = data[key], above[key]
    if not isinstance(below, Mapping) or not isinstance(over, Mapping):
        return data
    return {**data, key: _without(below, tuple(remainder), over)}


def _must_be_known(path: object, error: HieraError) -> bool:
    """Return ``False``: a document of the site must be valid without bundles."""
    return False


def _is_of_bundle(path: object, error: HieraError) -> bool:
    """Return whether a value of this host may be resolved with the data of a bundle."""
    return isinstance(error, UndefinedError) and error.depends_on is DependsOn.DATA


def merged(sources: Iterable[DataSource]) -> Mapping[str, Any]:
    """Return the merged data of all sources, lowest first: mappings merge deeply, other values are replaced."""
    data: Mapping[str, Any] = {}
    for source in sources:
        data = source.over(data)
    return data


def host_files(file: Path, directory: Path) -> Iterator[Path]:
    """Yield the existing data files of this host, in order. Raise ``ConfigurationError`` if they cannot be listed."""
    try:
        if file.exists():
            yield file
        if directory.exists():
            result = trusted(directory).iterdir()
            yield from sorted(
                directory / path.name for path in result if path.suffix in (".yaml", ".yml", ".json")
            )
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be read")) from error


def assigned(pairs: Iterable[str]) -> Iterator[DataSource]:
    """Yield the data of each ``--set KEY=VALUE``. Raise ``UsageError``.

    A dot in KEY leads into mappings. VALUE is parsed as in a data file (``8080`` is a number), but without expressions.
    """
    for pair in pairs:
        yield _assigned(pair)


def _assigned(pair: str) -> DataSource:
    key, equals, text = pair.partition("=")
    if not equals:
        # Not quoted, because it may be the second half of a password with a space.
        raise UsageError("--set has a value without '='", expected="KEY=VALUE or KEY.KEY=VALUE")
    try:
        steps = parse_path(key) if key else ()
        value: Any = parsing.load_yaml(text, f"--set {key}")
    except HieraError as error:
        raise UsageError(problems=error.problems) from error
    if not steps:
        raise UsageError("--set has a value that begins with '='", expected="KEY=VALUE or KEY.KEY=VALUE")
    for step in reversed(steps):
        value = {str(step): value}
    return DataSource(Origin.COMMAND_LINE, f"--set {key}", value)


def read_trusted(path: Path) -> str:
    """Return the text of a data file of this host or site. Raise ``ConfigurationError``, also if others may write."""
    try:
        return read(trusted(path))
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be read", where=path)) from error


def read(path: Path) -> str:
    """Return the text of a data file. Raise ``ConfigurationError``."""
    try:
        return read_limited(path, SIZE_LIMIT).decode("utf-8")
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be read", where=path)) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: is not UTF-8 text, at byte {error.start}") from None
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


DATA = "data.yaml"


def library_data(libraries: Iterable[FileTree], here: Surroundings) -> tuple[DataSource, ...]:
    """Return the documents of the libraries, in their order. Raise ``HieraError``."""
    data_sources: list[DataSource] = []
    for library in libraries:
        name, path = f"{library.name}:{DATA}", os.path.join(library.root, DATA)
        if os.path.lexists(path):
            data_sources.append(
                here.choose(here.parse(_read_library(path, name), name), name, Origin.LIBRARY)
            )
    return tuple(data_sources)


def _read_library(path: str, name: str) -> str:
    try:
        return read_limited(path, SIZE_LIMIT).decode("utf-8")
    except OSError as error:
        raise DocumentError(name, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DocumentError(name, str(error)) from error


_VARIABLE = r"(?:export\s+)?([A-Za-z_]\w*)=(.*)"


class FilesBeside(msgspec.Struct, frozen=True):
    """The contents of the files beside a manifest."""

    environ: Mapping[str, str] = {}
    document: str | None = None
    """The text of ``.hiera``."""
    name: str = ""
    """The name of ``.hiera`` in messages."""
    ignored: tuple[Problem, ...] = ()
    """Why files were ignored."""


def read_beside(directory: Path) -> FilesBeside:
    """Return the files of a directory. A missing file is empty."""
    ignored: list[Problem] = []
    environment = _read_trusted(directory / ".env", ignored)
    document = _read_trusted(directory / ".hiera", ignored)
    return FilesBeside(parse_env(environment or ""), document, str(directory / ".hiera"), tuple(ignored))


def parse_env(text: str) -> dict[str, str]:
    """Return the variables of a ``.env`` file. Lines without a variable are ignored."""
    variables = {}
    for line in text.splitlines():
        if match := re.fullmatch(_VARIABLE, line.strip()):
            value = match[2].strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            variables[match[1]] = value[1:-1] if quoted else value
    return variables


def _read_trusted(path: Path, ignored: list[Problem]) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if why := _distrust(os.fstat(descriptor)):
                ignored.append(_ignored(path, why))
                return None
            content = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        ignored.append(_ignored(path, f"cannot be read: {reason(error)}"))
        return None
    if len(content) > SIZE_LIMIT:
        ignored.append(_ignored(path, f"has more than {SIZE_LIMIT} bytes"))
        return None
    return content.decode("utf-8", "surrogateescape")


def _distrust(status: os.stat_result) -> str:
    """Return why a file is not trusted. Empty if only root and the running user can write to it."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}"
    own_group = status.st_gid == os.getegid()
    return "is writable by others" if status.st_mode & (0o002 if own_group else 0o022) else ""


def _ignored(path: Path, why: str) -> Problem:
    message = f"{why}, so it is ignored"
    return Problem(code=ProblemCode.UNTRUSTED_PATH, message=message, location=Location(str(path)))


TREE = "hiera.yaml"


def open_tree(
    directory: Path,
    facts: Mapping[str, Any],
    private_key: str,
    identities: Identities,
    warn: Callable[[Problem], None],
) -> "Tree | None":
    """Return the Hiera tree beside a manifest, or ``None``. Raise ``HieraError`` if it is unusable."""
    if not (directory / TREE).exists():
        return None
    from hiera.tree.lookup import Tree  # 12 % of an idle apply, and few manifests have a tree

    tree = Tree(facts, environment=str(directory), private_key=private_key, identities=identities, warn=warn)
    try:
        tree.verify()
    except HieraError as error:
        raise (error if error.where else error.at(TREE)) from None
    return tree


def ask_tree(
    tree: "Tree",
    name: str,
    merge: Any = None,
    step: "Step | None" = None,
    outer: Callable[[str], Any] | None = None,
) -> Any:
    """Return the tree's value of a key, or ``MISSING``. ``step`` records the lookup. Raise ``HieraError``.

    The value is plain: Ruby's symbols and odd keys become text. Secrets stay secrets. ``outer`` returns the value of a
    whole key outside of the tree for ``%{lookup('…')}``, or ``MISSING``.
    """
    try:
        value = tree.lookup(name, merge=merge, step=step, outer=outer)
        return printable(value, lambda secret: secret)
    except KeyNotFound:
        return MISSING
