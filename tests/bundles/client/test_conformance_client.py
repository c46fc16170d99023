"""The conformance command against a small TUF repository, in the situations of the public suite.

Run the suite itself with the command in ``tests/conformance_client.py``. It is not a package, so these tests cannot
depend on it. Like the suite, they check the exit status, stored metadata, downloaded files and requests.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pytest
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Signed,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)

if TYPE_CHECKING:
    from tests.support.http_server import Server

COMMAND = Path(__file__).parents[2] / "conformance_client.py"
TOP = ("targets", "snapshot", "timestamp")
PAST = datetime.now(UTC).replace(microsecond=0) - timedelta(days=5)


class Repository:
    """A TUF repository in a directory. Tests change its metadata and then publish them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for part in ("metadata", "targets"):
            (directory / part).mkdir(parents=True)
        self.expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
        self.root = Root(expires=self.expires)
        self.timestamp = Timestamp(expires=self.expires)
        self.snapshot = Snapshot(expires=self.expires)
        self.targets: dict[str, Targets] = {"targets": Targets(expires=self.expires)}
        self.signers: dict[str, list[CryptoSigner]] = {}
        self.with_hashes = False
        for role in ("root", *TOP):
            self.add_key(role)
        for role in (*TOP, "root"):
            self.write(role)

    def add_key(self, role: str, signer: CryptoSigner | None = None) -> CryptoSigner:
        """Add a key to a top-level role and return it. Default: a new key."""
        signer = signer or CryptoSigner.generate_ed25519()
        self.root.add_key(signer.public_key, role)
        self.signers.setdefault(role, []).append(signer)
        return signer

    def replace_key(self, role: str) -> None:
        """Replace all keys of a role by a new key."""
        for key_id in list(self.root.roles[role].keyids):
            self.root.revoke_key(key_id, role)
        self.signers[role] = []
        self.add_key(role)

    def publish(self, *roles: str) -> None:
        """Increment the version of these roles and write them."""
        for role in roles:
            self.of(role).version += 1
            self.write(role)

    def of(self, role: str) -> Any:
        """Return the metadata of a role."""
        return self.targets[role] if role in self.targets else getattr(self, role)

    def path(self, role: str, version: int | None = None) -> Path:
        """Return the path of a role's file. Names of delegated roles are quoted, as in URLs."""
        numbered = role == "root" or (role != "timestamp" and self.root.consistent_snapshot)
        prefix = f"{version or self.of(role).version}." if numbered else ""
        return self.directory / "metadata" / f"{prefix}{quote(role, safe='')}.json"

    def write(self, role: str, signers: list[CryptoSigner] | None = None) -> None:
        """Sign and write the current metadata of a role, and update the role above it."""
        signed: Signed = self.of(role)
        metadata: Metadata[Any] = Metadata(signed)
        for signer in self.signers[role] if signers is None else signers:
            metadata.sign(signer, append=True)
        data = metadata.to_bytes()
        self.path(role).write_bytes(data)
        meta = (
            MetaFile.from_data(signed.version, data, ["sha256"])
            if self.with_hashes
            else MetaFile(signed.version)
        )
        if role == "snapshot":
            self.timestamp.snapshot_meta = meta
        elif role in self.targets:
            self.snapshot.meta[f"{role}.json"] = meta

    def add_target(
        self, path: str, data: bytes, role: str = "targets", hashes: tuple[str, ...] = ("sha256",)
    ) -> Path:
        """Add a file and its entry in ``role``, which is not yet written. Return the path of the file."""
        info = TargetFile.from_data(path, data, list(hashes))
        self.targets[role].targets[path] = info
        directory, slash, name = path.rpartition("/")
        hashed = (
            f"{directory}{slash}{info.hashes[hashes[0]]}.{name}" if self.root.consistent_snapshot else path
        )
        place = self.directory / "targets" / quote(hashed, safe="/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return place

    def delegate(
        self, name: str, by: str = "targets", *, paths: list[str], terminating: bool = False
    ) -> None:
        """Add a role to which ``by`` delegates these paths."""
        signer = CryptoSigner.generate_ed25519()
        delegations = self.targets[by].delegations = self.targets[by].delegations or Delegations({}, roles={})
        assert delegations.roles is not None
        delegations.roles[name] = DelegatedRole(name, [], 1, terminating, paths)
        self.targets[by].add_key(signer.public_key, name)
        self.signers.setdefault(name, []).append(signer)
        self.targets.setdefault(name, Targets(expires=self.expires))


class Client:
    """The command with its own directory, configured for ``server``."""

    def __init__(self, directory: Path, module: ModuleType, server: Server) -> None:
        self.metadata, self.targets = directory / "metadata", directory / "targets"
        self.metadata.mkdir(parents=True)
        self.targets.mkdir()
        self._module = module
        self._server = server

    def arguments(self, command: str, *more: str) -> list[str]:
        """Return the command line, in the order of the suite."""
        url = () if command == "init" else ("--metadata-url", f"{self._server.origin}/metadata/")
        return [*url, "--metadata-dir", str(self.metadata), *more, command]

    def download_arguments(self, name: str) -> list[str]:
        """Return the command line that downloads a target."""
        base = f"{self._server.origin}/targets/"
        additional = ("--target-name", name, "--target-dir", str(self.targets), "--target-base-url", base)
        return self.arguments("download", *additional)

    def init(self, root: bytes) -> int:
        provided = self.metadata.parent / "initial_root.json"
        provided.write_bytes(root)
        return self._run([*self.arguments("init"), str(provided)])

    def refresh(self) -> int:
        return self._run(self.arguments("refresh"))

    def download(self, name: str) -> int:
        return self._run(self.download_arguments(name))

    @property
    def versions(self) -> dict[str, int]:
        """Return the version of each trusted role. Like the suite, treat every ``.json`` file as metadata."""
        result = {path.stem: json.loads(path.read_bytes()) for path in self.metadata.glob("*.json")}
        return {role: metadata["signed"]["version"] for role, metadata in result.items()}

    @property
    def downloaded(self) -> list[bytes]:
        """The contents of the downloaded files."""
        return [path.read_bytes() for path in self.targets.rglob("*") if path.is_file()]

    @property
    def asked_for(self) -> list[str]:
        """The last path component of each request since the previous read."""
        paths = [path.rpartition("/")[2] for path in self._server.paths]
        self._server.requests.clear()
        return paths

    def _run(self, arguments: list[str]) -> int:
        status: int = self._module.main(arguments)
        return status


@pytest.fixture
def module() -> ModuleType:
    """Load ``tests/conformance_client.py`` by path, because tests are not a package."""
    spec = importlib.util.spec_from_file_location("conformance_client", COMMAND)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def repository(tmp_path: Path, server: Server) -> Repository:
    server.root = tmp_path / "repository"
    return Repository(server.root)


@pytest.fixture
def fresh(tmp_path: Path, module: ModuleType, server: Server) -> Client:
    """Return an uninitialised client."""
    return Client(tmp_path / "client", module, server)


@pytest.fixture
def client(fresh: Client, repository: Repository) -> Client:
    """Return a client that trusts the first root."""
    assert fresh.init(repository.path("root", 1).read_bytes()) == 0
    return fresh


@pytest.fixture
def settled(client: Client) -> Client:
    """Return a client that has refreshed once."""
    assert client.refresh() == 0
    assert client.versions == {"root": 1, "timestamp": 1, "snapshot": 1, "targets": 1}
    assert client.asked_for == ["2.root.json", "timestamp.json", "1.snapshot.json", "1.targets.json"]
    return client


# --- the protocol -------------------------------------------------------------------------------------------


@pytest.mark.everything
def test_the_command_speaks_the_protocol_of_the_suite(client: Client, repository: Repository) -> None:
    """This test starts processes. The other tests call the same function in this process."""
    repository.add_target("directory/file.txt", b"contents")
    repository.publish(*TOP)

    def run(*arguments: str) -> int:
        return subprocess.run([sys.executable, str(COMMAND), *arguments], check=False, timeout=60).returncode

    root = str(repository.path("root", 1))
    assert run("--metadata-dir", str(client.metadata), "init", root) == 0
    assert client.versions == {"root": 1}
    assert client.asked_for == []
    assert run(*client.arguments("refresh")) == 0
    assert client.versions == {"root": 1, "timestamp": 2, "snapshot": 2, "targets": 2}
    assert run(*client.download_arguments("directory/file.txt")) == 0
    assert client.downloaded == [b"contents"]
    assert run(*client.download_arguments("missing")) == 1
    repository.path("timestamp").unlink()
    assert run(*client.arguments("refresh")) == 1


def test_kept_metadata_equal_the_served_bytes(client: Client, repository: Repository) -> None:
    odd = repository.path("timestamp").read_bytes() + b" \n"
    repository.path("timestamp").write_bytes(odd)
    assert client.refresh() == 0
    assert (client.metadata / "timestamp.json").read_bytes() == odd


def test_nothing_new_takes_two_requests(settled: Client) -> None:
    assert settled.refresh() == 0
    assert settled.asked_for == ["2.root.json", "timestamp.json"]


def test_a_download_refreshes_first(client: Client) -> None:
    assert client.download("missing target") == 1
    assert client.versions == {"root": 1, "timestamp": 1, "snapshot": 1, "targets": 1}


# --- the first root -----------------------------------------------------------------------------------------


def without_version(root: dict[str, Any]) -> None:
    del root["signed"]["version"]


def wrongly_signed(root: dict[str, Any]) -> None:
    root["signatures"][0]["sig"] = "00" * 64


def unsigned(root: dict[str, Any]) -> None:
    root["signatures"] = []


@pytest.mark.parametrize("spoil", [without_version, wrongly_signed, unsigned])
def test_from_a_wrong_first_root_nothing_is_asked_for(
    fresh: Client, repository: Repository, spoil: Callable[[dict[str, Any]], None]
) -> None:
    root = json.loads(repository.path("root", 1).read_bytes())
    spoil(root)
    assert fresh.init(json.dumps(root).encode()) == 1
    assert fresh.refresh() == 1
    assert fresh.asked_for == []


# --- signatures, versions, hashes ---------------------------------------------------------------------------

# Trusted versions if the second version of a role is rejected: the new versions of all earlier roles.
TRUSTED_BEFORE = {
    "root": {"root": 1},
    "timestamp": {"root": 2},
    "snapshot": {"root": 2, "timestamp": 2},
    "targets": {"root": 2, "timestamp": 2, "snapshot": 2},
}


@pytest.mark.parametrize(("role", "trusted"), TRUSTED_BEFORE.items(), ids=TRUSTED_BEFORE)
def test_unsigned_role_is_refused_and_keeps_the_previous(
    client: Client, repository: Repository, role: str, trusted: dict[str, int]
) -> None:
    repository.signers[role] = []
    repository.publish("root", *TOP)
    assert client.refresh() == 1
    assert client.versions == trusted


@pytest.mark.parametrize("role", ["root", "snapshot", "targets"])
def test_a_version_other_than_that_of_the_url_is_refused(
    client: Client, repository: Repository, role: str
) -> None:
    repository.publish("root", *TOP)
    place = repository.path(role)
    repository.of(role).version += 1
    signed: Metadata[Any] = Metadata(repository.of(role))
    signed.sign(repository.signers[role][0])
    place.write_bytes(signed.to_bytes())
    assert client.refresh() == 1
    assert client.versions == TRUSTED_BEFORE[role]


def test_other_contents_of_the_same_timestamp_are_not_taken(settled: Client, repository: Repository) -> None:
    before = (settled.metadata / "timestamp.json").read_bytes()
    repository.timestamp.snapshot_meta.version = 100
    repository.write("timestamp")
    assert settled.refresh() == 0
    assert settled.asked_for == ["2.root.json", "timestamp.json"]
    assert (settled.metadata / "timestamp.json").read_bytes() == before


@pytest.mark.parametrize("wrong", ["hash", "length"])
@pytest.mark.parametrize("role", ["snapshot", "targets"])
def test_metadata_must_match_the_announced_hash_and_length(
    client: Client, repository: Repository, role: str, wrong: str
) -> None:
    repository.with_hashes = True
    repository.publish(*TOP)
    assert client.refresh() == 0
    repository.publish("targets")
    if role == "snapshot":
        repository.publish("snapshot")
    meta = (
        repository.timestamp.snapshot_meta if role == "snapshot" else repository.snapshot.meta["targets.json"]
    )
    assert meta.hashes
    if wrong == "hash":
        meta.hashes["sha256"] = "0" * 64
    else:
        meta.length = (meta.length or 0) - 1
    repository.publish(*(("timestamp",) if role == "snapshot" else ("snapshot", "timestamp")))
    assert client.refresh() == 1
    assert client.versions["timestamp"] == 3
    assert client.versions[role] == 2


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
def test_missing_file_is_a_failure_and_keeps_the_previous(
    settled: Client, repository: Repository, role: str
) -> None:
    repository.publish(*TOP)
    repository.path(role).unlink()
    assert settled.refresh() == 1
    after = {"timestamp": (1, 1, 1), "snapshot": (2, 1, 1), "targets": (2, 2, 1)}[role]
    assert settled.versions == {
        "root": 1,
        **dict(zip(("timestamp", "snapshot", "targets"), after, strict=True)),
    }


def test_metadata_of_another_type_are_refused(settled: Client, repository: Repository) -> None:
    repository.add_key("snapshot", repository.signers["timestamp"][0])
    repository.snapshot.meta = {"snapshot.json": MetaFile(1)}
    repository.publish("root", "snapshot")
    repository.path("timestamp").write_bytes(repository.path("snapshot").read_bytes())
    assert settled.refresh() == 1
    assert settled.versions == {"root": 2, "timestamp": 1, "snapshot": 1, "targets": 1}


def test_unknown_fields_are_signed_and_otherwise_left_alone(settled: Client, repository: Repository) -> None:
    signer = CryptoSigner.generate_ed25519()
    signer.public_key.unrecognized_fields = {"extra": {"a": 1}, "keyid_hash_algorithms": "md5"}
    repository.add_key("snapshot", signer)
    repository.root.unrecognized_fields["custom"] = "value"
    repository.root.roles["snapshot"].unrecognized_fields["another"] = ["value"]
    repository.publish("root", *TOP)
    assert settled.refresh() == 0
    assert settled.versions == dict.fromkeys(("root", *TOP), 2)


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    "generate",
    [
        CryptoSigner.generate_ed25519,
        CryptoSigner.generate_ecdsa,
        CryptoSigner.generate_rsa,
        lambda: CryptoSigner.generate_rsa(scheme="rsa-pkcs1v15-sha256"),
    ],
    ids=["ed25519", "ecdsa", "rsa-pss", "rsa-pkcs1v15"],
)
def test_keys_of_every_usual_type_sign(
    client: Client, repository: Repository, generate: Callable[[], CryptoSigner]
) -> None:
    signer = generate()
    for role in ("root", *TOP):
        repository.add_key(role, signer)
        repository.root.roles[role].threshold = 2
    repository.publish("root", *TOP)
    assert client.refresh() == 0
    assert client.versions == dict.fromkeys(("root", *TOP), 2)


