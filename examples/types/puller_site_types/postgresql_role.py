"""The ``postgresql_role`` resource: a role of a PostgreSQL server, with its password and memberships.

A superuser is neither changed nor removed: a mistake would lock the administrator out.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import msgspec

from foundation.differences import ABSENT, Difference, added, changed, presence, secret
from foundation.problems import ProblemCode
from hiera.values import Secret
from puller.errors import ResourceError
from puller.resources.base import PropertyError, Resource
from puller.system.local_paths import Spellings
from puller.values.common_properties import Reference
from puller_site_types.postgresql import (
    Server,
    ServerProperties,
    check_name,
    check_server,
    identity_of,
    is_password_of,
    is_verifier,
    literal,
    quoted,
    verifier_of,
)

_FLAGS = ("login", "createdb", "createrole", "replication")
_QUERY = """\
SELECT rolsuper, rolcanlogin, rolcreatedb, rolcreaterole, rolreplication, rolconnlimit, rolpassword,
    ARRAY(SELECT pg_get_userbyid(roleid) FROM pg_auth_members WHERE member = role.oid ORDER BY 1) AS groups
FROM pg_authid role WHERE rolname = {name}"""


class PostgresqlRoleProperties(ServerProperties, frozen=True):
    """The properties of a role."""

    login: bool = True
    """Whether clients can connect as the role."""
    createdb: bool | None = None
    """Whether the role can create databases. Unset: unmanaged."""
    createrole: bool | None = None
    """Whether the role can create roles. Unset: unmanaged."""
    replication: bool | None = None
    """Whether the role can replicate the server. Unset: unmanaged."""
    connection_limit: int | None = None
    """The number of connections at a time, -1 for any. Unset: unmanaged."""
    password: Secret | None = None
    """The password, or its SCRAM verifier. Unset: unmanaged."""
    member_of: tuple[str, ...] = ()
    """Roles whose permissions it has. Other memberships stay."""


class PostgresqlRoleState(msgspec.Struct, frozen=True):
    """A role. ``flags`` is ``None`` for a missing role."""

    flags: dict[str, bool] | None
    is_superuser: bool = False
    connection_limit: int = -1
    verifier: Secret | None = None
    member_of: tuple[str, ...] = ()


class PostgresqlRole(Resource[PostgresqlRoleProperties, PostgresqlRoleState]):
    """A role of a PostgreSQL server."""

    type_name = "postgresql_role"
    properties_type = PostgresqlRoleProperties
    providers = ("psql",)
    secret_properties = frozenset({"password"})
    removable = True
    unused = {  # noqa: RUF012  ClassVar in the base class
        "absent": frozenset({*_FLAGS, "connection_limit", "password", "member_of"})
    }

    @property
    def _server(self) -> Server:
        return Server.of(self.properties)

    def look(self) -> PostgresqlRoleState:
        """Return the role. Raises ``ResourceError``."""
        if self._server.is_expected(self.context):
            return PostgresqlRoleState(None)
        rows = self._server.select(self.context, _QUERY.format(name=literal(self.properties.name)))
        if not rows:
            return PostgresqlRoleState(None)
        row = rows[0]
        columns = ("rolcanlogin", "rolcreatedb", "rolcreaterole", "rolreplication")
        return PostgresqlRoleState(
            flags={flag: row[column] for flag, column in zip(_FLAGS, columns, strict=True)},
            is_superuser=row["rolsuper"],
            connection_limit=row["rolconnlimit"],
            verifier=None if row["rolpassword"] is None else Secret(row["rolpassword"]),
            member_of=tuple(row["groups"]),
        )

    def differences(self, actual: PostgresqlRoleState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        properties = self.properties
        if (ensure := self.final_ensure(actual)) != properties.ensure:
            return [presence(ensure, properties.ensure)]
        if actual.flags is None:
            return []
        pairs = ((flag, actual.flags[flag], getattr(properties, flag)) for flag in _FLAGS)
        differences = [
            changed(flag, str(current).lower(), str(desired).lower())
            for flag, current, desired in pairs
            if desired not in (None, current)
        ]
        if properties.connection_limit not in (None, actual.connection_limit):
            limits = (str(actual.connection_limit), str(properties.connection_limit))
            differences.append(changed("connection_limit", *limits))
        if not self._has_password(actual):
            differences.append(secret("password"))
        missing = sorted({*properties.member_of} - {*actual.member_of})
        return [*differences, *(added("member_of", role) for role in missing)]

    def _has_password(self, actual: PostgresqlRoleState) -> bool:
        desired, current = self.properties.password, actual.verifier
        if desired is None:
            return True
        return current is not None and is_password_of(desired.reveal(), current.reveal())

    def change(self, differences: Sequence[Difference], actual: PostgresqlRoleState) -> None:
        """Create, change or remove the role, in one transaction. Raises ``ResourceError``."""
        del differences
        self._refuse_superuser(actual)
        properties, name = self.properties, quoted(self.properties.name)
        if properties.ensure == "absent":
            self._server.execute(self.context, f"DROP ROLE {name}")
            return
        desired = {flag: getattr(properties, flag) for flag in _FLAGS}
        words = [
            f"{'' if is_set else 'NO'}{flag.upper()}"
            for flag, is_set in desired.items()
            if is_set is not None
        ]
        if properties.connection_limit is not None:
            words.append(f"CONNECTION LIMIT {properties.connection_limit}")
        if properties.password is not None and not self._has_password(actual):
            words.append(f"PASSWORD {literal(verifier_of(properties.password.reveal()))}")
        verb = "CREATE" if actual.flags is None else "ALTER"
        missing = sorted({*properties.member_of} - {*actual.member_of})
        grants = (f"GRANT {quoted(role)} TO {name}" for role in missing)
        self._server.execute(self.context, f"{verb} ROLE {name} {' '.join(words)}", *grants)

    def _refuse_superuser(self, actual: PostgresqlRoleState) -> None:
        if actual.is_superuser:
            raise ResourceError(
                f"role {self.properties.name} is a superuser, which is neither changed nor removed",
                code=ProblemCode.CHANGE_REFUSED,
                hint="change the role by hand",
            )

    def noop_message(self, differences: Sequence[Difference], actual: PostgresqlRoleState) -> str:
        self._refuse_superuser(actual)
        name = self.properties.name
        if self.properties.ensure == "absent":
            return f"Would have removed the role {name}"
        if actual.flags is None:
            return f"Would have created the role {name}"
        names = dict.fromkeys(difference.property for difference in differences)
        return f"Would have changed {', '.join(names)} of the role {name}"

    def final_ensure(self, actual: PostgresqlRoleState) -> str:
        return ABSENT if actual.flags is None else "present"

    def describe(self, actual: PostgresqlRoleState) -> dict[str, Any]:
        if actual.flags is None:
            return {"ensure": ABSENT}
        return {
            "ensure": "present",
            **actual.flags,
            "superuser": actual.is_superuser,
            "connection_limit": actual.connection_limit,
            "has_password": actual.verifier is not None,
            "member_of": list(actual.member_of),
        }

    def changed_paths(self, actual: PostgresqlRoleState) -> None:
        """Return ``None``: the role is no file."""
        del actual

    def way_back(self, actual: PostgresqlRoleState) -> PostgresqlRoleProperties | None:
        """Return the role without its password, which only the server has."""
        if actual.flags is None:
            return None
        properties = self.properties
        return msgspec.structs.replace(
            properties,
            ensure="present",
            connection_limit=actual.connection_limit,
            member_of=actual.member_of,
            password=None,
            **actual.flags,
        )

    @classmethod
    def identity(cls, properties: Any, spellings: Spellings) -> Hashable:
        return identity_of(properties, spellings)

    @classmethod
    def subjects(cls, properties: PostgresqlRoleProperties) -> Iterator[str]:
        del properties
        yield "postgresql"

    @classmethod
    def follows(cls, properties: PostgresqlRoleProperties, declared: Any) -> Iterator[Reference]:
        del declared
        yield Reference.to("service", "postgresql")
        yield from (Reference.to(cls.type_name, role) for role in properties.member_of)

    @classmethod
    def check(cls, properties: PostgresqlRoleProperties) -> Iterator[PropertyError]:
        yield from check_server(properties)
        for role in properties.member_of:
            if not role.startswith("pg_"):  # roles of PostgreSQL, such as pg_monitor, can have members
                yield from check_name("member_of", role)
        if properties.connection_limit is not None and properties.connection_limit < -1:
            yield PropertyError(
                "connection_limit", f"is {properties.connection_limit}", expected="-1 or more"
            )
        password = "" if properties.password is None else str(properties.password.reveal())
        is_plain = password.isascii() and password.isprintable()
        if properties.password is not None and not (password and is_plain) and not is_verifier(password):
            yield PropertyError(
                "password",
                "is empty, or has characters other than printable ASCII",
                expected="another password, or its SCRAM verifier",
                shows_value=False,
            )
