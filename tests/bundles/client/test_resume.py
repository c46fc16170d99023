"""An interrupted download resumes at its end. Only the signed bytes are put in place."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from bundles.client.partial_downloads import LONGEST_KEPT, MOST_KEPT, SMALLEST_KEPT
from bundles.errors import NotFoundError, SignatureError, StoreError, TransportError
from bundles.format.release import Release
from bundles.transport.mirror import open_mirrors
from bundles.transport.settings import TransportSettings

if TYPE_CHECKING:
    from tests.support.http_server import Answer, Server
    from tests.support.sites import Clock, Host, Publisher

QUICK = TransportSettings(connect_timeout=5, read_timeout=1, total_timeout=20, retries=0)
HALF = 150_000


class Download:
    """A host that has the index of a bundle of about 200 kB, and the server of this bundle."""

    def __init__(self, host: Host, publisher: Publisher, server: Server) -> None:
        noise = random.Random(1).randbytes(200_000).hex()
        self.sha256 = publisher.publish("1.1.0", text=noise).sha256
        (path,) = publisher.served.glob("targets/web/*1.1.0*")
        self.data, self.path = path.read_bytes(), f"/{path.relative_to(publisher.served)}"
        self.host, self.server = host, server
        self.release = Release.of("web", "1.1.0")
        self.place = host.downloads / "bundle"
        self.part = host.downloads / f".{self.sha256}.part"
        host.refresh()
        server.requests.clear()

    def fetch(self) -> bytes:
        """Fetch the bundle as a separate run does."""
        client = self.host.client()
        client.indexes()
        return client.fetch(self.release, self.place).path.read_bytes()

    def left(self, data: bytes) -> None:
        """Leave a partial download as a killed run does."""
        self.part.write_bytes(data)
        self.part.chmod(0o600)

    @property
    def ranges(self) -> list[str | None]:
        """The range of each request for the bundle. ``None`` if the whole file was requested."""
        return [r.headers.get("range") for r in self.server.requests if r.target == self.path]

    def assert_is_here(self) -> None:
        """Check that the right bytes are in place and no other file is left."""
        assert self.place.read_bytes() == self.data
        assert os.listdir(self.host.downloads) == ["bundle"]
        assert stat.S_IMODE(self.place.stat().st_mode) == 0o600


@pytest.fixture
def download(publisher: Publisher, server: Server, new_host: Callable[..., Host]) -> Download:
    server.root, server.ranges = publisher.served, True
    return Download(new_host(server.origin, settings=QUICK), publisher, server)


def broken_off(data: bytes, position: int, start: int = 0) -> Answer:
    """Return an answer that has the full length but ends early."""
    status = f"206 Partial\r\nContent-Range: bytes {start}-{len(data) - 1}/{len(data)}" if start else "200 OK"
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(data) - start}\r\n\r\n"

    def send(stream: socket.socket) -> None:
        stream.sendall(head.encode() + data[start:position])
        stream.shutdown(socket.SHUT_RDWR)

    return send


def test_the_next_run_goes_on_where_a_download_broke_off(download: Download) -> None:
    download.server.on(download.path, broken_off(download.data, HALF))
    with pytest.raises(TransportError, match="the transfer was interrupted"):
        download.fetch()
    assert download.part.read_bytes() == download.data[:HALF]
    assert stat.S_IMODE(download.part.stat().st_mode) == 0o600
    assert not download.place.exists()
    download.server.answers.clear()
    download.fetch()
    download.assert_is_here()
    assert download.ranges == [None, f"bytes={HALF}-"]


def test_another_attempt_of_the_same_run_goes_on_too(download: Download) -> None:
    again = TransportSettings(read_timeout=1, total_timeout=20, retries=1)
    download.host.mirrors = open_mirrors([download.server.origin], again)
    download.server.on(
        download.path, broken_off(download.data, HALF), broken_off(download.data, HALF + 30_000, HALF)
    )
    with pytest.raises(TransportError, match=r"the transfer was interrupted.* \(attempts: 2\)"):
        download.fetch()
    assert download.ranges == [None, f"bytes={HALF}-"]
    assert download.part.read_bytes() == download.data[: HALF + 30_000]


def test_another_mirror_goes_on_where_the_first_broke_off(
    download: Download, publisher: Publisher, new_server: Callable[..., Server]
) -> None:
    other = new_server(root=publisher.served)
    other.ranges = True
    download.host.mirrors = open_mirrors([download.server.origin, other.origin], QUICK)
    download.server.on(download.path, broken_off(download.data, HALF), broken_off(download.data, HALF, HALF))
    download.fetch()
    download.assert_is_here()
    assert [r.headers.get("range") for r in other.requests] == [f"bytes={HALF}-"]


def test_a_server_that_knows_no_ranges_sends_all_of_it(download: Download) -> None:
    download.left(download.data[:HALF])
    download.server.ranges = False
    download.fetch()
    download.assert_is_here()
    assert download.ranges == [f"bytes={HALF}-"]


def test_complete_download_is_not_requested_again(download: Download) -> None:
    download.left(download.data)
    download.fetch()
    download.assert_is_here()
    assert download.ranges == []


WRONG_PARTS: dict[str, Callable[[bytes], bytes]] = {
    "another file": lambda data: bytes(HALF),
    "one bit": lambda data: bytes([data[0] ^ 1]) + data[1:HALF],
    "all of it, and one bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "too much": lambda data: data + b"x",
    "far too much": lambda data: data * 3,
}


@pytest.mark.parametrize("wrong", WRONG_PARTS.values(), ids=WRONG_PARTS.keys())
@pytest.mark.representatives(2)
def test_a_part_of_something_else_is_started_over_once(
    download: Download, wrong: Callable[[bytes], bytes]
) -> None:
    download.left(wrong(download.data))
    download.fetch()
    download.assert_is_here()
    assert download.ranges[-1] is None
    assert len(download.ranges) <= 2


ODD_ANSWERS: dict[str, dict[str, str]] = {
    "416": {},
    "another part": {"Content_Range": "bytes 0-10/20"},
    "no range": {},
    "not a range": {"Content_Range": f"bytes {HALF}-garbage/5"},
    "another unit": {"Content_Range": f"items {HALF}-999999/*"},
}


@pytest.mark.parametrize(("name", "headers"), ODD_ANSWERS.items(), ids=ODD_ANSWERS.keys())
@pytest.mark.representatives(2)
def test_answer_outside_the_range_causes_a_full_download(
    download: Download, answer: Callable[..., Answer], name: str, headers: dict[str, str]
) -> None:
    download.left(download.data[:HALF])
    odd = answer(b"x" * 11, 416 if name == "416" else 206, **headers)
    download.server.on(download.path, odd, answer(download.data))
    download.fetch()
    download.assert_is_here()
    assert download.ranges == [f"bytes={HALF}-", None]


def test_unrequested_partial_answer_is_refused(download: Download, answer: Callable[..., Answer]) -> None:
    download.server.on(download.path, answer(download.data[:10], 206, Content_Range="bytes 0-9/10"))
    with pytest.raises(TransportError, match="status 206 Partial Content: expected 200"):
        download.fetch()


@pytest.mark.attack("endless.body")
def test_a_rest_without_end_is_cut_off_and_started_over(
    download: Download, answer: Callable[..., Answer]
) -> None:
    def endless(stream: socket.socket) -> None:
        head = (
            f"HTTP/1.1 206 P\r\nContent-Range: bytes {HALF}-999999999/*\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        stream.sendall(head.encode())
        while True:
            stream.sendall(b"10000\r\n" + bytes(65536) + b"\r\n")

    download.left(download.data[:HALF])
    download.server.on(download.path, endless, answer(download.data))
    download.fetch()
    download.assert_is_here()


@pytest.mark.attack("endless.length-short", "endless.length-long")
@pytest.mark.parametrize("length", [10, 10**9, 10**17])
def test_a_length_of_the_rest_that_lies_is_not_believed(
    download: Download, answer: Callable[..., Answer], length: int
) -> None:
    download.left(download.data[:HALF])
    lie = answer(
        download.data[HALF:], 206, Content_Range=f"bytes {HALF}-999999/*", Content_Length=str(length)
    )
    download.server.on(download.path, lie, answer(download.data))
    download.fetch()
    download.assert_is_here()


def test_garbage_from_a_mirror_leaves_no_partial_download(
    download: Download, answer: Callable[..., Answer]
) -> None:
    garbage = bytes(len(download.data))
    download.left(download.data[:HALF])
    remainder = answer(garbage[HALF:], 206, Content_Range=f"bytes {HALF}-999999/*")
    download.server.on(download.path, remainder, answer(garbage))
    with pytest.raises(SignatureError, match=r"sha256 is .*, expected .* from the signed metadata"):
        download.fetch()
    assert os.listdir(download.host.downloads) == []


def test_garbage_from_a_hostile_mirror_does_not_block_a_good_one(
    download: Download, publisher: Publisher, new_server: Callable[..., Server]
) -> None:
    good = new_server(root=publisher.served)
    good.ranges = True
    garbage = bytes(len(download.data))
    download.server.on(download.path, broken_off(garbage, HALF))
    download.host.mirrors = open_mirrors([download.server.origin, good.origin], QUICK)
    download.fetch()
    download.assert_is_here()
    assert [r.headers.get("range") for r in good.requests] == [f"bytes={HALF}-", None]


@pytest.mark.parametrize("status", [200, 404, 500])
def test_captive_portal_page_keeps_the_partial_download(
    download: Download, answer: Callable[..., Answer], status: int
) -> None:
    download.left(download.data[:HALF])
    download.server.on(download.path, answer(b"<html>Welcome</html>" * 100, status))
    with pytest.raises(TransportError):
        download.fetch()
    assert download.part.read_bytes() == download.data[:HALF]


def test_of_a_small_part_nothing_is_kept(download: Download) -> None:
    download.server.on(download.path, broken_off(download.data, SMALLEST_KEPT - 1))
    with pytest.raises(TransportError):
        download.fetch()
    assert os.listdir(download.host.downloads) == []


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_a_run_that_is_stopped_in_the_middle_leaves_its_part(
    download: Download, monkeypatch: pytest.MonkeyPatch, end: type[BaseException]
) -> None:
    def stopped(*_: object) -> None:
        raise end

    with monkeypatch.context() as patch:
        patch.setattr("bundles.client.partial_downloads.os.rename", stopped)
        with pytest.raises(end):
            download.fetch()
    assert download.part.read_bytes() == download.data
    download.fetch()
    download.assert_is_here()
    assert download.ranges == [None]


def test_a_disk_that_fills_up_is_given_back(download: Download, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    download.left(download.data[:HALF])
    with monkeypatch.context() as disk:
        disk.setattr("bundles.client.partial_downloads.os.fsync", full)
        with pytest.raises(StoreError, match="No space left on device"):
            download.fetch()
    assert os.listdir(download.host.downloads) == []


IN_THE_WAY: dict[str, Callable[[Path, Path], object]] = {
    "a link": lambda part, outside: part.symlink_to(outside / "file"),
    "a dangling link": lambda part, outside: part.symlink_to(outside / "missing"),
    "a link to a directory": lambda part, outside: part.symlink_to(outside),
    "a directory": lambda part, outside: (part / "deeper").mkdir(parents=True),
    "a FIFO": lambda part, outside: os.mkfifo(part),
}


@pytest.mark.parametrize("put", IN_THE_WAY.values(), ids=IN_THE_WAY.keys())
@pytest.mark.representatives(2)
def test_special_file_at_the_download_path_is_removed(
    download: Download, tmp_path: Path, put: Callable[[Path, Path], object]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"somebody else's")
    put(download.part, outside)
    download.fetch()
    download.assert_is_here()
    assert os.listdir(outside) == ["file"]
    assert (outside / "file").read_bytes() == b"somebody else's"


def test_files_placed_by_a_killed_run_are_not_fetched_again(download: Download) -> None:
    download.place.write_bytes(download.data)
    download.fetch()
    assert download.place.read_bytes() == download.data
    assert download.ranges == []


# --- abandoned partial downloads ----------------------------------------------------------------------------


def test_partial_downloads_of_unpublished_bundles_are_removed(download: Download) -> None:
    stranger = download.host.downloads / f".{'0' * 64}.part"
    stranger.write_bytes(b"x")
    (download.host.downloads / f"{'0' * 64}.tar.gz").write_bytes(b"x")
    complete = download.host.downloads / f"{download.sha256}.tar.gz"
    complete.write_bytes(b"x")
    (download.host.downloads / f".{'1' * 64}.part").mkdir()
    (download.host.downloads / "unrelated.part").write_bytes(b"x")
    download.left(download.data[:HALF])
    client = download.host.client()
    client.refresh()
    client.discard_leftovers(download.host.downloads)
    assert set(os.listdir(download.host.downloads)) == {download.part.name, complete.name, "unrelated.part"}


@pytest.mark.parametrize("put", IN_THE_WAY.values(), ids=IN_THE_WAY.keys())
@pytest.mark.representatives(2)
def test_directory_at_the_download_path_is_removed(
    download: Download, tmp_path: Path, put: Callable[[Path, Path], object]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"somebody else's")
    put(download.host.downloads / f"{download.sha256}.tar.gz", outside)
    client = download.host.client()
    client.refresh()
    client.discard_leftovers(download.host.downloads)
    assert os.listdir(download.host.downloads) == []
    assert (outside / "file").read_bytes() == b"somebody else's"


def test_old_parts_are_removed(download: Download, clock: Clock) -> None:
    client = download.host.client()
    client.refresh()
    for days, stays in [(LONGEST_KEPT.days - 1, True), (LONGEST_KEPT.days + 1, False)]:
        download.left(download.data[:HALF])
        written = clock.now.timestamp() - days * 24 * 3600
        os.utime(download.part, (written, written))
        client.discard_leftovers(download.host.downloads)
        assert download.part.exists() is stays


def test_only_the_newest_parts_are_kept(publisher: Publisher, host: Host, clock: Clock) -> None:
    desired = [publisher.publish(f"2.{number}.0").sha256 for number in range(MOST_KEPT + 3)]
    for age, sha256 in enumerate(desired):
        part = host.downloads / f".{sha256}.part"
        part.write_bytes(b"x")
        os.utime(part, (clock.now.timestamp() - age, clock.now.timestamp() - age))
    client = host.client()
    client.refresh()
    client.discard_leftovers(host.downloads)
    assert sorted(os.listdir(host.downloads)) == sorted(f".{sha256}.part" for sha256 in desired[:MOST_KEPT])


def test_a_part_that_cannot_be_removed_is_noted(download: Download, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = download.host.downloads / f".{'0' * 64}.part"
    stranger.write_bytes(b"x")

    def read_only(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    client = download.host.client()
    client.refresh()
    monkeypatch.setattr(Path, "unlink", read_only)
    client.discard_leftovers(download.host.downloads)
    assert client.notes == [f"{stranger}: cannot be removed: Read-only file system"]


def test_a_directory_that_is_not_there_has_no_parts(host: Host, tmp_path: Path) -> None:
    host.client().discard_leftovers(tmp_path / "missing")


# --- free space ---------------------------------------------------------------------------------------


def disk(free: int, size: int = 10**9, inodes: int = 1000) -> os.statvfs_result:
    numbers = {"f_frsize": 1000, "f_blocks": size // 1000, "f_bavail": free // 1000}
    return cast(os.statvfs_result, SimpleNamespace(**numbers, f_files=10_000, f_favail=inodes))


def test_download_without_free_space_is_refused_at_once(
    download: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: disk(free=100_000))
    with pytest.raises(
        StoreError,
        match=r"bundle: requires 2\d\d\.\d kB and a reserve of 16\.8 MB, but 100\.0 kB are free on /",
    ):
        download.fetch()
    assert download.ranges == []
    assert os.listdir(download.host.downloads) == []


def test_without_inodes_a_download_is_refused_before_it_begins(
    download: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: disk(free=10**9, inodes=0))
    with pytest.raises(StoreError, match="requires 1 inode, but 0 are free on /"):
        download.fetch()
    assert download.ranges == []


def test_finished_downloads_need_no_free_space(download: Download, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a small disk, 5 % must stay free."""
    monkeypatch.setattr(os, "statvfs", lambda _: disk(free=150_000, size=1_000_000))
    with pytest.raises(StoreError, match=r"and a reserve of 50\.0 kB"):
        download.fetch()
    download.left(download.data[:HALF])
    download.fetch()
    download.assert_is_here()


def test_a_bundle_that_is_not_on_the_mirror_is_missing_as_before(download: Download) -> None:
    download.left(download.data[:HALF])
    download.server.root = None
    with pytest.raises(NotFoundError, match="status 404"):
        download.fetch()
    assert hashlib.sha256(download.data).hexdigest() == download.sha256
