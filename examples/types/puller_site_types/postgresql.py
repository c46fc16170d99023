"""The parts that the types for PostgreSQL share: the connection, quoted names, and verifiers of passwords.

* psql connects over the Unix socket as the system user, whom the server trusts (peer authentication).
* Statements are its standard input. Arguments, which all users of the machine can read, never contain them.
* A password never leaves this process. The server receives its SCRAM verifier, as from ``\\password`` of psql, and the
  session turns off the log of statements.
"""

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Hashable, Iterator
from typing import Any

import msgspec

from puller.errors import ResourceError
from puller.resources.base import Context, Properties, PropertyError
from puller.resources.tool import Tool
from puller.system.identity import Identity
from puller.system.local_paths import Spellings

_OPTIONS = (
    "--no-psqlrc",
    "--no-password",
    "--quiet",
    "--no-align",
    "--tuples-only",
    "--set=ON_ERROR_STOP=1",
    "--set=VERBOSITY=terse",  # without the statement, which can contain a verifier
    "--dbname=postgres",
    "--file=-",
)
_SESSION = """\
SET standard_conforming_strings = on;
SET log_statement = 'none';
SET log_min_duration_statement = -1;
SET log_min_error_statement = 'panic';
"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$-]{0,62}")
_VERIFIER = re.compile(
    r"SCRAM-SHA-256\$(?P<count>[1-9][0-9]{2,8}):(?P<salt>[A-Za-z0-9+/=]+)\$[A-Za-z0-9+/=]{44}:[A-Za-z0-9+/=]{44}"
)
_ITERATIONS = 4096  # the default of PostgreSQL


class ServerProperties(Properties, frozen=True):
    """The properties of all objects of a server."""

    socket: str = "/var/run/postgresql"
    """The directory with the socket of the server."""
    port: int = 5432
    """The port of the server, which is part of the name of the socket."""
    user: str = "postgres"
    """The system user who connects. The role with this name must be a superuser."""


class Server(msgspec.Struct, frozen=True):
    """A running server."""

    socket: str
    port: int
    user: str

    @classmethod
    def of(cls, properties: ServerProperties) -> "Server":
        """Return the server of a resource."""
        return cls(properties.socket, properties.port, properties.user)

    def is_expected(self, context: Context) -> bool:
        """Return whether, in a dry run, an earlier resource may start the server that is missing now."""
        path = f"{self.socket}/.s.PGSQL.{self.port}"
        return context.noop and not context.system.exists(path) and context.uncertain(path)

    def select(self, context: Context, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a query. Raises ``ResourceError``."""
        text = f"{_SESSION}SELECT row_to_json(rows) FROM ({statement}) rows;\n"  # noqa: S608  statements quote all values
        output = self._psql.query(context.system, *self._arguments, text=text)
        return [json.loads(line) for line in output.splitlines()]

    def execute(self, context: Context, *statements: str, transaction: bool = True) -> None:
        """Execute statements that change the server, all or none. Raises ``ResourceError``.

        ``transaction`` is false for a single statement that PostgreSQL refuses in a transaction.
        """
        text = "".join(f"{statement};\n" for statement in statements)
        text = f"{_SESSION}BEGIN;\n{text}COMMIT;\n" if transaction else f"{_SESSION}{text}"
        self._psql.execute(context.system, *self._arguments, text=text)

    @property
    def _psql(self) -> Tool:
        return Tool("psql", identity=Identity.find(self.user) if os.geteuid() == 0 else None)

    @property
    def _arguments(self) -> tuple[str, ...]:
        return (*_OPTIONS, f"--host={self.socket}", f"--port={self.port}", f"--username={self.user}")


def check_server(properties: ServerProperties) -> Iterator[PropertyError]:
    """Yield the errors of the common properties."""
    yield from check_name("name", properties.name)
    if properties.ensure not in ("present", "absent"):
        yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present or absent")
    if not properties.socket.startswith("/") or not properties.socket.isprintable():
        yield PropertyError("socket", f"is {properties.socket!r}", expected="an absolute path")
    if not 0 < properties.port < 1 << 16:
        yield PropertyError("port", f"is {properties.port}", expected="1 to 65535")


def check_name(name: str, value: str) -> Iterator[PropertyError]:
    """Yield the error of a name that is not plain, or belongs to PostgreSQL."""
    if not _NAME.fullmatch(value) or value.startswith("pg_"):
        expected = "letters, digits, _, $ and -, at most 63, without pg_ at the start"
        yield PropertyError(name, f"is {value!r}", expected=expected)


def identity_of(properties: ServerProperties, spellings: Spellings) -> Hashable:
    """Return the object on the machine: two servers can have objects with one name."""
    return spellings.of(properties.socket), properties.port, properties.name


def quoted(name: str) -> str:
    """Return a name as SQL. The text may have any characters."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def literal(text: str) -> str:
    """Return a text as SQL, for a session with ``standard_conforming_strings``. Raises ``ResourceError``."""
    if "\0" in text:
        raise ResourceError("a text for PostgreSQL contains a null character")
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def is_verifier(password: str) -> bool:
    """Return whether a password is a SCRAM verifier, as the server stores it."""
    return _VERIFIER.fullmatch(password) is not None


def is_password_of(password: str, verifier: str) -> bool:
    """Return whether a verifier belongs to a password."""
    match = _VERIFIER.fullmatch(verifier)
    if is_verifier(password) or match is None:
        return hmac.compare_digest(password, verifier) and match is not None
    salt = base64.b64decode(match["salt"])
    return hmac.compare_digest(verifier_of(password, salt, int(match["count"])), verifier)


def verifier_of(password: str, salt: bytes | None = None, count: int = _ITERATIONS) -> str:
    """Return the verifier of a password (RFC 5802, RFC 7677), with a new salt by default."""
    if is_verifier(password):
        return password
    salt = salt or secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, count)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored, server = hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256")
    encoded = (base64.b64encode(part).decode("ascii") for part in (salt, stored, server))
    return "SCRAM-SHA-256${}:{}${}:{}".format(count, *encoded)
