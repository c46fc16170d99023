"""Attacks on TUF by name. Section 1.5.2 of the specification lists their goals.

Every story publishes, pulls, tampers, pulls again, and checks the version that the host would run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tuf.api.metadata import Metadata, MetaFile, TargetFile

from bundles.errors import ExpiredError, FormatError, RollbackError, SignatureError, TrustError
from bundles.format.size_limits import LARGEST_METADATA
from foundation.problems import ProblemCode
from tests.support.sites import bin_of

if TYPE_CHECKING:
    from tests.support.sites import Clock, Forge, Host, Publisher

BIN = bin_of("web/index.json")
ROLES = ("root", "targets", "snapshot", "timestamp")
EACH_EXPIRED = [pytest.param(role, marks=pytest.mark.attack(f"freeze.{role}")) for role in ROLES]


def iso(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def bundle_file(served: Path, name: str = "web") -> Path:
    (path,) = served.glob(f"targets/{name}/*.tar.gz")
    return path


def index_file(served: Path) -> Path:
    """Return the newest index."""
    return max(served.glob("targets/web/*.index.json"), key=lambda path: path.stat().st_mtime_ns)


# --- arbitrary installation ---------------------------------------------------------------------------------


@pytest.mark.attack("installation.changed-bundle")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda data: data[:-1] + bytes([data[-1] ^ 1]),
            "sha256 is .*, expected .* from the signed metadata",
        ),
        (lambda data: data[:-1], "length is .*, expected .* from the signed metadata"),
        (
            lambda data: data + b"\0",
            "has .* bytes, at most .* are allowed, the signed metadata has the length",
        ),
        (lambda data: b"", "length is 0, expected .* from the signed metadata"),
    ],
    ids=["one bit flipped", "truncated", "one byte more", "empty"],
)
def test_a_changed_bundle_is_refused_and_leaves_nothing(
    publisher: Publisher, host: Host, change: Callable[[bytes], bytes], message: str
) -> None:
    path = bundle_file(publisher.served)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SignatureError, match=message) as raised:
        host.fetch()
    assert raised.value.code is ProblemCode.CHECKSUM_MISMATCH
    assert list(host.downloads.iterdir()) == []


@pytest.mark.attack("installation.unsigned-bundle")
def test_a_bundle_that_an_unsigned_index_names_is_not_found(publisher: Publisher, host: Host) -> None:
    index = index_file(publisher.served)
    index.write_bytes(index.read_bytes().replace(b"1.0.0", b"6.6.6"))
    with pytest.raises(
        SignatureError, match=r"index\.json: sha256 is .*, expected .* from the signed metadata"
    ) as raised:
        host.refresh()
    assert raised.value.code is ProblemCode.CHECKSUM_MISMATCH


@pytest.mark.attack("installation.unknown-key")
def test_a_site_signed_with_other_keys_is_refused(
    publisher: Publisher, new_publisher: Callable[..., Publisher], host: Host
) -> None:
    attacker = new_publisher("attacker")
    attacker.publish("6.6.6")
    shutil.rmtree(publisher.served)
    shutil.copytree(attacker.served, publisher.served)
    with pytest.raises(
        SignatureError, match="is signed by 0 of the 1 keys that root 1 requires: check that the trust anchor"
    ):
        host.refresh()


@pytest.mark.attack("installation.unknown-key")
def test_a_host_that_has_pulled_before_is_not_taken_over_either(
    publisher: Publisher, new_publisher: Callable[..., Publisher], host: Host
) -> None:
    host.refresh()
    attacker = new_publisher("attacker")
    for version in ("6.6.6", "6.6.7", "6.6.8"):
        attacker.publish(version)
    shutil.rmtree(publisher.served)
    shutil.copytree(attacker.served, publisher.served)
    with pytest.raises(SignatureError):
        host.refresh()
    publisher.deploy()
    assert host.version() == "1.0.0"


# --- endless data -------------------------------------------------------------------------------------------


@pytest.mark.attack("endless.metadata-size")
@pytest.mark.parametrize(
    "name", ["timestamp.json", "2.root.json", "2.snapshot.json", "1.targets.json", f"2.{BIN}.json"]
)
def test_metadata_beyond_its_size_is_refused(publisher: Publisher, host: Host, name: str) -> None:
    with (publisher.served / "metadata" / name).open("ab") as file:
        file.truncate(1_000_000_000)
    with pytest.raises(SignatureError, match="has 1000000000 bytes, at most"):
        host.refresh()


def larger(publisher: Publisher, size: int) -> Forge:
    """Serve a signed site with a bin of about ``size`` bytes."""
    forge = publisher.forge()
    remark = {"custom": {"remark": "x" * size}}
    forge.bin().targets["remark"] = TargetFile(1, {"sha256": "0" * 64}, "remark", remark)
    forge.publish()
    return forge


def test_large_site_is_verified_once_without_damage_reports(publisher: Publisher, host: Host) -> None:
    larger(publisher, 3_000_000)
    for _ in range(2):
        assert host.version() == "1.0.0"
        assert host.notes == []
    assert not list(host.state.rglob("*damaged*"))


@pytest.mark.attack("endless.metadata-signed-size")
def test_too_large_signed_metadata_is_refused_before_the_fetch(publisher: Publisher, host: Host) -> None:
    host.refresh()
    forge = larger(publisher, LARGEST_METADATA["targets"])
    (forge.directory / f"{forge.bin().version}.{BIN}.json").unlink()
    with pytest.raises(
        FormatError, match=rf"version 3 of {BIN}: has 400\d{{4}} bytes, .* reads 4000000: upgrade"
    ):
        host.refresh()


# --- rollback -----------------------------------------------------------------------------------------------


@pytest.mark.attack("rollback.site")
def test_an_old_copy_of_the_whole_site_is_refused(publisher: Publisher, host: Host) -> None:
    old = publisher.copy("old")
    publisher.publish("1.1.0")
    assert host.version() == "1.1.0"
    shutil.rmtree(publisher.served)
    shutil.copytree(old, publisher.served)
    with pytest.raises(RollbackError, match="version 2, older than the trusted version 3"):
        host.refresh()
    publisher.deploy()
    assert host.version() == "1.1.0"


@pytest.mark.attack("rollback.timestamp")
def test_an_older_timestamp_is_refused(publisher: Publisher, host: Host) -> None:
    publisher.refresh()
    host.refresh()
    forge = publisher.forge()
    forge.timestamp.version -= 1
    forge.write("timestamp")
    with pytest.raises(RollbackError, match=r"timestamp\.json: version 2, older than the trusted version 3"):
        host.refresh()


@pytest.mark.attack("rollback.snapshot")
def test_a_timestamp_that_names_an_older_snapshot_is_refused(publisher: Publisher, host: Host) -> None:
    host.refresh()
    forge = publisher.forge()
    forge.snapshot.version -= 1
    forge.timestamp.version += 1
    forge.write("snapshot", "timestamp")
    with pytest.raises(RollbackError, match="lists snapshot version 1, older than the trusted version 2"):
        host.refresh()


@pytest.mark.attack("rollback.targets")
def test_a_snapshot_that_names_older_targets_is_refused(publisher: Publisher, host: Host) -> None:
    publisher.forge().publish()
    host.refresh()
    forge = publisher.forge()
    forge.targets.version -= 1
    forge.snapshot.version += 1
    forge.timestamp.version += 1
    forge.write("targets", "snapshot", "timestamp")
    with pytest.raises(
        RollbackError, match=r"lists targets\.json version 1, older than the trusted version 2"
    ):
        host.refresh()


@pytest.mark.attack("rollback.targets")
def test_a_snapshot_that_no_longer_names_the_targets_is_refused(publisher: Publisher, host: Host) -> None:
    host.refresh()
    forge = publisher.forge()
    forge.snapshot.version += 1
    forge.timestamp.version += 1
    forge.snapshot.meta = {}
    forge.write("snapshot", "timestamp")
    with pytest.raises(TrustError):
        host.refresh()


@pytest.mark.attack("rollback.root")
def test_an_old_root_in_the_place_of_the_next_is_refused(publisher: Publisher, host: Host) -> None:
    metadata = publisher.served / "metadata"
    shutil.copy(metadata / "1.root.json", metadata / "2.root.json")
    with pytest.raises(RollbackError, match=r"2\.root\.json: has version 1, expected 2"):
        host.refresh()


@pytest.mark.attack("rollback.index", "mix.index")
def test_an_older_index_is_refused(publisher: Publisher, host: Host) -> None:
    old = index_file(publisher.served).read_bytes()
    publisher.publish("1.1.0")
    index_file(publisher.served).write_bytes(old)
    with pytest.raises(SignatureError, match=r"(sha256|length) is"):
        host.refresh()


def test_other_content_under_a_trusted_version_changes_nothing(publisher: Publisher, host: Host) -> None:
    host.refresh()
    before = (host.state / "timestamp.json").read_bytes()
    forge = publisher.forge()
    forge.timestamp.unrecognized_fields["x-note"] = "signed twice"
    forge.write("timestamp")
    assert host.version() == "1.0.0"
    assert (host.state / "timestamp.json").read_bytes() == before


# --- indefinite freeze --------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", EACH_EXPIRED)
@pytest.mark.representatives(3)
def test_expired_metadata_of_each_role_names_the_clock(
    role: str, new_publisher: Callable[..., Publisher], clock: Clock, new_host: Callable[..., Host]
) -> None:
    lifetimes = {each: "2h" if each == role else "1w" for each in ROLES}
    mortal = new_publisher("mortal", **lifetimes)
    mortal.publish("1.0.0")
    host = new_host(mortal.served, name=role)
    host.anchor = mortal.site.anchor
    assert host.version() == "1.0.0"
    expired = clock.now + timedelta(hours=2)
    clock.advance(hours=3)
    output = f"of {role} expired at {iso(expired)}, and the clock of this host shows {iso(clock.now)}"
    with pytest.raises(ExpiredError, match=output):
        host.refresh()
    assert host.client().indexes().find("web", "stable") is not None
    mortal.refresh()
    assert host.version() == "1.0.0"


@pytest.mark.parametrize("role", EACH_EXPIRED)
@pytest.mark.representatives(3)
def test_a_new_host_refuses_expired_metadata_too(
    role: str, new_publisher: Callable[..., Publisher], clock: Clock, new_host: Callable[..., Host]
) -> None:
    mortal = new_publisher("mortal", **{each: "2h" if each == role else "1w" for each in ROLES})
    host = new_host(mortal.served, name=role)
    host.anchor = mortal.site.anchor
    clock.advance(hours=3)
    with pytest.raises(ExpiredError, match=f"of {role} expired at"):
        host.refresh()


def test_metadata_is_good_until_the_second_in_which_it_expires(
    publisher: Publisher, host: Host, clock: Clock
) -> None:
    clock.advance(days=7, seconds=-1)
    assert host.version() == "1.0.0"
    clock.advance(seconds=1)
    with pytest.raises(ExpiredError):
        host.refresh()


# --- fast-forward -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "role",
    [
        pytest.param("timestamp", marks=pytest.mark.attack("fast-forward.timestamp")),
        pytest.param("snapshot", marks=pytest.mark.attack("fast-forward.snapshot")),
    ],
)
def test_version_jump_is_recovered_by_new_keys(role: str, publisher: Publisher, host: Host) -> None:
    host.refresh()
    thief = publisher.forge()
    thief.snapshot.version = thief.timestamp.version = 2**31
    thief.write("snapshot", "timestamp")
    host.refresh()

    publisher.deploy()
    with pytest.raises(RollbackError, match="older than the trusted version 2147483648"):
        host.refresh()

    forge = publisher.forge()
    old_root_keys = forge.keys["root"]
    forge.new_key(role)
    forge.write_root(keys=old_root_keys)
    forge.snapshot.version += 1
    forge.timestamp.version += 1
    forge.write("snapshot", "timestamp")
    assert host.version() == "1.0.0"
    assert any("root 2 replaced keys of the site, so versions can start again" in note for note in host.notes)
    host.refresh()
    assert host.notes == []


@pytest.mark.attack("fast-forward.targets")
def test_targets_jumped_far_ahead_are_recovered_from_by_new_keys(publisher: Publisher, host: Host) -> None:
    """A thief needs the keys of targets, snapshot and timestamp before hosts accept the metadata."""
    thief = publisher.forge()
    for signed in (thief.targets, thief.snapshot, thief.timestamp):
        signed.version = 2**31
    thief.write("targets", "snapshot", "timestamp")
    host.refresh()
    publisher.deploy()

    forge = publisher.forge()
    old_root_keys = forge.keys["root"]
    for role in ("targets", "snapshot", "timestamp"):
        forge.new_key(role)
    forge.write_root(keys=old_root_keys)
    forge.publish()
    assert host.version() == "1.0.0"
    assert json.loads((host.state / "targets.json").read_bytes())["signed"]["version"] == 2


# --- mix-and-match ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("snapshot.json", marks=pytest.mark.attack("mix.snapshot")),
        pytest.param("targets.json", marks=pytest.mark.attack("mix.targets")),
        pytest.param(f"{BIN}.json", marks=pytest.mark.attack("mix.bin")),
    ],
)
def test_metadata_of_another_time_is_refused(publisher: Publisher, host: Host, name: str) -> None:
    forge = publisher.forge()
    forge.bin()
    for _ in range(2):
        forge.publish()
    old, new = sorted((publisher.served / "metadata").glob(f"*.{name}"))[-2:]
    shutil.copy(old, new)
    with pytest.raises(
        SignatureError, match=rf"{new.name}: (sha256|length) is .*, expected .* from the signed metadata"
    ):
        host.refresh()


@pytest.mark.attack("mix.targets")
def test_stale_targets_without_hashes_are_refused(publisher: Publisher, host: Host) -> None:
    """Other publishers may omit hashes from snapshots. Then the version decides."""
    forge = publisher.forge()
    forge.publish()
    forge.snapshot.meta["targets.json"].hashes = forge.snapshot.meta["targets.json"].length = None
    forge.timestamp.version += 1
    forge.write("snapshot", "timestamp")
    metadata = publisher.served / "metadata"
    shutil.copy(metadata / "1.targets.json", metadata / "2.targets.json")
    with pytest.raises(SignatureError, match=r"2\.targets\.json: has version 1, expected 2"):
        host.refresh()


@pytest.mark.attack("mix.timestamp")
@pytest.mark.parametrize("name", ["snapshot.json", f"{BIN}.json"])
def test_a_timestamp_of_another_time_than_the_rest_is_refused(
    publisher: Publisher, host: Host, name: str
) -> None:
    old = publisher.copy("old") / "metadata/timestamp.json"
    publisher.publish("1.1.0")
    metadata = publisher.served / "metadata"
    shutil.copy(old, metadata / "timestamp.json")
    shutil.copy(metadata / f"3.{name}", metadata / f"2.{name}")
    with pytest.raises(SignatureError, match=rf"2\.{name}: (sha256 is|length is|has \d+ bytes, at most) "):
        host.refresh()


# --- wrong software -----------------------------------------------------------------------------------------


@pytest.mark.attack("wrong-software.other-target")
def test_a_signed_bundle_under_the_name_of_another_is_refused(publisher: Publisher, host: Host) -> None:
    publisher.publish("1.0.0", name="db")
    shutil.copy(bundle_file(publisher.served, "db"), bundle_file(publisher.served, "web"))
    with pytest.raises(SignatureError, match=r"web-1\.0\.0\.tar\.gz: (sha256|length) is"):
        host.fetch("web")


@pytest.mark.attack("mix.timestamp")
def test_swapped_roles_are_refused(publisher: Publisher, host: Host) -> None:
    metadata = publisher.served / "metadata"
    shutil.copy(metadata / "2.snapshot.json", metadata / "timestamp.json")
    with pytest.raises(SignatureError, match="Expected 'timestamp', got 'snapshot'"):
        host.refresh()


# --- key compromise -----------------------------------------------------------------------------------------


@pytest.mark.attack("keys.threshold")
def test_single_key_below_the_threshold_is_refused(publisher: Publisher, host: Host) -> None:
    forge = publisher.forge()
    (first,) = forge.keys["timestamp"]
    second = forge.new_key("timestamp")
    forge.root.add_key(first.public_key, "timestamp")
    forge.root.roles["timestamp"].threshold = 2
    forge.write_root()
    forge.write("timestamp", keys=[first])
    with pytest.raises(SignatureError, match="is signed by 1 of the 2 keys that root 2 requires"):
        host.refresh()
    forge.write("timestamp", keys=[first, second])
    assert host.version() == "1.0.0"


@pytest.mark.attack("keys.twice")
def test_duplicate_signature_of_a_key_is_refused(publisher: Publisher, host: Host) -> None:
    path = publisher.served / "metadata/timestamp.json"
    document = json.loads(path.read_bytes())
    document["signatures"] *= 2
    path.write_text(json.dumps(document))
    with pytest.raises(SignatureError, match="Multiple signatures found for keyid"):
        host.refresh()


@pytest.mark.attack("keys.twice", "format.two-ids")
def test_key_under_two_ids_is_refused(publisher: Publisher, host: Host) -> None:
    """python-tuf counts key IDs, and would accept these two signatures for a threshold of two."""
    forge = publisher.forge()
    (key,) = forge.keys["timestamp"]
    twin = type(key.public_key).from_dict("f" * 64, key.public_key.to_dict())
    forge.root.add_key(twin, "timestamp")
    forge.root.roles["timestamp"].threshold = 2
    forge.write_root()
    with pytest.raises(SignatureError, match="lists one key under two ids"):
        host.refresh()


@pytest.mark.attack("keys.revoked")
def test_a_revoked_key_signs_nothing_any_more(publisher: Publisher, host: Host) -> None:
    forge = publisher.forge()
    revoked = forge.keys["timestamp"]
    forge.new_key("timestamp")
    forge.write_root()
    forge.timestamp.version += 1
    forge.write("timestamp", keys=revoked)
    with pytest.raises(SignatureError, match="is signed by 0 of the 1 keys that root 2 requires"):
        host.refresh()


@pytest.mark.attack("keys.threshold")
@pytest.mark.parametrize("role", ["targets", "snapshot"])
def test_a_role_that_two_keys_sign_is_not_signed_by_one(publisher: Publisher, host: Host, role: str) -> None:
    forge = publisher.forge()
    (first,) = forge.keys[role]
    second = forge.new_key(role)
    forge.root.add_key(first.public_key, role)
    forge.root.roles[role].threshold = 2
    forge.write_root()
    for signed in (forge.targets, forge.snapshot, forge.timestamp):
        signed.version += 1
    for each in ("targets", "snapshot", "timestamp"):
        forge.write(each, keys=[first] if each == role else None)
    with pytest.raises(SignatureError, match="is signed by 1 of the 2 keys that root 2 requires"):
        host.refresh()
    forge.keys[role] = [first, second]
    forge.publish()
    assert host.version() == "1.0.0"


@pytest.mark.attack("keys.threshold")
def test_a_root_that_two_keys_sign_is_not_signed_by_one(publisher: Publisher, host: Host) -> None:
    forge = publisher.forge()
    (first,) = forge.keys["root"]
    second = forge.new_key("root")
    forge.root.add_key(first.public_key, "root")
    forge.root.roles["root"].threshold = 2
    forge.write_root(keys=[first])
    with pytest.raises(SignatureError, match="is signed by 1 of the 2 keys"):
        host.refresh()
    forge.write("root", keys=[first, second])
    assert host.version() == "1.0.0"


@pytest.mark.attack("keys.threshold")
@pytest.mark.parametrize("role", ["targets", "snapshot", "timestamp"])
def test_key_of_another_role_publishes_nothing(publisher: Publisher, host: Host, role: str) -> None:
    """The thief signs all metadata with this key, for an index without the bundle."""
    host.refresh()
    thief = publisher.forge()
    for signed in (thief.bin(), thief.targets, thief.snapshot, thief.timestamp):
        signed.version += 1
    del thief.bin().targets["web/index.json"]
    thief.write_bin(BIN, keys=thief.keys[role])
    thief.write("targets", "snapshot", "timestamp", keys=thief.keys[role])
    with pytest.raises(SignatureError, match="is signed by 0 of the 1 keys that root 1 requires"):
        host.refresh()
    assert host.client().indexes().find("web", "stable") is not None


@pytest.mark.attack("keys.revoked")
def test_a_revoked_root_key_signs_no_further_root(publisher: Publisher, host: Host) -> None:
    forge = publisher.forge()
    revoked = forge.keys["root"]
    forge.write_root(keys=[*revoked, forge.new_key("root")])
    assert host.version() == "1.0.0"
    forge.new_key("timestamp")
    forge.write_root(keys=revoked)
    with pytest.raises(
        SignatureError, match="is signed by 0 of the 1 keys required by root 2 and by the new root"
    ):
        host.refresh()


# --- root rotation ------------------------------------------------------------------------------------------


@pytest.mark.attack("root.chain")
def test_a_long_chain_of_roots_is_followed(publisher: Publisher, host: Host) -> None:
    forge = publisher.forge()
    for _ in range(30):
        old = forge.keys["root"]
        forge.new_key("root")
        forge.write_root(keys=[*old, *forge.keys["root"]])
    forge.new_key("timestamp")
    forge.write_root()
    forge.timestamp.version += 1
    forge.write("timestamp")
    assert host.version() == "1.0.0"
    assert (host.state / "root.json").resolve().name == "32.root.json"


@pytest.mark.everything
@pytest.mark.attack("root.endless-chain")
def test_long_root_chain_is_followed_and_resumed(publisher: Publisher, host: Host) -> None:
    """python-tuf follows at most 256 roots after the anchor, and ignores further roots silently."""
    forge = publisher.forge()
    for _ in range(300):
        forge.new_key("timestamp")
        forge.write_root()
    forge.timestamp.version += 1
    forge.write("timestamp")
    away = (publisher.served / "metadata/280.root.json").rename(publisher.served / "280.root.json")
    with pytest.raises(SignatureError, match="of the 1 keys that root 279 requires"):
        host.refresh()
    assert (host.state / "root.json").resolve().name == "279.root.json"
    away.rename(publisher.served / "metadata/280.root.json")
    assert host.version() == "1.0.0"
    assert (host.state / "root.json").resolve().name == "301.root.json"
    forge.new_key("timestamp")
    forge.write_root()
    forge.timestamp.version += 1
    forge.write("timestamp")
    assert host.version() == "1.0.0"
    assert (host.state / "root.json").resolve().name == "302.root.json"


@pytest.mark.attack("root.gap")
def test_a_gap_in_the_chain_ends_it(publisher: Publisher, host: Host) -> None:
    forge = publisher.forge()
    forge.new_key("timestamp")
    forge.root.version += 1
    forge.write_root()
    forge.write("timestamp")
    with pytest.raises(SignatureError, match="of the 1 keys that root 1 requires"):
        host.refresh()


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param("old", marks=pytest.mark.attack("root.old-keys")),
        pytest.param("new", marks=pytest.mark.attack("root.new-keys")),
    ],
)
def test_a_root_is_signed_by_the_old_keys_and_the_new(publisher: Publisher, host: Host, missing: str) -> None:
    forge = publisher.forge()
    old = forge.keys["root"]
    forge.new_key("root")
    forge.write_root(keys=forge.keys["root"] if missing == "old" else old)
    with pytest.raises(
        SignatureError, match="is signed by 0 of the 1 keys required by root 1 and by the new root"
    ):
        host.refresh()


@pytest.mark.attack("root.expired")
def test_an_expired_root_on_the_way_does_no_harm(publisher: Publisher, host: Host, clock: Clock) -> None:
    forge = publisher.forge()
    later = forge.root.expires
    forge.root.expires = clock.now.replace(microsecond=0)
    forge.write_root()
    with pytest.raises(ExpiredError, match="version 2 of root expired"):
        host.refresh()
    forge.root.expires = later
    forge.write_root()
    assert host.version() == "1.0.0"


# --- details of the format ----------------------------------------------------------------------------------


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new, 1)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            replaced(b'"version":2', b'"version":2,"version":2'),
            "the key 'version' is duplicate",
            marks=pytest.mark.attack("format.duplicate-keys"),
        ),
        pytest.param(
            replaced(b"{", b"\xef\xbb\xbf{"), "byte-order mark", marks=pytest.mark.attack("format.bom")
        ),
        pytest.param(
            replaced(b'"version":2', b'"version":2.0'),
            "'2.0' is not a whole number",
            marks=pytest.mark.attack("format.float"),
        ),
        pytest.param(
            replaced(b'"version":2', b'"version":true'),
            "version is 'True', expected a whole number",
            marks=pytest.mark.attack("format.boolean"),
        ),
        (replaced(b'"version":2', b'"version":"2"'), "version is '2', expected a whole number"),
        (replaced(b'"version":2', b'"version":NaN'), "'NaN' is not a whole number"),
        pytest.param(
            replaced(b'"version":2', b'"version":9007199254740992'),
            "is larger than 9007199254740991",
            marks=pytest.mark.attack("format.huge"),
        ),
        pytest.param(
            replaced(b'"version":2', b'"version":1' + b"0" * 5000),
            "is larger than",
            marks=pytest.mark.attack("format.huge"),
        ),
        (replaced(b'"version":2', b'"version":0'), "is not metadata: .*version must be > 0"),
        (lambda data: b"[" * 10_000, "is nested more than 64 deep"),
        (replaced(b'"version":2', b'"x":' + b'{"x":' * 90 + b"0" + b"}" * 90), "is nested more than 64 deep"),
        (lambda data: b"", "is not metadata"),
        (lambda data: data[: len(data) // 2], "is not metadata"),
        (lambda data: b"\x1f\x8b\x00garbage", "is not metadata: is not UTF-8 text"),
        (lambda data: b"null", "'signed' is missing"),
        (lambda data: b'{"signed": []}', "'signed' is missing"),
        (replaced(b'"_type":"timestamp"', b'"_type":"mirrors"'), "unrecognized metadata type"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.representatives(7)
def test_ambiguous_metadata_are_refused(
    publisher: Publisher, host: Host, change: Callable[[bytes], bytes], message: str
) -> None:
    path = publisher.served / "metadata/timestamp.json"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SignatureError, match=rf"timestamp\.json: .*{message}"):
        host.refresh()


def of_a_later_specification(publisher: Publisher, role: str, *, signed: bool) -> None:
    """Serve metadata of a role that claims a later specification, signed by the site or unsigned."""
    forge = publisher.forge()
    metadata = Metadata(getattr(forge, role))
    metadata.signed.version += role == "root"
    metadata.signed.spec_version = "2.0.0"
    for key in forge.keys[role] if signed else ():
        metadata.sign(key, append=True)
    version = "" if role == "timestamp" else f"{metadata.signed.version}."
    (forge.directory / f"{version}{role}.json").write_bytes(data := metadata.to_bytes())
    if role == "targets":
        forge.snapshot.meta["targets.json"] = MetaFile.from_data(forge.targets.version, data, ["sha256"])
        forge.write("snapshot", "timestamp")
    elif role == "snapshot":
        forge.timestamp.snapshot_meta = MetaFile.from_data(forge.snapshot.version, data, ["sha256"])
        forge.write("timestamp")


@pytest.mark.parametrize("role", ROLES)
def test_signed_later_specification_asks_for_an_upgrade(publisher: Publisher, host: Host, role: str) -> None:
    of_a_later_specification(publisher, role, signed=True)
    with pytest.raises(
        FormatError, match=r"follows version 2\.0\.0 of TUF, expected 1\.x: upgrade Puller on this host"
    ):
        host.refresh()


@pytest.mark.attack("format.later-specification")
@pytest.mark.parametrize("role", ROLES)
def test_unsigned_later_specification_is_ignored(publisher: Publisher, host: Host, role: str) -> None:
    of_a_later_specification(publisher, role, signed=False)
    with pytest.raises(
        SignatureError, match=r"2\.0\.0 of TUF, expected 1\.x, and is not signed by the keys that root 1"
    ):
        host.refresh()


@pytest.mark.parametrize(
    "signatures", ["x", [{"keyid": 1}], [{}], {"keyid": "x"}, [{"keyid": "x", "sig": 1}]]
)
def test_bad_signatures_of_a_later_specification_are_ignored(
    publisher: Publisher, host: Host, signatures: object
) -> None:
    path = publisher.served / "metadata/timestamp.json"
    document = {**json.loads(path.read_bytes()), "signatures": signatures}
    document["signed"]["spec_version"] = "2.0.0"
    path.write_text(json.dumps(document))
    with pytest.raises(SignatureError, match="is not signed by the keys that root 1 requires"):
        host.refresh()


@pytest.mark.attack("format.malleable")
def test_a_malleable_signature_is_refused(publisher: Publisher, host: Host) -> None:
    """S plus the order of the group also satisfies the equation. RFC 8032, 5.1.7 requires its rejection."""
    order = 2**252 + 27742317777372353535851937790883648493
    path = publisher.served / "metadata/timestamp.json"
    document = json.loads(path.read_bytes())
    (signature,) = document["signatures"]
    raw = bytes.fromhex(signature["sig"])
    scalar = int.from_bytes(raw[32:], "little") + order
    signature["sig"] = (raw[:32] + scalar.to_bytes(32, "little")).hex()
    path.write_text(json.dumps(document))
    with pytest.raises(SignatureError, match="is signed by 0 of the 1 keys"):
        host.refresh()


@pytest.mark.attack("format.scheme")
@pytest.mark.parametrize("scheme", ["rsassa-pss-sha256", "ecdsa-sha2-nistp256", "", "ed448"])
def test_a_key_with_the_scheme_of_another_type_is_refused(
    publisher: Publisher, host: Host, scheme: str
) -> None:
    path = publisher.served / "metadata/2.root.json"
    document = json.loads((publisher.served / "metadata/1.root.json").read_bytes())
    next(iter(document["signed"]["keys"].values()))["scheme"] = scheme
    path.write_text(json.dumps(document))
    with pytest.raises(SignatureError, match="is not metadata: Unsupported public key"):
        host.refresh()


@pytest.mark.parametrize(
    "name",
    [
        "timestamp.json",
        "2.snapshot.json",
        "1.targets.json",
        "2.root.json",
        f"2.{BIN}.json",
        "index",
        "bundle",
    ],
)
@pytest.mark.representatives(3)
@pytest.mark.hypothesis  # the gate tries more bits
def test_a_flipped_bit_anywhere_is_refused(
    publisher: Publisher, new_host: Callable[..., Host], name: str
) -> None:
    forge = publisher.forge()
    forge.write_root()
    files = {"index": index_file(publisher.served), "bundle": bundle_file(publisher.served)}
    path = files.get(name, publisher.served / "metadata" / name)
    data = path.read_bytes()
    host = new_host()
    assert host.fetch()
    for position in range(0, len(data), 1 + len(data) // (5 * settings().max_examples)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        shutil.rmtree(host.state)
        with pytest.raises((TrustError, FormatError)):
            host.fetch()


# --- the clock ----------------------------------------------------------------------------------------------


@pytest.mark.attack("clock.ahead")
def test_a_clock_far_ahead_is_named_and_does_no_lasting_harm(
    publisher: Publisher, host: Host, clock: Clock
) -> None:
    assert host.version() == "1.0.0"
    right = clock.now
    clock.advance(days=50 * 365)
    with pytest.raises(ExpiredError, match=f"the clock of this host shows {iso(clock.now)}"):
        host.refresh()
    clock.now = right
    publisher.publish("1.1.0")
    assert host.version() == "1.1.0"


@pytest.mark.parametrize(
    "time",
    [
        pytest.param({"hours": -1}, id="an hour", marks=pytest.mark.attack("clock.hour-back")),
        pytest.param({"days": -3650}, id="ten years", marks=pytest.mark.attack("clock.years-back")),
    ],
)
def test_a_clock_that_went_back_is_named_and_updates_go_on(
    publisher: Publisher, host: Host, clock: Clock, time: dict[str, float]
) -> None:
    host.refresh()
    publisher.publish("1.1.0")
    clock.advance(**time)
    assert host.version() == "1.1.0"
    (note,) = host.notes
    assert f"the clock of this host shows {iso(clock.now)}, and metadata was stored at 20" in note
