"""Reports sent to a real nginx, configured as in docs/fleet.md: a host can write only its own name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests

from puller.delivery.report_document import pack, unpack
from tests.puller.delivery.test_document import sent
from tests.simulators import authority
from tests.support.nginx import free_port
from tests.system.test_push import wait_for

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

pytestmark = pytest.mark.nginx

ROOT = Path(__file__).parents[2]
NAME = "web01.example.com"
RUN = "20261123T080000.000000Z"
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
{documented}
}}
"""


class Fleet:
    """nginx and the certificates of hosts."""

    def __init__(self, work: Path, port: int) -> None:
        self.authority = authority.Authority(work)
        self.url = f"https://127.0.0.1:{port}"
        self.reports = work / "srv/reports"
        self.reports.mkdir(parents=True)

    def certificate(self, name: str) -> str:
        return str(self.authority.identity(name))

    def put(self, path: str, name: str | None, data: bytes = b"x", method: str = "PUT") -> int:
        answer = requests.request(
            method,
            f"{self.url}{path}",
            data=data,
            cert=self.certificate(name) if name else None,
            verify=str(self.authority.bundle),
            timeout=30,
        )
        return answer.status_code

    def files(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.reports)) for path in self.reports.rglob("*") if path.is_file()
        )


def documented(work: Path, port: int) -> str:
    """Return the page's block with other paths."""
    match = re.search(r"^```nginx\n(.*?)^```", (ROOT / "docs/fleet.md").read_text(), re.MULTILINE | re.DOTALL)
    assert match
    block = match[1]
    places = {
        "443 ssl": f"127.0.0.1:{port} ssl",
        "/etc/nginx/fleet.pem": f"{work}/127.0.0.1.pem",
        "/etc/nginx/hosts-ca.pem": f"{work}/authority.pem",
        "root /srv;": f"root {work}/srv;",
    }
    for text, place in places.items():
        assert text in block
        block = block.replace(text, place)
    return block


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "nginx is not installed (Debian: apt-get install nginx-light)"
    work, port = tmp_path / "fleet", free_port()
    work.mkdir()
    made = Fleet(work, port)
    made.certificate("127.0.0.1")
    user = "user root;" if os.geteuid() == 0 else ""
    (work / "nginx.conf").write_text(NGINX.format(user=user, work=work, documented=documented(work, port)))
    command = [program, "-p", str(work), "-e", str(work / "error.log"), "-c", str(work / "nginx.conf")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    wait_for(port)
    yield made
    process.terminate()
    process.wait(30)


def test_a_host_writes_its_own_name_and_no_other(fleet: Fleet) -> None:
    assert fleet.put(f"/reports/{NAME}/{RUN}.json.gz", NAME) == 201
    assert fleet.put(f"/reports/{NAME}/{RUN}.json.gz", NAME) == 204
    assert fleet.put(f"/reports/web02.example.com/{RUN}.json.gz", NAME) == 403
    assert fleet.put(f"/reports/{NAME}/{RUN}.json.gz", None) == 400
    assert fleet.put(f"/reports/{NAME}/{RUN}.json.gz", "web01.example.org") == 403
    assert fleet.files() == [f"{NAME}/{RUN}.json.gz"]
    (file,) = fleet.reports.rglob("*.gz")
    assert file.stat().st_mode & 0o044 == 0o044


@pytest.mark.parametrize(
    "path",
    [
        f"/reports/{RUN}.json.gz",
        f"/reports/{NAME}/x.json.gz",
        f"/reports/{NAME}/sub/{RUN}.json.gz",
        f"/reports/{NAME}/..%2fweb02.example.com%2f{RUN}.json.gz",
        f"/reports/.hidden/{RUN}.json.gz",
        f"/other/{NAME}/{RUN}.json.gz",
        "/",
    ],
)
def test_no_other_path_is_written(fleet: Fleet, path: str) -> None:
    assert fleet.put(path, NAME) in (403, 400)
    assert fleet.files() == []


def test_reports_are_write_only_and_bounded(fleet: Fleet) -> None:
    path = f"/reports/{NAME}/{RUN}.json.gz"
    assert fleet.put(path, NAME) == 201
    for method in ("GET", "DELETE", "MOVE", "MKCOL", "POST"):
        assert fleet.put(path, NAME, method=method) == 403
    assert fleet.put(path.replace("T08", "T09"), NAME, bytes(300_000)) == 413
    assert fleet.files() == [f"{NAME}/{RUN}.json.gz"]


@pytest.mark.parametrize(
    "name", ["web01.example.com,O=x", "x,CN=web01.example.com", "web01.example.com.evil"]
)
def test_a_name_within_another_name_is_not_the_host(fleet: Fleet, name: str) -> None:
    assert fleet.put(f"/reports/{NAME}/{RUN}.json.gz", name) == 403


def test_the_largest_document_is_taken(fleet: Fleet) -> None:
    data = pack(sent([], facts={"noise": os.urandom(60_000).hex()}))
    assert fleet.put(f"/reports/{NAME}/{RUN}.json.gz", NAME, data.ljust(256 * 1024, b"x")) == 201


def test_missed_reports_are_sent_with_a_new_certificate(
    fleet: Fleet, host: Host, publisher: Publisher, tell: Callable[[str], None]
) -> None:
    publisher.publish("1.0.0")
    to = {"url": f"{fleet.url}/reports/", "ca_bundle": str(fleet.authority.bundle)}
    host.configure(reports={"to": [to]})
    for _ in range(2):
        outcome = host.run()
        assert outcome.status == 0
        assert "status 400" in outcome.output
    assert fleet.files() == []
    host.configure(reports={"to": [{**to, "client_certificate": fleet.certificate(NAME)}]})
    outcome = host.run()
    assert "WARN" not in outcome.output
    assert len(fleet.files()) == 3
    assert all(name.startswith(f"{NAME}/") for name in fleet.files())
    assert [unpack(path.read_bytes())[:1] for path in fleet.reports.rglob("*.gz")] == [b"{"] * 3
