"""The database of a store and its tables: an SQLite file, or any database with an SQLAlchemy URL.

* Times are seconds since 1970, UTC. Lists and mappings are JSON.
* The last report of each host is stored completely. Earlier reports with changes or failures are kept for a limited
  time.
* A lasting condition, such as the state of a host or the version of a bundle, is one row with its begin and end. A
  fleet without changes adds no rows.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    event,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError, SQLAlchemyError

from bundles.filesystem.safe_paths import open_parent
from foundation.extras import how_to_install
from foundation.problems import ProblemCode
from puller.errors import MissingSourceError, SourceError, UsageError, file_problem

# Tables.

FORMAT = 3
"""Format of the store. Other formats are rejected."""

metadata = MetaData()
_NAME, _REFERENCE = String(255), Text

settings = Table(
    "settings",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

hosts = Table(
    "hosts",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("run", String(64), nullable=False),  # the last run
    Column("at", Double, nullable=False),  # end of that run
    Column("condition", String(16), nullable=False),
    Column("why", Text, nullable=False),
    Column("exit_status", Integer, nullable=False),
    Column("system", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("expires", Double),  # the first expiry of the site's metadata
    Column("ahead", Double),  # seconds of lead of its clock, if too large
    Column("facts", Text, nullable=False),
    Column("details", String(64), nullable=False),  # a digest of the host's rows in the tables below
    Column("document", LargeBinary, nullable=False),
)

standings = Table(  # the bundles of a host
    "standings",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("bundle", _NAME, primary_key=True),
    Column("channel", Text, nullable=False),
    Column("enforced", Text, nullable=False),
    Column("since", Double),
    Column("published", Text, nullable=False),
    Column("waits_until", Text, nullable=False),
    Column("good", Text, nullable=False),
    Column("held", Text, nullable=False),
    Column("pin", Text, nullable=False),
    Column("quarantined", Text, nullable=False),
    Index("standings_by_bundle", "bundle"),
)

failing = Table(  # failures of the last run of a host
    "failing",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("key", String(32), primary_key=True),
    Column("bundle", Text, nullable=False),
    Column("reference", _REFERENCE, nullable=False),
    Column("problem", Text, nullable=False),  # without the values of the host
    Column("example", Text, nullable=False),  # the problem of the host
    Column("since", Double, nullable=False),
    Index("failing_by_key", "key"),
)

restless = Table(  # resources of a host that change in run after run
    "restless",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("bundle", Text, nullable=False),
    Column("reference", _REFERENCE, nullable=False),
    Column("runs", Integer, nullable=False),
    Column("changes", Integer, nullable=False),
    Column("differences", Text, nullable=False),
)

runs = Table(  # runs with changes or failures
    "runs",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("run", String(64), primary_key=True),
    Column("at", Double, nullable=False, index=True),
    Column("exit_status", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("counts", Text, nullable=False),
    Column("problems", Text, nullable=False),
)

events = Table(  # events of those runs: resources that changed, failed or were skipped for a failure
    "events",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("run", String(64), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("at", Double, nullable=False, index=True),
    Column("bundle", Text, nullable=False),
    Column("reference", _REFERENCE, nullable=False),
    Column("resource", String(16), nullable=False),  # a digest, because the size of an index is limited
    Column("state", String(16), nullable=False),
    Column("problems", Text, nullable=False),
    Column("sentences", Text, nullable=False),
    Column("differences", Text, nullable=False),
    Index("events_by_resource", "resource", "at"),
)

periods = Table(  # a host in a condition, with a version of a bundle (empty: the host itself)
    "periods",
    metadata,
    Column("host", _NAME, primary_key=True),
    Column("bundle", _NAME, primary_key=True),
    Column("began", Double, primary_key=True),
    Column("ended", Double),
    Column("version", Text, nullable=False),
    Column("condition", String(16), nullable=False),
    Index("periods_by_bundle", "bundle", "began"),
)

documents = Table(  # imported files, as far as they still exist
    "documents",
    metadata,
    Column("source", String(1024), primary_key=True),
    Column("path", String(600), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("stamp", BigInteger, nullable=False),  # of its last change
    Column("refused", Text, nullable=False),  # the reason, empty if imported
    Column("reader", String(64), nullable=False),  # the version of Puller that read it
    Column("at", Double, nullable=False),
)


_BUSY = 60
"""Seconds that a process waits for another one that writes."""
DEFAULTS = {"keep": "90", "silent": "2"}
"""Days to keep runs with changes or failures, and hours after which a host is silent."""


class Store:
    """An open store. Methods raise ``SourceError`` if the database reports an error."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        """Name to display, without a password."""

    @classmethod
    def open(cls, location: str, *, make: bool = False) -> "Store":
        """Open the store in the SQLite file ``location``, or at a URL of SQLAlchemy.

        ``make`` creates a store in an empty database. Raises ``SourceError`` for another database or format, and
        ``UsageError`` for an invalid location.
        """
        is_url = "://" in location
        if not is_url and not make and not Path(location).exists():
            raise MissingSourceError(
                f"{location}: the store is missing",
                code=ProblemCode.UNUSABLE_STORE,
                hint="`puller fleet import` creates it",
            )
        try:
            url = (
                sqlalchemy.make_url(location)
                if is_url
                else sqlalchemy.URL.create("sqlite", database=location)
            )
            engine = sqlalchemy.create_engine(url, **_options(url.get_backend_name()))
        except ImportError as error:
            hint = f". {how_to_install('postgresql')}" if url.get_backend_name() == "postgresql" else ""
            raise UsageError(
                f"a driver for the store's database is not installed: {error}{hint}",
                code=ProblemCode.MISSING_DEPENDENCY,
            ) from None
        except sqlalchemy.exc.ArgumentError as error:
            raise UsageError(
                f"the URL of the store is invalid: {error}", code=ProblemCode.UNUSABLE_STORE
            ) from None
        if make and url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
            _create_private(str(url.database))
        store = cls(engine, url.render_as_string(hide_password=True) if is_url else location)
        if url.get_backend_name() == "sqlite":
            _prepare_sqlite(engine)
        try:
            store._prepare(make=make)
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Close the database."""
        self.engine.dispose()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction, with a consistent view as far as the database supports it."""
        with _explained(self.name), self.engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                connection.execute(text("BEGIN"))
            elif connection.dialect.name == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a write transaction. Only one process writes at a time."""
        with _explained(self.name), self.engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                connection.execute(text("BEGIN IMMEDIATE"))
            else:
                row = select(settings.c.value).where(settings.c.name == "format").with_for_update()
                connection.execute(row)
            yield connection
            connection.commit()

    def setting(self, connection: Connection, name: str) -> str:
        """Return a setting of the store, or its value in ``DEFAULTS``."""
        result = connection.execute(select(settings.c.value).where(settings.c.name == name)).scalar()
        return DEFAULTS[name] if result is None else str(result)

    def set(self, connection: Connection, name: str, value: str) -> None:
        """Store a setting."""
        connection.execute(settings.delete().where(settings.c.name == name))
        connection.execute(settings.insert().values(name=name, value=value))

    def _prepare(self, *, make: bool) -> None:
        with _explained(self.name), self.engine.connect() as connection:
            there = inspect(connection).has_table("settings")
        if not there:
            if not make:
                raise MissingSourceError(
                    f"{self.name}: the store is missing",
                    code=ProblemCode.UNUSABLE_STORE,
                    hint="`puller fleet import` creates it",
                )
            try:
                with _explained(self.name, IntegrityError, OperationalError, ProgrammingError):
                    self._make()
            except (IntegrityError, OperationalError, ProgrammingError):
                pass  # another process made it, or the query below reports the error
        with _explained(self.name), self.engine.connect() as connection:
            result = connection.execute(select(settings.c.value).where(settings.c.name == "format")).scalar()
        if result is None:
            raise SourceError(
                f"{self.name}: is another database, not a store", code=ProblemCode.UNUSABLE_STORE
            )
        if result != str(FORMAT):
            raise SourceError(
                f"{self.name}: is a store of format {result}, and this version of Puller reads {FORMAT}",
                code=ProblemCode.UNUSABLE_STORE,
            )

    def _make(self) -> None:
        """Create all tables and the format in one transaction, so that the store is always complete."""
        with self.engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                connection.execute(text("BEGIN IMMEDIATE"))
                if inspect(connection).has_table("settings"):
                    return
            metadata.create_all(connection)
            connection.execute(settings.insert().values(name="format", value=str(FORMAT)))
            connection.commit()


