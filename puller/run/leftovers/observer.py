"""The observer of all changes in a run, for the record of created resources and the journals of trials."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foundation.differences import Difference
from puller.manifest.declaration import Declaration
from puller.resources.base import Resource
from puller.run.leftovers.managed import Managed

if TYPE_CHECKING:
    from puller.run.leftovers.created_resources import Makings
    from puller.run.leftovers.removals import Step
    from puller.run.leftovers.trial_observer import TrialObserver


class Changes:
    """Passes the changes of one run from the engine to the trials and the record of created resources."""

    def __init__(
        self,
        managed: Managed,
        trials: "Mapping[str, TrialObserver]",
        bundles_of: Callable[[Declaration], Iterable[str]],
        steps: "Mapping[int, Step]",
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
        """See ``puller.engine.engine.Observer``."""
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
            from puller.run.leftovers.created_resources import Makings  # for the first changed resource

            managed = self._managed
            self._makings = Makings(managed.journal(), self._bundle_of, managed.is_known, managed.is_made_at)
        self._makings.before_change(declaration, resource, actual)

    def _bundle_of(self, declaration: Declaration) -> str:
        return next(iter(self._bundles_of(declaration)))

    def begin_changes(self) -> None:
        """See ``puller.engine.engine.Observer``."""
        for trial in self._trials.values():
            trial.begin_changes()

    def after_change(self, declaration: Declaration, resource: Resource[Any, Any], actual: Any) -> None:
        """See ``puller.engine.engine.Observer``."""
        if self._makings is not None:
            self._makings.after_change(declaration, resource, actual)
        for trial in self._trials.values():
            trial.after_change(declaration, resource, actual)

    def finish(self) -> Collection[str]:
        """Close all journals. Return the references of created resources."""
        for trial in self._trials.values():
            trial.close()
        return self._makings.made() if self._makings is not None else ()