# --- expiry -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("role", "trusted"), TRUSTED_BEFORE.items(), ids=TRUSTED_BEFORE)
def test_an_expired_role_is_refused(
    client: Client, repository: Repository, role: str, trusted: dict[str, int]
) -> None:
    repository.of(role).expires = PAST
    repository.publish("root", *TOP)
    assert client.refresh() == 1
    # Roots are stored before their expiry is checked, because the next root needs them (specification, 5.3.10).
    assert client.versions == ({"root": 2} if role == "root" else trusted)


def test_expired_root_leads_to_a_valid_successor(client: Client, repository: Repository) -> None:
    repository.root.expires = PAST
    repository.publish("root")
    repository.root.expires = repository.expires
    repository.publish("root")
    assert client.refresh() == 0
    assert client.versions["root"] == 3


def test_kept_metadata_may_expire_when_newer_are_valid(
    client: Client, repository: Repository, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite uses ``faketime`` for this."""
    repository.timestamp.expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=7)
    repository.publish("timestamp")
    assert client.refresh() == 0
    repository.timestamp.expires += timedelta(days=14)
    repository.publish(*TOP)
    monkeypatch.setattr(module, "_now", lambda: datetime.now(UTC) + timedelta(days=18))
    assert client.refresh() == 0
    assert client.versions == {"root": 1, "timestamp": 3, "snapshot": 2, "targets": 2}


# --- rollback -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_hashes", [False, True])
@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
def test_no_role_goes_back(client: Client, repository: Repository, role: str, with_hashes: bool) -> None:
    repository.with_hashes = with_hashes
    repository.publish(*TOP)
    assert client.refresh() == 0
    before = client.versions
    repository.of(role).version = 1
    repository.write(role)
    for above in TOP[TOP.index(role) + 1 :] if role in TOP else ():
        repository.publish(above)
    assert client.refresh() == 1
    assert client.versions[role] == before[role] == 2


def test_snapshot_rollback_unknown_to_timestamp_is_not_fetched(
    client: Client, repository: Repository
) -> None:
    repository.publish("snapshot", "timestamp")
    assert client.refresh() == 0
    _ = client.asked_for
    repository.path("snapshot").write_bytes(b"garbage")
    assert client.refresh() == 0
    assert client.asked_for == ["2.root.json", "timestamp.json"]


@pytest.mark.parametrize(
    ("role", "rotated"),
    [("timestamp", ["timestamp"]), ("snapshot", ["timestamp", "snapshot"]), ("targets", ["snapshot"])],
)
def test_after_new_keys_versions_may_begin_anew(
    client: Client, repository: Repository, role: str, rotated: list[str]
) -> None:
    repository.of(role).version = 99
    repository.write(role)
    for above in TOP[TOP.index(role) + 1 :]:
        repository.publish(above)
    assert client.refresh() == 0
    assert client.versions[role] == 99
    for each in rotated:
        repository.replace_key(each)
    repository.publish("root")
    repository.of(role).version = 1
    repository.write(role)
    for above in TOP[TOP.index(role) + 1 :]:
        repository.publish(above)
    if role == "timestamp":
        repository.write("timestamp")
    assert client.refresh() == 0
    assert client.versions[role] == 1


# --- keys ---------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A version of the root: its keys, its threshold and its signers."""

    keys: str
    threshold: int
    signed_by: str


# Keys are letters. A chain named "refused" is rejected at its last step.
CHAINS: dict[str, list[Step]] = {
    "one key for another": [Step("a", 1, "a"), Step("b", 1, "ab"), Step("b", 1, "b")],
    "strangers sign too": [Step("a", 1, "xay"), Step("b", 1, "xaby"), Step("b", 1, "xb")],
    "any three of five": [Step("abcde", 3, "ace"), Step("abcde", 3, "bde"), Step("abcde", 3, "abc")],
    "one of five replaced": [Step("abcde", 3, "ace"), Step("abcdf", 3, "abc")],
    "all of five replaced": [Step("abcde", 3, "ace"), Step("fghij", 3, "acefgh"), Step("fghij", 3, "hij")],
    "more are demanded": [Step("abc", 1, "a"), Step("abc", 2, "ab")],
    "fewer are demanded": [Step("abc", 2, "ab"), Step("abc", 1, "ab"), Step("abc", 1, "c")],
    "a key is added": [Step("a", 1, "a"), Step("ab", 2, "ab")],
    "a long chain": [Step("a", 1, "a"), *[Step("a", 1, "a")] * 40],
    "refused: not signed by the old key": [Step("a", 1, "a"), Step("b", 1, "bxy")],
    "refused: not signed by the new key": [Step("a", 1, "a"), Step("b", 1, "axy")],
    "refused: too few of the new keys": [Step("abcde", 3, "ace"), Step("abdef", 3, "ace")],
    "refused: too few of the old keys": [Step("abcde", 3, "ace"), Step("abdef", 3, "aef")],
    "refused: the new threshold is not met": [Step("abc", 1, "a"), Step("abc", 2, "b")],
    "refused: the old threshold is not met": [Step("abc", 2, "ab"), Step("abc", 1, "a")],
}


@pytest.mark.representatives(5)
@pytest.mark.parametrize(("name", "chain"), CHAINS.items(), ids=CHAINS)
def test_roots_are_followed_in_order(
    fresh: Client, repository: Repository, name: str, chain: list[Step]
) -> None:
    keys = {letter: CryptoSigner.generate_ed25519() for letter in "abcdefghijxy"}
    role = repository.root.roles["root"]
    for version, step in enumerate(chain, 1):
        role.keyids, role.threshold = [], step.threshold
        for letter in step.keys:
            repository.root.add_key(keys[letter].public_key, "root")
        repository.root.version = version
        repository.write("root", [keys[letter] for letter in step.signed_by])
    refused = name.startswith("refused")
    assert fresh.init(repository.path("root", 1).read_bytes()) == 0
    assert fresh.refresh() == (1 if refused else 0)
    reached = len(chain) - refused
    assert (fresh.metadata / "root.json").read_bytes() == repository.path("root", reached).read_bytes()


def test_a_missing_root_ends_the_chain(client: Client, repository: Repository) -> None:
    repository.publish("root", "root")
    repository.path("root", 2).unlink()
    assert client.refresh() == 0
    assert client.versions["root"] == 1


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
def test_signatures_of_other_keys_do_not_count(settled: Client, repository: Repository, role: str) -> None:
    stranger = CryptoSigner.generate_ed25519()
    for signers in ([stranger], [*repository.signers["root"], stranger]):
        repository.of(role).version += 1
        repository.write(role, signers)
        for above in TOP[TOP.index(role) + 1 :]:
            repository.publish(above)
        assert settled.refresh() == 1
        assert settled.versions[role] == 1


def test_higher_threshold_keeps_old_metadata_until_it_is_met(settled: Client, repository: Repository) -> None:
    repository.add_key("snapshot")
    repository.root.roles["snapshot"].threshold = 3
    repository.publish("root", "snapshot", "timestamp")
    assert settled.refresh() == 1
    assert settled.versions["root"] == 2
    assert settled.versions["snapshot"] == 1
    repository.add_key("snapshot")
    repository.publish("root", "snapshot", "timestamp")
    assert settled.refresh() == 0
    assert settled.versions["snapshot"] == 3


def test_key_under_many_ids_counts_once(settled: Client, repository: Repository) -> None:
    signer = repository.signers["snapshot"][0]
    key = signer.public_key.to_dict()
    for number in range(3):
        other = type(signer.public_key).from_dict(f"{number:064x}", json.loads(json.dumps(key)))
        repository.root.add_key(other, "snapshot")
    repository.root.roles["snapshot"].threshold = 3
    repository.publish("root", "snapshot", "timestamp")
    assert settled.refresh() == 1
    assert settled.versions["snapshot"] == 1


# --- targets ------------------------------------------------------------------------------------------------


@pytest.mark.representatives(4)
@pytest.mark.parametrize("name", ["file.txt", "path/to/a/file.txt", "a b", "a?b#c", "f\u00fcr.txt", "100%25"])
@pytest.mark.parametrize("consistent", [True, False])
def test_a_target_is_downloaded(fresh: Client, repository: Repository, name: str, consistent: bool) -> None:
    repository.root.consistent_snapshot = consistent
    if not consistent:
        repository.write("root")
    place = repository.add_target(name, b"contents")
    if "%" in name:  # target paths are part of a URL, and this path is already quoted
        place.rename(place.with_name(place.name.replace("%2525", "%25")))
    repository.publish(*TOP)
    if not consistent:
        for role in TOP:
            repository.write(role)
    assert fresh.init(repository.path("root", 1).read_bytes()) == 0
    assert fresh.download(name) == 0
    assert fresh.downloaded == [b"contents"]


@pytest.mark.parametrize("hashes", [("sha256",), ("sha512",), ("sha256", "sha512"), ("sha384",)])
def test_a_target_may_have_other_hashes(
    client: Client, repository: Repository, hashes: tuple[str, ...]
) -> None:
    repository.add_target("file", b"contents", hashes=hashes)
    repository.publish(*TOP)
    assert client.download("file") == 0
    assert client.downloaded == [b"contents"]


def test_target_with_an_unknown_hash_is_refused(client: Client, repository: Repository) -> None:
    place = repository.add_target("file", b"contents")
    hashes = repository.targets["targets"].targets["file"].hashes
    hashes["unknown"] = hashes.pop("sha256")
    assert place.exists()
    repository.publish(*TOP)
    assert client.download("file") == 1
    assert client.downloaded == []


def test_a_target_that_is_here_is_not_downloaded_again(client: Client, repository: Repository) -> None:
    repository.add_target("file", b"contents")
    repository.publish(*TOP)
    assert client.download("file") == 0
    _ = client.asked_for
    assert client.download("file") == 0
    assert client.asked_for == ["2.root.json", "timestamp.json"]


def test_new_contents_take_the_place_of_the_old(client: Client, repository: Repository) -> None:
    for contents in (b"one", b"two, which is longer", b"3"):
        repository.add_target("file", contents)
        repository.publish(*TOP)
        assert client.download("file") == 0
        assert client.downloaded == [contents]


@pytest.mark.parametrize("tampered", [b"CONTENTS", b"contents and more", b"cont", b""])
def test_tampered_target_is_refused_and_keeps_the_previous(
    client: Client, repository: Repository, tampered: bytes
) -> None:
    repository.add_target("file", b"before")
    repository.publish(*TOP)
    assert client.download("file") == 0
    repository.add_target("file", b"contents").write_bytes(tampered)
    repository.publish(*TOP)
    assert client.download("file") == 1
    assert client.downloaded == [b"before"]


def test_no_name_leads_out_of_the_directory(client: Client, repository: Repository, tmp_path: Path) -> None:
    name = "../../escaped"
    info = TargetFile.from_data(name, b"contents", ["sha256"])
    repository.targets["targets"].targets[name] = info
    repository.publish(*TOP)
    before = {path for path in tmp_path.rglob("*") if "repository" not in path.parts}
    client.download(name)
    new = {path for path in tmp_path.rglob("*") if "repository" not in path.parts} - before
    assert all(path.is_relative_to(client.metadata) or path.is_relative_to(client.targets) for path in new)


# --- delegations --------------------------------------------------------------------------------------------

# Delegations as delegating role, delegated role (a star: terminating) and paths. Then a target, and the roles that the
# search visits.
Tree = list[tuple[str, str, list[str]]]
TREES: dict[str, tuple[Tree, str, list[str]]] = {
    "one role": ([("targets", "A", ["*"])], "file", ["A"]),
    "in order": ([("targets", "A", ["*"]), ("targets", "B", ["*"])], "file", ["A", "B"]),
    "depth first": (
        [("targets", "A", ["*"]), ("targets", "B", ["*"]), ("A", "C", ["*"]), ("A", "D", ["*"])],
        "file",
        ["A", "C", "D", "B"],
    ),
    "an end": (
        [("targets", "A", ["*"]), ("targets", "B", ["*"]), ("A", "C*", ["*"]), ("A", "D", ["*"])],
        "file",
        ["A", "C"],
    ),
    "paths that do not match": ([("targets", "A", ["*.py"]), ("targets", "B", ["f*"])], "file", ["B"]),
    "a ring": ([("targets", "A", ["*"]), ("A", "B", ["*"]), ("B", "A", ["*"])], "file", ["A", "B"]),
    "a diamond": (
        [("targets", "A", ["*"]), ("targets", "B", ["*"]), ("B", "C", ["*"]), ("A", "C", ["*"])],
        "file",
        ["A", "C", "B"],
    ),
    "no star beyond a slash": ([("targets", "A", ["x/*"]), ("targets", "B", ["*"])], "x/y/file", []),
}


@pytest.mark.parametrize(("tree", "target", "visited"), TREES.values(), ids=TREES)
def test_delegations_are_searched_in_their_order(
    client: Client, repository: Repository, tree: Tree, target: str, visited: list[str]
) -> None:
    for by, name, paths in tree:
        repository.delegate(name.rstrip("*"), by, paths=paths, terminating=name.endswith("*"))
    for name in repository.targets:
        if name != "targets":
            repository.write(name)
    repository.publish(*TOP)
    assert client.download(target) == 1
    assert client.asked_for[4:] == [f"1.{name}.json" for name in visited]


def test_a_target_of_a_delegated_role_is_downloaded(client: Client, repository: Repository) -> None:
    repository.delegate("A", paths=["a/*"])
    repository.delegate("B", paths=["b/*"])
    for role, path in (("A", "a/file"), ("B", "b/file"), ("B", "a/not-its-own")):
        repository.add_target(path, f"of {role}".encode(), role)
    for role in ("A", "B", *TOP):
        repository.write(role)
    repository.publish(*TOP)
    assert client.download("a/file") == 0
    assert client.download("b/file") == 0
    assert client.download("a/not-its-own") == 1
    assert sorted(client.downloaded) == [b"of A", b"of B"]


@pytest.mark.parametrize("problem", ["unsigned", "expired", "missing", "not in the snapshot", "rolled back"])
def test_a_delegated_role_that_cannot_be_trusted_gives_nothing(
    client: Client, repository: Repository, problem: str
) -> None:
    repository.delegate("A", paths=["*"])
    repository.add_target("file", b"contents", "A")
    repository.targets["A"].expires = PAST if problem == "expired" else repository.expires
    repository.targets["A"].version = 2
    repository.write("A", [] if problem == "unsigned" else None)
    repository.publish(*TOP)
    if problem == "missing":
        repository.path("A").unlink()
    if problem == "not in the snapshot":
        del repository.snapshot.meta["A.json"]
        repository.publish("snapshot", "timestamp")
    if problem == "rolled back":
        assert client.refresh() == 0
        repository.targets["A"].version = 1
        repository.write("A")
        repository.publish("snapshot", "timestamp")
    assert client.download("file") == 1
    assert client.downloaded == []


@pytest.mark.parametrize("name", ["?", "#", "/delegated", "../delegated", "a b", "100%"])
def test_unusual_names_of_roles_are_quoted_in_urls_and_files(
    client: Client, repository: Repository, name: str
) -> None:
    repository.delegate(name, paths=["*"])
    repository.write(name)
    repository.publish(*TOP)
    assert client.download("missing") == 1
    assert client.asked_for[-1] == f"1.{quote(name, safe='')}.json"
    assert len(client.versions) == 5


# --- where Puller is stricter than the specification --------------------------------------------------------


STRICTER: dict[str, Callable[[bytes], bytes]] = {
    "a key twice": lambda data: data.replace(b'"version":2', b'"version":1,"version":2', 1),
    "a byte-order mark": lambda data: b"\xef\xbb\xbf" + data,
    "a version that is a float": lambda data: data.replace(b'"version":2', b'"version":2.0', 1),
    "nesting without end": lambda data: b'{"signed":' + b"[" * 100 + b"]" * 100 + b"}",
}


@pytest.mark.parametrize("change", STRICTER.values(), ids=STRICTER.keys())
def test_ambiguous_metadata_are_refused(
    settled: Client, repository: Repository, change: Callable[[bytes], bytes]
) -> None:
    repository.publish("timestamp")
    before = repository.path("timestamp").read_bytes()
    repository.path("timestamp").write_bytes(change(before))
    assert change(before) != before
    assert settled.refresh() == 1
    assert settled.versions["timestamp"] == 1
