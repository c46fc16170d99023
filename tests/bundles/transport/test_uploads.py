"""Uploads to correct and failing servers, by both implementations."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bundles.deadline import Deadline, DeadlineError
from bundles.errors import TransportError
from bundles.transport.settings import Location, TransportSettings
from bundles.transport.uploads import PlainUploads, Uploads, open_uploads
from bundles.transport.web_transfers import WebUploads
from hiera.values import Secret
from tests.simulators import authority, reportserver

Kind = Callable[[Location, TransportSettings], Uploads]
DATA = b"a document" * 1000


@pytest.fixture(params=[PlainUploads, WebUploads])
def kind(request: pytest.FixtureRequest) -> Kind:
    made: Kind = request.param
    return made


@pytest.fixture
def server() -> Iterator[Any]:
    with reportserver.receiving() as running:
        yield running


def send(
    kind: Kind,
    url: str,
    *paths: str,
    seconds: float = 10,
    check: Callable[[], None] | None = None,
    **settings: Any,
) -> list[int]:
    location = Location.parse(url)
    uploads = kind(location, TransportSettings(**settings))
    deadline = Deadline(seconds, check) if check else Deadline(seconds)
    try:
        return [
            uploads.send("PUT", f"{location.base}{path}", DATA, "application/gzip", deadline)
            for path in paths or ("/a",)
        ]
    finally:
        uploads.close()


def test_uploads_arrive_unchanged_and_in_order(kind: Kind, server: Any) -> None:
    assert send(kind, server.url, "/a", "/b c", "/%41/é") == [201] * 3
    assert list(server.documents) == ["/a", "/b%20c", "/%41/%C3%A9"] or kind is WebUploads
    assert list(server.documents.values()) == [DATA] * 3


@pytest.mark.parametrize("status", [204, 301, 307, 400, 404, 500])
def test_upload_status_is_the_server_status(kind: Kind, server: Any, status: int) -> None:
    server.answer = lambda path: status
    server.headers = {"Location": f"{server.url}/elsewhere"}
    assert send(kind, server.url) == [status]
    assert len(server.requests) == 1


def test_a_server_that_closes_each_connection_gets_all(kind: Kind, server: Any) -> None:
    server.headers = {"Connection": "close"}
    assert send(kind, server.url, "/a", "/b", "/c") == [201] * 3


@pytest.mark.parametrize("mood", ["silent", "dripping"])
def test_time_is_over_when_it_is_over(kind: Kind, server: Any, mood: str) -> None:
    server.mood = mood
    began = time.monotonic()
    with pytest.raises(DeadlineError):
        send(kind, server.url, seconds=0.5)
    assert time.monotonic() - began < 40  # the server is silent for 60 s, or sends single bytes for longer


def test_a_silence_that_is_too_long_is_a_failure_of_the_server(kind: Kind, server: Any) -> None:
    server.mood = "silent"
    with pytest.raises(TransportError, match=r"no response for 0\.3 s"):
        send(kind, server.url, read_timeout=0.3)


def test_a_body_without_end_is_not_read(kind: Kind, server: Any) -> None:
    server.mood = "chatty"
    began = time.monotonic()
    assert send(kind, server.url) == [500]
    assert time.monotonic() - began < 40


def test_a_check_that_raises_ends_it(kind: Kind, server: Any) -> None:
    class StopNowError(Exception):
        pass

    over = threading.Event()
    threading.Timer(0.3, over.set).start()
    server.mood = "dripping"

    def check() -> None:
        if over.is_set():
            raise StopNowError

    with pytest.raises(StopNowError):
        send(kind, server.url, seconds=60, check=check)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1", "the connection failed: Connection refused"),
        ("http://nowhere.invalid", "the connection failed"),
    ],
)
def test_unreachable_destination_is_reported_without_credentials(kind: Kind, url: str, message: str) -> None:
    with pytest.raises(TransportError, match=message) as error:
        send(kind, url.replace("//", "//me:secret@"), token=Secret("secret"))
    assert "secret" not in str(error.value)


def test_a_server_that_speaks_something_else_is_a_failure(kind: Kind) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def speak() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"220 mail.example.com ESMTP\r\n")
                connection.recv(65536)

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(TransportError, match=r"failed|the transfer was interrupted|cannot be downloaded"):
            send(kind, f"http://127.0.0.1:{listening.getsockname()[1]}")
        thread.join()


def test_tls_is_verified_and_the_client_certificate_shown(kind: Kind, tmp_path: Path) -> None:
    trusted = authority.Authority(tmp_path)
    identity = str(trusted.identity("web01.example.com"))
    with reportserver.receiving(trusted.server(demand_client=True)) as server:
        with pytest.raises(TransportError, match="the server's certificate is not trusted"):
            send(kind, server.url)
        own: dict[str, Any] = {"ca_bundle": str(trusted.bundle)}
        with pytest.raises(
            TransportError, match=r"TLS failed|the connection failed|the transfer was interrupted"
        ):
            send(kind, server.url, **own)
        assert send(kind, server.url, **own, client_cert=identity) == [201]
        assert send(kind, server.url, **own, client_cert=identity, client_key=identity) == [201]
        with pytest.raises(TransportError, match="the server's certificate is not trusted"):
            send(kind, server.url.replace("127.0.0.1", "localhost"), **own, client_cert=identity)


def test_plain_upload_is_used_in_plain_cases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)

    def way(url: str = "http://a.example/", **settings: Any) -> type[Any]:
        return type(open_uploads(Location.parse(url), TransportSettings(**settings)))

    assert way() is PlainUploads
    assert way("http://ä.example/") is WebUploads
    assert way(proxy=Secret("http://p:1")) is WebUploads
    assert way(proxy=Secret("")) is PlainUploads
    directory = tmp_path / "authorities"
    directory.mkdir()
    assert way("https://a.example/", ca_bundle=str(directory)) is WebUploads
    monkeypatch.setenv("https_proxy", "http://p:1")
    assert way() is WebUploads
