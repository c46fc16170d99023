"""The types for PostgreSQL of ``examples/types``, with a real server and its real psql."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.site_types.conftest import ROOT, MakeSite, SiteTypes
from tests.support.postgresql import Server, running_server

pytestmark = pytest.mark.postgresql

PASSWORD = "correct 'horse' \\ \"battery\""


@pytest.fixture(scope="module")
def started() -> Iterator[Server]:
    with running_server() as server:
        server.query(f'CREATE ROLE "{server.user}" SUPERUSER LOGIN')
        yield server


@pytest.fixture
def server(started: Server) -> Iterator[Server]:
    """The server without objects of earlier tests."""
    yield started
    for (name,) in started.query("SELECT datname FROM pg_database WHERE oid > 16000"):
        started.query(f'DROP DATABASE "{name}"')
    own = f"SELECT rolname FROM pg_roles WHERE oid > 16000 AND rolname <> '{started.user}'"
    for (name,) in started.query(own):
        started.query(f'DROP ROLE "{name}"')


@pytest.fixture
def site(make_site: MakeSite) -> SiteTypes:
    return make_site()


def on(server: Server, **properties: Any) -> dict[str, Any]:
    return {"socket": str(server.directory), "port": server.port, "user": server.user, **properties}


def role(server: Server, name: str, **properties: Any) -> dict[str, object]:
    return {"postgresql_role": [{name: on(server, **properties)}]}


def database(server: Server, name: str, **properties: Any) -> dict[str, object]:
    return {"postgresql_database": [{name: on(server, **properties)}]}


def verifier(server: Server, name: str) -> str:
    ((text,),) = server.query(f"SELECT rolpassword FROM pg_authid WHERE rolname = '{name}'")
    return str(text)


def flags(server: Server, name: str) -> tuple[Any, ...]:
    columns = "rolcanlogin, rolcreatedb, rolcreaterole, rolreplication, rolconnlimit"
    (row,) = server.query(f"SELECT {columns} FROM pg_roles WHERE rolname = '{name}'")
    return row


def test_role_and_database_are_created_in_order(site: SiteTypes, server: Server) -> None:
    owner = role(server, "shop", password=PASSWORD, member_of=["readers"])
    shop = database(server, "shop", owner="shop", encoding="UTF8", locale="C")
    site.converge(shop, owner, role(server, "readers", login=False))
    query = "SELECT pg_get_userbyid(datdba), pg_encoding_to_char(encoding), datcollate FROM pg_database"
    assert server.query(f"{query} WHERE datname = 'shop'") == [("shop", "UTF8", "C")]
    assert server.query("SELECT pg_has_role('shop', 'readers', 'MEMBER')") == [(True,)]
    assert flags(server, "readers")[0] is False


def test_example_creates_roles_and_databases(site: SiteTypes, server: Server) -> None:
    data = {"server": on(server), "password": PASSWORD}
    (site.directory / "given.yaml").write_text(yaml.safe_dump({"data": data}))
    command = ("apply", str(ROOT / "databases.yaml"), "--data", "given.yaml", "--state-directory", "state")
    for changed in ("3 changed", " 0 changed"):
        assert site.run(*command) == 0, site.output
        assert changed in site.output, site.output
    assert site.run("lint", str(ROOT / "databases.yaml")) == 0, site.output


def test_password_is_accepted_by_the_server(site: SiteTypes, server: Server) -> None:
    hba = server.directory / "data/pg_hba.conf"
    before = hba.read_text()
    site.converge(role(server, "shop", password=PASSWORD))
    hba.write_text(f"host all shop 127.0.0.1/32 scram-sha-256\n{before}")
    try:
        server.query("SELECT pg_reload_conf()")
        assert server.query("SELECT current_user", user="shop", password=PASSWORD) == [("shop",)]
    finally:
        hba.write_text(before)
        server.query("SELECT pg_reload_conf()")


def test_changed_password_is_set_again(site: SiteTypes, server: Server) -> None:
    site.converge(role(server, "shop", password="one"))
    first = verifier(server, "shop")
    site.converge(role(server, "shop", password="two"))
    assert verifier(server, "shop") != first
    assert site.apply(role(server, "shop", password=first)) == 0  # a verifier instead of its password
    assert verifier(server, "shop") == first
    assert site.apply(role(server, "shop", password="one")) == 0
    assert " 0 changed" in site.output, site.output
    server.query("SET password_encryption = 'md5'; ALTER ROLE shop PASSWORD 'one'")
    site.converge(role(server, "shop", password="one"))
    assert verifier(server, "shop").startswith("SCRAM-SHA-256$4096:")
    site.converge(role(server, "shop"))  # unmanaged
    assert verifier(server, "shop") != "None"


def test_password_is_in_no_output_log_or_state(site: SiteTypes, server: Server) -> None:
    secret = "canary-5d1f"
    site.converge(role(server, "shop", password=secret))
    after = verifier(server, "shop")
    assert site.apply(role(server, "shop", password="another")) == 0
    texts = [site.output, server.log.read_text()]
    texts += [
        path.read_text(errors="replace") for path in (site.directory / "state").rglob("*") if path.is_file()
    ]
    assert "password (sensitive)" in site.output
    assert not [text for text in texts if secret in text or "another" in text or after in text]
    statements = server.log.read_text()
    assert "SET log_statement = 'none'" in statements
    assert "ROLE" not in statements.rpartition("SET log_statement = 'none'")[2]


def test_ensure_changes_one_role(site: SiteTypes, server: Server) -> None:
    place = ["--socket", str(server.directory), "--port", str(server.port), "--user", server.user]
    assert site.run("ensure", "postgresql_role", "shop", "--createdb", *place) == 0, site.output
    assert flags(server, "shop")[:2] == (True, True)
    assert site.run("ensure", "postgresql_role", "shop", "absent", *place) == 0, site.output
    assert server.query("SELECT 1 FROM pg_roles WHERE rolname = 'shop'") == []


def test_each_property_of_a_role_is_changed(site: SiteTypes, server: Server) -> None:
    site.converge(role(server, "shop"))
    assert flags(server, "shop") == (True, False, False, False, -1)
    desired = {"login": False, "createdb": True, "createrole": True, "replication": True}
    site.converge(role(server, "shop", connection_limit=3, **desired))
    assert flags(server, "shop") == (False, True, True, True, 3)
    site.converge(role(server, "shop"))
    assert flags(server, "shop") == (True, True, True, True, 3)


def test_absent_removes_database_and_role(site: SiteTypes, server: Server) -> None:
    site.converge(role(server, "shop"), database(server, "shop", owner="shop"))
    site.converge(database(server, "shop", ensure="absent"), role(server, "shop", ensure="absent"))
    assert server.query("SELECT 1 FROM pg_database WHERE datname = 'shop'") == []


def test_role_with_objects_is_not_removed(site: SiteTypes, server: Server) -> None:
    site.converge(role(server, "shop"), database(server, "shop", owner="shop"))
    assert site.apply(role(server, "shop", ensure="absent")) == 4
    assert 'role "shop" cannot be dropped because some objects depend on it' in site.output


@pytest.mark.parametrize("noop", [True, False])
@pytest.mark.parametrize("properties", [{"ensure": "absent"}, {"createdb": False}])
def test_superuser_is_neither_changed_nor_removed(
    site: SiteTypes, server: Server, properties: dict[str, Any], noop: bool
) -> None:
    assert site.apply(role(server, "postgres", **properties), noop=noop) == 4
    assert "role postgres is a superuser, which is neither changed nor removed" in site.output
    assert flags(server, "postgres") == (True, True, True, True, -1)


@pytest.mark.parametrize("noop", [True, False])
@pytest.mark.parametrize("name", ["postgres", "template0", "template1"])
def test_databases_of_the_server_are_never_dropped(
    site: SiteTypes, server: Server, name: str, noop: bool
) -> None:
    assert site.apply(database(server, name, ensure="absent"), noop=noop) == 4
    assert f"database {name} belongs to PostgreSQL, and is never dropped" in site.output


@pytest.mark.parametrize("noop", [True, False])
def test_encoding_of_a_database_stays(site: SiteTypes, server: Server, noop: bool) -> None:
    site.converge(database(server, "shop"))
    assert site.apply(database(server, "shop", encoding="LATIN1"), noop=noop) == 4
    assert "encoding of the database shop cannot be changed" in site.output


def test_owner_of_a_database_is_changed(site: SiteTypes, server: Server) -> None:
    site.converge(database(server, "shop"))
    site.converge(role(server, "owner"), database(server, "shop", owner="owner"))
    query = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'shop'"
    assert server.query(query) == [("owner",)]


def test_names_are_quoted(site: SiteTypes, server: Server) -> None:
    site.converge(role(server, "Web-User$1"), database(server, "Select", owner="Web-User$1"))
    assert server.query("SELECT rolname FROM pg_roles WHERE rolname = 'Web-User$1'")


def test_missing_role_of_a_member_changes_nothing(site: SiteTypes, server: Server) -> None:
    assert site.apply(role(server, "shop", member_of=["nobody_here"])) == 4
    assert 'role "nobody_here" does not exist' in site.output
    assert server.query("SELECT 1 FROM pg_roles WHERE rolname = 'shop'") == []


def test_server_that_is_away_is_a_failure(site: SiteTypes, tmp_path: Path, server: Server) -> None:
    properties = {**on(server), "socket": str(tmp_path)}
    away: dict[str, object] = {"postgresql_role": [{"shop": properties}]}
    assert site.apply(away) == 4
    assert re.search(r"psql .*: exit code 2: psql: error: connection to server on socket", site.output)
    assert site.apply({"exec": ["true"]}, away, noop=True) == 0  # the command may start the server
    assert "Would have created the role shop" in site.output


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ({"postgresql_role": ["x; DROP ROLE y"]}, "name is 'x; DROP ROLE y'"),
        ({"postgresql_role": ["pg_monitor"]}, "name is 'pg_monitor'"),
        ({"postgresql_role": ["x\ny"]}, "name is 'x\\ny'"),
        ({"postgresql_role": [{"x": {"ensure": "gone"}}]}, "ensure is 'gone'"),
        ({"postgresql_role": [{"x": {"port": 0}}]}, "port is 0"),
        ({"postgresql_role": [{"x": {"socket": "run"}}]}, "socket is 'run'"),
        ({"postgresql_role": [{"x": {"member_of": ["a b"]}}]}, "member_of is 'a b'"),
        ({"postgresql_role": [{"x": {"connection_limit": -2}}]}, "connection_limit is -2"),
        ({"postgresql_role": [{"x": {"password": ""}}]}, "password is"),
        ({"postgresql_role": [{"x": {"password": "pässword"}}]}, "password is"),
        ({"postgresql_database": [{"x": {"owner": "a b"}}]}, "owner is 'a b'"),
        ({"postgresql_database": [{"x": {"encoding": ""}}]}, "encoding is ''"),
    ],
)
@pytest.mark.representatives(3)
def test_invalid_values_are_errors_of_the_manifest(
    site: SiteTypes, resource: dict[str, object], message: str
) -> None:
    assert site.apply(resource) == 13
    assert message in site.output, site.output
    assert "pässword" not in site.output
