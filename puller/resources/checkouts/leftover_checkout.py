"""Removal of an undeclared working tree, unless it contains local work."""

import stat
from collections.abc import Mapping, Sequence

from foundation.differences import Difference
from puller.errors import ResourceError
from puller.resources.checkouts.checkout import Checkout, CheckoutProperties, CheckoutState
from puller.resources.checkouts.repository import Repository
from puller.resources.checkouts.work import find_work


class LeftCheckout(Checkout):
    """A leftover working tree. The desired state is ``absent``."""

    _why_kept = ""

    def differences(self, actual: CheckoutState, *, refresh: bool = False) -> Sequence[Difference]:
        # A tree with work now belongs to its user. It stays and counts as in sync.
        self._why_kept = self._find_why_kept(actual)
        return () if self._why_kept else super().differences(actual, refresh=refresh)

    def _find_why_kept(self, actual: CheckoutState) -> str:
        status, path, system = actual.found, self.properties.name, self.context.system
        if status is None or actual.is_empty:
            return ""
        if not actual.is_repository:
            return "it is no longer a repository"
        git = self._git(path, status.st_uid, status.st_gid)
        if reason := git.why_refused():
            return f"it may contain work: {reason}"
        work = find_work(Repository(path, status, system), git, system, keeps_other_files=True)
        return f"it {work}" if work else ""

    def work_left(self) -> Mapping[str, str]:
        status = self.context.system.lstat(self.properties.name)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return {}
        try:
            reason = self._find_why_kept(self.look())
        except (OSError, ResourceError) as error:
            reason = f"it may contain work: {error}"
        return {self.properties.name: f"is left behind, and {reason}"} if reason else {}

    @property
    def notes(self) -> Sequence[str]:
        return [f"{self._why_kept}, so it stays"] if self._why_kept else super().notes

    @classmethod
    def fills(cls, properties: CheckoutProperties) -> Sequence[str]:
        return ()  # the whole tree is removed, so not while paths below it are declared
