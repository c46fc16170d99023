"""The reversals of ended trials and the observers of current ones, in one run.

Only hosts with a bundle on trial, or with the journal of an ended trial, import this module.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from puller.reporting.report import Event
from puller.run.leftovers.declared_resources import Declared
from puller.run.leftovers.observers import TrialObserver
from puller.run.leftovers.records import restore_edit_receipts, restore_records, restore_waiting_records
from puller.run.leftovers.removals import Step
from puller.run.leftovers.reversal_rules import Ending
from puller.run.leftovers.shared_edits import remove_from_other_records
from puller.run.leftovers.trial_copies import Began, TrialCopies
from puller.run.leftovers.undo import Planner, Undo, is_decided, ordered_steps
from puller.state import Directories


class TrialReversals:
    """The journals of trials, and the plan of their reversals. Methods raise ``OSError``."""

    def __init__(
        self, directories: Directories, warn: Callable[[str], None], *, noop: bool, packages: bool
    ) -> None:
        """``packages``: remove the packages that a bundle on trial has installed if it is given up."""
        self._directories, self._warn, self._noop, self._packages = directories, warn, noop, packages
        self._copies: dict[str, TrialCopies] = {}
        self._planner: Planner | None = None

    def copies(self, name: str) -> TrialCopies:
        """Return the journal of a bundle."""
        if name not in self._copies:
            self._copies[name] = TrialCopies(self._directories.trials / name, self._warn, noop=self._noop)
        return self._copies[name]

    def find_undo(self, name: str, sha256: str, *, is_back: bool) -> Undo | None:
        """Return the reversal of the trial of another version. ``sha256`` is the version of the bundle in this run.

        ``is_back``: this run has rolled back to it.
        """
        copies = self.copies(name)
        if (began := copies.began) is None or not (objects := copies.of_others(sha256)):
            return None
        ending = Ending.GIVEN_UP if is_back or sha256 == began.back else Ending.REPLACED
        return Undo(name, copies, ending, objects)

    def plan(self, undos: list[Undo], declared: Declared) -> list[Step]:
        """Return the steps of the reversals in order, and restore the records of edits."""
        state = self._directories.state
        self._planner = planner = Planner(declared, state, packages=self._packages)
        planner.plan(undos)
        if not self._noop:
            restore_records(undos, declared, f"{state}/", self._warn)
            restore_edit_receipts(planner.receipts, declared.names, state, self._warn)
        return ordered_steps(planner.steps)

    def restore_waiting(self, undos: Iterable[Undo], declared: Declared, events: Iterable[Event]) -> None:
        """Revert the records whose objects the run has removed."""
        if not self._noop:
            restore_waiting_records(undos, declared, events, self._warn)

    def remove_from_other_records(self, events: Iterable[Event]) -> None:
        """Remove reverted edits from the records of all other edits."""
        if self._planner is None or self._noop or not (taken_out := self._planner.taken_out(events)):
            return
        journals = [self.copies(path.name) for path in sorted(self._directories.trials.iterdir())]
        remove_from_other_records(taken_out, journals)
        for journal in journals:
            journal.close()

    def forget_decided(self, names: Iterable[str], declared: Declared) -> None:
        """Remove from the journals of bundles the objects that declared resources determine."""
        for copies in map(self.copies, names):
            decided = {key for key, line in copies.objects.items() if is_decided(line, copies, declared)}
            if decided:
                copies.keep(copies.objects.keys() - decided)

    def observer(
        self,
        name: str,
        version: tuple[str, str, str],
        subscribers: Callable[[str], Sequence[str]],
        whole: Collection[str],
        is_made: Callable[[str, str], bool],
        *,
        continues: bool,
    ) -> TrialObserver:
        """Return the observer of a bundle on trial.

        ``version`` is its version, with its SHA-256 and that of its fallback. ``continues``: an earlier trial of the
        bundle continues.
        """
        copies, began = self.copies(name), Began(*version)
        if continues and copies.began is not None:
            began = copies.began
        return TrialObserver(copies, began, subscribers, whole, is_made, self._warn)
