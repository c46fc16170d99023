"""A preview of a fleet: machines with their names and facts, grouped by the changes of a new bundle.

* The name of a machine is its fact ``networking.fqdn``, or else the name of its file, or its key in a file of several.
  Names are unique. Two files with the same name are an error.
* Machines in a group have equal changes. In diffs only added and removed lines are compared, because context lines may
  name the machine. The diff of the group's first machine is shown.
* The largest group comes first. Unchanged machines are only counted and named.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from foundation.problems import ProblemCode
from puller.authoring.preview.differences import THE_BUNDLE, Change, Comparison, Outcome, compare
from puller.errors import UsageError, reason
from puller.facts import fact_values
from puller.facts.fact_tree import described
from puller.facts.fact_values import FactError
from puller.reporting.report import SentFacts

_ENDINGS = (".json", ".yaml", ".yml")


class Machine(msgspec.Struct, frozen=True):
    """One machine of a fleet."""

    name: str
    facts: Mapping[str, Any]
    sent: SentFacts | None = None
    """The limits of facts from a report: other facts of the machine are unknown. ``None``: all facts are known."""


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
                    raise UsageError(f"{path}: describes the machine {machine.name}, as {first} does")
                yield machine

    def _files(self) -> Iterator[Path]:
        for path in self._paths:
            yield from _files_in(path) if path.is_dir() else (path,)


class Several:
    """Several fleets as one. Names are unique among all of them."""

    def __init__(self, fleets: Iterable[Machines]) -> None:
        self._fleets = tuple(fleets)

    def __iter__(self) -> Iterator[Machine]:
        visited: set[str] = set()
        for fleet in self._fleets:
            for machine in fleet:
                if machine.name in visited:
                    raise UsageError(f"the machine {machine.name} is repeated")
                visited.add(machine.name)
                yield machine


def _files_in(directory: Path) -> Sequence[Path]:
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix.lower() in _ENDINGS)
    except OSError as error:
        raise UsageError(
            f"{directory}: cannot be read: {reason(error)}", code=ProblemCode.UNREADABLE_SOURCE
        ) from error
    if not paths:
        raise UsageError(
            f"{directory}: contains no facts",
            code=ProblemCode.UNREADABLE_SOURCE,
            expected="files such as web01.json or web01.yaml",
        )
    return paths


def _machines_of(path: Path) -> Iterator[Machine]:
    facts = _read(path)
    if not facts:
        raise UsageError(f"{path}: contains no facts", code=ProblemCode.UNREADABLE_SOURCE)
    if _is_of_several(facts):
        if broken := next((name for name, of in facts.items() if not isinstance(of, Mapping)), None):
            raise UsageError(f"{path}: {broken}: is {facts[broken]!r}", expected="the facts of a machine")
        names = [_name_of(of, name) for name, of in facts.items()]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"{path}: contains the machine {twice} twice")
        yield from (Machine(name, described(of)) for name, of in zip(names, facts.values(), strict=True))
    else:
        yield Machine(_name_of(facts, path.stem), described(facts))


def _read(path: Path) -> dict[str, Any]:
    try:
        return fact_values.read(str(path))
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


_MOST_KEPT = 1024
"""Maximum number of cached comparisons."""


Resolver = Callable[[Machine], Outcome]
"""Resolves one bundle for any machine."""


class Group(msgspec.Struct, frozen=True):
    """The machines with equal changes, in the given order."""

    comparison: Comparison
    machines: tuple[str, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.comparison.changes


class StillFailing(msgspec.Struct, frozen=True):
    """One failure that exists before and after, and its machines."""

    change: Change
    machines: tuple[str, ...]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """All changes of a new bundle on the given machines."""

    total: int
    groups: tuple[Group, ...]
    unchanged: tuple[str, ...] = ()
    """The machines without changes."""
    still_failing: tuple[StillFailing, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = {}
    """Facts that the bundle reads, and the machines that have not sent them."""
    notes: tuple[str, ...] = ()
    """Limits of the preview."""

    @property
    def incomplete(self) -> frozenset[str]:
        """The machines with a missing fact."""
        return frozenset(name for names in self.missing.values() for name in names)

    @property
    def changes(self) -> bool:
        """Whether any machine changes."""
        return bool(self.groups)

    @property
    def fails(self) -> bool:
        """Whether there are new failures, or the whole bundle is refused and could not be compared."""
        refused = any(found.change.reference == THE_BUNDLE for found in self.still_failing)
        return refused or any(group.comparison.fails for group in self.groups)


def preview(old: Resolver, new: Resolver, machines: Machines, notes: Iterable[str] = ()) -> Preview:
    """Return the changes from ``old`` to ``new`` on all of ``machines``."""
    grouping = _Grouping(old, new)
    for machine in machines:
        grouping.add(machine)
    return grouping.preview(tuple(notes))


class _Grouping:
    """The state of one ``preview`` call."""

    def __init__(self, old: Resolver, new: Resolver) -> None:
        self.old = old
        self.new = new
        self.total = 0
        self.unchanged: list[str] = []
        self.comparisons: dict[bytes, Comparison] = {}
        """Comparison of the first machine of each group."""
        self.groups: dict[bytes, list[str]] = {}
        self.failing: dict[Change, list[str]] = {}
        self.known: dict[tuple[int, int], tuple[Comparison, bytes, Outcome, Outcome]] = {}
        """Comparisons by the identities of both outcomes. The outcomes are stored too, so that the identities stay
        unique.
        """

    def add(self, machine: Machine) -> None:
        """Add one machine to its group."""
        self.total += 1
        comparison, key = self._compared(self.old(machine), self.new(machine))
        for change in comparison.still_failing:
            self.failing.setdefault(change, []).append(machine.name)
        if not comparison.changes:
            # If the bundle is refused before and after, the changes are unknown.
            if not comparison.is_refused:
                self.unchanged.append(machine.name)
            return
        self.comparisons.setdefault(key, comparison)
        self.groups.setdefault(key, []).append(machine.name)

    def _compared(self, old: Outcome, new: Outcome) -> tuple[Comparison, bytes]:
        sides = id(old), id(new)
        if sides not in self.known:
            if len(self.known) >= _MOST_KEPT:
                self.known.clear()
            comparison = compare(old, new)
            self.known[sides] = comparison, _key(comparison), old, new
        return self.known[sides][:2]

    def preview(self, notes: tuple[str, ...]) -> Preview:
        """Return all groups, largest first."""
        groups = [Group(self.comparisons[key], tuple(names)) for key, names in self.groups.items()]
        return Preview(
            total=self.total,
            groups=tuple(sorted(groups, key=lambda group: -len(group.machines))),
            unchanged=tuple(self.unchanged),
            still_failing=tuple(StillFailing(of, tuple(names)) for of, names in self.failing.items()),
            notes=notes,
        )


def _key(comparison: Comparison) -> bytes:
    return msgspec.json.encode([_without_surroundings(change) for change in comparison.changes])


def _without_surroundings(change: Change) -> Change:
    differences = tuple(
        msgspec.structs.replace(difference, diff=_changed_lines(difference.diff))
        for difference in change.differences
    )
    return msgspec.structs.replace(change, differences=differences)


def _changed_lines(diff: str) -> str:
    if not diff.startswith("--- "):  # a sentence
        return diff
    return "".join(line for line in diff.splitlines(keepends=True) if line.startswith(("+", "-")))
