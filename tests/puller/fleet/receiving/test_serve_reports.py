"""``puller fleet serve-reports``: accepted and rejected requests, and resistance to overload."""

import gzip
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import pytest

from bundles.deadline import Deadline
from bundles.transport.settings import Location, TransportSettings
from bundles.transport.uploads import PlainUploads
from bundles.transport.web_transfers import WebUploads
from puller.delivery.report_document import pack
from puller.fleet import receiving as module
from puller.fleet.receiving import LARGEST_BODY, ReportServer, receiving
from tests.puller.delivery.test_document import sent

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host

REPORT = sent([])
DATA = pack(REPORT)
PATH = f"/{REPORT.host}/{REPORT.report.run}.json.gz"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with receiving(tmp_path) as running:
        yield running


def ask(
    url: str, method: str, path: str, data: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    try:
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_sent_reports_are_stored_by_host(url: str, tmp_path: Path, settled: "Host") -> None:
    settled.configure(reports={"to": [url]})
    outcome = settled.run()
    assert "WARN" not in outcome.output
    run = settled.report()["run"]
    reports = [name for name in files(tmp_path) if name.startswith("web01.example.com/")]
    assert reports == [f"web01.example.com/{run}.json.gz"]
    assert (tmp_path / reports[0]).stat().st_mode & 0o777 == 0o644


def identity_of(path: Path) -> tuple[int, ...]:
    """Return all of a file's status but the time of the last access: the server reads the file to compare it."""
    status = path.stat()
    owner = status.st_uid, status.st_gid, status.st_mode, status.st_nlink
    return status.st_dev, status.st_ino, *owner, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def test_the_same_again_changes_nothing_and_by_post_too(url: str, tmp_path: Path) -> None:
    assert ask(url, "PUT", PATH, DATA) == (201, "")
    before = identity_of(tmp_path / PATH[1:])
    assert ask(url, "PUT", PATH, DATA) == (204, "")
    assert ask(url, "POST", PATH, DATA) == (204, "")
    assert ask(url, "POST", "/", DATA) == (204, "")
    assert identity_of(tmp_path / PATH[1:]) == before
    assert files(tmp_path) == [PATH[1:]]


def other(**fields: Any) -> bytes:
    return pack(msgspec.structs.replace(REPORT, **fields))


def with_report(**fields: Any) -> bytes:
    return other(report=msgspec.structs.replace(REPORT.report, **fields))


@pytest.mark.parametrize(
    ("path", "data", "status", "message"),
    [  # compressed without a timestamp, so that the tests keep their names
        ("/", DATA, 403, "expected /HOST/RUN.json.gz"),
        ("/x", DATA, 403, "expected /HOST/RUN.json.gz"),
        ("/../../etc/passwd.json.gz", DATA, 403, "name of the host"),
        (f"/.ssh/{REPORT.report.run}.json.gz", DATA, 403, "name of the host"),
        (f"//{REPORT.report.run}.json.gz", DATA, 403, "expected /HOST/RUN.json.gz"),
        (f"/{'a' * 254}/{REPORT.report.run}.json.gz", DATA, 403, "name of the host"),
        (f"/a%2fb/{REPORT.report.run}.json.gz", DATA, 403, "name of the host"),
        ("/a/b/c.json.gz", DATA, 403, "the run is"),
        ("/a/..json.gz", DATA, 403, "the run is"),
        (PATH.replace("web01", "web02"), DATA, 422, "sent for 'web02.example.com'"),
        (PATH.replace("T08", "T09"), DATA, 422, "and run '20261123T08"),
        (PATH, b"", 422, "cut off"),
        (PATH, b"{}", 422, "not a compressed report"),
        (PATH, DATA[:-1], 422, "cut off"),
        (PATH, DATA + b"x", 422, "further data behind it"),
        (PATH, gzip.compress(b"[]", mtime=0), 422, "is not a report"),
        (PATH, gzip.compress(b"[" * 100_000, mtime=0), 422, "is not a report"),
        (PATH, gzip.compress(bytes(2_000_000), mtime=0), 422, "more than 1048576 bytes"),
        (PATH, gzip.compress(b'{"format": 3}', mtime=0), 422, "is not a report"),
        (PATH, with_report(host="web02.example.com"), 422, "and its report to 'web02"),
        (PATH, bytes(300_000), 422, "more than 262144 bytes"),
        (PATH, bytes(LARGEST_BODY + 1), 413, "at most 1048576 bytes"),
    ],
)
def test_invalid_report_is_refused_with_a_message(
    url: str, tmp_path: Path, path: str, data: bytes, status: int, message: str
) -> None:
    answer = ask(url, "PUT", path, data)
    assert answer[0] == status
    assert message in answer[1]
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["../x", ".x", "a/b", "", "a\nb", "ä"])
def test_a_name_within_a_document_is_held_to_the_same_rule(url: str, tmp_path: Path, name: str) -> None:
    data = other(host=name, report=msgspec.structs.replace(REPORT.report, host=name))
    assert ask(url, "POST", "/", data)[0] == 422
    assert ask(url, "POST", "/", with_report(run="../../x"))[0] == 422
    assert files(tmp_path) == []


def test_it_takes_and_shows_nothing(url: str) -> None:
    ask(url, "PUT", PATH, DATA)
    for method in ("GET", "HEAD", "DELETE"):
        assert ask(url, method, PATH)[0] == 405
    assert ask(url, "MOVE", PATH)[0] == 501
    assert ask(url, "PUT", PATH, headers={"Transfer-Encoding": "chunked"})[0] == 411
    assert ask(url, "PUT", PATH, headers={"Content-Length": "-1"})[0] == 411


