"""A publisher, a host and the servers between them.

The publisher is the real `Site`, the host the real `TrustClient`. What lies between is a directory
(``served``) that tests tamper with, or `Server`, an HTTP server on loopback that does what a test tells
it to.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from runpy import run_path
from typing import TYPE_CHECKING, Any

import pytest
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

from bundles.archive.pack import BuiltBundle, build_bundle
from bundles.client.client import TrustClient
from bundles.format.bins import bin_of
from bundles.format.index import Indexes, index_path
from bundles.format.release import Release
from bundles.publisher.keys import Signer, load_signer
from bundles.publisher.new_site import make_site
from bundles.publisher.publication import Publication, publish_bundle
from bundles.publisher.renewal import refresh_site
from bundles.store.store import Store
from bundles.transport.directory import DirectoryMirror
from bundles.transport.mirror import Mirror, open_mirrors
from bundles.transport.settings import TransportSettings

if TYPE_CHECKING:
    from tests.simulators.authority import Authority
else:
    Authority = run_path(str(Path(__file__).parents[1] / "simulators/authority.py"))["Authority"]


class Clock:
    """The time for everybody; it passes when a test says so. It starts now, as files have real dates."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **time: float) -> None:
        self.now += timedelta(**time)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def no_passphrase(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


class Publisher:
    """Publishes bundles of one file, and puts a copy of ``public/`` where hosts find it."""

    def __init__(self, directory: Path, clock: Clock, lifetimes: dict[str, str]) -> None:
        self.site = make_site(directory / "site", None, lifetimes, clock)
        self.served = directory / "served"
        self._sources = directory / "sources"
        self.deploy()

    def source(self, text: str, name: str = "web") -> Path:
        """A bundle's directory with ``text`` in it."""
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
        """As rsync would; what a test changed in ``served`` is undone."""
        shutil.rmtree(self.served, ignore_errors=True)
        shutil.copytree(self.site.public, self.served)

    def copy(self, name: str) -> Path:
        """A copy of all that is served now, to be kept for later."""
        return Path(shutil.copytree(self.served, self.served.with_name(name)))

    def forge(self, metadata: Path | None = None) -> Forge:
        """A way to sign what this publisher never would, with its keys; what is forged is served, by default."""
        return Forge(metadata or self.served / "metadata", self.site.directory / "keys")


class Forge:
    """The metadata in a directory, to be changed, signed with any keys, and written back."""

    def __init__(self, directory: Path, keys: Path) -> None:
        self.directory = directory
        self.keys = {role: self._keys(keys, role) for role in ("root", "targets", "snapshot", "timestamp")}
        self.timestamp: Timestamp = self._read("timestamp.json")
        self.snapshot: Snapshot = self._read(f"{self.timestamp.snapshot_meta.version}.snapshot.json")
        self.targets: Targets = self._of_snapshot("targets")
        self.bins: dict[str, Targets] = {}
        self.root: Root = self._read(f"{len(list(directory.glob('*.root.json')))}.root.json")

    def bin(self, bundle: str = "web") -> Targets:
        """The bin that has the index of a bundle."""
        return self.bin_named(bin_of(index_path(bundle)))

    def bin_named(self, name: str) -> Targets:
        """One bin, which `publish` will write."""
        if name not in self.bins:
            self.bins[name] = self._of_snapshot(name)
        return self.bins[name]

    def put_index(self, data: bytes, bundle: str = "web") -> Path:
        """Let the bin of a bundle name another index, and write that."""
        info = TargetFile.from_data(index_path(bundle), data, ["sha256"])
        self.bin(bundle).targets[info.path] = info
        path = self.directory.parent / f"targets/{bundle}/{info.hashes['sha256']}.index.json"
        path.write_bytes(data)
        return path

    def write_bin(self, name: str, keys: list[Signer] | None = None) -> None:
        """Sign and write one bin, and let the snapshot name it."""
        signed = self.bin_named(name)
        data = sign(signed, self.keys["targets"] if keys is None else keys)
        (self.directory / f"{signed.version}.{name}.json").write_bytes(data)
        self.snapshot.meta[f"{name}.json"] = MetaFile.from_data(signed.version, data, ["sha256"])

    def write(self, *roles: str, keys: list[Signer] | None = None) -> None:
        """Sign and write some roles, and correct what the roles above say of them."""
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
        """Everything but the root and bins that nobody looked at, one version up."""
        for signed in (*self.bins.values(), self.targets, self.snapshot, self.timestamp):
            signed.version += 1
        for name in self.bins:
            self.write_bin(name)
        self.write("targets", "snapshot", "timestamp")

    def new_key(self, role: str) -> Signer:
        """Replace the keys of a role by a new one, in the next root, which is not yet written."""
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
        """Let the targets delegate to the keys that the root gives them, which then sign every bin."""
        role = self.root.roles["targets"]
        keys = {key_id: self.root.get_key(key_id) for key_id in role.keyids}
        roles = SuccinctRoles(role.keyids, role.threshold, 6, "bin")
        self.targets.delegations = Delegations(keys, succinct_roles=roles)
        for name in roles.get_roles():
            self.bin_named(name)

    def write_root(self, keys: list[Signer] | None = None) -> None:
        """The next root, signed by the old keys and the new ones."""
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
    """Not an error that anything would handle."""


Survives = Callable[[int, Callable[[], object]], bool]


@pytest.fixture
def survives(monkeypatch: pytest.MonkeyPatch) -> Survives:
    """``survives(n, action)`` kills the action at the n-th of its moments just before and after a rename."""

    def survives(moment: int, action: Callable[[], object]) -> bool:
        moments, rename = iter(range(1000)), os.rename

        def dying(*arguments: Any, **options: Any) -> None:
            if next(moments) == moment:
                raise Killed
            rename(*arguments, **options)
            if next(moments) == moment:
                raise Killed

        with monkeypatch.context() as patch, suppress(Killed):
            patch.setattr(os, "rename", dying)
            action()
            return True
        return False

    return survives


@pytest.fixture
def new_publisher(tmp_path: Path, clock: Clock) -> Callable[..., Publisher]:
    """``new_publisher(name, **lifetimes)``"""

    def make(name: str = "publisher", **lifetimes: str) -> Publisher:
        (tmp_path / name).mkdir()
        return Publisher(tmp_path / name, clock, lifetimes)

    return make


@pytest.fixture
def publisher(new_publisher: Callable[..., Publisher]) -> Publisher:
    """With ``web 1.0.0`` in channel stable."""
    made = new_publisher()
    made.publish("1.0.0")
    return made


class Host:
    """A host with its own state; every call is a run of its own, as from a timer."""

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
        """Add a bundle to those that this host is configured for."""
        self.bundles = [*{*self.bundles, bundle}]

    def refresh(self) -> Indexes:
        return self.client().refresh()

    def version(self, bundle: str = "web", channel: str = "stable") -> str | None:
        """The version that this host would run after a refresh."""
        self.follow(bundle)
        release = self.refresh().find(bundle, channel)
        return release.version if release else None

    def fetch(self, bundle: str = "web") -> bytes:
        """Refresh, and download what the index names."""
        self.follow(bundle)
        client = self.client()
        release = client.refresh().find(bundle, "stable")
        assert release is not None
        place = self.downloads / "bundle"
        place.unlink(missing_ok=True)  # it was unpacked, and is fetched anew
        return client.fetch(release, place).path.read_bytes()


@pytest.fixture
def new_host(tmp_path: Path, clock: Clock, publisher: Publisher) -> Callable[..., Host]:
    """``new_host(*mirrors)``: directories or URLs; what ``publisher`` serves when none are given."""

    def make(*places: Path | str, name: str = "host", settings: TransportSettings | None = None) -> Host:
        mirrors = open_mirrors([str(place) for place in places or (publisher.served,)], settings)
        return Host(tmp_path / name, publisher.site.anchor, clock, mirrors)

    return make


@pytest.fixture
def host(new_host: Callable[..., Host]) -> Host:
    """A host that follows ``publisher`` and has not run yet."""
    return new_host()


# --- HTTP ---------------------------------------------------------------------------------------------------


@dataclass
class Request:
    """A request as a client sent it; header names are in lower case."""

    target: str
    headers: dict[str, str]


Answer = Callable[[socket.socket], None]


@dataclass
class Server:
    """One answer for each path, several are given one after the other; everything else is 404."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    root: Path | None = None
    """Serve the files below it where no answer is set."""
    ranges: bool = False
    """Serve parts of these files, too, as web servers do."""
    stopping: threading.Event = field(default_factory=threading.Event)
    tls: Any = None
    address: str = "127.0.0.1"
    port: int = 0

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}:{self.port}"

    def on(self, path: str, *answers: Answer) -> None:
        self.answers[path] = list(answers)

    @property
    def paths(self) -> list[str]:
        return [request.target for request in self.requests]

    def serve(self, listener: socket.socket) -> None:
        while not self.stopping.is_set():
            with suppress(OSError):
                connection, _ = listener.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        # The client going away in the middle is what many tests are about.
        with suppress(OSError), connection, self._wrapped(connection) as stream:
            while request := _read_request(stream):
                self.requests.append(request)
                self._answer(request)(stream)

    def _wrapped(self, connection: socket.socket) -> socket.socket:
        wrapped: socket.socket = (
            self.tls.wrap_socket(connection, server_side=True) if self.tls else connection
        )
        return wrapped

    def _answer(self, request: Request) -> Answer:
        answers = self.answers.get(request.target)
        if answers:
            return answers.pop(0) if len(answers) > 1 else answers[0]
        path = self.root / request.target.lstrip("/") if self.root else None
        if path is None or not path.is_file():
            return answer(b"no such file\n", 404)
        return _rest_of(path.read_bytes(), request) if self.ranges else answer(path.read_bytes())


def _rest_of(data: bytes, request: Request) -> Answer:
    """The answer of a server that knows of ranges; only those without an end are asked for."""
    asked = request.headers.get("range", "")
    start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
    if not asked:
        return answer(data)
    if start >= len(data):
        return answer(b"", 416, Content_Range=f"bytes */{len(data)}")
    return answer(data[start:], 206, Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}")


def _read_request(stream: socket.socket) -> Request | None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        if not (received := stream.recv(1)):
            return None
        head += received
    line, *fields = head.decode("latin-1").rstrip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in fields)}
    return Request(line.split(" ")[1], headers)


def answer(body: bytes = b"", status: int = 200, **headers: str) -> Answer:
    """A complete answer; ``Content_Length="3"`` sets or corrects a header."""
    fields = {
        "Content-Length": str(len(body)),
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    head = f"HTTP/1.1 {status} Whatever\r\n" + "".join(f"{key}: {value}\r\n" for key, value in fields.items())
    return lambda stream: stream.sendall(head.encode() + b"\r\n" + body)


@pytest.fixture(name="answer")
def answer_fixture() -> Callable[..., Answer]:
    return answer


@pytest.fixture
def new_server() -> Iterator[Callable[..., Server]]:
    """``new_server(root=…, tls=…)`` listens on loopback until the test is over."""
    opened: list[tuple[Server, socket.socket, threading.Thread]] = []

    def make(root: Path | None = None, tls: Any = None, address: str = "127.0.0.1") -> Server:
        listener = socket.create_server((address, 0))
        server = Server(root=root, tls=tls, address=address, port=listener.getsockname()[1])
        thread = threading.Thread(target=server.serve, args=(listener,), daemon=True)
        thread.start()
        opened.append((server, listener, thread))
        return server

    yield make
    for server, listener, thread in opened:
        server.stopping.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.fixture
def server(new_server: Callable[..., Server]) -> Server:
    return new_server()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The proxies and the .netrc of whoever runs the tests are not for them."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


__all__ = [
    "Answer",
    "Authority",
    "Clock",
    "DirectoryMirror",
    "Forge",
    "Host",
    "Publisher",
    "Release",
    "Request",
    "Server",
    "TargetFile",
]


# --- trees and bundles ---

MANIFEST = b"resources: []\n"


@pytest.fixture(scope="session")
def write_tree() -> Callable[[Path, Mapping[str, bytes]], Path]:
    """Writes files below a new directory, which is returned."""

    def write(root: Path, files: Mapping[str, bytes]) -> Path:
        root.mkdir(parents=True)
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        return root

    return write


@pytest.fixture(scope="session")
def read_tree() -> Callable[[Path], dict[str, tuple[bytes, int]]]:
    """Contents and permission bits of the files below a directory, in which nothing else may be."""

    def read(root: Path) -> dict[str, tuple[bytes, int]]:
        found = {}
        for path in root.rglob("*"):
            mode = path.lstat().st_mode
            assert stat.S_ISDIR(mode) or stat.S_ISREG(mode), path
            if stat.S_ISREG(mode):
                found[os.fspath(path.relative_to(root))] = (path.read_bytes(), stat.S_IMODE(mode))
        return found

    return read


@pytest.fixture
def make_bundle(
    tmp_path: Path, write_tree: Callable[[Path, Mapping[str, bytes]], Path]
) -> Callable[..., BuiltBundle]:
    """Packs files, to which a manifest is added, into ``tmp_path``."""

    def make(
        files: Mapping[str, bytes] | None = None, name: str = "web", version: str = "1.4.0"
    ) -> BuiltBundle:
        source = write_tree(
            tmp_path / "sources" / f"{name}-{version}", {"manifest.yaml": MANIFEST, **(files or {})}
        )
        return build_bundle(source, tmp_path / f"{name}-{version}.tar.gz", name=name, version=version)

    return make


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state" / "bundles")


@pytest.fixture
def old(make_bundle: Callable[..., BuiltBundle]) -> BuiltBundle:
    return make_bundle({"conf/a": b"old"}, version="1.0.0")


@pytest.fixture
def new(make_bundle: Callable[..., BuiltBundle]) -> BuiltBundle:
    return make_bundle({"conf/a": b"new", "conf/b": b""}, version="1.1.0")
