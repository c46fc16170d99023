"""Imports of new documents from a source into the store, in batches, and removal of old runs, periods and hosts.

* A batch and the record of its files are one transaction. If an import is killed, the next import resumes it.
* An invalid file is reported once, and counted until it is removed. The import continues with the other files.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from sqlalchemy import Connection, Table, delete, func, select

from puller.fleet.host_document import Document, plain, read_document
from puller.fleet.store import database
from puller.fleet.store.database import Store
from puller.fleet.store.import_sources import Found, Gone, Refused, Source, Unreadable
from puller.fleet.store.writing import Put, put
from puller.version import __version__

MOST_RUNS = 5000
"""Maximum runs of one host with changes or failures, and maximum periods. By default, one run in 26 minutes."""


def forget_before(connection: Connection, when: datetime) -> int:
    """Remove the runs and periods that ended before a time. Return the number of removed runs."""
    seconds = when.timestamp()
    connection.execute(database.events.delete().where(database.events.c.at < seconds))
    gone = connection.execute(database.runs.delete().where(database.runs.c.at < seconds)).rowcount
    connection.execute(database.periods.delete().where(database.periods.c.ended < seconds))
    return gone


def forget_beyond(connection: Connection, most: int = MOST_RUNS) -> int:
    """Remove the oldest runs and periods of hosts that have more than ``most``. Return the number of removed runs.

    The age limit alone would not limit a host that sends a report every second.
    """
    gone = 0
    for table in (database.runs, database.periods):
        counted = select(table.c.host).group_by(table.c.host).having(func.count() > most)
        for host in connection.execute(counted).scalars().all():
            gone += _forget_oldest(connection, table, host, most)
    return gone


def _forget_oldest(connection: Connection, table: Table, host: str, most: int) -> int:
    when = table.c.at if table is database.runs else table.c.began
    first_kept = select(when).where(table.c.host == host).order_by(when.desc()).offset(most - 1).limit(1)
    seconds = connection.execute(first_kept).scalar()
    is_old = (table.c.host == host) & (when < seconds)
    if table is not database.runs:
        connection.execute(table.delete().where(is_old & table.c.ended.is_not(None)))
        return 0
    events = database.events.c
    connection.execute(database.events.delete().where((events.host == host) & (events.at < seconds)))
    return connection.execute(table.delete().where(is_old)).rowcount


def forget_hosts(connection: Connection, names: Sequence[str]) -> list[str]:
    """Remove hosts with all of their data. Return the hosts that were known."""
    table = database.hosts.c
    known = [str(name) for (name,) in connection.execute(select(table.host).where(table.host.in_(names)))]
    for each in (
        database.hosts,
        database.standings,
        database.failing,
        database.restless,
        database.runs,
        database.events,
        database.periods,
    ):
        connection.execute(each.delete().where(each.c.host.in_(known)))
    return known


_BATCH = 500
"""Maximum documents of one transaction."""
_BATCH_BYTES = 16 * 1024 * 1024
"""Maximum bytes of JSON of one transaction. Decoded JSON needs many times this memory."""
_AT_ONCE = 400
MOST_LISTED = 20
_LONGEST_PATH = 600


class Imported(msgspec.Struct):
    """The result of an import."""

    newest: int = 0
    """Documents that are the newest of their host."""
    late: int = 0
    """Earlier documents with changes or failures, which were stored."""
    known: int = 0
    """Documents without new information."""
    unchanged: int = 0
    """Files that an earlier import read."""
    refused: int = 0
    """Invalid files, including files that were reported before."""
    listed: list[Refused] = []
    """The first newly reported files."""
    unlisted: int = 0
    """Number of further new files."""
    removed: int = 0
    forgotten: int = 0
    """Number of removed runs that were too old or too many."""

    @property
    def read(self) -> int:
        """Number of documents that were read."""
        return self.newest + self.late + self.known

    def add(self, done: Put) -> None:
        """Add the counts of stored documents."""
        self.newest += done.newest
        self.late += done.late
        self.known += done.known

    def refuse(self, refused: Refused) -> None:
        """Count an invalid file that was not reported before."""
        if len(self.listed) < MOST_LISTED:
            self.listed.append(refused)
        else:
            self.unlisted += 1


Progress = Callable[[Imported], None]


def import_documents(
    store: Store,
    sources: Iterable[Source],
    *,
    remove: bool = False,
    progress: Progress = lambda imported: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Imported:
    """Import new documents from ``sources``. ``remove`` deletes imported files.

    Raises ``SourceError``. Documents that were imported before the error stay in the store.
    """
    imported = Imported()
    for source in sources:
        _Import(store, source, imported, remove=remove, progress=progress).run()
    with store.writing() as connection:
        keep = timedelta(days=float(store.setting(connection, "keep")))
        imported.forgotten = forget_before(connection, now() - keep) + forget_beyond(connection)
    return imported


class _Import:
    """The import of one source."""

    def __init__(
        self, store: Store, source: Source, imported: Imported, *, remove: bool, progress: Progress
    ) -> None:
        self._store = store
        self._source = source
        self._imported = imported
        self._remove = remove
        self._progress = progress
        self._known = self._known_files()
        self._batch: list[tuple[Found, Document]] = []
        self._bytes = 0
        self._refused: dict[str, tuple[int, int, str]] = {}
        """New invalid files of this batch, by path: size, stamp, reason."""

    def run(self) -> None:
        visited: set[str] = set()
        for found in self._source.listed():
            path = _path(found.path)
            visited.add(path)
            self._attend(found, path)
            if len(self._batch) + len(self._refused) >= _BATCH or self._bytes >= _BATCH_BYTES:
                self._step()
        self._step()
        self._forget_files([path for path in self._known if path not in visited])

    def _known_files(self) -> dict[str, tuple[int, int, bool]]:
        table = database.documents.c
        query = select(table.path, table.size, table.stamp, table.refused, table.reader).where(
            table.source == self._source.name
        )
        with self._store.reading() as connection:
            return {
                # This version of Puller may accept files that another version refused.
                row.path: (
                    -1 if row.refused and row.reader != __version__ else row.size,
                    row.stamp,
                    bool(row.refused),
                )
                for row in connection.execute(query)
            }

    def _attend(self, found: Found | Refused, path: str) -> None:
        before = self._known.get(path)
        if isinstance(found, Refused):
            self._refuse(
                path, -1, 0, found.why, is_listed=before is not None and before[2] and before[0] == -1
            )
            return
        if before is not None and before[:2] == (found.size, found.stamp):
            if before[2]:
                self._imported.refused += 1
            else:
                self._imported.unchanged += 1
                if self._remove:
                    self._take_away(found)
            return
        try:
            data, arrived = self._source.read(found)
            document = read_document(data, found.host, arrived)
        except Gone:
            pass
        except Unreadable as error:
            self._refuse(path, -1, 0, str(error), is_listed=before is not None and before[2])
        except ValueError as error:
            self._refuse(path, found.size, found.stamp, str(error), is_listed=False)
        else:
            self._batch.append((found, document))
            self._bytes += document.size

    def _refuse(self, path: str, size: int, stamp: int, why: str, *, is_listed: bool) -> None:
        self._imported.refused += 1
        if not is_listed:
            self._imported.refuse(Refused(path, why))
            self._refused[path] = (size, stamp, why)

    def _step(self) -> None:
        """Store a batch with the record of its files."""
        if not self._batch and not self._refused:
            return
        with self._store.writing() as connection:
            done = put(connection, (document for _, document in self._batch))
            self._record(connection)
        self._imported.add(done)
        if self._remove:
            for found, _ in self._batch:
                self._take_away(found)
        self._batch, self._bytes, self._refused = [], 0, {}
        self._progress(self._imported)

    def _take_away(self, result: Found) -> None:
        try:
            self._source.remove(result)
            self._imported.removed += 1
        except OSError as error:
            self._imported.refuse(
                Refused(_path(result.path), f"cannot be removed: {os.strerror(error.errno or 0)}")
            )

    def _record(self, connection: Connection) -> None:
        at = time.time()
        rows = {
            path: {"size": size, "stamp": stamp, "refused": plain(why[:1000])}
            for path, (size, stamp, why) in self._refused.items()
        }
        if not self._remove:
            rows |= {
                _path(found.path): {"size": found.size, "stamp": found.stamp, "refused": ""}
                for found, _ in self._batch
            }
        # Another import may have recorded them in the meantime.
        _delete(connection, self._source.name, list(rows))
        if rows:
            connection.execute(
                database.documents.insert(),
                [
                    {"source": self._source.name, "path": path, "at": at, "reader": __version__, **row}
                    for path, row in rows.items()
                ],
            )

    def _forget_files(self, paths: Sequence[str]) -> None:
        """Delete the records of files that no longer exist."""
        if paths:
            with self._store.writing() as connection:
                _delete(connection, self._source.name, paths)


def refused_files(store: Store, most: int = MOST_LISTED) -> tuple[int, Mapping[str, str]]:
    """Return the number of invalid files, and the newest of them with reasons."""
    table = database.documents.c
    with store.reading() as connection:
        count = connection.execute(select(func.count()).where(table.refused != "")).scalar() or 0
        rows = connection.execute(
            select(table.source, table.path, table.refused)
            .where(table.refused != "")
            .order_by(table.at.desc(), table.path)
            .limit(most)
        )
        return count, {f"{row.source}/{row.path}": row.refused for row in rows}


def _delete(connection: Connection, source: str, paths: Sequence[str]) -> None:
    table = database.documents
    for start in range(0, len(paths), _AT_ONCE):
        part = paths[start : start + _AT_ONCE]
        connection.execute(delete(table).where(table.c.source == source, table.c.path.in_(part)))


def _path(path: str) -> str:
    """Return a path in the form of the store. File names may contain any bytes."""
    text = plain(os.fsencode(path).decode("utf-8", "replace"))
    return text if len(text) <= _LONGEST_PATH else f"{text[: _LONGEST_PATH - 40]}~{hash_of(text)}"


def hash_of(text: str) -> str:
    """Return a digest that distinguishes long paths."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
