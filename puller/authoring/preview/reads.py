"""The part of a machine's facts that a resolution has looked at, as a question that other machines can be asked.

* All that a resolution learns of facts goes through ``Watched``: it is no dict, so nothing gets at what is in it but
  by asking, and each answer is noted: a value, that there is none, the names in a mapping and their order.
* Two machines of which all questions have the same answers cannot be told apart by what has asked them.
* Answers are compared by their ``repr``: 1, 1.0, true and "1" are four answers.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

_ABSENT = "absent"
_MAPPING = "mapping"


class Read(msgspec.Struct, frozen=True, order=True):
    """One question: what is at a path, or which names are there."""

    path: tuple[Any, ...]
    is_names: bool = False

    def answer(self, facts: Mapping[str, Any]) -> str:
        """The answer of a machine with these facts."""
        value: Any = facts
        for key in self.path:
            if not isinstance(value, Mapping) or key not in value:
                return _ABSENT
            value = value[key]
        if isinstance(value, Mapping):
            return repr([*value]) if self.is_names else _MAPPING
        return f"={value!r}"


class Reads:
    """The questions of one resolution, each once, in the order in which they were asked first."""

    def __init__(self) -> None:
        self._asked: dict[Read, None] = {}

    def note(self, path: tuple[Any, ...], *, is_names: bool = False) -> None:
        """A question was asked."""
        self._asked[Read(path, is_names)] = None

    def questions(self) -> tuple[Read, ...]:
        """All questions so far."""
        return tuple(self._asked)


def answers(reads: Iterable[Read], facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The answers of a machine to all of these."""
    return tuple(read.answer(facts) for read in reads)


def missing(reads: Iterable[Read], facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted names of the facts that were asked for, and that a machine does not have."""
    for read in reads:
        if read.path and not read.is_names and read.answer(facts) == _ABSENT:
            # The beginning is named where all of a group is missing, because nobody could ask any further.
            yield ".".join(map(str, read.path))


class Watched(Mapping[Any, Any]):
    """Facts, or a mapping in them, that note what is asked of them. Lists are asked for as a whole."""

    unlisted = True
    """A template is given what it asks for, name by name."""

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
        # Whoever appends to a list must not change what the machine's answer is compared with.
        return copy.deepcopy(value) if isinstance(value, list) else value

    def __iter__(self) -> Iterator[Any]:
        self._reads.note(self._path, is_names=True)
        return iter(self._values)

    def __len__(self) -> int:
        self._reads.note(self._path, is_names=True)
        return len(self._values)

    def __deepcopy__(self, memo: object) -> dict[Any, Any]:
        # A copy of this would note what is asked where nobody looks.
        return self._plain()

    def __copy__(self) -> dict[Any, Any]:
        return self._plain()

    def __repr__(self) -> str:
        return repr(self._plain())

    def _plain(self) -> dict[Any, Any]:
        """All of it, every value asked for."""
        found = {key: self[key] for key in self}
        return {key: value._plain() if isinstance(value, Watched) else value for key, value in found.items()}
