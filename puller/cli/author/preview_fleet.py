"""The machines of a preview, from the store of a fleet: the facts that hosts have sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from puller.authoring.preview.machines import Machine
from puller.cli.fleet.options import open_reader, opened_store
from puller.errors import UsageError
from puller.facts.tree import described

if TYPE_CHECKING:
    from puller.fleet.store.reading import Reader


class StoredHosts:
    """The hosts of a store that have sent facts."""

    def __init__(self, reader: "Reader", location: str) -> None:
        self._reader = reader
        self._location = location

    def __iter__(self) -> Iterator[Machine]:
        count = 0
        for name, facts in self._reader.facts():
            if facts:
                count += 1
                yield Machine(name, described(facts), is_partial=True)
        if not count:
            what = "no host in it has sent facts: `reports: facts` in their configuration names them"
            raise UsageError(f"{self._location}: {what}")


@contextmanager
def open_fleet(location: str) -> Iterator[StoredHosts]:
    """The hosts of the store at ``location``; raises ``SourceError`` and ``UsageError``."""
    with opened_store(location) as store:
        yield StoredHosts(open_reader(store, None), location)
