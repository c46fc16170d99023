"""Stores of a fleet in every supported database, and the directory of arriving reports."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from puller.fleet.store import database
from puller.fleet.store.database import Store
from puller.fleet.store.import_sources import DirectorySource
from puller.fleet.store.importer import Imported, import_documents
from puller.reporting.report import SentReport
from tests.simulators import fleet
from tests.support.postgresql import running_server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """URL of a private PostgreSQL in a temporary directory."""
    with running_server() as server:
        yield server.url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Location for an empty store, in each database."""
    if request.param == "sqlite":
        return str(tmp_path / "fleet.db")
    url: str = request.getfixturevalue("postgresql")
    empty(url)
    return url


def empty(url: str) -> None:
    """Drop all tables."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(url)
    database.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    made = Store.open(location, make=True)
    yield made
    made.close()


Import = Callable[..., Imported]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Directory in which reports arrive."""
    made = tmp_path / "reports"
    made.mkdir()
    return made


@pytest.fixture
def arrive(store: Store, place: Path) -> Import:
    """Write documents into the directory and import them."""

    def go(*documents: SentReport, **options: Any) -> Imported:
        fleet.deliver(place, documents)
        return imported(store, place, **options)

    return go


def imported(store: Store, place: Path, **options: Any) -> Imported:
    """Import the content of a directory."""
    source = DirectorySource.open(str(place))
    try:
        return import_documents(store, [source], **options)
    finally:
        source.close()


@pytest.fixture
def now() -> datetime:
    return fleet.now()


def ago(now: datetime, minutes: float) -> datetime:
    return now - timedelta(minutes=minutes)


def rows(store: Store, without: Iterable[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of a store about hosts, in a stable order."""
    result = {}
    for table in database.metadata.sorted_tables:
        if table.name in ("documents", *without):
            continue
        with store.reading() as connection:
            all_rows = [dict(row) for row in connection.execute(table.select()).mappings()]
        result[table.name] = sorted(all_rows, key=repr)
    return result
