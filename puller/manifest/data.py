"""All data of a manifest as one mapping: its own document, the bundle's Hiera tree, and the sources from outside.

* Lowest to highest: the manifest, the tree, the sources in their order. Mappings merge deeply between them; anything
  else is replaced.
* Without a tree this is a plain dict. With one, a key is looked up when somebody asks for it, and then kept.
* What annotations of any source call sensitive is a secret here.
"""

import functools
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiera.errors import HieraError
from hiera.merge import merge_sources
from hiera.paths import MISSING
from hiera.secrets import hidden_at
from puller.data import Source, merged

if TYPE_CHECKING:
    from collections.abc import Callable

    from hiera.annotations import Annotations
    from hiera.tree.lookup import Tree

TREE = "hiera.yaml"


class BundleData:
    """Where the data of one manifest comes from on one host."""

    def __init__(self, own: Source, tree: "Tree | None", outside: tuple[Source, ...]) -> None:
        self.own = own
        self.tree = tree
        self.outside = outside

    @property
    def documents(self) -> tuple[Source, ...]:
        """All sources but the tree, lowest first."""
        return (self.own, *self.outside)

    @cached_property
    def annotations(self) -> "list[Annotations]":
        """What the comments of all documents say."""
        return [source.annotations for source in self.documents if source.annotations is not None]

    @cached_property
    def all(self) -> Mapping[str, Any]:
        """Everything: what expressions and templates see as ``data``."""
        data: Mapping[str, Any] = merged(self.documents) if self.tree is None else _WithTree(self, self.tree)
        if self.tree is None:
            for path in self.sensitive():
                data = hidden_at(data, path)
        return data

    def sensitive(self, root: object = None) -> Iterator[tuple[str | int, ...]]:
        """The paths of what is sensitive, all of them or those of one top-level key."""
        for annotations in self.annotations:
            yield from (path for path in annotations.sensitive if root is None or path[0] == root)

    def failures(self) -> list[str]:
        """What annotations find wrong; raises ``HieraError`` where the tree cannot answer."""
        return [failure for annotations in self.annotations for failure in annotations.failures(self.all)]

    def hiera(self, key: str, default: Any = MISSING, merge: Any = None) -> Any:
        """The function ``hiera`` of expressions and templates; see ``puller.manifest.lookup``."""
        from puller.manifest.lookup import look_up  # few manifests call it

        return look_up(self, key, default, merge)


class _WithTree(Mapping[str, Any]):
    """The documents with a tree between them."""

    def __init__(self, sources: BundleData, tree: "Tree") -> None:
        self._sources = sources
        self._tree = tree
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
        values: list[Any] = []
        for value in self._values(key):
            if values and not isinstance(value, Mapping):
                break
            values.append(value)
            if not isinstance(value, Mapping):
                break
        # From below, as plain sources are merged: in between, a mapping may have replaced what is no mapping.
        found = functools.reduce(merge_sources, reversed(values)) if values else MISSING
        for path in self._sources.sensitive(key):
            found = found if found is MISSING else hidden_at({key: found}, path)[key]
        return found

    def _values(self, key: Any) -> Iterator[Any]:
        """What the sources have, the highest first; only a mapping lets what is below it show through."""
        for source in reversed(self._sources.outside):
            if key in source.data:
                yield source.data[key]
        if (value := self._of_tree(key)) is not MISSING:
            yield value
        if key in self._sources.own.data:
            yield self._sources.own.data[key]

    def _of_tree(self, key: Any) -> Any:
        from hiera.tree.keys import literal
        from puller.manifest.lookup import ask_tree

        return ask_tree(self._tree, literal(key)) if isinstance(key, str) else MISSING


def known(data: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """What has been read of all data: of those with a tree, the keys that somebody has asked for."""
    return data.found if isinstance(data, _WithTree) else data


def open_tree(
    directory: Path, facts: Mapping[str, Any], private_key: str, warn: "Callable[[str], None]"
) -> "Tree | None":
    """The Hiera tree beside a manifest; ``None`` when there is none. Raises ``HieraError`` when it is not usable."""
    if not (directory / TREE).exists():
        return None
    from hiera.tree.lookup import Tree

    tree = Tree(facts, environment=str(directory), private_key=private_key, warn=warn)
    try:
        tree.verify()
    except HieraError as error:
        raise (error if error.where else error.at(TREE)) from None
    return tree
