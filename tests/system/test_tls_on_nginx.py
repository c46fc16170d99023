"""Certificates of a real nginx, verified by the Python of Debian 12 and of Debian 13, whose defaults differ."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.simulators.authority import Authority

if TYPE_CHECKING:
    from tests.support.nginx import Nginx
    from tests.support.stories import Host, Publisher

pytestmark = [pytest.mark.packages, pytest.mark.root, pytest.mark.nginx]

Execute = Callable[..., tuple[int, str]]

IN_TREE = (
    'mount -t proc proc "$0/proc" && mount --bind "$1" "$0$1" && root=$0 && shift && exec chroot "$root" "$@"'
)
"""Run a command in a tree that has ``/proc`` and the files of the test, and the network of this machine."""


@pytest.fixture(scope="module", params=["bookworm", "trixie"], ids=["Debian 12", "Debian 13"])
def tree(
    request: pytest.FixtureRequest, debian_with: Callable[..., AbstractContextManager[Path]]
) -> Iterator[Path]:
    with debian_with(codename=request.param) as root:
        yield root


@pytest.fixture
def execute(tree: Path, tmp_path: Path) -> Execute:
    """Run Puller in the tree."""
    (tree / str(tmp_path)[1:]).mkdir(parents=True)

    def execute(*arguments: str) -> tuple[int, str]:
        command = ["unshare", "--mount", "sh", "-c", IN_TREE, str(tree), str(tmp_path), "puller", *arguments]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return execute


def serve(nginx: Nginx, identity: Path) -> str:
    """Let nginx serve with a certificate, and return its URL."""
    configuration = nginx.work / "nginx.conf"
    listen = f"listen 127.0.0.1:{nginx.port}"
    text = re.sub(rf"{listen}[^;]*;( ssl_certificate\w* [^;]+;)*", f"{listen};", configuration.read_text())
    tls = f"{listen} ssl; ssl_certificate {identity}; ssl_certificate_key {identity};"
    nginx.stop()
    configuration.write_text(text.replace(f"{listen};", tls))
    nginx.start()
    return nginx.url.replace("http:", "https:")


@pytest.fixture
def authorities(tmp_path: Path) -> dict[str, Authority]:
    """Return certificate authorities by kind. The anchor of an intermediate authority is its own certificate."""
    root = Authority(tmp_path / "root", "Test root")
    return {
        "complete": Authority(tmp_path / "complete"),
        "without key usage": Authority(tmp_path / "plain", has_key_usage=False),
        "intermediate": Authority(tmp_path / "intermediate", "Test intermediate", root),
    }


@pytest.mark.parametrize("kind", ["complete", "without key usage", "intermediate"])
@pytest.mark.sample(2)
def test_an_authority_is_accepted_by_every_python(
    nginx: Nginx, publisher: Publisher, host: Host, authorities: dict[str, Authority], kind: str
) -> None:
    authority = authorities[kind]
    url = serve(nginx, authority.identity("127.0.0.1"))
    host.configure(site=url, http={"retries": 0, "ca_bundle": str(authority.bundle)})
    publisher.publish("1.0.0")
    for version in ("1.0.0", "1.1.0"):
        publisher.publish(version)
        outcome = host.run()
        assert outcome.status == 0, outcome.output
        host.assert_enforces(version)
        before = len(nginx.requests())
        assert host.run().status == 0
        assert len(nginx.requests()) == before + 2, "a revalidation, which has a connection of its own"


def test_a_wrong_certificate_is_refused_by_every_python(
    nginx: Nginx, publisher: Publisher, host: Host, authorities: dict[str, Authority], tmp_path: Path
) -> None:
    authority = authorities["without key usage"]
    url = serve(nginx, authority.identity("127.0.0.1"))
    host.configure(site=url, http={"retries": 0, "ca_bundle": str(authority.bundle)})
    publisher.publish("1.0.0")
    assert host.run().status == 0
    other = Authority(tmp_path / "other", has_key_usage=False)
    identities = {
        "certificate is not trusted": other.identity("127.0.0.1"),
        "certificate has expired": authority.identity("127.0.0.1", timedelta(days=-1)),
        "(IP address mismatch|doesn't match)": authority.identity("example.com"),
    }
    for reason, identity in identities.items():
        serve(nginx, identity)
        outcome = host.run()
        assert outcome.status == 14, outcome.output
        assert re.search(reason, outcome.output), outcome.output
        host.assert_enforces("1.0.0")
    serve(nginx, authority.identity("127.0.0.1"))
    assert host.run().status == 0


def test_default_tls_of_the_python_versions_differs(tree: Path) -> None:
    """Without this difference the tests above prove nothing."""
    program = "import ssl; print(int(ssl.create_default_context().verify_flags))"
    command = ["chroot", str(tree), "python3", "-c", program]
    flags = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    is_13 = shutil.which("python3.13", path=f"{tree}/usr/bin") is not None
    assert bool(flags & ssl.VERIFY_X509_STRICT) == is_13