def _create_private(path: str) -> None:
    """Create the database file for its owner alone, as reports are.

    SQLite gives ``-wal`` and ``-shm`` the same mode. An existing file keeps its mode. Raises ``SourceError``.
    """
    try:
        with open_parent(path) as (directory, name), contextlib.suppress(FileExistsError):
            os.close(
                os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
            )
    except OSError as error:
        raise SourceError(
            file_problem(error, "cannot be used", where=path), code=ProblemCode.UNUSABLE_STORE
        ) from error


def _options(backend: str) -> dict[str, Any]:
    if backend == "sqlite":
        return {"connect_args": {"timeout": _BUSY}}
    if backend == "postgresql":
        return {"isolation_level": "READ COMMITTED", "pool_pre_ping": True}
    return {"pool_pre_ping": True}


def _prepare_sqlite(engine: Engine) -> None:
    """Configure SQLite: readers do not wait for a writer, and the caller begins transactions."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: Any) -> None:
        del record
        connection.isolation_level = None
        cursor = connection.cursor()
        for tries_left in range(100, -1, -1):  # SQLite does not wait for this lock as for others
            try:
                cursor.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or not tries_left:
                    raise
                time.sleep(0.05)
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.close()


@contextlib.contextmanager
def _explained(name: str, *passed: type[Exception]) -> Iterator[None]:
    try:
        yield
    except passed:
        raise
    except SQLAlchemyError as error:
        # The first line is the database's message. The rest is the statement with its values.
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()
        raise SourceError(
            f"{name}: the store cannot be used: {cause[0] if cause else error}",
            code=ProblemCode.UNUSABLE_STORE,
        ) from error
