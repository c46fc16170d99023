"""The archive resource and a real web server: passwords, headers, ranges, slow and broken answers."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pwd
import socket
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.errors import ResourceError
from puller.manifest.problems import decode
from puller.resources.archives import archive_receipts
from puller.resources.archives.archive import Archive
from puller.resources.base import Context
from puller.system.local import LocalSystem

pytestmark = pytest.mark.nginx

CONFIGURATION = """
{user}
daemon off;
worker_processes 1;
pid {work}/pid;
error_log {work}/error.log;
events {{ worker_connections 64; }}
http {{
    log_format asked '$request_uri range=$http_range status=$status';
    access_log {work}/access.log asked;
    server {{
        listen 127.0.0.1:{port};
        root {root};
        location /private/ {{ alias {root}/; auth_basic "private"; auth_basic_user_file {work}/users; }}
        location /token/ {{
            if ($http_x_token != "right") {{ return 403; }}
            alias {root}/;
        }}
        location /slow/ {{ alias {root}/; limit_rate 80k; }}
        location /gone/ {{ return 410; }}
        location /broken/ {{ return 502; }}
        location /silent/ {{ return 444; }}
        location /portal/ {{ default_type text/html; return 200 "<html>Please sign in</html>"; }}
        location /moved/ {{ return 302 /app.tar.gz; }}
        location /encoded/ {{ alias {root}/; add_header Content-Encoding x-gzip; }}
    }}
}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """URL of nginx with a location for each kind of answer."""
    root, work = tmp_path / "www", tmp_path / "nginx"
    for directory in (root, work):
        directory.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (root / "app.tar.gz").write_bytes(RELEASE)
    (work / "users").write_text("deploy:{PLAIN}s3cret\n")
    # pytest's directories are private, and nginx started by root would serve as another user.
    user = "user root;" if os.geteuid() == 0 else ""
    (work / "nginx.conf").write_text(CONFIGURATION.format(user=user, work=work, root=root, port=port))
    command = ["nginx", "-p", str(work), "-c", str(work / "nginx.conf"), "-e", str(work / "error.log")]
    with subprocess.Popen(command, env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}) as nginx:
        try:
            wait_until_up(f"http://127.0.0.1:{port}/app.tar.gz", work / "error.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            nginx.terminate()


def wait_until_up(url: str, log: Path) -> None:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(url):
            return
        time.sleep(0.05)
    raise AssertionError(f"{url} is not there within 60 s: {log.read_text()}")


def released() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in (("bin/app", b"#!/bin/sh\n"), ("lib/data", os.urandom(200_000))):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


RELEASE = released()
SHA256 = hashlib.sha256(RELEASE).hexdigest()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_receipts, "default_directory", lambda: tmp_path / "state")


def apply(directory: Path, url: str, **more: Any) -> list[str]:
    properties = {
        "name": str(directory / "app.tar.gz"),
        "url": url,
        "extract_parent": str(directory / "app"),
        "owner": pwd.getpwuid(os.geteuid()).pw_name,
        "group": os.getegid(),
        **more,
    }
    decoded: Any = decode(Archive, properties)
    assert not list(Archive.problems(decoded))
    context = Context(
        LocalSystem(), BundleFiles.of(directory), Scope({}, {}), lambda url: b"", {}, lambda kind: ()
    )
    resource = Archive(decoded, context)
    actual = resource.look()
    if differences := resource.differences(actual):
        resource.change(differences, actual)
        assert not resource.differences(resource.look())
    return [str(difference) for difference in differences]


def asked(site: str, tmp_path: Path) -> list[str]:
    """Return the requests that the server received, without those that wait for its start."""
    from tests.support.nginx import logged

    return logged(int(site.rpartition(":")[2]), tmp_path / "nginx/access.log")[1:]


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("app.tar.gz", {}),
        ("private/app.tar.gz", {"username": "deploy", "password": "s3cret"}),
        ("token/app.tar.gz", {"headers": {"X-Token": "right"}}),
        ("moved/app.tar.gz", {}),
        ("encoded/app.tar.gz", {}),
        ("app.tar.gz?signature=x", {}),
    ],
)
def test_an_archive_is_fetched_and_put_in_place(
    site: str, tmp_path: Path, path: str, more: dict[str, Any]
) -> None:
    assert apply(tmp_path, f"{site}/{path}", checksum=SHA256, **more)
    assert (tmp_path / "app/bin/app").read_bytes() == b"#!/bin/sh\n"
    assert apply(tmp_path, f"{site}/{path}", checksum=SHA256, **more) == []


@pytest.mark.parametrize(
    ("path", "more", "says"),
    [
        ("private/app.tar.gz", {}, "status 401 Unauthorized: wrong or missing credentials"),
        ("private/app.tar.gz", {"username": "deploy", "password": "canary"}, "status 401 Unauthorized"),
        ("token/app.tar.gz", {"headers": {"X-Token": "canary"}}, "status 403 Forbidden"),
        ("missing/app.tar.gz", {}, "status 404 Not Found"),
        ("gone/app.tar.gz", {}, "status 410 Gone"),
        ("portal/app.tar.gz", {}, "is a web page: it starts with '<html>"),
        ("slow/app.tar.gz", {"timeout": 1}, "took longer than the limit of 1 s"),
        ("broken/app.tar.gz", {"timeout": 1}, "status 502 Bad Gateway"),
        ("silent/app.tar.gz", {"timeout": 1}, "the connection failed: "),
    ],
)
def test_another_answer_is_a_failure_that_shows_no_secret(
    site: str, tmp_path: Path, path: str, more: dict[str, Any], says: str
) -> None:
    with pytest.raises(ResourceError) as failure:
        apply(tmp_path, f"{site}/{path}", **more)
    assert says in str(failure.value)
    assert "canary" not in str(failure.value)
    assert not (tmp_path / "app.tar.gz").exists()
    assert not (tmp_path / "app").exists()


def test_slow_download_resumes_in_the_next_run(site: str, tmp_path: Path) -> None:
    url = f"{site}/slow/app.tar.gz"
    with pytest.raises(ResourceError, match="took longer than the limit of 1 s"):
        apply(tmp_path, url, checksum=SHA256, timeout=1)
    (part,) = tmp_path.glob(".app.tar.gz.*.part")
    have = part.stat().st_size
    assert have > 0
    assert apply(tmp_path, f"{site}/app.tar.gz", checksum=SHA256)
    # nginx logs the slow request when it notices the closed connection, which may be later.
    assert f"/app.tar.gz range=bytes={have}- status=206" in asked(site, tmp_path)
