"""A preview of a fleet: machines grouped by the changes of a new bundle.

* Machines in a group have equal changes. In diffs only added and removed lines are compared, because context lines may
  name the machine. The diff of the group's first machine is shown.
* The largest group comes first. Unchanged machines are only counted and named.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from puller.authoring.preview.differences import THE_BUNDLE, Change, Comparison, Outcome, compare
from puller.authoring.preview.machines import Machine, Machines

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
        msgspec.structs.replace(one, diff=_changed_lines(one.diff)) for one in change.differences
    )
    return msgspec.structs.replace(change, differences=differences)


def _changed_lines(diff: str) -> str:
    if not diff.startswith("--- "):  # a sentence
        return diff
    return "".join(line for line in diff.splitlines(keepends=True) if line.startswith(("+", "-")))
