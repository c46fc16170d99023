"""Stores of both databases: SQLite in a file, and a PostgreSQL that is started for the tests."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_NOBODY = 65534


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found and (initdb := shutil.which("initdb")):
        found = [Path(initdb)]
    if not found:
        pytest.skip("needs PostgreSQL")
    return found[-1].parent


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL on a socket in a directory of its own, run by an ordinary user."""
    programs = _programs()
    become = []
    directory = Path(tempfile.mkdtemp(prefix="puller-pg-"))  # names of sockets are short
    if os.geteuid() == 0:
        become = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--"]
        os.chown(directory, _NOBODY, _NOBODY)
    data = str(directory / "data")

    def run(*command: str) -> None:
        subprocess.run([*become, *command], check=True, capture_output=True, timeout=120, cwd=directory)

    try:
        run(str(programs / "initdb"), "-D", data, "-U", "puller", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={directory} -c fsync=off"
        log = str(directory / "log")
        run(str(programs / "pg_ctl"), "-D", data, "-w", "-s", "-l", log, "-o", options, "start")
        try:
            yield f"postgresql+psycopg://puller@/postgres?host={directory}"
        finally:
            run(str(programs / "pg_ctl"), "-D", data, "-w", "-s", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def new_database(postgresql: str) -> str:
    """The URL of a database in which there is nothing."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(postgresql, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
    return postgresql


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store can be made."""
    if request.param == "sqlite":
        return str(tmp_path / "fleet.db")
    found: str = request.getfixturevalue("new_database")
    return found
