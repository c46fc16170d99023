"""All that one run does about what bundles leave behind: before its resources are applied, while, and after.

1. ``before``: what the journal of another bundle's trial has, and what was left behind and is to go, become resources
   of the run, before all others.
2. ``observer``: what a resource is about to make is noted; of a bundle on trial, what it is about to change is kept.
3. ``after``: what was undone leaves the journal, and the record takes over what is declared, made and left now.
4. ``passed``: the copies of a trial are removed.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from puller.manifest.declaration import Declaration
from puller.manifest.host_catalog import HostCatalog
from puller.reporting.report import Event
from puller.run.left.declared import Declared
from puller.run.left.managed import Left, Managed
from puller.run.left.observer import Changes
from puller.state.directories import Directories

if TYPE_CHECKING:  # imported when something is to be done: in most runs nothing is
    from puller.run.left.removals import TakenBack
    from puller.run.left.trial_copies import Line, TrialCopies, TrialObserver
    from puller.run.left.undo import Undo


class InForce(msgspec.Struct, frozen=True):
    """The bundle of one name that is applied now."""

    version: str
    sha256: str
    has_passed: bool = True
    whole: Collection[str] | None = None
    """On trial with another one to go back to: the paths that that one makes whole by itself."""


class Leftovers:
    """The leftovers of bundles on one host, in one run. Methods raise ``OSError``; with ``noop`` nothing is written."""

    def __init__(
        self,
        directories: Directories,
        warn: Callable[[str], None],
        *,
        noop: bool = False,
        packages: bool = False,
    ) -> None:
        """``packages``: those that a bundle on trial has installed are removed when it is given up."""
        self._directories, self._warn, self._noop, self._packages = directories, warn, noop, packages
        self.managed = Managed(directories, warn, noop=noop)
        self._declared = Declared({})
        self._leaving: dict[str, list[Left]] = {}
        self._taken_back: list[TakenBack] = []
        self._undone: dict[str, Undo] = {}
        self._owed: dict[str, list[Line]] = {}
        """Lines of a trial before that are to be undone by a later run, by bundle."""
        self._in_force: Mapping[str, InForce] = {}
        self._restored: set[str] = set()
        self._is_partial = False
        self.observer: Changes | None = None
        """For the engine that applies the manifest that ``before`` has given."""

    def before(
        self, catalog: HostCatalog, names: Sequence[str], in_force: Mapping[str, InForce]
    ) -> HostCatalog:
        """The catalog with what is taken back before the rest; ``names`` are those of its bundles, in their order.

        Of a part of a catalog nothing is taken back, and only what it makes is remembered.
        """
        numbers_of = catalog.numbers_of

        def bundles_of(declaration: Declaration) -> Iterator[str]:
            """The bundle that a resource belongs to, and then those that share it."""
            return (names[number] for number in numbers_of(declaration))

        self._in_force, self._taken_back, self._is_partial = in_force, [], catalog.is_partial
        self._undone, self._leaving, self._owed = {}, {}, {}
        declared = self._declared = Declared.by(catalog, names)
        if self._is_partial:
            self.observer = Changes(self.managed, self._trials(), bundles_of, {})
            return catalog
        self._undone = {name: undo for name in in_force if (undo := self._undo(name, declared)) is not None}
        self._leaving = self.managed.leaving(declared)
        owners: dict[int, str] = {}
        if self._undone or self._leaving:
            first = len(catalog.declarations)
            catalog = self._with_taken_back(catalog, {name: number for number, name in enumerate(names)})
            added = zip(catalog.declarations[first:], self._taken_back, strict=True)
            owners = {id(declaration): one.bundle for declaration, one in added}
        self.observer = Changes(self.managed, self._trials(), bundles_of, owners)
        return catalog

    def _with_taken_back(self, catalog: HostCatalog, numbers: Mapping[str, int]) -> HostCatalog:
        from puller.run.left.removals import in_order, removals, with_taken_back

        undone = self._undoing()
        known = {one.reference for one in undone}
        left = [one for one in removals(self._leaving, self._declared) if one.reference not in known]
        self._taken_back = in_order([*undone, *left])
        return with_taken_back(catalog, self._taken_back, numbers)

    def _undoing(self) -> "list[TakenBack]":
        """What undoes trials; of a path that two have changed, by what the first of them found."""
        found = [
            (undo.noted(one), name, one) for name, undo in self._undone.items() for one in undo.resources
        ]
        last_first = sorted(found, key=lambda each: each[0], reverse=True)
        first = {one.reference: name for _, name, one in last_first}
        return [
            msgspec.structs.replace(one, bundle=name)
            for _, name, one in found
            if first[one.reference] == name
        ]

    def _undo(self, name: str, declared: Declared) -> "Undo | None":
        if not self._has_copies(name):
            return None
        from puller.run.left.undo import plan

        copies = self._copies(name)
        if not copies.lines or copies.bundle == self._in_force[name].sha256:
            return None
        return plan(copies, declared, packages=self._packages)

    def _has_copies(self, name: str) -> bool:
        return os.path.lexists(self._directories.trials / name)

    def _copies(self, name: str) -> "TrialCopies":
        from puller.run.left.trial_copies import TrialCopies

        return TrialCopies(self._directories.trials / name, self._warn, noop=self._noop)

    def _trials(self) -> "dict[str, TrialObserver]":
        """By bundle, for those on trial with another one to go back to."""
        found = {}
        for name, one in self._in_force.items():
            if one.whole is not None and not one.has_passed:
                from puller.run.left.trial_copies import Began, TrialObserver

                copies = self._undone[name].copies if name in self._undone else self._copies(name)
                # A partial run undoes nothing: what is on record stays that of the trial before.
                before = copies.bundle if self._is_partial else ""
                began, subscribers = Began(one.version, before or one.sha256), self._subscribers
                found[name] = TrialObserver(copies, began, subscribers, one.whole, self._warn)
        return found

    def _subscribers(self, reference: str) -> Sequence[str]:
        return self._declared.subscribers.get(reference, ())

    def elsewhere(self) -> Sequence[str]:
        """The paths at and below which is what bundles have that have no part in this run, as far as it is known."""
        return self.managed.paths_elsewhere(self._declared)

    def remaining(self, name: str) -> tuple[str, list[str]]:
        """The bundle whose trial is undone, by its SHA-256, and sentences of what it did that cannot be undone."""
        if (undo := self._undone.get(name)) is None:
            return "", []
        return undo.copies.bundle, undo.not_undone()

    def after(self, events: Sequence[Event]) -> None:
        """Remember what the run has come to."""
        made = self.observer.finish() if self.observer is not None else ()
        if self._is_partial:
            return
        self._keep_restored()
        done = self._done(events)
        on_trial = [name for name, one in self._in_force.items() if not one.has_passed]
        for name, undo in self._undone.items():
            # What another bundle declares that is on trial itself is nobody's when that is given up.
            self._owed[name] = undo.conclude(
                events, passed=name not in on_trial, is_last={name}.issuperset(on_trial)
            )
        self.managed.conclude(self._declared, self._leaving, events, made, done, on_trial)
        for name, one in self._in_force.items():
            if one.has_passed and name not in self._undone:  # a run was killed before it could say so
                self.passed(name)

    def _done(self, events: Sequence[Event]) -> set[str]:
        """The references of what was left, and is away or as it was."""
        if not self._taken_back:
            return set()
        from puller.run.left.removals import gone

        undone = (undo.done(events) for undo in self._undone.values())
        return gone(self._taken_back, events).union(*undone) - self._restored

    def _keep_restored(self) -> None:
        """What Puller made before a trial that is undone stays: that it should go was said by what was given up."""
        files = {reference for undo in self._undone.values() for reference in undo.restored()}
        made = (one.reference for left in self._leaving.values() for one in left if one.made)
        self._restored = files.intersection(made)
        if self._restored:
            self._leaving = {
                name: [_kept(one) if one.reference in self._restored else one for one in left]
                for name, left in self._leaving.items()
            }

    def passed(self, name: str) -> None:
        """A bundle has passed: there is nothing to go back to."""
        if self._is_partial:  # which has undone nothing
            return
        if self._has_copies(name):
            self._copies(name).keep(self._owed.get(name, []))
        self.managed.passed(name)


def _kept(left: Left) -> Left:
    return msgspec.structs.replace(left, removed=False)
