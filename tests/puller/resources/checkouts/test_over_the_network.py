"""Checkouts over HTTP, with credentials, and over git's own protocol. Both servers run on this machine."""

import base64
import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from puller.errors import ResourceError
from tests.puller.resources.checkouts.conftest import Place
from tests.support.git_remotes import ENVIRONMENT, Remote, git

SECRET = "s3cret-t0ken"
HEADER = base64.b64encode(f"joe:{SECRET}".encode()).decode()


class Backend(BaseHTTPRequestHandler):
    """A web server for git http-backend: one process for each request, with a password."""

    root: Path
    seen: list[str]
    port: int

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _serve(self, body: bytes) -> None:
        self.seen.append(self.headers.get("Authorization", ""))
        if self.headers.get("Authorization") != f"Basic {HEADER}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        environment = {
            **ENVIRONMENT,
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        ended = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=True, timeout=60
        )
        head, _, content = ended.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Print nothing."""


@pytest.fixture
def web(remote: Remote) -> Iterator[type[Backend]]:
    class Here(Backend):
        root = remote.bare.parent
        seen: list[str] = []  # noqa: RUF012

    server = ThreadingHTTPServer(("127.0.0.1", 0), Here)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Here.port = server.server_port
    yield Here
    server.shutdown()
    server.server_close()
    thread.join(10)


def url_of(web: type[Backend], userinfo: str = "") -> str:
    return f"http://{userinfo}127.0.0.1:{web.port}/remote.git"


def everything_in(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


@pytest.mark.everything
@pytest.mark.attack("secrets.checkout")
def test_url_credentials_reach_the_server_only(place: Place, remote: Remote, web: type[Backend]) -> None:
    url = url_of(web, f"joe:{SECRET}@")
    assert SECRET not in place.predict(url=url)
    sentences = place.apply(url=url, revision="v1")
    remote.commit("three", tag="v3")
    sentences += place.apply(url=url, revision="v3")
    sentences += place.apply(url=url, ensure="latest", revision="main")
    assert place.text == "three"
    assert f"Basic {HEADER}" in web.seen
    reported = " ".join(
        [*sentences, *(" ".join(command.arguments) + repr(command.identity) for command in place.commands)]
    )
    for secret in (SECRET, HEADER):
        assert secret not in reported
        assert secret.encode() not in everything_in(place.path)
    assert place.git("remote", "get-url", "origin") == url_of(web)
    assert place.apply(url=url, revision="v3") == []
    assert place.started == ["status"]


@pytest.mark.everything
@pytest.mark.attack("secrets.checkout")
def test_wrong_credentials_fail_without_prompt_or_leak(place: Place, web: type[Backend]) -> None:
    for userinfo in ("", f"joe:wrong-{SECRET}@"):
        with pytest.raises(ResourceError, match=r"git clone: exit code 128; it printed:") as caught:
            place.apply(url=url_of(web, userinfo))
        assert SECRET not in str(caught.value)
    assert not place.path.exists()


class Elsewhere(BaseHTTPRequestHandler):
    """A foreign server that poses as a git server, and records the credentials it receives."""

    protocol_version = "HTTP/1.1"
    seen: list[str | None]

    def do_GET(self) -> None:
        kind = "application/x-git-upload-pack-advertisement"
        self._answer(b"001e# service=git-upload-pack\n0000000eversion 2\n0013ls-refs=unborn\n0000", kind)

    def do_POST(self) -> None:
        self._answer(b"0000", "application/x-git-upload-pack-result")

    def _answer(self, body: bytes, kind: str) -> None:
        self.seen.append(self.headers.get("Authorization"))
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Print nothing."""


def redirecting_to(port: int) -> type[BaseHTTPRequestHandler]:
    class Redirecting(Elsewhere):
        seen: list[str | None] = []  # noqa: RUF012

        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{port}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Redirecting


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Start a server and return its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.mark.attack("checkout.redirect")
def test_redirect_does_not_receive_the_credentials(place: Place) -> None:
    class Other(Elsewhere):
        seen: list[str | None] = []  # noqa: RUF012

    with serving(Other) as other, serving(redirecting_to(other)) as port:
        for revision in ("main", "v1"):
            with pytest.raises(ResourceError, match="error: 302"):
                place.apply(url=f"http://joe:{SECRET}@127.0.0.1:{port}/x.git", revision=revision)
    assert Other.seen == []


def test_a_depth_and_a_commit_are_fetched_over_http(place: Place, remote: Remote, web: type[Backend]) -> None:
    commit = git(remote.work, "rev-parse", "v1^{commit}")
    url = url_of(web, f"joe:{SECRET}@")
    place.apply(url=url, revision=commit, depth=1)
    assert place.text == "one"
    assert place.git("rev-list", "--count", "HEAD") == "1"
    assert place.apply(url=url, revision=commit, depth=1) == []
    place.apply(url=url, revision="main", ensure="latest", depth=1)
    assert (place.text, place.git("rev-list", "--count", "HEAD")) == ("two", "1")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as item:
        return int(item.getsockname()[1])


@pytest.fixture
def daemon(remote: Remote) -> Iterator[str]:
    """Start git daemon and return the URL of the remote."""
    port = free_port()
    options = ("--export-all", "--reuseaddr", "--verbose", "--log-destination=stderr")
    root = remote.bare.parent
    process = subprocess.Popen(
        ["git", "daemon", "--listen=127.0.0.1", f"--port={port}", *options, f"--base-path={root}", str(root)],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "Ready to rumble" in process.stderr.readline()
    yield f"git://127.0.0.1:{port}/remote.git"
    process.terminate()
    process.wait(10)
    process.stderr.close()


@pytest.mark.everything
def test_a_clone_from_gits_own_server(place: Place, remote: Remote, daemon: str) -> None:
    place.apply(url=daemon, revision="v1")
    assert place.text == "one"
    remote.commit("three", branch="main")
    place.apply(url=daemon, ensure="latest", revision="main")
    assert place.text == "three"
    assert place.apply(url=daemon, ensure="latest", revision="main") == []


def test_ssh_asks_nothing_and_gets_no_option_from_the_url(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/ssh\nexit 255\n')
    ssh.chmod(0o755)
    monkeypatch.setattr("puller.system.commands.SEARCH_PATH", f"{ssh.parent}:{os.environ['PATH']}")
    for url in ("ssh://git@127.0.0.1:9/x.git", "git@127.0.0.1:x.git"):
        with pytest.raises(ResourceError, match="git clone"):
            place.apply(url=url)
    called = (tmp_path / "ssh").read_text().splitlines()
    assert called
    assert all("-oBatchMode=yes" in line for line in called)
