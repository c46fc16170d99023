"""The facts that the bundles of a run read, for a preview of the fleet.

* Single values are recorded: ``os.family``, not ``os``. A mapping whose keys a bundle lists is recorded completely.
* Missing facts are recorded too, so that a reader can distinguish *the host lacks it* from *the host did not send it*.
* A recorded mapping is a ``dict``, so that expressions, templates and filters treat it as the original one.
* All facts together are never recorded, even if a bundle lists them.
"""

import copy
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any

Path = tuple[Any, ...]
"""The keys that lead to a fact: ``("os", "family")``."""


class FactReads:
    """The facts that were read, by path, in the order of the first access."""

    def __init__(self) -> None:
        self.values: dict[Path, Any] = {}
        """Values, and ``{}`` for mappings of which only some keys were read."""
        self.absent: dict[Path, None] = {}
        self.whole: dict[Path, None] = {}
        """Complete mappings in ``values``."""
        self.is_complete = False
        """Whether the manifests of all bundles were read."""
        self._mappings: dict[Path, RecordedMapping] = {}

    def read(self, path: Path, value: Any) -> Any:
        """Record an access, and return the value. A mapping records further accesses."""
        if not isinstance(value, dict):
            self.values[path] = value
            return value
        self.values.setdefault(path, {})
        mapping = self._mappings.get(path)
        if mapping is None:
            mapping = self._mappings[path] = RecordedMapping(value, self, path)
        return mapping

    def miss(self, path: Path) -> None:
        """Record an access to a missing fact."""
        self.absent[path] = None

    def list_keys(self, path: Path, value: dict[Any, Any]) -> None:
        """Record that all keys of a mapping were read."""
        self.whole[path] = None
        self.values[path] = value


class RecordedMapping(dict[Any, Any]):
    """A mapping in the facts that records each access to it."""

    unlisted = True
    """A template reads only the names that it uses."""

    def __init__(self, values: dict[Any, Any], reads: FactReads, path: Path) -> None:
        super().__init__(values)
        self._plain, self._reads, self._path = values, reads, path

    def __getitem__(self, key: Any) -> Any:
        path = (*self._path, key)
        if not super().__contains__(key):
            self._reads.miss(path)
            raise KeyError(key)
        return self._reads.read(path, super().__getitem__(key))

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        try:
            self[key]
        except KeyError:
            return False
        return True

    def _list(self) -> dict[Any, Any]:
        self._reads.list_keys(self._path, self._plain)
        return self._plain

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list())

    def __reversed__(self) -> Iterator[Any]:
        yield from reversed(self._list())

    def __len__(self) -> int:
        return len(self._list())

    def keys(self) -> KeysView[Any]:  # type: ignore[override]  # the views of the plain mapping
        return self._list().keys()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return self._list().values()

    def items(self) -> ItemsView[Any, Any]:  # type: ignore[override]
        return self._list().items()

    def __eq__(self, other: object) -> bool:
        return self._list() == other

    def __ne__(self, other: object) -> bool:
        return self._list() != other

    __hash__ = None  # as every dict

    def __or__(self, other: Any) -> Any:
        return self._list() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._list()

    def __repr__(self) -> str:
        return repr(self._list())

    def copy(self) -> dict[Any, Any]:
        return self._list().copy()

    def __copy__(self) -> dict[Any, Any]:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return copy.deepcopy(self._list(), memo)
