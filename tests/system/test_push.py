"""Sites that are pushed to real servers: nginx by WebDAV, OpenSSH."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from bundles.errors import PublishError
from bundles.publisher.lifecycle import make_site, refresh_site
from bundles.publisher.publication import publish_bundle
from bundles.publisher.push.plan import Plan, files_of
from bundles.publisher.push.push import Push, open_destination
from bundles.publisher.site import Site
from tests.support.nginx import free_port

pytestmark = pytest.mark.nginx

REPOSITORY = Path(__file__).parents[2]
NGINX = """
{user}
daemon off;
worker_processes 1;
pid {work}/pid;
error_log {work}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"""
SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {work}/host_key
PidFile {work}/sshd.pid
AuthorizedKeysFile {work}/authorized_keys
StrictModes no
UsePAM no
"""
SSH_CONFIG = """
Host www
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {work}/key
    IdentitiesOnly yes
    UserKnownHostsFile {work}/known_hosts
    StrictHostKeyChecking accept-new
"""


class Silent:
    """A watch without output."""

    def planned(self, steps: Plan) -> None:
        pass

    def moved(self, path: str, have: int) -> None:
        pass

    def sent(self, path: str, size: int) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path / "site", None)


def push(site: Site, location: str, keep: timedelta | None = None, *, compare: bool = False) -> Plan:
    destination = open_destination(location)
    try:
        return Push(site, destination, keep, compare=compare).run(Silent()).plan
    finally:
        destination.close()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, f"nobody answers at port {port}"
        time.sleep(0.02)


def documented_location(root: Path, users: Path) -> str:
    """Return the block of docs/pushing.md with another directory and another file of users."""
    text = (REPOSITORY / "docs/pushing.md").read_text()
    match = re.search(r"^```nginx\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert match
    block = match[1].replace("/srv/www", str(root)).replace("/etc/nginx/publishers", str(users))
    assert str(root) in block
    assert str(users) in block
    return block


@pytest.fixture
def dav(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """nginx as in docs/pushing.md, which accepts files of ``publisher``: its URL with credentials, and its root."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "nginx is not installed (Debian: apt-get install nginx-light)"
    root, work = tmp_path / "www", tmp_path / "nginx"
    root.mkdir()
    work.mkdir()
    users = work / "publishers"
    users.write_text("publisher:{PLAIN}geheim\n")
    user = "user root;" if os.geteuid() == 0 else ""
    location, port = documented_location(root, users), free_port()
    (work / "nginx.conf").write_text(NGINX.format(user=user, work=work, port=port, location=location))
    command = [program, "-p", str(work), "-e", str(work / "error.log"), "-c", str(work / "nginx.conf")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    wait_for(port)
    yield f"publisher:geheim@127.0.0.1:{port}", root / "puller"
    process.terminate()
    process.wait(30)


def test_a_site_is_pushed_to_nginx_as_the_page_configures_it(site: Site, dav: tuple[str, Path]) -> None:
    origin, root = dav
    url = f"http://{origin}/puller"
    push(site, url)
    assert files_of(root) == files_of(site.public)
    assert not list(root.rglob(".puller-push-*"))
    assert push(site, url).is_empty
    refresh_site(site, lambda _: b"")
    assert len(push(site, url).copied) <= 4
    assert (root / "metadata/timestamp.json").read_bytes() == (site.metadata / "timestamp.json").read_bytes()


def test_removed_files_go_from_a_server_without_listing(
    site: Site, dav: tuple[str, Path], tmp_path: Path
) -> None:
    origin, root = dav
    url = f"http://{origin}/puller"
    source = tmp_path / "web"
    source.mkdir()
    (source / "manifest.yaml").write_text("resources: []\n")
    publish_bundle(site, source, lambda _: b"", version="1.0.0")
    push(site, url)
    (old,) = (path for path in site.metadata.glob("*.snapshot.json") if path.name.startswith("1."))
    old.unlink()
    assert push(site, url).removed == ()
    assert push(site, url, timedelta(0)).removed == ("metadata/1.snapshot.json",)
    assert files_of(root) == files_of(site.public)


def test_without_its_record_each_file_is_asked_for(site: Site, dav: tuple[str, Path]) -> None:
    url = f"http://{dav[0]}/puller"
    push(site, url)
    shutil.rmtree(site.directory / "pushes")
    assert push(site, url).is_empty


def test_full_check_queries_unremembered_files(site: Site, dav: tuple[str, Path]) -> None:
    url, root = f"http://{dav[0]}/puller", dav[1]
    push(site, url)
    (root / "metadata/1.bin-00.json").unlink()
    (root / "metadata/1.bin-01.json").write_bytes(b"")
    assert push(site, url).is_remembered
    assert push(site, url, compare=True).copied == ("metadata/1.bin-00.json", "metadata/1.bin-01.json")
    assert files_of(root) == files_of(site.public)


def test_a_wrong_password_is_told_and_not_shown(site: Site, dav: tuple[str, Path]) -> None:
    url = f"http://{dav[0]}/puller".replace("geheim", "verkehrt")
    with pytest.raises(PublishError, match="status 401: specify a user and password") as failure:
        push(site, url)
    assert "verkehrt" not in str(failure.value)


@pytest.fixture
def www(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A host ``www`` of OpenSSH's own server that ``ssh`` can reach. Call the value to stop the server."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "sshd is not installed (Debian: apt-get install openssh-server)"
    work, port = tmp_path / "ssh", free_port()
    work.mkdir()
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", work / name], check=True)
    shutil.copy(work / "key.pub", work / "authorized_keys")
    (work / "sshd_config").write_text(SSHD.format(port=port, work=work))
    (work / "config").write_text(SSH_CONFIG.format(port=port, work=work, user=getpass.getuser()))
    (work / "bin").mkdir()
    # ssh finds the user's configuration by the home in /etc/passwd, which a test does not change.
    (work / "bin/ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {work}/config "$@"\n')
    (work / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{work}/bin:{os.environ['PATH']}")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([program, "-D", "-e", "-f", work / "sshd_config"], stderr=subprocess.DEVNULL)
    wait_for(port)
    yield process.terminate
    process.terminate()
    process.wait(30)


def test_a_site_is_pushed_by_ssh(site: Site, www: Callable[[], None], tmp_path: Path) -> None:
    place = tmp_path / "a place"
    push(site, f"www:{place}")
    assert files_of(place) == files_of(site.public)
    assert push(site, f"www:{place}").is_empty
    refresh_site(site, lambda _: b"")
    push(site, f"www:{place}")
    assert files_of(place) == files_of(site.public)
    assert not list(place.glob(".puller-push-*"))
    assert {path.stat().st_mode & 0o777 for path in place.rglob("*.json")} == {0o644}


def test_a_machine_that_is_not_there_is_told(site: Site, www: Callable[[], None], tmp_path: Path) -> None:
    with pytest.raises(PublishError, match=r"ssh://nowhere\.invalid/srv/www: .*(resolve|not known)"):
        push(site, "nowhere.invalid:/srv/www")
