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
    """The changes of one run, as the engine tells of them; handed on to whom they concern."""

    def __init__(
        self,
        managed: Managed,
        trials: "Mapping[str, TrialObserver]",
        bundles_of: Callable[[Declaration], Iterable[str]],
        steps: "Mapping[int, Step]",
    ) -> None:
        """``bundles_of`` gives all bundles that declare a resource, the one that it belongs to first.

        ``steps``: the reversals of the run, by the identity of their declarations.
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
        else:  # what undoes a trial leads to a state that is on record
            bundles = (step.bundle,) if step.is_leftover else ()
        # What several declare may be changed because of any of them.
        for bundle in bundles:
            if (trial := self._trials.get(bundle)) is not None:
                trial.before_change(declaration, resource, actual, differences, left=step is not None)

    def _note_making(self, declaration: Declaration, resource: Resource[Any, Any], actual: Any) -> None:
        if self._makings is None:
            from puller.run.leftovers.created_resources import Makings  # when the first resource is changed

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
        """Close all journals; gives the references of what was made."""
        for trial in self._trials.values():
            trial.close()
        return self._makings.made() if self._makings is not None else ()
