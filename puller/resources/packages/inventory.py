"""One answer about all packages of a run, in place of one for each.

* It is good until something was executed, by whatever resource; then the next question asks again.
* That the command failed is an answer, too: for every package, and without asking again for each.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from puller.errors import ResourceError
from puller.resources.packages.job import Job

T = TypeVar("T")


class Inventory(Generic[T]):
    """The answer of one command about all declared packages; ``ask`` runs it, and may raise ``ResourceError``."""

    def __init__(self, ask: Callable[[Job, Sequence[str]], Mapping[str, T]]) -> None:
        self._ask = ask
        self._asked_at = -1
        self._names: frozenset[str] = frozenset()
        self._found: Mapping[str, T] = {}
        self._failure = ""

    def about(self, job: Job, name: str) -> T | None:
        """The answer about one package; ``None`` when nothing is known of it. Raises ``ResourceError``."""
        if job.system.executed > self._asked_at or name not in self._names:
            self._refresh(job, name)
        if self._failure:
            raise ResourceError(self._failure)
        return self._found.get(name)

    def _refresh(self, job: Job, name: str) -> None:
        self._asked_at = job.system.executed
        self._names |= {*job.declared(), name}
        self._found, self._failure = {}, ""
        try:
            self._found = self._ask(job, sorted(self._names))
        except ResourceError as error:
            self._failure = str(error)
