"""Transfers that end early, and wrong answers of servers: network failures, never tampering."""

from __future__ import annotations

import io
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.deadline import Deadline
from bundles.errors import SignatureError, TransportError
from bundles.transport.mirror import download_if_changed, open_mirrors
from bundles.transport.plain import Glance, Place
from bundles.transport.settings import TransportSettings, Validators

if TYPE_CHECKING:
    from tests.support.http_server import Answer, Server
    from tests.support.sites import Host, Publisher

QUICK = TransportSettings(read_timeout=1, total_timeout=20, retries=0)
AGAIN = TransportSettings(read_timeout=1, total_timeout=20, retries=1)
DATA = bytes(range(256)) * 4


def raw(*lines: str, body: bytes = b"", closes: bool = True) -> Answer:
    """Return an answer with exactly these lines."""

    def send(stream: socket.socket) -> None:
        stream.sendall("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body)
        if closes:
            stream.shutdown(socket.SHUT_RDWR)

    return send


def received(server: Server, settings: TransportSettings = QUICK, *, resume: bool = False) -> bytes:
    """Download a file of the length of ``DATA`` from a mirror."""
    (mirror,) = open_mirrors([server.origin], settings)
    into = io.BytesIO()
    try:
        mirror.download("file", len(DATA), into, resume=resume, is_exact=True)
    except TransportError:
        return into.getvalue()
    return into.getvalue()


def test_body_without_a_length_that_is_too_short_is_refused(server: Server) -> None:
    server.on("/file", raw("HTTP/1.1 200 OK", body=DATA[:300]))
    (mirror,) = open_mirrors([server.origin], QUICK)
    with pytest.raises(TransportError, match="ended early: 300 of 1024 bytes arrived"):
        mirror.download("file", len(DATA), io.BytesIO(), is_exact=True)


def test_shorter_part_is_kept_and_resumed(server: Server) -> None:
    pieces = [
        raw("HTTP/1.1 200 OK", body=DATA[:300]),
        raw(
            "HTTP/1.1 206 Partial",
            f"Content-Range: bytes 300-399/{len(DATA)}",
            "Content-Length: 100",
            body=DATA[300:400],
        ),
        raw(
            "HTTP/1.1 206 Partial",
            f"Content-Range: bytes 400-{len(DATA) - 1}/{len(DATA)}",
            body=DATA[400:],
        ),
    ]
    server.on("/file", *pieces)
    additional = TransportSettings(read_timeout=1, total_timeout=20, retries=2)
    assert received(server, additional, resume=True) == DATA
    assert [request.headers.get("range") for request in server.requests] == [None, "bytes=300-", "bytes=400-"]


@pytest.mark.parametrize(
    "head",
    [
        ("Content-Range: bytes 200-1023/1024",),
        ("Content-Range: bytes 300-399/1024", "Content-Length: 724"),
        ("Content-Range: bytes 300-2047/1024",),
        ("Content-Range: bytes \u0663\u0660\u0660-1023/1024",),
        ("Content-Type: multipart/byteranges; boundary=x",),
    ],
)
def test_part_that_is_not_the_rest_is_not_used(server: Server, head: tuple[str, ...]) -> None:
    whole = raw("HTTP/1.1 200 OK", f"Content-Length: {len(DATA)}", body=DATA)
    server.on(
        "/file",
        raw("HTTP/1.1 200 OK", body=DATA[:300]),
        raw("HTTP/1.1 206 Partial", "Connection: close", *head, body=b"x" * 724),
        whole,
    )
    assert received(server, AGAIN, resume=True) == DATA


@pytest.mark.parametrize("status", ["100 Continue", "102 Processing", "103 Early Hints"])
def test_interim_answers_are_skipped(server: Server, status: str) -> None:
    head = (f"HTTP/1.1 {status}", "Link: </x>", "", f"HTTP/1.1 {status}", "", "HTTP/1.1 200 OK")
    answer = raw(*head, f"Content-Length: {len(DATA)}", body=DATA, closes=False)
    server.on("/file", answer)
    server.on("/root", raw(*head[:-1], "HTTP/1.1 404 Not Found", "Content-Length: 0", closes=False))
    assert received(server) == DATA
    place = Place("http", server.origin.removeprefix("http://"), "", {}, 5.0, 5.0, None)
    assert Glance(place).take("root", "file", len(DATA), Deadline(20)) == (404, DATA)


@pytest.mark.parametrize(
    ("head", "body", "is_whole"),
    [
        (("Content-Length: 3",), b"one", True),
        (("Transfer-Encoding: chunked",), b"3\r\none\r\n0\r\n\r\n", True),
        ((), b"one", False),
    ],
)
def test_only_a_stated_end_is_certain(
    server: Server, head: tuple[str, ...], body: bytes, is_whole: bool
) -> None:
    server.on("/file", raw("HTTP/1.1 200 OK", *head, body=body))
    into = io.BytesIO()
    provided = download_if_changed(f"{server.origin}/file", 100, into, Validators(), QUICK)
    assert provided is not None
    assert (provided.is_whole, into.getvalue()) == (is_whole, b"one")


NONSENSE = {
    "empty": b"",
    "plain text": b"Service temporarily unavailable",
    "error of a backend": b'{"error": "backend unavailable"}',
    "a web page": b"\n<!doctype html><html></html>",
    "bytes": b"\x1f\x8b\0garbage",
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_for_metadata_is_no_tampering(
    server: Server,
    publisher: Publisher,
    new_host: Callable[..., Host],
    answer: Callable[..., Answer],
    name: str,
) -> None:
    server.root = publisher.served
    server.on("/metadata/timestamp.json", answer(NONSENSE[name]))
    with pytest.raises(TransportError, match=r"timestamp\.json"):
        new_host(server.origin, settings=QUICK).refresh()


def test_metadata_that_were_cut_are_no_tampering(
    server: Server, publisher: Publisher, new_host: Callable[..., Host]
) -> None:
    server.root = publisher.served
    host = new_host(server.origin, settings=QUICK)
    for path in ("timestamp.json", "2.snapshot.json"):
        data = Path(publisher.served, "metadata", path).read_bytes()
        server.on(f"/metadata/{path}", raw("HTTP/1.1 200 OK", body=data[: len(data) // 2]))
        with pytest.raises(TransportError, match=path):
            host.refresh()
        server.answers.clear()


def test_whole_metadata_that_were_changed_are_tampering(
    server: Server, publisher: Publisher, new_host: Callable[..., Host], answer: Callable[..., Answer]
) -> None:
    server.root = publisher.served
    data = Path(publisher.served, "metadata", "timestamp.json").read_bytes()
    server.on("/metadata/timestamp.json", answer(data.replace(b'"version"', b'"versiom"')))
    with pytest.raises(SignatureError, match=r"timestamp\.json"):
        new_host(server.origin, settings=QUICK).refresh()
