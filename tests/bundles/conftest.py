"""A publisher, a host and the servers between them.

The publisher is the real `Site`, and the host is the real `TrustClient`. Between them is a directory (``served``) that
tests modify, or `Server`, a programmable HTTP server on loopback.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bundles.archive.pack import BuiltBundle, build_bundle
from bundles.store.store import Store
from bundles.transport.mirror import open_mirrors
from bundles.transport.settings import TransportSettings
from tests.simulators.authority import Authority
from tests.support.http_server import Answer, Server, answer
from tests.support.sites import Clock, Host, Killed, Publisher, SharedPublishers, Survives


@pytest.fixture(scope="session")
def shared_publishers(tmp_path_factory: pytest.TempPathFactory) -> SharedPublishers:
    return SharedPublishers(tmp_path_factory.mktemp)


@pytest.fixture
def clock(shared_publishers: SharedPublishers) -> Clock:
    shared_publishers.renew()
    return Clock(shared_publishers.now)


@pytest.fixture
def survives(monkeypatch: pytest.MonkeyPatch) -> Survives:
    """``survives(n, action)`` kills the action at its n-th moment just before or after a rename."""

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
    """``new_publisher(name, **lifetimes)`` makes a publisher with its own keys."""

    def make(name: str = "publisher", **lifetimes: str) -> Publisher:
        (tmp_path / name).mkdir()
        return Publisher(tmp_path / name, clock, lifetimes)

    return make


@pytest.fixture
def blank_publisher(tmp_path: Path, clock: Clock, shared_publishers: SharedPublishers) -> Publisher:
    """Return a publisher whose site is still empty."""
    return Publisher(tmp_path / "publisher", clock, like=shared_publishers.blank)


@pytest.fixture
def publisher(tmp_path: Path, clock: Clock, shared_publishers: SharedPublishers) -> Publisher:
    """Return a publisher with ``web 1.0.0`` in channel stable."""
    return Publisher(tmp_path / "publisher", clock, like=shared_publishers.published)


@pytest.fixture
def new_host(tmp_path: Path, clock: Clock, publisher: Publisher) -> Callable[..., Host]:
    """``new_host(*mirrors)`` takes directories or URLs. Default: the directory of ``publisher``."""

    def make(*places: Path | str, name: str = "host", settings: TransportSettings | None = None) -> Host:
        mirrors = open_mirrors([str(place) for place in places or (publisher.served,)], settings)
        return Host(tmp_path / name, publisher.site.anchor, clock, mirrors)

    return make


@pytest.fixture
def host(new_host: Callable[..., Host]) -> Host:
    """Return a host of ``publisher`` that has not run yet."""
    return new_host()


# --- HTTP ---------------------------------------------------------------------------------------------------


@pytest.fixture(name="answer")
def answer_fixture() -> Callable[..., Answer]:
    return answer


@pytest.fixture
def new_server() -> Iterator[Callable[..., Server]]:
    """``new_server(root=…, tls=…)`` listens on loopback until the test ends."""
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
    """Isolate tests from the user's proxies and .netrc."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


# --- trees and bundles ---

MANIFEST = b"resources: []\n"


@pytest.fixture(scope="session")
def write_tree() -> Callable[[Path, Mapping[str, bytes]], Path]:
    """Return a function that writes files below a new directory and returns it."""

    def write(root: Path, files: Mapping[str, bytes]) -> Path:
        root.mkdir(parents=True)
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        return root

    return write


@pytest.fixture(scope="session")
def read_tree() -> Callable[[Path], dict[str, tuple[bytes, int]]]:
    """Return a function that reads contents and modes of the files in a directory, and rejects other types."""

    def read(root: Path) -> dict[str, tuple[bytes, int]]:
        result = {}
        for path in root.rglob("*"):
            mode = path.lstat().st_mode
            assert stat.S_ISDIR(mode) or stat.S_ISREG(mode), path
            if stat.S_ISREG(mode):
                result[os.fspath(path.relative_to(root))] = (path.read_bytes(), stat.S_IMODE(mode))
        return result

    return read


@pytest.fixture
def make_bundle(
    tmp_path: Path, write_tree: Callable[[Path, Mapping[str, bytes]], Path]
) -> Callable[..., BuiltBundle]:
    """Return a function that packs files and a manifest into ``tmp_path``."""

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
