"""From a publisher through nginx to a host and back, with the commands of the README."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.sites import bin_of

if TYPE_CHECKING:
    from tests.support.nginx import Nginx
    from tests.support.stories import Host, Outcome, Publisher

pytestmark = pytest.mark.nginx


def states(outcome: Outcome) -> str:
    """Return the summary of the one bundle, without its time."""
    (line,) = re.findall(r"NOTICE web (.*) in \S+ s$", outcome.output, re.MULTILINE)
    return str(line)


@contextmanager
def flipped(path: Path) -> Iterator[None]:
    """Flip one bit of the file while the block runs."""
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    yield
    path.write_bytes(data)


def test_published_pulled_updated_cut_off_and_attacked(
    nginx: Nginx, publisher: Publisher, host: Host
) -> None:
    motd = host.machine / "motd"
    publisher.publish("1.0.0")
    first = host.run()
    assert (first.status, states(first)) == (0, "1.0.0: 4 resources, 0 stable, 3 changed, 1 refreshed")
    again = host.run()
    assert (again.status, states(again)) == (0, "1.0.0: 4 resources, 4 stable, 0 changed")

    publisher.publish("1.1.0")
    update = host.run()
    assert (update.status, states(update)) == (0, "1.1.0: 4 resources, 2 stable, 1 changed, 1 refreshed")
    assert motd.read_text() == "Hello from 1.1.0\n"
    assert (host.machine / "reloads").read_text() == "1.0.0\n1.1.0\n"

    nginx.stop()
    (host.machine / "app.conf").unlink()
    alone = host.run()
    assert (alone.status, states(alone)) == (14, "1.1.0: 4 resources, 3 stable, 1 changed")
    assert f"{nginx.url}/metadata/2.root.json: the connection failed: Connection refused" in alone.output
    assert (host.machine / "app.conf").read_text() == "workers = 2\n"
    nginx.start()

    with publisher.at_another_time(days=300):  # late enough for a new root as well
        publisher.refresh()
    publisher.publish("1.2.0")
    for pattern in (
        "metadata/2.root.json",
        "metadata/timestamp.json",
        "metadata/*.snapshot.json",
        f"metadata/*.{bin_of('web/index.json')}.json",
        "targets/web/*.index.json",
        "targets/web/*.tar.gz",
    ):
        path = publisher.newest(pattern)
        (host.machine / "app.conf").unlink()
        with flipped(path):
            attacked = host.run()
        assert (attacked.status, states(attacked)) == (10, "1.1.0: 4 resources, 3 stable, 1 changed"), path
        assert f"{nginx.url}/{path.relative_to(nginx.root)}: " in attacked.output
        assert host.enforced == "1.1.0"

    recovered = host.run()
    assert (recovered.status, states(recovered)) == (
        0,
        "1.2.0: 4 resources, 2 stable, 1 changed, 1 refreshed",
    )
    assert host.status()["last_run"]["problems"] == []


def test_a_run_without_news_asks_for_two_small_files(nginx: Nginx, publisher: Publisher, host: Host) -> None:
    publisher.publish("1.0.0")
    host.run()
    before = len(nginx.requests())
    assert host.run().status == 0
    assert nginx.requests()[before:] == ["GET /metadata/2.root.json", "GET /metadata/timestamp.json"]


def test_stale_copy_is_distinguished_from_a_dead_server(
    nginx: Nginx, publisher: Publisher, host: Host, tmp_path: Path
) -> None:
    publisher.publish("1.0.0")
    old = tmp_path / "old"
    subprocess.run(["cp", "-a", nginx.root, old], check=True)
    publisher.publish("1.1.0")
    assert host.run().status == 0
    subprocess.run(["cp", "-a", f"{old}/.", nginx.root], check=True)
    outcome = host.run()
    assert outcome.status == 12
    assert (
        f"{nginx.url}/metadata/timestamp.json: version 2, older than the trusted version 3" in outcome.output
    )
    assert host.enforced == "1.1.0"


def test_the_readmes_way_from_a_new_bundle_to_a_host(
    nginx: Nginx, puller: str, host: Host, tmp_path: Path
) -> None:
    """Uses ``puller site`` itself, and the passphrase in a file."""

    def type_in(*words: str) -> str:
        done = subprocess.run(
            [puller, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    (tmp_path / "pass").write_text("correct horse\n")
    (tmp_path / "web").mkdir()
    (tmp_path / "web/manifest.yaml").write_text(
        "resources: [{exec: [{echo: {command: echo pulled, logoutput: true}}]}]\n"
    )
    type_in("site", "init", "site", "--passphrase-file", "pass")
    type_in("site", "publish", "site", "web", "--version", "1.4.0", "--passphrase-file", "pass")
    subprocess.run(["cp", "-r", f"{tmp_path}/site/public/.", nginx.root], check=True)
    host.configure(trust_anchor=str(tmp_path / "site/root.json"))
    outcome = host.run()
    assert outcome.status == 0
    assert "NOTICE echo: pulled\n" in outcome.output
    assert "web 1.4.0 is now enforced" in outcome.output
