"""A PostgreSQL server of its own in a temporary directory."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Server(NamedTuple):
    """A running server. The directory has its socket, and ``log`` all statements."""

    directory: Path
    port: int
    user: str
    """The system user of the server. A superuser has this name too."""

    @property
    def url(self) -> str:
        """The URL for the superuser ``postgres``, over TCP."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def log(self) -> Path:
        """The log of the server."""
        return self.directory / "log"

    def query(self, statement: str, **options: Any) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows. ``options`` are those of libpq."""
        import psycopg

        parameters = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": "postgres",
            "dbname": "postgres",
            **options,
        }
        with psycopg.connect(autocommit=True, **parameters) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """Start a server as an ordinary user, and remove it at the end."""
    places = [os.environ["PATH"], *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    initdb, program = (shutil.which(name, path=":".join(places)) for name in ("initdb", "postgres"))
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
    data = directory / "data"
    command: list[Any] = [initdb, "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8"]
    subprocess.run(command, check=True, capture_output=True, **as_user)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options: list[Any] = ["-D", data, "-p", str(port), "-k", directory, "-h", "127.0.0.1", "-F"]
    options += ["-c", "log_statement=all"]
    server = Server(directory, port, user or getpass.getuser())
    with (
        server.log.open("wb") as log,
        subprocess.Popen([program, *options], stderr=log, **as_user) as process,
    ):
        try:
            _wait_for(server)
            yield server
        finally:
            process.send_signal(2)
            process.wait(60)
            shutil.rmtree(directory)


def _wait_for(server: Server) -> None:
    import psycopg

    for _ in range(200):
        try:
            server.query("SELECT 1")
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise AssertionError("PostgreSQL does not answer")
