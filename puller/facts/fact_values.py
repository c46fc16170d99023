"""Values of facts: their types and errors, and the record of the values that bundles read.

Fact values, the errors of fact sources, and the time limit for slow sources.

* A value is a mapping, list, text, number, boolean or ``None``. A missing fact is omitted. It never has an empty
  placeholder.
* Mappings are merged deeply. Any other value replaces the earlier one, so a later source can also remove values.
* A source that fails never stops the collection of facts. The fact is omitted, and ``Facts.problems`` contains the
  error. An expression that reads a failed fact of a bundle fails with this error (``bundled.py``).

The facts that the bundles of a run read, for a preview of the fleet.

* Single values are recorded: ``os.family``, not ``os``. A mapping whose keys a bundle lists is recorded completely.
* Missing facts are recorded too, so that a reader can distinguish *the host lacks it* from *the host did not send it*.
* A recorded mapping is a ``dict``, so that expressions, templates and filters treat it as the original one.
* All facts together are never recorded, even if a bundle lists them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any

from bundles.deadline import Deadline, DeadlineError, aside
from foundation.formatting import text_of
from foundation.problems import Location, Problem, ProblemCode
from puller.system import processes

ABSENT: Any = object()
"""A missing fact. ``None`` is a valid value of a custom fact."""


def present(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts without ``None``, which marks missing facts of a built-in source."""
    return {name: value for name, value in facts.items() if value is not None}


def merged(lower: Any, upper: Any) -> Any:
    """Return ``upper`` merged over ``lower``. Both stay unchanged."""
    if not isinstance(lower, dict) or not isinstance(upper, dict):
        return lower if upper is ABSENT else upper
    result = dict(lower)
    for name, value in upper.items():
        result[name] = merged(result.get(name, ABSENT), value)
    return result


def find(facts: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value at a path of names, or ``ABSENT``."""
    value: Any = facts
    for name in path:
        try:
            value = value[name]
        except (KeyError, TypeError, IndexError):
            return ABSENT
    return value


def nested(path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a tree that contains only ``value``, at ``path``."""
    for name in reversed(path):
        value = {name: value}
    result: dict[str, Any] = value
    return result


class FactError(Exception):
    """A fact source that failed. ``str()`` formats its problem: *where: what*."""

    def __init__(self, where: str, what: str, *, is_left_out: bool = False) -> None:
        """``is_left_out``: the fact exists on hosts, but was not gathered here."""
        super().__init__(where, what)
        self.where = where
        self.what = what
        self.is_left_out = is_left_out

    def __str__(self) -> str:
        return text_of(self.problems[0])

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problem as a value."""
        code = ProblemCode.UNDEFINED_FACT if self.is_left_out else ProblemCode.UNAVAILABLE_FACT
        return (Problem(code=code, message=self.what, location=Location(self.where)),)


# Time limit for sources that can hang, such as a dead file server or a silent name service. The source runs in a
# thread, since signals do not interrupt every system call. After the limit, its result is discarded and its thread
# ends with the process.

LIMIT = 5.0
"""Default time limit of a source, in seconds."""


def within(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function(*arguments)``, with its errors. Raises ``TimeoutError`` after ``seconds``."""
    try:
        return aside(lambda: function(*arguments), Deadline(seconds, processes.check))
    except DeadlineError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None


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
