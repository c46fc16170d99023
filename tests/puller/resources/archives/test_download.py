"""Downloads from servers that break off, forget and send wrong data. The path never has invalid content."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tenacity

from bundles.progress import Transfer, watched_by
from hiera.values import Secret
from puller.errors import ResourceError
from puller.resources.archives.download import Request, download
from puller.resources.archives.members import Kind
from tests.simulators import fileserver as simulator

if TYPE_CHECKING:
    from tests.simulators.fileserver import FileServer


BIG = b"\x1f\x8b" + os.urandom(300_000)
SHA256 = hashlib.sha256(BIG).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with simulator.serving() as server:
        server.files["/a.tar.gz"] = BIG
        yield server


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the pauses between attempts."""
    monkeypatch.setattr(tenacity, "wait_random_exponential", lambda **_: lambda state: 0.0)


@pytest.fixture
def fetch(server: FileServer, tmp_path: Path) -> Callable[..., str]:
    def run(path: str = "/a.tar.gz", **additional: Any) -> str:
        desired = {"kind": Kind.TAR_GZ, "checksum": None, "timeout": 10.0, "limit": 1_000_000, **additional}
        request = Request(url=f"{server.url}{path}", **desired)
        place = str(tmp_path / "a.tar.gz")
        fetched = download(request, place, uid=os.geteuid(), gid=os.getegid())
        with fetched.stream:
            return fetched.sha256

    return run


def ranges(server: FileServer) -> list[str | None]:
    return [headers.get("range") for _, headers in server.requests]