def test_who_sends_too_much_sees_the_answer_all_the_same(url: str) -> None:
    location = Location.parse(url)
    for kind in (PlainUploads, WebUploads):
        uploads = kind(location, TransportSettings())
        for path in ("/x", PATH):
            data = bytes(LARGEST_BODY + 1) if path == PATH else bytes(LARGEST_BODY)
            status = uploads.send("PUT", f"{location.base}{path}", data, "application/gzip", Deadline(20))
            assert status == (413 if path == PATH else 403)
        uploads.close()


def test_a_link_in_the_place_of_a_host_is_not_followed(url: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / REPORT.host).symlink_to("elsewhere")
    assert ask(url, "PUT", PATH, DATA)[0] == 507
    assert files(tmp_path) == []


def test_full_disk_answer_makes_hosts_keep_reports(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("puller.fleet.receiving.replace_file", full)
    assert ask(url, "PUT", PATH, DATA)[0] == 507


# --- overload ---------------------------------------------------------------------------------------------------


def connect(url: str) -> socket.socket:
    url_parts = urlsplit(url)
    return socket.create_connection((url_parts.hostname, url_parts.port), timeout=20)


def drip(stream: socket.socket, data: bytes, over: Callable[[], bool]) -> None:
    try:
        for byte in data:
            stream.send(bytes([byte]))
            time.sleep(0.02)
            if over():
                return
    except OSError:
        return


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"PUT / HT" + b"x" * 10_000,
        b"PUT / HTTP/1.1\r\n" + b"X-A: b\r\n" * 10_000,
        f"PUT {PATH} HTTP/1.1\r\nContent-Length: 100000\r\n\r\n".encode() + b"x" * 10_000,
    ],
)
def test_every_connection_ends_in_time(tmp_path: Path, head: bytes) -> None:
    with receiving(tmp_path, longest=0.5) as url, connect(url) as stream:
        began, closed = time.monotonic(), threading.Event()
        sending = threading.Thread(target=drip, args=(stream, head, closed.is_set))
        sending.start()
        while stream.recv(65536):
            pass
        closed.set()
        assert time.monotonic() - began < 5
        sending.join()
        assert ask(url, "PUT", PATH, DATA)[0] == 201


def test_a_head_without_end_is_cut_off(url: str) -> None:
    with connect(url) as stream:
        stream.sendall(b"PUT / HTTP/1.1\r\n" + b"X-A: b\r\n" * 200)
        answer = stream.recv(65536)
    assert answer.startswith(b"HTTP/1.1 431 ")
    with connect(url) as stream:
        stream.sendall(b"PUT /" + b"x" * 70_000)
        assert stream.recv(65536).startswith(b"HTTP/1.1 414 ")


def test_excess_connections_receive_a_retry_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 3)
    with receiving(tmp_path) as url, ExitStack() as opened:
        for _ in range(3):
            opened.enter_context(connect(url)).sendall(b"PUT ")
        time.sleep(0.2)
        with connect(url) as stream:
            assert stream.recv(100).startswith(b"HTTP/1.1 503 ")
        opened.close()
        for _ in range(100):
            with suppress(ConnectionError):  # the server closed the connection before all was sent
                if ask(url, "PUT", PATH, DATA)[0] < 300:
                    return
            time.sleep(0.05)
        pytest.fail("no connection is free again")


def test_many_at_once_are_all_kept(url: str, tmp_path: Path) -> None:
    names = [f"web{number:03}.example.com" for number in range(60)]

    def send(name: str) -> None:
        data = other(host=name, report=msgspec.structs.replace(REPORT.report, host=name))
        statuses.append(ask(url, "PUT", PATH.replace(REPORT.host, name), data)[0])

    statuses: list[int] = []
    threads = [threading.Thread(target=send, args=(name,)) for name in names for _ in (1, 2)]
    for each in threads[:50]:
        each.start()
    for each in threads[:50]:
        each.join()
    assert set(statuses) <= {201, 204}
    assert len(files(tmp_path)) == 25


# --- the command ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "puller", "fleet", "serve-reports", str(tmp_path / "new/reports")]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    url = process.stdout.readline().rpartition(" ")[2].strip()
    assert ask(url, "PUT", PATH, DATA)[0] == 201
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert f'"PUT {PATH} HTTP/1.1" 201' in errors
    assert files(tmp_path / "new/reports") == [PATH[1:]]


@pytest.mark.parametrize("listen", ["8765", "localhost:8765", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1"])
def test_where_to_listen_is_an_address_and_a_port(tmp_path: Path, execute: "Execute", listen: str) -> None:
    status, output = execute("fleet", "serve-reports", str(tmp_path), "--listen", listen)
    assert status == 64
    assert "expected the address and port of this machine" in output


def test_a_port_that_is_taken_is_told(tmp_path: Path, execute: "Execute") -> None:
    with ReportServer(tmp_path, "127.0.0.1", 0) as taken:
        listen = f"127.0.0.1:{taken.server_port}"
        status, output = execute("fleet", "serve-reports", str(tmp_path), "--listen", listen)
    assert status == 78
    assert f"{listen}: Address already in use" in output


def test_ipv6_is_listened_to(tmp_path: Path) -> None:
    try:
        server = ReportServer(tmp_path, "::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        assert server.server_port


def test_client_that_left_before_accept_does_not_block(tmp_path: Path) -> None:
    """No connection waits here, as after a client that disconnected between the poll and ``accept``."""
    with ReportServer(tmp_path, "127.0.0.1", 0) as server, pytest.raises(BlockingIOError):
        server.get_request()
