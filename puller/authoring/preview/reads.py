"""The facts that a resolution has read, as questions that can be compared between machines.

* A resolution reads facts only through ``Watched``. It is not a dict, so every access is recorded: a value, a missing
  value, or the names in a mapping and their order.
* Machines with equal answers to all questions have equal outcomes.
* Answers are compared by their ``repr``: 1, 1.0, true and "1" are four answers.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

_ABSENT = "absent"
_MAPPING = "mapping"


class Read(msgspec.Struct, frozen=True, order=True):
    """One question: the value at a path, or the names in it."""

    path: tuple[Any, ...]
    is_names: bool = False

    def answer(self, facts: Mapping[str, Any]) -> str:
        """Return the answer of a machine with these facts."""
        value: Any = facts
        for key in self.path:
            if not isinstance(value, Mapping) or key not in value:
                return _ABSENT
            value = value[key]
        if isinstance(value, Mapping):
            return repr([*value]) if self.is_names else _MAPPING
        return f"={value!r}"


class Reads:
    """The questions of one resolution, without duplicates, in order."""

    def __init__(self) -> None:
        self._asked: dict[Read, None] = {}

    def note(self, path: tuple[Any, ...], *, is_names: bool = False) -> None:
        """Record a question."""
        self._asked[Read(path, is_names)] = None

    def questions(self) -> tuple[Read, ...]:
        """Return all questions so far."""
        return tuple(self._asked)


def answers(reads: Iterable[Read], facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the answers of a machine to all questions."""
    return tuple(read.answer(facts) for read in reads)


def missing(reads: Iterable[Read], facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted names of the facts that were read but that a machine lacks."""
    for read in reads:
        if read.path and not read.is_names and read.answer(facts) == _ABSENT:
            # If a whole group is missing, the resolution could read only its name.
            yield ".".join(map(str, read.path))


class Watched(Mapping[Any, Any]):
    """Facts, or a mapping in them, that record every access. Lists are read as a whole."""

    unlisted = True
    """A template reads only the names that it uses."""

    def __init__(self, values: Mapping[Any, Any], reads: Reads, path: tuple[Any, ...] = ()) -> None:
        self._values = values
        self._reads = reads
        self._path = path

    def __getitem__(self, key: Any) -> Any:
        path = (*self._path, key)
        self._reads.note(path)
        value = self._values[key]
        if isinstance(value, Mapping):
            return Watched(value, self._reads, path)
        # Callers may append to a list, which must not change the recorded answer.
        return copy.deepcopy(value) if isinstance(value, list) else value

    def __iter__(self) -> Iterator[Any]:
        self._reads.note(self._path, is_names=True)
        return iter(self._values)

    def __len__(self) -> int:
        self._reads.note(self._path, is_names=True)
        return len(self._values)

    def __deepcopy__(self, memo: object) -> dict[Any, Any]:
        # A copy of this object would record accesses that belong to no resolution.
        return self._plain()

    def __copy__(self) -> dict[Any, Any]:
        return self._plain()

    def __repr__(self) -> str:
        return repr(self._plain())

    def _plain(self) -> dict[Any, Any]:
        """Return all values as a dict, and record all of them as read."""
        found = {key: self[key] for key in self}
        return {key: value._plain() if isinstance(value, Watched) else value for key, value in found.items()}
