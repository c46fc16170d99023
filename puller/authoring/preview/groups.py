"""A preview of a fleet: machines by what a new bundle changes there.

* Machines are of one group when the same is told of them. Of a changed file this is the lines that come and go: those
  around them may name the machine, and are shown as they are on the first of the group.
* The largest group comes first; where nothing changes, machines are only counted and named.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from puller.authoring.preview.differences import THE_BUNDLE, Change, Comparison, Outcome, compare
from puller.authoring.preview.machines import Machine, Machines

_MOST_KEPT = 1024
"""Comparisons that are kept."""


Resolver = Callable[[Machine], Outcome]
"""Resolves one bundle for any machine."""


class Group(msgspec.Struct, frozen=True):
    """The machines on which one list of changes is all that happens, in the order in which they were given."""

    comparison: Comparison
    machines: tuple[str, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.comparison.changes


class StillFailing(msgspec.Struct, frozen=True):
    """One failure that is there before and after, and the machines that have it."""

    change: Change
    machines: tuple[str, ...]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """All that a new bundle changes on the machines that were given."""

    total: int
    groups: tuple[Group, ...]
    unchanged: tuple[str, ...] = ()
    """The machines on which nothing changes."""
    still_failing: tuple[StillFailing, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = {}
    """Facts that the bundle asks for, and the machines that have not sent them."""
    notes: tuple[str, ...] = ()
    """What the preview cannot know."""

    @property
    def incomplete(self) -> frozenset[str]:
        """The machines with a missing fact."""
        return frozenset(name for names in self.missing.values() for name in names)

    @property
    def changes(self) -> bool:
        """Whether anything changes on any machine."""
        return bool(self.groups)

    @property
    def fails(self) -> bool:
        """Whether anything fails that did not before, or the whole bundle, so that nothing was compared."""
        refused = any(found.change.reference == THE_BUNDLE for found in self.still_failing)
        return refused or any(group.comparison.fails for group in self.groups)


def preview(old: Resolver, new: Resolver, machines: Machines, notes: Iterable[str] = ()) -> Preview:
    """The changes from ``old`` to ``new`` on all of ``machines``."""
    grouping = _Grouping(old, new)
    for machine in machines:
        grouping.add(machine)
    return grouping.preview(tuple(notes))


class _Grouping:
    """The work of one ``preview``."""

    def __init__(self, old: Resolver, new: Resolver) -> None:
        self.old = old
        self.new = new
        self.total = 0
        self.unchanged: list[str] = []
        self.comparisons: dict[bytes, Comparison] = {}
        """Of the first machine of each group."""
        self.groups: dict[bytes, list[str]] = {}
        self.failing: dict[Change, list[str]] = {}
        self.known: dict[tuple[int, int], tuple[Comparison, bytes, Outcome, Outcome]] = {}
        """Comparisons by their two sides, which are kept with them: machines may share both."""

    def add(self, machine: Machine) -> None:
        """Put one machine into its group."""
        self.total += 1
        comparison, key = self._compared(self.old(machine), self.new(machine))
        for change in comparison.still_failing:
            self.failing.setdefault(change, []).append(machine.name)
        if not comparison.changes:
            # Where the bundle is refused before and after nothing is known, which is not that nothing changes.
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
        """All groups, the largest first."""
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
        msgspec.structs.replace(one, diff=_changed_lines(one.diff)) for one in change.differences
    )
    return msgspec.structs.replace(change, differences=differences)


def _changed_lines(diff: str) -> str:
    if not diff.startswith("--- "):  # a sentence
        return diff
    return "".join(line for line in diff.splitlines(keepends=True) if line.startswith(("+", "-")))
