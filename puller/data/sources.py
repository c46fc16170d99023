"""Data from outside of the manifest: this host's own files, and what the command line gives.

Lowest precedence first (``docs/data.md``): site data (``puller.data.site_data``), then ``data.yaml`` and
``data.d/*.yaml`` in name order, then ``--data`` files, then ``--set``. Each is a document of its own, with a hierarchy
and overrides if it likes. Its expressions see the data of all sources (``puller.data.derived``). A document of the site
must also be valid without bundles, over the documents below it: otherwise its last good copy is used.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bundles.filesystem.atomic import read_limited
from foundation.problems import DependsOn
from hiera.document.document import Chosen, Document
from hiera.document.layers import Explanation
from hiera.errors import HieraError, UndefinedError
from hiera.text import yaml_text
from hiera.values.data_paths import parse_path
from hiera.values.plain import merge_deep, merge_sources
from puller.errors import ConfigurationError, UsageError, file_problem
from puller.system.trusted_files import trusted

if TYPE_CHECKING:
    from hiera.document.annotations import Annotations

SIZE_LIMIT = 16 * 1024 * 1024
"""The most bytes that a document may have."""


class Origin(StrEnum):
    """Who gave a document, lowest precedence first."""

    LIBRARY = "library"
    MANIFEST = "manifest"
    PARENT = "parent manifest"
    SITE = "site data"
    HOST = "this host"
    COMMAND_LINE = "command line"


class DataSource(msgspec.Struct, frozen=True):
    """The data of one document on this host, and how it came to be."""

    origin: Origin
    named: str | Callable[[], str]
    """Its name, or what finds it where that takes reading a text again."""
    data: Mapping[str, Any]
    """Of a source that ``is_open``: the data as far as they can be resolved without the other sources."""
    document: Document | None = None
    """Where the data was read from, if anywhere."""
    explanation: Explanation | None = None
    """How it came to be."""
    unresolved: Mapping[object, str] = {}
    """Why something in a top-level key cannot be resolved here; a higher source has another value in its place."""
    joins_lists: bool = False
    """Whether its lists are appended to those below it, as what a parent manifest hands down is."""
    chosen: Chosen | None = None
    """Its sections with their expressions or secrets; ``None`` where it has neither."""
    is_open: bool = False
    """Whether the expressions are still to be resolved, over the data of all sources (``puller.data.derived``)."""

    @property
    def name(self) -> str:
        """As messages call it: a path, a URL, ``--set port``."""
        return self.named if isinstance(self.named, str) else self.named()

    @property
    def annotations(self) -> "Annotations | None":
        """The annotations in comments of the document."""
        return self.document.annotations if self.document else None

    def over(self, data: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """Its data merged over what is below it."""
        merge = merge_deep if self.joins_lists else merge_sources
        for path in self.replaced:
            data = _without(data, path, self.data)
        return merge(data, self.data) if data else self.data

    @property
    def replaced(self) -> Collection[tuple[str, ...]]:
        """The paths of values that replace those below, instead of merging with them."""
        return self.document.replaced if self.document is not None else ()

    def shows_below(self, key: Any) -> bool:
        """Whether what is below still counts for a key that it has."""
        value = self.data[key]
        if self.replaced and (str(key),) in self.replaced:
            return False
        return isinstance(value, Mapping) or (self.joins_lists and isinstance(value, list))


class Surroundings(msgspec.Struct, frozen=True):
    """The facts and environment that documents see of this host."""

    facts: Mapping[str, Any]
    environ: Mapping[str, str]

    def resolve(self, text: str, name: str, origin: Origin, below: Iterable[DataSource] = ()) -> DataSource:
        """The data that a document gives over the sources ``below``; raises ``HieraError`` naming file and line."""
        document = Document.parse(text, name)
        is_unknown = _is_of_bundle if origin in _OF_HOST else _must_be_known
        resolved = document.resolve(self.facts, self.environ, data=merged(below), is_replaced=is_unknown)
        source = DataSource(origin, name, resolved.data, document, resolved.explanation)
        if document.is_final:
            return source
        chosen = document.choose(self.facts, self.environ)
        return msgspec.structs.replace(source, chosen=chosen, is_open=True)

    def choose(self, document: Document, named: str, origin: Origin) -> DataSource:
        """The sections of a document of a bundle; raises ``HieraError`` naming file and line."""
        chosen = document.choose(self.facts, self.environ)
        if not document.is_final:
            return DataSource(origin, named, {}, document, chosen=chosen, is_open=True)
        resolved = chosen.merged()
        return DataSource(origin, named, resolved.data, document, resolved.explanation)

    def load(
        self, paths: Iterable[Path], origin: Origin, below: Iterable[DataSource] = ()
    ) -> tuple[DataSource, ...]:
        """All sources: those ``below``, then the documents at ``paths``, each over the ones before it.

        What the command line names is read whoever may write it. Raises ``ConfigurationError``.
        """
        sources = list(below)
        for path in paths:
            try:
                text = read(path) if origin is Origin.COMMAND_LINE else read_trusted(path)
                if origin is Origin.HOST and not text.strip():
                    # A full disk leaves such a file, and without its data this host would get the defaults.
                    raise ConfigurationError(f"{path}: is empty", hint="write {} if this host has no data")
                sources.append(self.resolve(text, str(path), origin, sources))
            except HieraError as error:
                raise ConfigurationError(problems=error.problems) from error
        return tuple(sources)


_OF_HOST = (Origin.HOST, Origin.COMMAND_LINE)


def _without(data: Mapping[Any, Any], path: tuple[str, ...], above: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return ``data`` without the value at a path that ``above`` has a value for."""
    first, *rest = path
    key = next((key for key in above if str(key) == first), None)
    if key is None or key not in data:
        return data
    if not rest:
        return {name: value for name, value in data.items() if name != key}
    below, over = data[key], above[key]
    if not isinstance(below, Mapping) or not isinstance(over, Mapping):
        return data
    return {**data, key: _without(below, tuple(rest), over)}


