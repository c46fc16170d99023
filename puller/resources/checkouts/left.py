"""A working tree that Puller has cloned and nobody declares any more: removed, when nothing in it is anybody's work."""

from collections.abc import Sequence

from puller.resources.base import Difference
from puller.resources.checkouts.checkout import Checkout, CheckoutProperties, CheckoutState
from puller.resources.checkouts.repository import Repository


class LeftCheckout(Checkout):
    """A working tree that was cloned, to be ``absent``."""

    _why_kept = ""

    def differences(self, actual: CheckoutState, *, refresh: bool = False) -> Sequence[Difference]:
        # What somebody has made of it is theirs: nothing is wrong with that, and the tree stays.
        self._why_kept = self._find_why_kept(actual)
        return () if self._why_kept else super().differences(actual, refresh=refresh)

    def _find_why_kept(self, actual: CheckoutState) -> str:
        found, path = actual.found, self.properties.name
        if found is None or actual.is_empty:
            return ""
        if not actual.is_repository:
            return "it is no repository any more"
        git = self._git(path, found.st_uid, found.st_gid)
        if git.changed_files(untracked=True):
            return "it has files that were changed, or are not of its commit"
        known = Repository(path, found, self.context.system).record.known
        own = git.own_commit(known, everywhere=True)
        return f"it has the commit {own[:12]}, which no branch of the remote has" if own else ""

    @property
    def notes(self) -> Sequence[str]:
        return [f"{self._why_kept}, so it stays"] if self._why_kept else super().notes

    @classmethod
    def fills(cls, properties: CheckoutProperties) -> Sequence[str]:
        return ()  # all of it goes: not while anything below it is declared
