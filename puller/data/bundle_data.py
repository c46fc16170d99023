"""All data of a manifest as one mapping: its own document, the bundle's Hiera tree, and the sources from outside.

* Lowest to highest: the bundle's libraries, the manifest, the tree, the sources in their order. Mappings merge deeply
  between them; anything else is replaced.
* A child manifest has the same tree and the same sources from outside. In between is what its parent gives it: the
  parent's own documents, right over the child's; or the data it is handed, right over the tree. Their lists are
  appended to those below.
* Without a tree this is a plain dict. With one, a key is looked up when somebody asks for it, and then kept.
* What annotations of any source call sensitive is a secret here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from foundation.problems import Problem
from hiera.errors import HieraError
from hiera.values.paths import MISSING
from hiera.values.secrets import hidden_at
from puller.data.hiera_tree import TREE, ask_tree
from puller.data.sources import DataSource, Origin, merged

if TYPE_CHECKING:
    from hiera.document.annotations import Annotations
    from hiera.tree.lookup import Tree


class BundleData:
    """Where the data of one manifest comes from on one host."""

    def __init__(
        self,
        own: DataSource,
        tree: "Tree | None",
        outside: tuple[DataSource, ...],
        *,
        parent: "BundleData | None" = None,
        handed: DataSource | None = None,
        libraries: tuple[DataSource, ...] = (),
    ) -> None:
        """``handed`` is what a child is given instead of its parent's documents."""
        self.libraries = libraries
        self.own = own
        self.tree = tree
        self.outside = outside
        self.parent = parent
        self.inherited: tuple[DataSource, ...] = ()
        self.handed: tuple[DataSource, ...] = () if handed is None else (handed,)
        if parent is not None and handed is None:
            self.inherited = tuple(
                msgspec.structs.replace(source, origin=Origin.PARENT, joins_lists=True)
                for source in (parent.own, *parent.inherited)
            )
            self.handed = parent.handed

    def of_child(self, own: DataSource, handed: DataSource | None) -> "BundleData":
        """The data of a child manifest with a document of its own."""
        return BundleData(own, self.tree, self.outside, parent=self, handed=handed)

    def over(self, own: DataSource, libraries: tuple[DataSource, ...] = ()) -> "BundleData":
        """A copy with another document at the bottom, and the data of libraries below that."""
        handed = self.handed[0] if self.handed and not self.inherited else None
        return BundleData(
            own, self.tree, self.outside, parent=self.parent, handed=handed, libraries=libraries
        )

    def is_as(self, other: "BundleData") -> bool:
        """Whether the same comes of both: of the same data from each source, and the same of it sensitive."""
        from puller.values.identical import identical  # few manifests say anything twice

        return (
            self.tree is other.tree
            and identical(_data_of(self.below), _data_of(other.below))
            and identical(_data_of(self.above), _data_of(other.above))
            and set(self.sensitive()) == set(other.sensitive())
        )

    def differing(self, other: "BundleData") -> list[str]:
        """The top-level keys of documents that are not the same in both."""
        from puller.values.identical import identical

        ours, theirs = merged(self.documents), merged(other.documents)
        keys = dict.fromkeys([*ours, *theirs])
        return [str(key) for key in keys if not identical(ours.get(key, MISSING), theirs.get(key, MISSING))]

    @property
    def below(self) -> tuple[DataSource, ...]:
        """The sources under the tree, lowest first."""
        return (*self.libraries, self.own, *self.inherited)

    @property
    def above(self) -> tuple[DataSource, ...]:
        """The sources over the tree, lowest first."""
        return (*self.handed, *self.outside)

    @property
    def documents(self) -> tuple[DataSource, ...]:
        """All sources but the tree, lowest first."""
        return (*self.below, *self.above)

    @cached_property
    def annotations(self) -> "list[Annotations]":
        """The annotations in its documents; those that a parent has, too, are the parent's to check."""
        documents = (self.own,) if self.parent is not None else self.documents
        return [source.annotations for source in documents if source.annotations is not None]

    @cached_property
    def all(self) -> Mapping[str, Any]:
        """Everything: what expressions and templates see as ``data``."""
        data: Mapping[str, Any] = merged(self.documents) if self.tree is None else _WithTree(self, self.tree)
        if self.tree is None:
            for path in self.sensitive():
                data = hidden_at(data, path)
        return data

    def is_replaced(self, path: Sequence[object]) -> bool:
        """Whether nothing below these sources is seen at a path; not where a value above may be merged with it."""
        # A parent's lists are appended to the child's, so there a list hides nothing either.
        merging = (Mapping, list) if self.inherited or self.handed else (Mapping,)
        value: Any = self.all
        try:
            for key in path:
                if not isinstance(value, Mapping):
                    break
                value = value[key]
        except (KeyError, HieraError):  # what is wrong with a tree is told when it is asked in earnest
            return False
        return not isinstance(value, merging)

    def sensitive(self, root: object = None) -> Iterator[tuple[str | int, ...]]:
        """The paths of what is sensitive, all of them or those of one top-level key."""
        for annotations in self._all_annotations():
            yield from (path for path in annotations.sensitive if root is None or path[0] == root)

    def _all_annotations(self) -> "Iterator[Annotations]":
        """Also those of every manifest above: what they call sensitive is no less so in a child."""
        yield from self.annotations
        if self.parent is not None:
            yield from self.parent._all_annotations()

    def failures(self) -> list[Problem]:
        """All problems that annotations find; raises ``HieraError`` where the tree cannot answer."""
        return [failure for annotations in self.annotations for failure in annotations.failures(self.all)]


