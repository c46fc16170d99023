"""All data of a manifest as one mapping, in which expressions in data are resolved.

* Lowest to highest: the bundle's libraries, the manifest, the tree, the sources in their order. Mappings merge deeply
  between them. Other values are replaced.
* A child manifest has the same tree and the same sources from outside. Its parent adds a source: by default the
  parent's own documents, directly above the child's document. If ``apply`` passes data, these replace them, directly
  above the tree. Lists of the parent are appended to lists of lower sources.
* Without a tree the result is a plain dict. With a tree, a key is looked up at the first request, and then kept. Values
  of the tree are final.
* Expressions in documents are evaluated when all sources are known, over the data of all sources together: ``url`` of
  a bundle follows ``version`` of the host. Keys are resolved on demand, each text once. A cycle is an error that shows
  the chain of keys.
* A value that a higher source replaces has no influence: it is not an error if it cannot be resolved.
* A value of this host that needs data of another bundle is an error only for its readers.
* Values that an annotation of any source marks as sensitive are secrets.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from foundation.problems import NOWHERE, DependsOn, Location, Problem
from hiera.document.document import Chosen
from hiera.document.layers import Layer, LayeredMapping, LayerSource, Path, Resolver
from hiera.errors import ExpressionError, HieraError, LimitError
from hiera.expressions.expressions import Scope, resolve
from hiera.limits import total
from hiera.values import MISSING, hidden_at
from puller.data.sources import TREE, DataSource, Origin, Surroundings, ask_tree, merged
from puller.values.plain_values import identical

if TYPE_CHECKING:
    from hiera.document.annotations import Annotations
    from hiera.tree.explain import Step
    from hiera.tree.lookup import Tree


class Everything:
    """The data that expressions use during the evaluation."""

    def __init__(
        self,
        below: tuple[DataSource, ...],
        above: tuple[DataSource, ...],
        sensitive: frozenset[Path],
        here: Surroundings,
        tree: Mapping[Any, Any] | None,
    ) -> None:
        """``below`` and ``above`` are the sources under and over the ``tree``, lowest first."""
        self._resolver = Resolver(sensitive)
        under = [layer for source in below for layer in _layers_of(source)]
        over = [layer for source in above for layer in _layers_of(source)]
        between = [] if tree is None else [Layer(tree, (), LayerSource(_nowhere), final=True)]
        self.data = LayeredMapping([*under, *between, *over], self._resolver)
        scope = Scope(here.facts, self.data, here.environ)
        self._resolver.resolve_text = lambda text: resolve(text, scope)

    def evaluate(self, key: Any) -> None:
        """Resolve all values below a top-level key. Raise ``HieraError``."""
        value = self.data[key]
        if isinstance(value, LayeredMapping):
            value.own()

    def resolved(self, source: DataSource, chosen: Chosen) -> DataSource:
        """Return a source with its own values. Unresolved values are replaced and recorded."""
        # Without a value in progress: this source may have another value than all sources together.
        resolver = Resolver()
        resolver.known, resolver.resolve_text = self._resolver.known, self._resolver.resolve_text
        unresolved: dict[object, str] = {}

        def note(path: Path, error: HieraError) -> bool:
            unresolved[path[0]] = str(error)
            return True

        resolved = chosen.of_layered(LayeredMapping(chosen.layers, resolver), resolver, note)
        return msgspec.structs.replace(
            source,
            data=resolved.data,
            explanation=resolved.explanation,
            unresolved=unresolved,
            is_open=False,
        )


def evaluate(
    everything: Everything, sources: tuple[DataSource, ...], is_optional: Callable[[Any], bool]
) -> tuple[tuple[DataSource, ...], dict[Any, HieraError]]:
    """Return ``sources`` with resolved values, and the errors of unresolved top-level keys.

    Only keys that are ``is_optional`` may be unresolved. Raise ``HieraError`` for others.
    """
    failed: dict[Any, HieraError] = {}
    with total:
        try:
            for key in dict.fromkeys(key for source in sources for key in _derived_keys(source)):
                try:
                    everything.evaluate(key)
                except HieraError as error:
                    if not is_optional(key):
                        raise
                    failed[key] = error
            resolved = tuple(
                everything.resolved(source, source.chosen) if source.is_open and source.chosen else source
                for source in sources
            )
        except RecursionError:
            raise LimitError("data", "the chain of references between values is too long") from None
    return resolved, failed


def _derived_keys(source: DataSource) -> list[Any]:
    return source.chosen.derived_keys if source.is_open and source.chosen else []


def _layers_of(source: DataSource) -> list[Layer]:
    if source.is_open and source.chosen:
        return list(source.chosen.layers)
    return [Layer(source.data, (), LayerSource(_nowhere, joins_lists=source.joins_lists), final=True)]


def _nowhere(path: Path) -> Location:
    """Return an empty place: values of these layers are final, so errors never refer to them."""
    return NOWHERE


class BundleData:
    """The sources of the data of one manifest on one host."""

    def __init__(
        self,
        own: DataSource,
        tree: "Tree | None",
        outside: tuple[DataSource, ...],
        *,
        parent: "BundleData | None" = None,
        handed: DataSource | None = None,
        libraries: tuple[DataSource, ...] = (),
        here: Surroundings | None = None,
    ) -> None:
        """``handed`` are the data that a child gets instead of its parent's documents.

        ``here`` has the facts and environment for expressions in documents. Without it, documents must not have
        expressions. Raise ``HieraError`` for an expression that cannot be resolved and whose value is not replaced.
        """
        self.libraries = self.written_libraries = libraries
        """The data of libraries. Child manifests, whose data differ, need the unresolved originals."""
        self.own = own
        self.tree = tree
        self.outside = self.written_outside = outside
        self.parent = parent
        self.here = Surroundings({}, {}) if here is None else here
        self.inherited: tuple[DataSource, ...] = ()
        self.handed: tuple[DataSource, ...] = () if handed is None else (handed,)
        if parent is not None and handed is None:
            self.inherited = tuple(
                msgspec.structs.replace(source, origin=Origin.PARENT, joins_lists=True)
                for source in (parent.own, *parent.inherited)
            )
            self.handed = parent.handed
        self.failed: Mapping[Any, HieraError] = {}
        """Top-level keys of this host that cannot be resolved with the data of this manifest, with the errors."""
        if here is not None and any(source.is_open for source in self.documents):
            self._evaluate()

    def of_child(self, own: DataSource, handed: DataSource | None) -> "BundleData":
        """Return the data of a child manifest before its own document is read."""
        return BundleData(own, self.tree, self.written_outside, parent=self, handed=handed)

    def over(
        self, own: DataSource, libraries: tuple[DataSource, ...] = (), here: Surroundings | None = None
    ) -> "BundleData":
        """Return a copy with another document at the bottom, and the data of libraries below it.

        Raise ``HieraError`` like the class.
        """
        handed = self.handed[0] if self.handed and not self.inherited else None
        return BundleData(
            own,
            self.tree,
            self.written_outside,
            parent=self.parent,
            handed=handed,
            libraries=libraries,
            here=here,
        )

    def _evaluate(self) -> None:
        within = [*self.below, *self.handed]

        def is_optional(key: Any) -> bool:
            return not any(key in _keys_of(source) for source in within) and key not in self.tree_keys

        sources = (*self.libraries, self.own, *self.outside)
        resolved, self.failed = evaluate(self._everything, sources, is_optional)
        count = len(self.libraries)
        self.libraries, self.own, self.outside = resolved[:count], resolved[count], resolved[count + 1 :]

    @cached_property
    def _everything(self) -> Everything:
        """All data during the evaluation of expressions in documents or the tree."""
        tree = None if self.tree is None else self.tree_keys
        return Everything(self.below, self.above, frozenset(self.sensitive()), self.here, tree)

    @cached_property
    def tree_keys(self) -> "_OfTree":
        """The keys of the tree."""
        return _OfTree(self)

    def ask(self, name: str, merge: Any = None, step: "Step | None" = None) -> Any:
        """Return the tree's value of a key, or ``MISSING``. Raise ``HieraError``.

        ``%{lookup('…')}`` in the value uses the data of all sources.
        """
        if self.tree is None:
            return MISSING
        return ask_tree(self.tree, name, merge, step, self.of_documents if self._documents_keys else None)

    @cached_property
    def _documents_keys(self) -> frozenset[Any]:
        return frozenset(key for source in self.documents for key in _keys_of(source))

    def of_documents(self, root: str) -> Any:
        """Return the value of a top-level key of a document, merged with the tree. ``MISSING`` for other keys."""
        return self._everything.data[root] if root in self._documents_keys else MISSING

    def is_as(self, other: "BundleData") -> bool:
        """Return whether both have the same data in each source, with the same sensitive parts."""
        return (
            self.tree is other.tree
            and identical(_data_of(self.below), _data_of(other.below))
            and identical(_data_of(self.above), _data_of(other.above))
            and set(self.sensitive()) == set(other.sensitive())
        )

    def differing(self, other: "BundleData") -> list[str]:
        """Return the top-level keys of documents that differ."""
        ours, theirs = merged(self.documents), merged(other.documents)
        keys = dict.fromkeys([*ours, *theirs])
        return [str(key) for key in keys if not identical(ours.get(key, MISSING), theirs.get(key, MISSING))]

    @property
    def below(self) -> tuple[DataSource, ...]:
        """The sources below the tree, lowest first."""
        return (*self.libraries, self.own, *self.inherited)

    @property
    def above(self) -> tuple[DataSource, ...]:
        """The sources above the tree, lowest first."""
        return (*self.handed, *self.outside)

    @property
    def documents(self) -> tuple[DataSource, ...]:
        """All sources except the tree, lowest first."""
        return (*self.below, *self.above)

    @cached_property
    def annotations(self) -> "list[Annotations]":
        """The annotations in its documents, without those that its parent checks."""
        documents = (self.own,) if self.parent is not None else self.documents
        return [source.annotations for source in documents if source.annotations is not None]

    @cached_property
    def all(self) -> Mapping[str, Any]:
        """All data, available to expressions and templates as ``data``."""
        if self.tree is not None:
            return _WithTree(self, self.tree)
        data: Mapping[str, Any] = merged(self.documents)
        for path in self.sensitive():
            data = hidden_at(data, path)
        return _WithFailed(data, self.failed) if self.failed else data

    def sensitive(self, root: object = None) -> Iterator[tuple[str | int, ...]]:
        """Yield the paths of sensitive values, all of them or those of one top-level key."""
        for annotations in self._all_annotations():
            yield from (path for path in annotations.sensitive if root is None or path[0] == root)

    def _all_annotations(self) -> "Iterator[Annotations]":
        """Yield the annotations of this manifest and of all manifests above, which stay sensitive in a child."""
        yield from self.annotations
        if self.parent is not None:
            yield from self.parent._all_annotations()

    def failures(self) -> list[Problem]:
        """Return all problems that annotations find. Raise ``HieraError`` if a lookup in the tree fails."""
        return [failure for annotations in self.annotations for failure in annotations.failures(self.all)]


def _keys_of(source: DataSource) -> Iterator[Any]:
    """Yield the top-level keys of a source, also of unresolved values."""
    if source.is_open and source.chosen:
        for layer in source.chosen.layers:
            yield from layer.values
    else:
        yield from source.data


def _data_of(sources: Iterable[DataSource]) -> list[Mapping[str, Any]]:
    return [source.data for source in sources if source.data]


class _OfTree(Mapping[Any, Any]):
    """The keys of a tree. Each is looked up once, when it is first read."""

    def __init__(self, data: BundleData) -> None:
        self._data = data
        self._known: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        from hiera.tree.explain import literal  # 0.6 % of an idle apply, and few manifests have a tree

        if not isinstance(key, str):
            raise KeyError(key)
        if key not in self._known:
            # Dots are part of the key here. Only the function ``hiera`` digs.
            self._known[key] = self._data.ask(literal(key))
        if self._known[key] is MISSING:
            raise KeyError(key)
        return self._known[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._data.tree.holders() if self._data.tree else ())

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _WithFailed(Mapping[Any, Any]):
    """Data with keys of this host that cannot be resolved. Reading such a key raises its error."""

    def __init__(self, data: Mapping[Any, Any], failed: Mapping[Any, HieraError]) -> None:
        self.known = data
        self._failed = failed

    def __getitem__(self, key: Any) -> Any:
        if key in self._failed:
            raise _failure(self._failed[key])
        return self.known[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(dict.fromkeys([*self.known, *self._failed]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _failure(error: HieraError) -> HieraError:
    """Return a new error for each reader, because readers add their own places."""
    return ExpressionError("", str(error)).depending(DependsOn.DATA)


class _WithTree(Mapping[str, Any]):
    """The documents with a tree between them."""

    def __init__(self, sources: BundleData, tree: "Tree") -> None:
        self._sources = sources
        self._tree = tree
        # Cached, so that all resources of a run get the same value, with one lookup in the tree.
        self._found: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        if key not in self._found:
            self._found[key] = self._find(key)
        if self._found[key] is MISSING:
            raise KeyError(key)
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over all keys. Raise ``HieraError`` if the keys of the tree cannot be determined."""
        documents = (key for source in self._sources.documents for key in source.data)
        return iter(dict.fromkeys([*self._tree.holders(), *documents]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """Return ``True``, because the default for ``if data`` would read all files of the tree."""
        return True

    @property
    def found(self) -> Mapping[Any, Any]:
        """Values that were requested so far. ``MISSING`` for missing keys."""
        return self._found

    def _find(self, key: Any) -> Any:
        if key in self._sources.failed:
            raise _failure(self._sources.failed[key])
        values: list[DataSource] = []
        for source in self._holding(key):
            values.append(source)
            if not source.shows_below(key):
                break
        # From below, like plain sources: a mapping between them may have replaced a scalar.
        result = merged(reversed(values))[key] if values else MISSING
        for path in self._sources.sensitive(key):
            result = result if result is MISSING else hidden_at({key: result}, path)[key]
        return result

    def _holding(self, key: Any) -> Iterator[DataSource]:
        """Yield the values of the sources for a key, the highest first, as sources with only this key."""
        yield from _with_key(self._sources.above, key)
        if key in self._sources.tree_keys:
            yield DataSource(Origin.MANIFEST, TREE, {key: self._sources.tree_keys[key]})
        yield from _with_key(self._sources.below, key)


def _with_key(sources: tuple[DataSource, ...], key: Any) -> Iterator[DataSource]:
    for source in reversed(sources):
        if key in source.data:
            yield msgspec.structs.replace(source, data={key: source.data[key]})


def known(data: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the part of all data that has been read: with a tree, the requested keys."""
    if isinstance(data, _WithTree):
        return data.found
    return data.known if isinstance(data, _WithFailed) else data
