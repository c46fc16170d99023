"""Stores of a fleet in every supported database, and the directory of arriving reports."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
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


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """URL of a private PostgreSQL in a temporary directory."""
    places = [os.environ["PATH"], *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    programs = [shutil.which(name, path=":".join(places)) for name in ("initdb", "postgres")]
    initdb, program = programs
    assert initdb, "PostgreSQL is not installed (Debian: apt-get install postgresql)"
    assert program
    directory = Path(tempfile.mkdtemp(prefix="puller-postgres-"))
    user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    if user:
        os.chown(directory, pwd.getpwnam(user).pw_uid, -1)
    as_user: dict[str, Any] = {
        "user": user,
        "cwd": directory,
        "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"},
    }
    command: list[Any] = [
        initdb,
        "-D",
        directory / "data",
        "-U",
        "postgres",
        "-A",
        "trust",
        "-N",
        "-E",
        "UTF8",
    ]
    subprocess.run(command, check=True, capture_output=True, **as_user)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options: list[Any] = ["-D", directory / "data", "-p", str(port), "-k", directory, "-h", "127.0.0.1", "-F"]
    with subprocess.Popen([program, *options], stderr=subprocess.DEVNULL, **as_user) as process:
        try:
            _wait_for(port)
            yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
        finally:
            process.send_signal(2)
            process.wait(60)
            shutil.rmtree(directory)


def _wait_for(port: int) -> None:
    import psycopg

    for _ in range(200):
        try:
            psycopg.connect(f"host=127.0.0.1 port={port} user=postgres dbname=postgres").close()
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise AssertionError("PostgreSQL does not answer")


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
