"""The changes that the engine makes, told to who notes what is made and who keeps what there was."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from puller.manifest.declaration import Declaration
from puller.resources.base import Difference, Resource
from puller.run.left.managed import Managed

if TYPE_CHECKING:
    from puller.run.left.makings import Makings
    from puller.run.left.trial_copies import TrialObserver


class Changes:
    """The changes of one run, as the engine tells of them; handed on to whom they concern."""

    def __init__(
        self,
        managed: Managed,
        trials: "Mapping[str, TrialObserver]",
        bundles_of: Callable[[Declaration], Iterable[str]],
        taken_back: Mapping[int, str],
    ) -> None:
        """``bundles_of`` gives all bundles that declare a resource, the one that it belongs to first.

        ``taken_back``: the bundles of what no bundle declares, by the identity of its declaration.
        """
        self._managed, self._trials = managed, trials
        self._bundles_of, self._taken_back = bundles_of, taken_back
        self._makings: Makings | None = None

    def before_change(
        self,
        declaration: Declaration,
        resource: Resource[Any, Any],
        actual: Any,
        differences: Sequence[Difference],
    ) -> None:
        """See ``puller.engine.engine.Observer``."""
        left_by = self._taken_back.get(id(declaration))
        if left_by is None:
            self._note_making(declaration, resource, actual)
        # What several declare may be changed because of any of them.
        for bundle in self._bundles_of(declaration) if left_by is None else (left_by,):
            if (trial := self._trials.get(bundle)) is not None:
                trial.before_change(declaration, resource, actual, differences)

    def _note_making(self, declaration: Declaration, resource: Resource[Any, Any], actual: Any) -> None:
        if self._makings is None:
            from puller.run.left.makings import Makings  # when the first resource is changed

            self._makings = Makings(self._managed.journal(), self._bundle_of, self._managed.is_known)
        self._makings.before_change(declaration, resource, actual)

    def _bundle_of(self, declaration: Declaration) -> str:
        return next(iter(self._bundles_of(declaration)))

    def after_change(self, declaration: Declaration, resource: Resource[Any, Any], actual: Any) -> None:
        """See ``puller.engine.engine.Observer``."""
        if self._makings is not None:
            self._makings.after_change(declaration, resource, actual)

    def finish(self) -> Collection[str]:
        """Close all journals; gives the references of what was made."""
        for trial in self._trials.values():
            trial.close()
        return self._makings.made() if self._makings is not None else ()