def _must_be_known(path: object, error: HieraError) -> bool:
    """Return that a value must be resolved at once: a document of the site that is not valid is not used."""
    return False


def _is_of_bundle(path: object, error: HieraError) -> bool:
    """Return whether a value of this host may be resolved with the data of a bundle."""
    return isinstance(error, UndefinedError) and error.depends_on is DependsOn.DATA


def merged(sources: Iterable[DataSource]) -> Mapping[str, Any]:
    """The data of all of them, the last over the others: mappings merge deeply, anything else is replaced."""
    data: Mapping[str, Any] = {}
    for source in sources:
        data = source.over(data)
    return data


def host_files(file: Path, directory: Path) -> Iterator[Path]:
    """The data files of this host that exist, in order; raises ``ConfigurationError`` when that cannot be told."""
    try:
        if file.exists():
            yield file
        if directory.exists():
            found = trusted(directory).iterdir()
            yield from sorted(
                directory / path.name for path in found if path.suffix in (".yaml", ".yml", ".json")
            )
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be read")) from error


def assigned(pairs: Iterable[str]) -> Iterator[DataSource]:
    """The data of each ``--set KEY=VALUE``; raises ``UsageError``.

    A dot in KEY leads into mappings. VALUE means what it would mean in a data file (``8080`` is a number), but is not
    searched for expressions: it is final.
    """
    for pair in pairs:
        yield _assigned(pair)


def _assigned(pair: str) -> DataSource:
    key, equals, text = pair.partition("=")
    if not equals:
        # Without quoting it: it may be the second half of a password with a blank in it.
        raise UsageError("--set is given something without '='", expected="KEY=VALUE or KEY.KEY=VALUE")
    try:
        steps = parse_path(key) if key else ()
        value: Any = yaml_text.load(text, f"--set {key}")
    except HieraError as error:
        raise UsageError(problems=error.problems) from error
    if not steps:
        raise UsageError("--set begins with '='", expected="KEY=VALUE or KEY.KEY=VALUE")
    for step in reversed(steps):
        value = {str(step): value}
    return DataSource(Origin.COMMAND_LINE, f"--set {key}", value)


def read_trusted(path: Path) -> str:
    """The text of a data file of this host or site; raises ``ConfigurationError``, also when others may write it."""
    try:
        return read(trusted(path))
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be read", where=path)) from error


def read(path: Path) -> str:
    """The text of a data file; raises ``ConfigurationError``."""
    try:
        return read_limited(path, SIZE_LIMIT).decode("utf-8")
    except OSError as error:
        raise ConfigurationError(file_problem(error, "cannot be read", where=path)) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: is not UTF-8 text, at byte {error.start}") from None
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
