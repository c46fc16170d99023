"""Leftovers of bundles and changes of trials that one run reverts.

1. ``before``: puts the plan for leftovers and for the journals of ended trials beside the catalog.
2. ``observer``: receives each change from the engine, before and after it.
3. ``after``: removes reverted changes from the journals, and updates the record with the declared, created and
   leftover resources.
4. ``passed``: removes the journal of a trial.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from foundation.differences import Difference
from puller.engine.transactions import Observer
from puller.manifest.declaration import Declaration
from puller.manifest.graph.host_catalog import HostCatalog
from puller.reporting.report import Event
from puller.resources.base import Resource
from puller.run.leftovers.created_resources import Makings
from puller.run.leftovers.declared_resources import Declared
from puller.run.leftovers.managed import SEEN, Left, Managed
from puller.run.leftovers.removals import (
    Step,
    gone,
    in_order,
    reasons,
    removal,
    removals,
    why_unplanned,
    with_reversals,
)
from puller.state import Directories

if TYPE_CHECKING:
    from puller.run.leftovers.observers import TrialObserver
    from puller.run.leftovers.trial_reversals import TrialReversals
    from puller.run.leftovers.undo import Undo


class InForce(msgspec.Struct, frozen=True):
    """The version of a bundle that is applied now."""

    version: str
    sha256: str
    has_passed: bool = True
    whole: Collection[str] = ()
    """For a bundle on trial: the paths that the last good version restores completely."""
    back: str = ""
    """For a bundle on trial: the SHA-256 of its fallback. Empty without a fallback."""
    is_back: bool = False
    """Whether this run has rolled back to it."""


class _Applied(msgspec.Struct, frozen=True):
    """An applied catalog. ``names`` are those of its bundles, and ``events`` are set after the run."""

    catalog: HostCatalog | None = None
    names: Sequence[str] = ()
    events: Sequence[Event] = ()

    def achieved(self, bundles: Collection[str]) -> list[Declaration]:
        """Return the resources that are in sync, as these bundles themselves declare them."""
        if self.catalog is None:
            return []
        seen = {event.reference for event in self.events if event.state in SEEN}
        pairs = zip(self.names, self.catalog.manifests, strict=True)
        return [
            declaration
            for name, manifest in pairs
            if name in bundles
            for declaration in manifest.declarations
            if declaration.reference in seen
        ]


class Changes(Observer):
    """Passes the changes of one run from the engine to the trials and the record of created resources."""

    def __init__(
        self,
        managed: Managed,
        trials: "Mapping[str, TrialObserver]",
        bundles_of: Callable[[Declaration], Iterable[str]],
        steps: Mapping[int, Step],
    ) -> None:
        """``bundles_of`` returns all bundles that declare a resource, its owner first.

        ``steps`` are the reversals of the run, by the identity of their declarations.
        """
        self._managed, self._trials = managed, trials
        self._bundles_of, self._steps = bundles_of, steps
        self._makings: Makings | None = None

    def before_change(
        self,
        declaration: Declaration,
        resource: Resource[Any, Any],
        actual: Any,
        differences: Sequence[Difference],
    ) -> None:
        """See ``puller.engine.transactions.Observer``."""
        step = self._steps.get(id(declaration))
        if step is None:
            self._note_making(declaration, resource, actual)
            bundles = self._bundles_of(declaration)
        else:  # reverting a trial leads to a recorded state
            bundles = (step.bundle,) if step.is_leftover else ()
        # Any bundle that declares a shared resource may be the reason for its change.
        for bundle in bundles:
            if (trial := self._trials.get(bundle)) is not None:
                trial.before_change(declaration, resource, actual, differences, left=step is not None)

    def _note_making(self, declaration: Declaration, resource: Resource[Any, Any], actual: Any) -> None:
        if self._makings is None:
            managed = self._managed
            self._makings = Makings(
                managed.journal(), self._bundle_of, managed.is_known, managed.is_created_at
            )
        self._makings.before_change(declaration, resource, actual)

    def _bundle_of(self, declaration: Declaration) -> str:
        return next(iter(self._bundles_of(declaration)))

    def begin_changes(self) -> None:
        """See ``puller.engine.transactions.Observer``."""
        for trial in self._trials.values():
            trial.begin_changes()

    def after_change(self, declaration: Declaration, resource: Resource[Any, Any], actual: Any) -> None:
        """See ``puller.engine.transactions.Observer``."""
        if self._makings is not None:
            self._makings.after_change(declaration, resource, actual)
        for trial in self._trials.values():
            trial.after_change(declaration, resource, actual)

    def finish(self) -> Collection[str]:
        """Close all journals. Return the references of created resources."""
        for trial in self._trials.values():
            trial.close()
        return self._makings.made() if self._makings is not None else ()


class Leftovers:
    """The reversals on one host, in one run. Methods raise ``OSError``. With ``noop`` nothing is written."""

    def __init__(
        self,
        directories: Directories,
        warn: Callable[[str], None],
        *,
        noop: bool = False,
        packages: bool = False,
    ) -> None:
        """``packages``: remove the packages that a bundle on trial has installed if it is given up."""
        self._directories, self._warn, self._noop, self._packages = directories, warn, noop, packages
        self.managed = Managed(directories, warn, noop=noop)
        self._declared = Declared({})
        self._leaving: dict[str, list[Left]] = {}
        self._steps: list[Step] = []
        self._references: list[str] | None = None
        """All leftovers, for the purges of this run."""
        self._undos: dict[str, Undo] = {}
        self._reversals: TrialReversals | None = None
        self._owed: dict[str, set[str]] = {}
        """The objects of an ended trial that a later run has to revert, by bundle."""
        self._in_force: Mapping[str, InForce] = {}
        self._trials: dict[str, TrialObserver] = {}
        self._restored: set[str] = set()
        self._applied = _Applied()
        self._is_partial = False
        self.staying: list[tuple[str, str, str]] = []
        """Bundle, reference and reason of each object that stays although it should be removed. Only new reasons."""
        self.observer: Changes | None = None
        """For the engine that applies the catalog that ``before`` has returned."""

    def before(
        self, catalog: HostCatalog, names: Sequence[str], in_force: Mapping[str, InForce]
    ) -> HostCatalog:
        """Return the catalog with the plan beside it. ``names`` are those of its bundles, in their order.

        A partial run reverts nothing. It records only created resources.
        """
        numbers_of = catalog.numbers_of

        def bundles_of(declaration: Declaration) -> Iterator[str]:
            """Return the owner of a resource, followed by the bundles that share it."""
            return (names[number] for number in numbers_of(declaration))

        self._in_force, self._steps, self._is_partial = in_force, [], catalog.is_partial
        self._references = None
        self._undos, self._leaving, self._owed, self._reversals = {}, {}, {}, None
        self._declared, self._applied = Declared.by(catalog, names), _Applied(catalog, names)
        by_declaration: dict[int, Step] = {}
        if not self._is_partial:
            self._undos = self._find_reversals()
            self._leaving = self.managed.leaving(self._declared)
            if self._undos or self._leaving:
                catalog = self._with_reversals(catalog, {name: number for number, name in enumerate(names)})
                pairs = zip(catalog.reversals, self._steps, strict=True)
                by_declaration = {id(declaration): step for declaration, step in pairs}
        self._trials = self._find_trials()
        self.observer = Changes(self.managed, self._trials, bundles_of, by_declaration)
        return catalog

    def _find_reversals(self) -> "dict[str, Undo]":
        undos = {}
        for name, bundle in self._in_force.items():
            if not self._has_copies(name):
                continue
            undo = self._of_trials().find_undo(name, bundle.sha256, is_back=bundle.is_back)
            if undo is not None:
                undos[name] = undo
        return undos

    def _with_reversals(self, catalog: HostCatalog, numbers: Mapping[str, int]) -> HostCatalog:
        steps: list[Step] = []
        if self._undos:
            steps = self._of_trials().plan([*self._undos.values()], self._declared)
        returned = self._references_of({key for undo in self._undos.values() for key in undo.returned})
        removed = [
            step for step in removals(self._leaving, self._declared) if str(step.reference) not in returned
        ]
        # A leftover that another bundle had before a trial is removed by its own step, not by the step of the trial.
        others = {step.reference: step.bundle for step in removed}
        steps = [step for step in steps if others.get(step.reference, step.bundle) == step.bundle]
        known = {step.reference for step in steps}
        removed = [step for step in removed if step.reference not in known]
        self._steps = [*steps, *in_order(removed)]
        return with_reversals(catalog, self._steps, numbers, self._directories.state)

    def _has_copies(self, name: str) -> bool:
        return os.path.lexists(self._directories.trials / name)

    def _of_trials(self) -> "TrialReversals":
        if self._reversals is None:
            # 9 % of an idle run, only for trials
            from puller.run.leftovers.trial_reversals import TrialReversals

            self._reversals = TrialReversals(
                self._directories, self._warn, noop=self._noop, packages=self._packages
            )
        return self._reversals

    def _find_trials(self) -> "dict[str, TrialObserver]":
        """Return the observers of bundles on trial, by bundle."""
        trial_observers = {}
        for name, bundle in self._in_force.items():
            if not bundle.has_passed:
                trial_observers[name] = self._of_trials().observer(
                    name,
                    (bundle.version, bundle.sha256, bundle.back),
                    self._subscribers,
                    bundle.whole,
                    self._is_made,
                    continues=self._is_partial,  # a partial run reverts nothing
                )
        return trial_observers

    def _is_made(self, path: str, reference: str) -> bool:
        """Return whether Puller has created the object of a path or a reference."""
        return self.managed.is_made(reference) or (path != "" and self.managed.is_created_at(path))

    def _subscribers(self, reference: str) -> Sequence[str]:
        return self._declared.subscribers.get(reference, ())

    def elsewhere(self) -> Sequence[str]:
        """Return the paths of bundles that this run does not apply, as far as they are known."""
        return self.managed.paths_elsewhere(self._declared)

    def references(self) -> Sequence[str]:
        """Return the references of all leftovers, including those of bundles that this run does not apply."""
        if self._references is None:
            self._references = self.managed.all_leftovers(self._declared)
        return self._references

    def remaining(self, name: str) -> tuple[str, list[str]]:
        """Return the SHA-256 of the bundle whose trial is reverted, and sentences about irreversible changes."""
        if (undo := self._undos.get(name)) is None:
            return "", []
        return undo.copies.bundle, undo.not_undone()

    def after(self, events: Sequence[Event]) -> None:
        """Record the outcome of the run."""
        made = self.observer.finish() if self.observer is not None else ()
        if self._is_partial:
            return
        self._keep_restored()
        if self._reversals is not None:
            self._reversals.remove_from_other_records(events)
        self._explain(events)
        done = self._done(events)
        on_trial = self._on_trial
        if self._undos:
            self._of_trials().restore_waiting(self._undos.values(), self._declared, events)
        for name, undo in self._undos.items():
            # Objects that another bundle on trial declares are unmanaged if that bundle is given up.
            touched = self._trials[name].touched if name in self._trials else ()
            self._owed[name] = undo.conclude(
                events, touched, passed=name not in on_trial, is_last={name}.issuperset(on_trial)
            )
        self._applied = msgspec.structs.replace(self._applied, events=events)
        returned = self._references_of(
            {key for undo in self._undos.values() for key in undo.returned_by(events)}
        )
        self.managed.conclude(self._declared, self._leaving, events, made, done, on_trial, returned)
        self._forget_objects_of_other_bundles(self._in_force.keys() - {*on_trial})
        for name, bundle in self._in_force.items():
            if bundle.has_passed and name not in self._undos:  # a run was killed before this call
                self.passed(name)

    @property
    def _on_trial(self) -> list[str]:
        return [name for name, bundle in self._in_force.items() if not bundle.has_passed]

    def _forget_objects_of_other_bundles(self, passed: Collection[str]) -> None:
        """Remove from all journals the objects that bundles which have passed declare.

        These objects are as they would be without the trials, also when these bundles leave them later.
        """
        journals = [name for name in self._in_force if self._has_copies(name)]
        if not journals or not passed:
            return
        self._of_trials().forget_decided(journals, Declared({"": self._applied.achieved(passed)}))

    def _done(self, events: Sequence[Event]) -> set[str]:
        """Return the references of leftovers that are removed or restored."""
        if not self._steps:
            return set()
        undone = {reference for undo in self._undos.values() for reference in undo.done(events)}
        return gone(self._steps, events) | (undone - self._restored)

    def _keep_restored(self) -> None:
        """Keep the objects that Puller created before a reverted trial, although the trial requested their removal."""
        made = {item.reference for left in self._leaving.values() for item in left if item.made}
        self._restored = set()
        for name, undo in self._undos.items():
            restored = undo.restored() & made
            self._restored |= restored
            self._leaving[name] = [
                _kept(item) if item.reference in restored else item for item in self._leaving.get(name, ())
            ]

    def _references_of(self, returned: Collection[str]) -> set[str]:
        """Return the references of the record whose objects are at these paths, or have these references."""
        if not returned:
            return set()
        keys = {self._declared.real(key) if key.startswith("/") else key for key in returned}

        def objects_of(reference: str) -> Iterator[str]:
            step, name = removal(reference), reference.partition("#")[2]
            yield reference
            for path in step.type.places(step.properties) if step is not None else (name,):
                yield self._declared.real(path) if path.startswith("/") else path

        return {reference for reference in self.managed.made() if not keys.isdisjoint(objects_of(reference))}

    def _explain(self, events: Sequence[Event]) -> None:
        """Record why objects stay that should be removed. Report each new reason."""
        is_to_go = any(leftover.is_to_go for each in self._leaving.values() for leftover in each)
        if not is_to_go and not self._steps:
            return
        result = reasons(self._steps, events)
        for step in self._steps:
            if not step.is_leftover and (reason := result.get(str(step.reference))):
                self.staying.append((step.bundle, str(step.reference), reason))

        def explained(bundle: str, leftover: Left) -> Left:
            reason = ""
            if leftover.is_to_go and leftover.reference in result:
                reason = result[leftover.reference]
            elif leftover.is_to_go:
                is_planned = any(step.reference == leftover.reference for step in self._steps)
                reason = leftover.stays if is_planned else why_unplanned(leftover, self._declared)
            if reason and reason != leftover.stays:
                self.staying.append((bundle, leftover.reference, reason))
            return msgspec.structs.replace(leftover, stays=reason)

        self._leaving = {
            bundle: [explained(bundle, leftover) for leftover in each]
            for bundle, each in self._leaving.items()
        }

    def passed(self, name: str) -> None:
        """Record that a bundle has passed. Its trial cannot be reverted any longer."""
        if self._is_partial:  # nothing was reverted
            return
        if self._has_copies(name):
            self._of_trials().copies(name).keep(self._owed.get(name, set()))
        self.managed.passed(name)
        bundle = self._in_force.get(name)
        if bundle is not None and not bundle.has_passed:
            self._in_force = {**self._in_force, name: msgspec.structs.replace(bundle, has_passed=True)}
            self._forget_objects_of_other_bundles([name])
            self.managed.pass_on(self._declared, self._on_trial)


def _kept(leftover: Left) -> Left:
    return msgspec.structs.replace(leftover, removed=False, stays="")
