"""Bins: a host reads only those of its bundles. Attacks on bins."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from bundles.client.revalidation import revalidate
from bundles.errors import ExpiredError, FormatError, NotFoundError, RollbackError, SignatureError
from bundles.format import site_targets
from bundles.format.index import Index
from bundles.format.release import Release
from bundles.format.site_targets import is_bin_file
from bundles.transport.mirror import open_mirrors
from bundles.transport.settings import TransportSettings
from tests.support.sites import bin_of

if TYPE_CHECKING:
    from tests.support.http_server import Server
    from tests.support.sites import Clock, Forge, Host, Publisher

BIN, OTHER = bin_of("web/index.json"), bin_of("db/index.json")


def stored(host: Host) -> set[str]:
    """Return the names of stored bins and indexes."""
    return {path.name for path in host.state.glob("bin-*")} | {
        path.name for path in (host.state / "indexes").iterdir()
    }


# --- reading bins -------------------------------------------------------------------------------------------


def test_bins_are_named_as_tuf_names_them() -> None:
    from tuf.api.metadata import SuccinctRoles

    for bits in (1, 4, 6, 9, 32):
        roles = SuccinctRoles([], 1, bits, "bin")
        for path in ("web/index.json", "db/history.json", "ä/index.json"):
            assert site_targets.bin_of(path, bits) == roles.get_role_for_target(path)
            assert is_bin_file(f"{site_targets.bin_of(path, bits)}.json")


@pytest.mark.parametrize(
    "name", ["bin-.json", "bin-0G.json", "bin-00.json.damaged-1", "targets.json", "bin-00"]
)
def test_other_files_are_no_bins(name: str) -> None:
    assert not is_bin_file(name)


def test_a_host_fetches_the_bins_and_indexes_of_its_own_bundles(
    publisher: Publisher, new_server: Callable[..., Server], new_host: Callable[..., Host]
) -> None:
    for name in ("db", "app", "mail"):
        publisher.publish("1.0.0", name=name)
    server = new_server(root=publisher.served)
    host = new_host(server.origin)
    host.refresh()
    assert [path for path in server.paths if "bin-" in path] == [f"/metadata/2.{BIN}.json"]
    assert [path.split("/")[2] for path in server.paths if "/targets/" in path] == ["web"]
    assert stored(host) == {f"{BIN}.json", "web.json"}


def test_release_of_another_bundle_costs_timestamp_and_snapshot(
    publisher: Publisher, new_server: Callable[..., Server], new_host: Callable[..., Host]
) -> None:
    server = new_server(root=publisher.served)
    host = new_host(server.origin)
    host.refresh()
    publisher.publish("1.0.0", name="db")
    server.requests.clear()
    host.refresh()
    assert server.paths == ["/metadata/2.root.json", "/metadata/timestamp.json", "/metadata/3.snapshot.json"]


def test_history_is_never_requested(
    publisher: Publisher, new_server: Callable[..., Server], new_host: Callable[..., Host]
) -> None:
    server = new_server(root=publisher.served)
    assert new_host(server.origin).fetch()
    assert not [path for path in server.paths if "history" in path]


def test_unneeded_bin_is_dropped_and_a_new_bundle_is_fetched(publisher: Publisher, host: Host) -> None:
    publisher.publish("1.0.0", name="db")
    host.bundles = ["web", "db"]
    host.refresh()
    assert stored(host) == {f"{BIN}.json", f"{OTHER}.json", "web.json", "db.json"}
    host.bundles = ["db"]
    host.refresh()
    assert stored(host) == {f"{OTHER}.json", "db.json"}
    host.bundles = ["web"]
    assert host.version() == "1.0.0"


def test_a_bundle_that_is_not_published_has_no_index(publisher: Publisher, host: Host) -> None:
    host.bundles = ["web", "nothing"]
    assert set(host.refresh().of) == {"web"}
    assert set(host.client().indexes().of) == {"web"}


def test_several_bundles_are_published_and_seen_at_once(publisher: Publisher, host: Host) -> None:
    """Each bundle has its own bin, and one timestamp covers all bins."""
    publisher.publish("1.0.0", name="db")
    host.bundles = ["web", "db"]
    host.refresh()
    half = publisher.copy("half")
    publisher.publish("1.1.0")
    shutil.copy(publisher.served / "metadata/timestamp.json", half / "metadata/timestamp.json")
    host.mirrors = open_mirrors([str(half)])
    with pytest.raises(NotFoundError, match=r"4\.snapshot\.json"):
        host.refresh()
    assert host.client().indexes().find("web", "stable") == Release.of("web", "1.0.0")


# --- revalidation -------------------------------------------------------------------------------------------


def test_revalidation_does_not_cover_a_new_bundle(
    publisher: Publisher, new_server: Callable[..., Server], new_host: Callable[..., Host], clock: Clock
) -> None:
    publisher.publish("1.0.0", name="db")
    server = new_server(root=publisher.served)
    host = new_host(server.origin)

    def look() -> bool:
        assert isinstance(host.anchor, Path)
        settings = TransportSettings(retries=0)
        return (
            revalidate(host.state, host.anchor, [server.origin], host.bundles, settings, clock()) is not None
        )

    host.refresh()
    assert look()
    host.bundles = ["web", "db"]
    assert not look()
    host.refresh()
    assert look()
    host.bundles = ["web", "db", "nothing"]
    host.refresh()
    assert look()


# --- attacks ------------------------------------------------------------------------------------------------


@pytest.mark.attack("rollback.bin")
def test_a_snapshot_that_names_an_older_bin_is_refused(publisher: Publisher, host: Host) -> None:
    old = publisher.forge()
    old_bin = old.bin()
    publisher.publish("1.1.0")
    host.refresh()
    thief = publisher.forge()
    thief.snapshot.meta[f"{BIN}.json"] = old.snapshot.meta[f"{BIN}.json"]
    assert thief.bin().version == old_bin.version
    thief.snapshot.version += 1
    thief.timestamp.version += 1
    thief.write("snapshot", "timestamp")
    with pytest.raises(
        RollbackError, match=rf"lists {BIN}\.json version 2, older than the trusted version 3"
    ):
        host.refresh()
    assert host.client().indexes().find("web", "stable") == Release.of("web", "1.1.0")


@pytest.mark.attack("rollback.bin")
def test_a_snapshot_that_no_longer_names_a_bin_is_refused(publisher: Publisher, host: Host) -> None:
    host.refresh()
    thief = publisher.forge()
    del thief.snapshot.meta[f"{BIN}.json"]
    thief.snapshot.version += 1
    thief.timestamp.version += 1
    thief.write("snapshot", "timestamp")
    with pytest.raises(SignatureError, match=f"missing info for '{BIN}.json'"):
        host.refresh()


@pytest.mark.attack("rollback.bin")
def test_versions_of_unread_bins_are_remembered(publisher: Publisher, host: Host) -> None:
    publisher.publish("1.0.0", name="db")
    old = publisher.forge()
    publisher.publish("1.1.0", name="db")
    host.refresh()
    thief = publisher.forge()
    thief.snapshot.meta[f"{OTHER}.json"] = old.snapshot.meta[f"{OTHER}.json"]
    thief.snapshot.version += 1
    thief.timestamp.version += 1
    thief.write("snapshot", "timestamp")
    host.bundles = ["web", "db"]
    with pytest.raises(
        RollbackError, match=rf"lists {OTHER}\.json version 2, older than the trusted version 3"
    ):
        host.refresh()


@pytest.mark.attack("freeze.withheld")
def test_withheld_bin_stops_only_the_update(
    publisher: Publisher, host: Host, new_host: Callable[..., Host]
) -> None:
    host.refresh()
    publisher.publish("1.1.0")
    withheld = publisher.copy("withheld")
    (withheld / f"metadata/3.{BIN}.json").unlink()
    host.mirrors = open_mirrors([str(withheld)])
    for _ in range(2):
        with pytest.raises(NotFoundError, match=rf"3\.{BIN}\.json: the file is missing"):
            host.refresh()
    assert host.client().indexes().find("web", "stable") == Release.of("web", "1.0.0")
    host.mirrors = open_mirrors([str(withheld), str(publisher.served)])
    assert host.version() == "1.1.0"
    assert any(str(withheld) in note for note in host.notes)


@pytest.mark.attack("freeze.bin")
def test_an_expired_bin_is_refused_and_named(publisher: Publisher, host: Host, clock: Clock) -> None:
    host.refresh()
    forge = publisher.forge()
    forge.bin().expires = clock.now + timedelta(hours=1)
    forge.publish()
    assert host.version() == "1.0.0"
    clock.advance(hours=2)
    with pytest.raises(ExpiredError, match=f"version 3 of {BIN} expired at"):
        host.refresh()
    assert host.client().indexes().find("web", "stable") is not None


@pytest.mark.attack("mix.bin")
def test_bin_with_other_bytes_is_refused(publisher: Publisher, host: Host) -> None:
    forge = publisher.forge()
    snapshot = forge.snapshot.meta[f"{BIN}.json"]
    del forge.bin().targets["web/index.json"]
    forge.write_bin(BIN)
    assert forge.snapshot.meta[f"{BIN}.json"] != snapshot  # signed by the targets, missing from the snapshot
    with pytest.raises(
        SignatureError, match=rf"2\.{BIN}\.json: (sha256|length) is .*, expected .* from the signed metadata"
    ):
        host.refresh()


@pytest.mark.attack("mix.bin")
def test_stale_bin_without_hashes_is_refused(publisher: Publisher, host: Host) -> None:
    publisher.publish("1.1.0")
    forge = publisher.forge()
    forge.snapshot.meta[f"{BIN}.json"].hashes = forge.snapshot.meta[f"{BIN}.json"].length = None
    forge.timestamp.version += 1
    forge.write("snapshot", "timestamp")
    metadata = publisher.served / "metadata"
    shutil.copy(metadata / f"2.{BIN}.json", metadata / f"3.{BIN}.json")
    with pytest.raises(SignatureError, match=rf"3\.{BIN}\.json: has version 2, expected 3"):
        host.refresh()


def passed_off(publisher: Publisher) -> Forge:
    """Replace the bin of ``web`` by the bin of ``db``, which lacks ``web``, with the keys of the snapshot."""
    publisher.publish("1.0.0", name="db")
    thief = publisher.forge()
    metadata = publisher.served / "metadata"
    version = thief.snapshot.meta[f"{OTHER}.json"].version
    shutil.copy(metadata / f"{version}.{OTHER}.json", metadata / f"{version}.{BIN}.json")
    thief.snapshot.meta[f"{BIN}.json"] = thief.snapshot.meta[f"{OTHER}.json"]
    thief.snapshot.version += 1
    thief.timestamp.version += 1
    thief.write("snapshot", "timestamp")
    return thief


@pytest.mark.attack("mix.other-bin")
def test_swapped_bins_are_refused(publisher: Publisher, host: Host) -> None:
    """TUF metadata do not contain the name of their role. The bundle would seem to be withdrawn."""
    host.refresh()
    passed_off(publisher)
    for _ in range(2):
        with pytest.raises(
            SignatureError, match=rf"2\.{BIN}\.json: is signed as bin '{OTHER}', expected {BIN}"
        ):
            host.refresh()
    assert host.client().indexes().find("web", "stable") == Release.of("web", "1.0.0")
    assert "web/index.json" in (host.state / f"{BIN}.json").read_text()


@pytest.mark.attack("mix.other-index")
def test_the_index_of_another_bundle_is_refused(publisher: Publisher, host: Host) -> None:
    forge = publisher.forge()
    (index,) = publisher.served.glob("targets/web/*.index.json")
    web = Index.parse(index.read_bytes(), "web")
    forge.put_index(replace(web, bundle="db").to_bytes())
    forge.publish()
    with pytest.raises(FormatError, match=r'index\.json: bundle: is "db", expected "web"'):
        host.refresh()


@pytest.mark.attack("mix.other-index")
def test_an_index_that_is_served_for_another_bundle_is_refused(publisher: Publisher, host: Host) -> None:
    publisher.publish("1.0.0", name="db")
    (db,), (web,) = (publisher.served.glob(f"targets/{name}/*.index.json") for name in ("db", "web"))
    shutil.copy(db, web)
    with pytest.raises(
        SignatureError, match=r"index\.json: (sha256|length) is .*, expected .* from the signed metadata"
    ):
        host.refresh()


@pytest.mark.attack("rollback.index-of-revoked")
def test_revoked_key_signs_no_bin_through_older_targets(publisher: Publisher, host: Host) -> None:
    """The older targets are valid under the new root by their other key, and delegate to the revoked key."""
    (old_index,) = publisher.served.glob("targets/web/*.index.json")
    forge = publisher.forge()
    (retained,) = forge.keys["targets"]
    stolen = forge.new_key("targets")
    forge.root.add_key(retained.public_key, "targets")
    forge.delegate()
    forge.write_root()
    forge.keys["targets"] = [retained, stolen]
    forge.publish()
    assert host.version() == "1.0.0"
    forge.put_index(old_index.read_bytes().replace(b"1.0.0", b"6.6.6"))
    forge.root.revoke_key(stolen.public_key.keyid, "targets")
    forge.write_root()
    forge.bin().version += 1
    forge.write_bin(BIN, keys=[stolen])
    forge.snapshot.version += 1
    forge.timestamp.version += 1
    forge.write("snapshot", "timestamp")
    for _ in range(2):
        with pytest.raises(
            SignatureError, match=rf"{BIN}\.json: is signed by 0 of the 1 keys that root 3 requires"
        ):
            host.refresh()


@pytest.mark.attack("keys.revoked")
def test_bins_that_revoked_keys_have_signed_are_forgotten(publisher: Publisher, host: Host) -> None:
    host.refresh()
    forge = publisher.forge()
    forge.new_key("targets")
    forge.write_root()
    forge.publish()
    before = (host.state / f"{BIN}.json").read_bytes()
    assert host.version() == "1.0.0"
    assert (host.state / f"{BIN}.json").read_bytes() != before
    assert not list(host.state.rglob("*damaged*"))


@pytest.mark.attack("keys.bin-threshold")
def test_a_bin_that_two_keys_sign_is_not_signed_by_one(publisher: Publisher, host: Host) -> None:
    forge = publisher.forge()
    (first,) = forge.keys["targets"]
    second = forge.new_key("targets")
    forge.root.add_key(first.public_key, "targets")
    forge.root.roles["targets"].threshold = 2
    forge.delegate()
    forge.write_root()
    forge.keys["targets"] = [first, second]
    forge.publish()
    assert host.version() == "1.0.0"
    for keys, message in (
        ([first], "is signed by 1 of the 2 keys that the targets require"),
        ([], "is signed by 0"),
    ):
        for signed in (forge.bin(), forge.snapshot, forge.timestamp):
            signed.version += 1
        forge.write_bin(BIN, keys=keys)
        forge.write("snapshot", "timestamp")
        with pytest.raises(SignatureError, match=message):
            host.refresh()


@pytest.mark.attack("keys.bin-threshold")
def test_delegation_to_a_key_under_two_ids_is_refused(publisher: Publisher, host: Host) -> None:
    forge = publisher.forge()
    delegations = forge.targets.delegations
    assert delegations is not None
    assert delegations.succinct_roles is not None
    ((_, key),) = delegations.keys.items()
    delegations.keys["f" * 64] = type(key).from_dict("f" * 64, key.to_dict())
    delegations.succinct_roles.keyids.append("f" * 64)
    forge.publish()
    with pytest.raises(SignatureError, match=r"targets\.json: lists one key under two ids"):
        host.refresh()


@pytest.mark.attack("fast-forward.bin")
def test_a_bin_jumped_far_ahead_is_recovered_from_by_new_keys(publisher: Publisher, host: Host) -> None:
    host.refresh()
    thief = publisher.forge()
    thief.bin().version = 2**31 - 1
    thief.publish()
    host.refresh()
    for version in ("1.1.0", "1.2.0"):
        publisher.publish(version)
    with pytest.raises(
        RollbackError, match=f"lists {BIN}.json version 4, older than the trusted version 2147483648"
    ):
        host.refresh()
    forge = publisher.forge()
    for role in ("targets", "snapshot", "timestamp"):
        forge.new_key(role)
    forge.write_root()
    forge.publish()
    assert host.version() == "1.2.0"


# --- damage on this machine ---------------------------------------------------------------------------------


def test_something_else_in_the_place_of_indexes_is_set_aside(host: Host) -> None:
    host.refresh()
    shutil.rmtree(host.state / "indexes")
    (host.state / "indexes").write_bytes(b"")
    assert host.version() == "1.0.0"
    assert "indexes: is not a directory" in host.notes[0]


def test_directory_in_place_of_an_unneeded_bin_is_accepted(host: Host) -> None:
    host.refresh()
    (host.state / "bin-3f.json" / "deeper").mkdir(parents=True)
    assert host.version() == "1.0.0"
    host.refresh()
    assert stored(host) >= {f"{BIN}.json", "web.json"}
