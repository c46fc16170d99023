"""A publisher and a host of the package `bundles`: the real `Site` and the real `TrustClient`.

Between them is a directory, ``served``, whose files a test changes, or the server of `http_server.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tuf.api.metadata import (
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Signed,
    Snapshot,
    SuccinctRoles,
    TargetFile,
    Targets,
    Timestamp,
)

from bundles.client.client import TrustClient
from bundles.format import site_targets
from bundles.format.index import Indexes, index_path
from bundles.publisher.lifecycle import make_site, refresh_site
from bundles.publisher.publication import Publication, publish_bundle
from bundles.publisher.signing_keys import Signer, load_signer
from bundles.publisher.site import Site
from bundles.transport.mirror import Mirror


class Clock:
    """The time of publisher and hosts, which passes only on request. It starts now, because files have real dates."""

    def __init__(self, now: datetime | None = None) -> None:
        self.now = now or datetime.now(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **time: float) -> None:
        self.now += timedelta(**time)


def no_passphrase(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


BIN_BITS = 4
"""Sites of tests have 16 bins. With the 64 of a new site, metadata takes most of the time of a publication."""


def bin_of(path: str) -> str:
    """Return the name of the bin for the target ``path`` on a site of a test."""
    return site_targets.bin_of(path, BIN_BITS)


LIFETIMES = {"root": "365d", "targets": "90d", "snapshot": "30d", "timestamp": "7d"}
"""Lifetimes of signatures in tests, which do not depend on the defaults of a new site."""


class Publisher:
    """Publishes bundles of one file, and copies ``public/`` to the directory that hosts read."""

    def __init__(
        self, directory: Path, clock: Clock, lifetimes: dict[str, str] | None = None, like: Path | None = None
    ) -> None:
        """Make a site, or copy the publisher in the directory ``like``, keys included."""
        if like is None:
            self.site = make_site(
                directory / "site", None, {**LIFETIMES, **(lifetimes or {})}, clock, BIN_BITS
            )
        else:
            shutil.copytree(like, directory, dirs_exist_ok=True)
            self.site = Site(directory / "site", clock)
        self.served = directory / "served"
        self._sources = directory / "sources"
        if like is None:
            self.deploy()

    def source(self, text: str, name: str = "web") -> Path:
        """Return a bundle's directory that contains ``text``."""
        source = self._sources / name
        source.mkdir(parents=True, exist_ok=True)
        (source / "manifest.yaml").write_text("resources: []\n")
        (source / "text").write_text(text)
        return source

    def publish(
        self, version: str, name: str = "web", channel: str = "stable", text: str = ""
    ) -> Publication:
        source = self.source(text or f"{name} {version}\n", name)
        done = publish_bundle(self.site, source, no_passphrase, version=version, channel=channel)
        self.deploy()
        return done

    def refresh(self) -> None:
        refresh_site(self.site, no_passphrase)
        self.deploy()

    def deploy(self) -> None:
        """Deploy like rsync, which reverts changes of tests in ``served``."""
        shutil.rmtree(self.served, ignore_errors=True)
        shutil.copytree(self.site.public, self.served)

    def copy(self, name: str) -> Path:
        """Save a copy of the served files."""
        return Path(shutil.copytree(self.served, self.served.with_name(name)))

    def forge(self, metadata: Path | None = None) -> Forge:
        """Return a forge with this publisher's keys. Default: change the served metadata."""
        return Forge(metadata or self.served / "metadata", self.site.directory / "keys")


class SharedPublishers:
    """Publishers that tests copy, because signing a site takes longer than most tests.

    They are signed again after some seconds, so that the clock of a test is close to the dates of its files.
    """

    LIFETIME = timedelta(seconds=20)

    def __init__(self, make_directory: Callable[[str], Path]) -> None:
        self._make_directory = make_directory
        self.now = datetime.min.replace(tzinfo=UTC)
        """The time of the signatures, which is the start of each test's clock."""

        self._directories: dict[str, Path] = {}

    @property
    def blank(self) -> Path:
        """A publisher without bundles."""
        return self._directory("blank")

    @property
    def published(self) -> Path:
        """A publisher with ``web 1.0.0`` in channel stable."""
        return self._directory("published")

    def _directory(self, name: str) -> Path:
        if not self._directories:  # the clock of the test has not signed them
            self.renew()
        return self._directories[name]

    def renew(self) -> None:
        """Sign both sites again if they are too old."""
        if datetime.now(UTC) - self.now < self.LIFETIME:
            return
        clock = Clock()
        self.now = clock.now
        self._directories = {name: self._make_directory(name) for name in ("blank", "published")}
        Publisher(self.blank, clock)
        Publisher(self.published, clock, like=self.blank).publish("1.0.0")


