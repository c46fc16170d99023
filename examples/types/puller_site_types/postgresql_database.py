"""The ``postgresql_database`` resource: a database of a PostgreSQL server, with its owner.

* Encoding and locale belong to the files of a database. A difference is an error, and the database stays.
* A database that leaves the manifest stays, because it has data. Only ``ensure: absent`` drops it.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import msgspec

from foundation.differences import ABSENT, Difference, changed, presence
from foundation.problems import ProblemCode
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
    literal,
    quoted,
)

_QUERY = """\
SELECT pg_get_userbyid(datdba) AS owner, pg_encoding_to_char(encoding) AS encoding, datcollate AS locale, datistemplate
FROM pg_database WHERE datname = {name}"""
_FIXED = ("encoding", "locale")
"""Properties that only a new database can have."""


class PostgresqlDatabaseProperties(ServerProperties, frozen=True):
    """The properties of a database."""

    owner: str | None = None
    """The role that owns the database. Unset: the connecting role for a new database, otherwise unmanaged."""
    encoding: str | None = None
    """The encoding of a new database, such as ``UTF8``."""
    locale: str | None = None
    """The locale of a new database, such as ``C.UTF-8``."""
    template: str | None = None
    """The database to copy. The default is ``template0`` with ``encoding`` or ``locale``, otherwise ``template1``."""


class PostgresqlDatabaseState(msgspec.Struct, frozen=True):
    """A database. ``owner`` is empty for a missing database."""

    owner: str = ""
    encoding: str = ""
    locale: str = ""
    is_template: bool = False


class PostgresqlDatabase(Resource[PostgresqlDatabaseProperties, PostgresqlDatabaseState]):
    """A database of a PostgreSQL server."""

    type_name = "postgresql_database"
    properties_type = PostgresqlDatabaseProperties
    providers = ("psql",)
    unused = {  # noqa: RUF012  ClassVar in the base class
        "absent": frozenset({"owner", "encoding", "locale", "template"})
    }

    @property
    def _server(self) -> Server:
        return Server.of(self.properties)

    def look(self) -> PostgresqlDatabaseState:
        """Return the database. Raises ``ResourceError``."""
        if self._server.is_expected(self.context):
            return PostgresqlDatabaseState()
        rows = self._server.select(self.context, _QUERY.format(name=literal(self.properties.name)))
        if not rows:
            return PostgresqlDatabaseState()
        row = rows[0]
        return PostgresqlDatabaseState(row["owner"], row["encoding"], row["locale"], row["datistemplate"])

    def differences(self, actual: PostgresqlDatabaseState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        properties = self.properties
        if (ensure := self.final_ensure(actual)) != properties.ensure:
            return [presence(ensure, properties.ensure)]
        if not actual.owner:
            return []
        pairs = ((name, getattr(actual, name), getattr(properties, name)) for name in ("owner", *_FIXED))
        return [
            changed(name, current, desired)
            for name, current, desired in pairs
            if desired not in (None, current)
        ]

    def change(self, differences: Sequence[Difference], actual: PostgresqlDatabaseState) -> None:
        """Create, change or drop the database. Raises ``ResourceError``."""
        self._raise_predictable_failures(differences, actual)
        properties, name = self.properties, quoted(self.properties.name)
        if properties.ensure == "absent":
            self._server.execute(self.context, f"DROP DATABASE {name}", transaction=False)
        elif actual.owner:
            owner = quoted(properties.owner or actual.owner)
            self._server.execute(self.context, f"ALTER DATABASE {name} OWNER TO {owner}")
        else:
            is_fixed = any(getattr(properties, each) is not None for each in _FIXED)
            template = properties.template or ("template0" if is_fixed else "template1")
            words = [f"CREATE DATABASE {name} TEMPLATE {quoted(template)}"]
            words += [f"OWNER {quoted(properties.owner)}"] if properties.owner else []
            words += [f"ENCODING {literal(properties.encoding)}"] if properties.encoding else []
            words += [f"LOCALE {literal(properties.locale)}"] if properties.locale else []
            self._server.execute(self.context, " ".join(words), transaction=False)

    def _raise_predictable_failures(
        self, differences: Sequence[Difference], actual: PostgresqlDatabaseState
    ) -> None:
        """Raise ``ResourceError`` for a change that PostgreSQL cannot make, and for its own databases."""
        name = self.properties.name
        if self.properties.ensure == "absent" and (actual.is_template or name == "postgres"):
            raise ResourceError(
                f"database {name} belongs to PostgreSQL, and is never dropped",
                code=ProblemCode.CHANGE_REFUSED,
            )
        if fixed := [each.property for each in differences if each.property in _FIXED]:
            raise ResourceError(
                f"{' and '.join(fixed)} of the database {name} cannot be changed",
                code=ProblemCode.CHANGE_REFUSED,
                hint="create another database, and copy the data",
            )

    def noop_message(self, differences: Sequence[Difference], actual: PostgresqlDatabaseState) -> str:
        self._raise_predictable_failures(differences, actual)
        name = self.properties.name
        if self.properties.ensure == "absent":
            return f"Would have dropped the database {name}"
        if not actual.owner:
            return f"Would have created the database {name}"
        return f"Would have given the database {name} to {self.properties.owner}"

    def final_ensure(self, actual: PostgresqlDatabaseState) -> str:
        return "present" if actual.owner else ABSENT

    def changed_paths(self, actual: PostgresqlDatabaseState) -> None:
        """Return ``None``: only the server may change its files."""
        del actual

    def way_back(self, actual: PostgresqlDatabaseState) -> PostgresqlDatabaseProperties | None:
        if not actual.owner:
            return None
        return msgspec.structs.replace(
            self.properties, ensure="present", owner=actual.owner, encoding=None, locale=None
        )

    @classmethod
    def identity(cls, properties: Any, spellings: Spellings) -> Hashable:
        return identity_of(properties, spellings)

    @classmethod
    def subjects(cls, properties: PostgresqlDatabaseProperties) -> Iterator[str]:
        del properties
        yield "postgresql"

    @classmethod
    def follows(cls, properties: PostgresqlDatabaseProperties, declared: Any) -> Iterator[Reference]:
        del declared
        yield Reference.to("service", "postgresql")
        if properties.owner is not None:
            yield Reference.to("postgresql_role", properties.owner)

    @classmethod
    def check(cls, properties: PostgresqlDatabaseProperties) -> Iterator[PropertyError]:
        yield from check_server(properties)
        for name in ("owner", "template"):
            if (value := getattr(properties, name)) is not None:
                yield from check_name(name, value)
        for name in _FIXED:
            value = getattr(properties, name)
            if value is not None and not (value and value.isascii() and value.isprintable()):
                yield PropertyError(name, f"is {value!r}", expected="a name such as 'UTF8' or 'C.UTF-8'")
