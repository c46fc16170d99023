"""The machines of a preview: their names and facts, from files or another source.

* The name of a machine is its fact ``networking.fqdn``, or else the name of its file, or its key in a file of several.
* Names are unique. Two files with the same name are an error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from foundation.problems import ProblemCode
from puller.errors import UsageError, reason
from puller.facts import documents
from puller.facts.fact_tree import described
from puller.facts.fact_values import FactError

_ENDINGS = (".json", ".yaml", ".yml")


class Machine(msgspec.Struct, frozen=True):
    """One machine of a fleet."""

    name: str
    facts: Mapping[str, Any]
    is_partial: bool = False
    """Whether the machine may have further facts, so that a missing fact is unknown."""


class Machines(Protocol):
    """A fleet as an iterable of machines."""

    def __iter__(self) -> Iterator[Machine]:
        """Yield each machine once. Raises ``UsageError`` if its facts cannot be read."""


class FactFiles:
    """The machines in files and directories. A file has one machine, or a mapping from names to facts."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)

    def __iter__(self) -> Iterator[Machine]:
        seen: dict[str, Path] = {}
        for path in self._files():
            for machine in _machines_of(path):
                if (first := seen.setdefault(machine.name, path)) is not path:
                    raise UsageError(f"{path}: is the machine {machine.name}, which {first} is, too")
                yield machine

    def _files(self) -> Iterator[Path]:
        for path in self._paths:
            yield from _files_in(path) if path.is_dir() else (path,)


class Several:
    """Several fleets as one. Names are unique among all of them."""

    def __init__(self, fleets: Iterable[Machines]) -> None:
        self._fleets = tuple(fleets)

    def __iter__(self) -> Iterator[Machine]:
        seen: set[str] = set()
        for fleet in self._fleets:
            for machine in fleet:
                if machine.name in seen:
                    raise UsageError(f"the machine {machine.name} is given twice")
                seen.add(machine.name)
                yield machine


def _files_in(directory: Path) -> Sequence[Path]:
    try:
        found = sorted(path for path in directory.iterdir() if path.suffix.lower() in _ENDINGS)
    except OSError as error:
        raise UsageError(
            f"{directory}: cannot be read: {reason(error)}", code=ProblemCode.UNREADABLE_SOURCE
        ) from error
    if not found:
        raise UsageError(
            f"{directory}: holds no facts",
            code=ProblemCode.UNREADABLE_SOURCE,
            expected="files such as web01.json or web01.yaml",
        )
    return found


def _machines_of(path: Path) -> Iterator[Machine]:
    facts = _read(path)
    if not facts:
        raise UsageError(f"{path}: holds no facts", code=ProblemCode.UNREADABLE_SOURCE)
    if _is_of_several(facts):
        if broken := next((name for name, of in facts.items() if not isinstance(of, Mapping)), None):
            raise UsageError(f"{path}: {broken}: is {facts[broken]!r}", expected="the facts of a machine")
        names = [_name_of(of, name) for name, of in facts.items()]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"{path}: holds the machine {twice} twice")
        yield from (Machine(name, described(of)) for name, of in zip(names, facts.values(), strict=True))
    else:
        yield Machine(_name_of(facts, path.stem), described(facts))


def _read(path: Path) -> dict[str, Any]:
    try:
        return documents.read(str(path))
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read: {reason(error)}", code=ProblemCode.UNREADABLE_SOURCE
        ) from error
    except FactError as error:
        raise UsageError(problems=error.problems) from error


def _is_of_several(facts: Mapping[str, Any]) -> bool:
    """Return whether a mapping contains several machines: its values, not its keys, have the names of usual facts."""
    return not any(map(facts.__contains__, _USUAL)) and any(
        isinstance(of, Mapping) and any(map(of.__contains__, _USUAL)) for of in facts.values()
    )


_USUAL = ("os", "networking", "kernel", "memory")


def _name_of(facts: Mapping[str, Any], otherwise: str) -> str:
    networking = facts.get("networking")
    name = networking.get("fqdn") if isinstance(networking, Mapping) else None
    return name if isinstance(name, str) and name else otherwise