def test_a_file_arrives_private_and_with_its_checksum(fetch: Callable[..., str], tmp_path: Path) -> None:
    assert fetch() == SHA256
    assert (tmp_path / "a.tar.gz").read_bytes() == BIG
    assert stat.S_IMODE((tmp_path / "a.tar.gz").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a.tar.gz"]


# Lost connections


@pytest.mark.parametrize("checksum", [None, SHA256], ids=["no checksum", "a checksum"])
def test_a_download_that_breaks_off_goes_on_where_it_stopped(
    server: FileServer, fetch: Callable[..., str], checksum: str | None
) -> None:
    server.break_off = [100_000, 100_000]
    assert fetch(checksum=checksum) == SHA256
    assert ranges(server) == [None, "bytes=100000-", "bytes=200000-"]
    assert all(headers["if-range"].startswith('"') for _, headers in server.requests[1:])


def test_a_server_that_knows_no_ranges_sends_it_all_again(
    server: FileServer, fetch: Callable[..., str]
) -> None:
    server.ranges = False
    server.break_off = [100_000]
    assert fetch(checksum=SHA256) == SHA256
    assert fetch() == SHA256


def test_unversioned_parts_without_checksum_are_not_joined(
    server: FileServer, fetch: Callable[..., str]
) -> None:
    server.headers = {"ETag": 'W/"weak"'}
    server.break_off = [100_000]
    assert fetch() == SHA256
    assert ranges(server) == [None, None]


def test_a_file_that_changed_meanwhile_is_fetched_anew(server: FileServer, fetch: Callable[..., str]) -> None:
    new = b"\x1f\x8b" + os.urandom(300_000)
    server.break_off = [100_000]
    server.later = {"/a.tar.gz": new}
    assert fetch() == hashlib.sha256(new).hexdigest()
    assert ranges(server) == [None, "bytes=100000-"], "the server has said that the rest is of another file"


def test_download_with_a_checksum_resumes_in_the_next_run(
    server: FileServer, fetch: Callable[..., str], tmp_path: Path
) -> None:
    server.break_off = [50_000] * 4
    with pytest.raises(ResourceError, match=r"the transfer was interrupted: .* \(attempts: 4\)"):
        fetch(checksum=SHA256)
    (part,) = tmp_path.iterdir()
    assert part.stat().st_size == 200_000
    assert stat.S_IMODE(part.stat().st_mode) == 0o600
    server.requests.clear()
    assert fetch(checksum=SHA256) == SHA256
    assert ranges(server) == ["bytes=200000-"]
    assert os.listdir(tmp_path) == ["a.tar.gz"]


def test_unverified_download_leaves_no_part(
    server: FileServer, fetch: Callable[..., str], tmp_path: Path
) -> None:
    server.break_off = [50_000] * 4
    with pytest.raises(ResourceError):
        fetch()
    assert os.listdir(tmp_path) == []


def test_a_part_of_another_file_is_given_up(
    server: FileServer, fetch: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / f".a.tar.gz.{SHA256[:16]}.part").write_bytes(b"\x1f\x8b something else")
    (tmp_path / f".a.tar.gz.{SHA256[:16]}.part").chmod(0o600)
    assert fetch(checksum=SHA256) == SHA256
    assert ranges(server) == ["bytes=17-", None]


def test_a_part_that_is_all_of_it_needs_no_server(
    server: FileServer, fetch: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / f".a.tar.gz.{SHA256[:16]}.part").write_bytes(BIG)
    (tmp_path / f".a.tar.gz.{SHA256[:16]}.part").chmod(0o600)
    assert fetch(checksum=SHA256) == SHA256
    assert server.asked == []


def test_a_part_that_is_longer_than_the_file_is_given_up(
    server: FileServer, fetch: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / f".a.tar.gz.{SHA256[:16]}.part").write_bytes(BIG + b"more")
    (tmp_path / f".a.tar.gz.{SHA256[:16]}.part").chmod(0o600)
    assert fetch(checksum=SHA256) == SHA256


def test_parts_of_older_versions_are_removed(fetch: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / f".a.tar.gz.{'0' * 16}.part").write_bytes(b"old")
    fetch(checksum=SHA256)
    assert os.listdir(tmp_path) == ["a.tar.gz"]


@pytest.mark.parametrize("planted", ["readable", "link", "hard link", "fifo"])
def test_partial_file_of_another_user_is_not_used(
    fetch: Callable[..., str], tmp_path: Path, planted: str
) -> None:
    """In a directory such as /tmp, any user can create a partial download."""
    part, other = tmp_path / f".a.tar.gz.{SHA256[:16]}.part", tmp_path / "precious"
    other.write_text("precious")
    other.chmod(0o600)
    plant: dict[str, Callable[[], None]] = {
        "readable": lambda: part.touch(0o644),
        "link": lambda: part.symlink_to(other),
        "hard link": lambda: os.link(other, part),
        "fifo": lambda: os.mkfifo(part, 0o600),
    }
    plant[planted]()
    assert fetch(checksum=SHA256) == SHA256
    assert other.read_text() == "precious"


@pytest.mark.attack("races.swap")
def test_partial_file_taken_over_later_is_not_written(
    fetch: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, other = tmp_path / f".a.tar.gz.{SHA256[:16]}.part", tmp_path / "precious"
    for path in (part, other):
        path.write_text("precious")
        path.chmod(0o600)
    real = os.open

    def swap(path: Any, *arguments: Any, **named: Any) -> int:
        if path == part.name:
            part.unlink(missing_ok=True)
            os.link(other, part)
        return real(path, *arguments, **named)

    with monkeypatch.context() as patches:
        patches.setattr(os, "open", swap)
        with suppress(OSError):
            fetch(checksum=SHA256)
    assert other.read_text() == "precious"


# Rejected downloads


def refused(fetch: Callable[..., str], directory: Path, **more: Any) -> str:
    with pytest.raises(ResourceError) as failure:
        fetch(**more)
    assert not (directory / "a.tar.gz").exists()
    return str(failure.value)


@pytest.mark.parametrize(
    ("kind", "data", "says"),
    [
        (Kind.TAR_GZ, b"\n<!DOCTYPE html><title>Sign in</title>", "is a web page: it starts with '"),
        (Kind.TAR, b"<html>", "is a web page: it starts with '<html>'"),
        (Kind.ZIP, b"not a zip", "is no zip: it starts with 'not a zip'"),
        (Kind.TAR_GZ, b"PK\3\4", "is no tar.gz: it starts with "),
    ],
)
def test_obvious_non_archive_is_refused(
    server: FileServer, fetch: Callable[..., str], tmp_path: Path, kind: Kind, data: bytes, says: str
) -> None:
    """Captive portals and login pages answer every request with 200."""
    server.files["/a.tar.gz"] = data
    assert says in refused(fetch, tmp_path, kind=kind)


def test_more_than_the_limit_is_refused(
    server: FileServer, fetch: Callable[..., str], tmp_path: Path
) -> None:
    assert "has 300002 bytes, at most 1000 are allowed" in refused(fetch, tmp_path, limit=1000)
    server.headers = {"Content-Length": "10000000", "Transfer-Encoding": "identity"}
    assert "has 10000000 bytes, at most 1000000 are allowed" in refused(fetch, tmp_path)


def test_another_checksum_is_refused_and_fetched_once(
    server: FileServer, fetch: Callable[..., str], tmp_path: Path
) -> None:
    assert f"has sha256 {SHA256}, expected {'0' * 64}" in refused(fetch, tmp_path, checksum="0" * 64)
    assert len(server.requests) == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("given", ["bytes 5-9/10", "bytes", "", "bytes 100000-x/2", "items 100000-2/3"])
def test_unrequested_range_causes_a_full_download(
    server: FileServer, fetch: Callable[..., str], tmp_path: Path, given: str
) -> None:
    server.break_off = [100_000]
    server.headers = {"Content-Range": given}
    assert fetch(checksum=SHA256) == SHA256
    assert ranges(server) == [None, "bytes=100000-", None]


def test_an_encoding_is_refused_unless_it_is_the_archives_own(
    server: FileServer, fetch: Callable[..., str], tmp_path: Path
) -> None:
    server.headers = {"Content-Encoding": "x-gzip"}
    assert fetch() == SHA256
    (tmp_path / "a.tar.gz").unlink()
    server.headers = {"Content-Encoding": "br"}
    assert "Content-Encoding is 'br', expected 'identity'" in refused(fetch, tmp_path)


def test_a_missing_file_is_named(fetch: Callable[..., str], tmp_path: Path) -> None:
    assert "/b.tar.gz: status 404 Not Found" in refused(fetch, tmp_path, path="/b.tar.gz")


def test_a_download_ends_in_time(server: FileServer, fetch: Callable[..., str], tmp_path: Path) -> None:
    """The reference limits every transfer to one minute, whatever its size."""
    server.drip = 0.01
    message = refused(fetch, tmp_path, timeout=0.3, checksum=SHA256)
    assert "took longer than the limit of 0.3 s" in message


# Credentials


def test_basic_authentication(server: FileServer, fetch: Callable[..., str], tmp_path: Path) -> None:
    server.credentials = "deploy:s3cret"
    assert fetch(username="deploy", password=Secret("s3cret")) == SHA256
    (tmp_path / "a.tar.gz").unlink()
    message = refused(fetch, tmp_path, username="deploy", password=Secret("canary"))
    assert "status 401 Unauthorized: wrong or missing credentials" in message
    assert "canary" not in message


def test_a_header_of_ones_own_goes_before_a_password(server: FileServer, fetch: Callable[..., str]) -> None:
    headers = {"authorization": Secret("Bearer token"), "X-More": Secret("more")}
    fetch(username="deploy", password=Secret("unused"), headers=headers)
    ((_, sent),) = server.requests
    assert (sent["authorization"], sent["x-more"]) == ("Bearer token", "more")


@pytest.mark.attack("credentials.other-host")
def test_credentials_stay_with_the_server_that_they_are_for(
    server: FileServer, fetch: Callable[..., str], tmp_path: Path
) -> None:
    with simulator.serving("127.0.0.2") as other:
        other.files["/elsewhere.tar.gz"] = BIG
        server.redirects["/a.tar.gz"] = "/moved.tar.gz"
        server.files["/moved.tar.gz"] = BIG
        fetch(username="deploy", password=Secret("s3cret"))
        assert [headers.get("authorization") is None for _, headers in server.requests] == [False, False]
        server.redirects["/a.tar.gz"] = f"{other.url}/elsewhere.tar.gz"
        (tmp_path / "a.tar.gz").unlink()
        assert "expected the same origin or https" in refused(fetch, tmp_path)
        assert other.requests == []


def test_a_query_is_sent_and_never_shown(
    server: FileServer, fetch: Callable[..., str], tmp_path: Path
) -> None:
    assert fetch("/a.tar.gz?sig=canary#part") == SHA256
    assert server.asked == ["/a.tar.gz?sig=canary"]
    (tmp_path / "a.tar.gz").unlink()
    assert "canary" not in refused(fetch, tmp_path, path="/b.tar.gz?sig=canary")
    assert "canary" not in refused(fetch, tmp_path, path="/a.tar.gz?sig=canary", checksum="0" * 64)


# Progress


def test_progress_is_told(fetch: Callable[..., str]) -> None:
    watcher = Recording()
    with watched_by(watcher):
        fetch()
    have = [each for each, _ in watcher.told]
    assert watcher.told[-1] == (len(BIG), len(BIG))
    assert have == sorted(have)
    assert watcher.ends == [("a.tar.gz", True)]


class Recording:
    """Records the reported progress."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int | None]] = []
        self.ends: list[tuple[str, bool]] = []

    def moved(self, transfer: Transfer) -> None:
        self.told.append((transfer.have, transfer.size))

    def ended(self, transfer: Transfer, *, well: bool) -> None:
        self.ends.append((transfer.what, well))
