"""Judges and listeners of a rollout that hang, lie or fail: each has a time limit, and the watch continues."""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from puller.fleet.watching import doubt_of, notify_by_command, notify_by_url
from tests.support.rows import each_row


@contextmanager
def server(pieces: list[bytes], pause: float = 0.0) -> Iterator[str]:
    """Yield the URL of a server that sends these pieces to one client with pauses between them, then closes."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            try:
                stream, _ = listening.accept()
            except OSError:
                return
            with stream:
                stream.recv(65536)
                for piece in pieces:
                    try:
                        stream.sendall(piece)
                    except OSError:
                        return
                    if ended.wait(pause):
                        return

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        ended.set()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
DEEP = b"[" * 200_000


@each_row(
    ("pieces", "pause", "words"),
    [
        ([b"H"] * 200, 0.1, "DeadlineError"),
        ([HEAD, *[b" "] * 200], 0.1, "DeadlineError"),
        ([HEAD, b"{"], 0.0, "cannot be reached"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], 0.0, ""),
        ([b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nno gzip"], 0.0, "cannot be reached"),
        ([b"HTTP/1.1 200 OK\r\n\r\n" + DEEP], 0.0, "invalid response"),
        ([b"SSH-2.0-OpenSSH\r\n"], 0.0, "cannot be reached"),
    ],
)
def test_slow_or_invalid_prometheus_is_distrusted_in_time(
    pieces: list[bytes], pause: float, words: str
) -> None:
    began = time.monotonic()
    with server(pieces, pause) as url:
        doubt = doubt_of(url, "up", 1.0)
    assert doubt is not None
    assert (words in doubt.why, doubt.is_reported) == (True, False), doubt
    assert time.monotonic() - began < 5


def test_a_url_that_never_answers_to_its_end_is_given_up() -> None:
    began = time.monotonic()
    with server([b"HTTP/1.1 200 OK\r\n", *[b"X: y\r\n"] * 200], 0.1) as url:
        assert "cannot be reached: DeadlineError" in notify_by_url(url, {"text": "halted"}, 1.0)
    assert time.monotonic() - began < 5


def test_hanging_command_is_killed_with_its_children(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        script = f"exec 3>{pipe}; echo started >&3; sleep 300 & wait"
        began = time.monotonic()
        assert "exceeded the limit of 2 s" in notify_by_command(["sh", "-c", script], "halted", 2.0)
        assert time.monotonic() - began < 60
        os.set_blocking(reading, True)
        assert os.read(reading, 100) == b"started\n"
        readable, _, _ = select.select([reading], [], [], 60)
        assert readable, "what it has started has the pipe open"
        assert os.read(reading, 100) == b""
    finally:
        os.close(reading)


def test_hostile_report_text_does_not_block_notifications(tmp_path: Path) -> None:
    reported = tmp_path / "told"
    script = f"import sys; open({str(reported)!r}, 'w').write(sys.argv[1])"
    assert notify_by_command([sys.executable, "-c", script], "web: nothing\0 works") == ""
    assert reported.read_text() == "web: nothing\\x00 works"