class Forge:
    """Metadata of a directory that tests change, sign with any keys and write back."""

    def __init__(self, directory: Path, keys: Path) -> None:
        self.directory = directory
        self.keys = {role: self._keys(keys, role) for role in ("root", "targets", "snapshot", "timestamp")}
        self.timestamp: Timestamp = self._read("timestamp.json")
        self.snapshot: Snapshot = self._read(f"{self.timestamp.snapshot_meta.version}.snapshot.json")
        self.targets: Targets = self._of_snapshot("targets")
        self.bins: dict[str, Targets] = {}
        self.root: Root = self._read(f"{len(list(directory.glob('*.root.json')))}.root.json")

    def bin(self, bundle: str = "web") -> Targets:
        """Return the bin with the index of a bundle."""
        return self.bin_named(bin_of(index_path(bundle)))

    def bin_named(self, name: str) -> Targets:
        """Return a bin, which `publish` will write."""
        if name not in self.bins:
            self.bins[name] = self._of_snapshot(name)
        return self.bins[name]

    def put_index(self, data: bytes, bundle: str = "web") -> Path:
        """Write an index and add it to the bin of a bundle."""
        info = TargetFile.from_data(index_path(bundle), data, ["sha256"])
        self.bin(bundle).targets[info.path] = info
        path = self.directory.parent / f"targets/{bundle}/{info.hashes['sha256']}.index.json"
        path.write_bytes(data)
        return path

    def write_bin(self, name: str, keys: list[Signer] | None = None) -> None:
        """Sign and write a bin, and update the snapshot."""
        signed = self.bin_named(name)
        data = sign(signed, self.keys["targets"] if keys is None else keys)
        (self.directory / f"{signed.version}.{name}.json").write_bytes(data)
        self.snapshot.meta[f"{name}.json"] = MetaFile.from_data(signed.version, data, ["sha256"])

    def write(self, *roles: str, keys: list[Signer] | None = None) -> None:
        """Sign and write roles, and update their entries in the roles above."""
        for role in roles:
            signed: Signed = getattr(self, role)
            data = sign(signed, self.keys[role] if keys is None else keys)
            name = "timestamp.json" if role == "timestamp" else f"{signed.version}.{role}.json"
            (self.directory / name).write_bytes(data)
            if role == "targets":
                self.snapshot.meta["targets.json"] = MetaFile.from_data(signed.version, data, ["sha256"])
            if role == "snapshot":
                self.timestamp.snapshot_meta = MetaFile.from_data(signed.version, data, ["sha256"])

    def publish(self) -> None:
        """Write all roles except the root and unused bins with their next versions."""
        for signed in (*self.bins.values(), self.targets, self.snapshot, self.timestamp):
            signed.version += 1
        for name in self.bins:
            self.write_bin(name)
        self.write("targets", "snapshot", "timestamp")

    def new_key(self, role: str) -> Signer:
        """Replace the keys of a role by a new key in the next root. Does not write the root."""
        from securesystemslib.signer import CryptoSigner

        signer: Signer = CryptoSigner.generate_ed25519()
        for key_id in list(self.root.roles[role].keyids):
            self.root.revoke_key(key_id, role)
        self.root.add_key(signer.public_key, role)
        self.keys[role] = [signer]
        if role == "targets":
            self.delegate()
        return signer

    def delegate(self) -> None:
        """Delegate all bins to the keys of the targets in the root."""
        role = self.root.roles["targets"]
        keys = {key_id: self.root.get_key(key_id) for key_id in role.keyids}
        roles = SuccinctRoles(role.keyids, role.threshold, BIN_BITS, "bin")
        self.targets.delegations = Delegations(keys, succinct_roles=roles)
        for name in roles.get_roles():
            self.bin_named(name)

    def write_root(self, keys: list[Signer] | None = None) -> None:
        """Write the next root, signed by the old and new keys."""
        self.root.version += 1
        self.write("root", keys=keys)

    def _of_snapshot(self, role: str) -> Any:
        return self._read(f"{self.snapshot.meta[f'{role}.json'].version}.{role}.json")

    def _read(self, name: str) -> Any:
        return Metadata.from_bytes((self.directory / name).read_bytes()).signed

    def _keys(self, keys: Path, role: str) -> list[Signer]:
        return [load_signer(path, no_passphrase) for path in sorted(keys.glob(f"{role}-*.pem"))]


def sign(signed: Signed, keys: list[Signer]) -> bytes:
    metadata: Metadata[Any] = Metadata(signed)
    for key in keys:
        metadata.sign(key, append=True)
    return metadata.to_bytes()


class Killed(BaseException):
    """An exception that no code handles."""


Survives = Callable[[int, Callable[[], object]], bool]


class Host:
    """A host with its own state. Every call is a separate run, as from a timer."""

    def __init__(self, directory: Path, anchor: Path | bytes, clock: Clock, mirrors: list[Mirror]) -> None:
        directory.mkdir()
        self.state = directory / "trust"
        self.downloads = directory / "downloads"
        self.downloads.mkdir()
        self.anchor = anchor
        self.mirrors = mirrors
        self.bundles = ["web"]
        self.notes: list[str] = []
        self._clock = clock

    def client(self) -> TrustClient:
        client = TrustClient(self.state, self.anchor, self.mirrors, self.bundles, self._clock)
        self.notes = client.notes
        return client

    def follow(self, bundle: str) -> None:
        """Add a bundle to the configuration of this host."""
        self.bundles = [*{*self.bundles, bundle}]

    def refresh(self) -> Indexes:
        return self.client().refresh()

    def version(self, bundle: str = "web", channel: str = "stable") -> str | None:
        """Return the version that this host would run after a refresh."""
        self.follow(bundle)
        release = self.refresh().find(bundle, channel)
        return release.version if release else None

    def fetch(self, bundle: str = "web") -> bytes:
        """Refresh, and download the selected release."""
        self.follow(bundle)
        client = self.client()
        release = client.refresh().find(bundle, "stable")
        assert release is not None
        place = self.downloads / "bundle"
        place.unlink(missing_ok=True)  # force a new download
        return client.fetch(release, place).path.read_bytes()