def _data_of(sources: Iterable[DataSource]) -> list[Mapping[str, Any]]:
    return [source.data for source in sources if source.data]


class _WithTree(Mapping[str, Any]):
    """The documents with a tree between them."""

    def __init__(self, sources: BundleData, tree: "Tree") -> None:
        self._sources = sources
        self._tree = tree
        # Kept, so that a key is the same for all resources of a run, and a tree is asked once.
        self._found: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        if key not in self._found:
            self._found[key] = self._find(key)
        if self._found[key] is MISSING:
            raise KeyError(key)
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        """Raises ``HieraError`` when the keys of the tree cannot be told."""
        documents = (key for source in self._sources.documents for key in source.data)
        return iter(dict.fromkeys([*self._tree.holders(), *documents]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """Without this, a mere ``if data`` would read all files of the tree."""
        return True

    @property
    def found(self) -> Mapping[Any, Any]:
        """What somebody has asked for, and ``MISSING`` for what is not there."""
        return self._found

    def _find(self, key: Any) -> Any:
        values: list[DataSource] = []
        for source in self._holding(key):
            values.append(source)
            if not source.shows_below(key):
                break
        # From below, as plain sources are merged: in between, a mapping may have replaced what is no mapping.
        found = merged(reversed(values))[key] if values else MISSING
        for path in self._sources.sensitive(key):
            found = found if found is MISSING else hidden_at({key: found}, path)[key]
        return found

    def _holding(self, key: Any) -> Iterator[DataSource]:
        """What the sources have for a key, the highest first, as sources with this key alone."""
        yield from _with_key(self._sources.above, key)
        if (value := self._of_tree(key)) is not MISSING:
            yield DataSource(Origin.MANIFEST, TREE, {key: value})
        yield from _with_key(self._sources.below, key)

    def _of_tree(self, key: Any) -> Any:
        from hiera.tree.context.keys import literal

        # Here a key is one key, whatever dots are in it; only the function ``hiera`` digs.
        return ask_tree(self._tree, literal(key)) if isinstance(key, str) else MISSING


def _with_key(sources: tuple[DataSource, ...], key: Any) -> Iterator[DataSource]:
    for source in reversed(sources):
        if key in source.data:
            yield msgspec.structs.replace(source, data={key: source.data[key]})


def known(data: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """The part of all data that has been read: of data with a tree, the keys that somebody has asked for."""
    return data.found if isinstance(data, _WithTree) else data
