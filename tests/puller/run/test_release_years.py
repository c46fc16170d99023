"""Long life of a bundle: released, announced again, refused, killed, rolled back, pruned, and followed by a host."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from bundles.errors import PublishError
from bundles.publisher.channels import Channels
from bundles.publisher.lifecycle import verify_site
from bundles.publisher.pruning import prune_site
from bundles.publisher.settings import PruningRule

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stories import Host, Publisher, WebServer

TEXT = b"".join(b"line %d of what people write\n" % number for number in range(60_000))
"""Long enough for several blocks of an archive, which are compressed in parallel."""
FILES = {
    "texts/long": TEXT,
    **{f"texts/{number:02}": TEXT[number * 9000 : (number + 4) * 9000] for number in range(30)},
    **{f"noise/{number}": random.Random(number).randbytes(40_000) for number in range(4)},
}


def no_passphrase(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


def publish(publisher: Publisher, version: str, **files: bytes) -> None:
    publisher.publish(version, files={**publisher.story_files, **FILES, **files})


def kinds_of(web: WebServer) -> tuple[int, int]:
    """Return the number of archives and single files that were requested since the last call."""
    archives = sum(path.endswith(".tar.gz") for path in web.requests)
    singles = sum(path.startswith("/targets/files/") for path in web.requests)
    web.requests.clear()
    return archives, singles


@pytest.mark.everything
def test_a_bundle_is_followed_through_all_that_a_publisher_does(
    host: Host, publisher: Publisher, web: WebServer
) -> None:
    publish(publisher, "1.0.0")
    assert host.run().status == 0
    assert kinds_of(web) == (1, 0)

    publish(publisher, "1.1.0", other=b"new\n")
    assert host.run().status == 0
    host.assert_enforces("1.1.0")
    assert kinds_of(web) == (0, 3)  # the release description, the manifest, and the new file

    timestamp = (publisher.site.metadata / "timestamp.json").read_bytes()
    publish(publisher, "1.1.0", other=b"new\n")
    with pytest.raises(PublishError, match=r"web 1\.1\.0: is already published with sha256"):
        publish(publisher, "1.1.0", other=b"other\n")
    assert (publisher.site.metadata / "timestamp.json").read_bytes() == timestamp
    assert not list(publisher.site.public.rglob(".*"))

    Channels(publisher.site, no_passphrase).roll_back("web", "stable", "1.0.0")
    publisher.deploy()
    web.requests.clear()
    assert host.run().status == 0
    host.assert_enforces("1.0.0")
    assert kinds_of(web)[0] == 0

    publish(publisher, "1.2.0", other=b"newer\n")
    prune_site(publisher.site, PruningRule(versions=1, after=timedelta()), no_passphrase)
    publisher.deploy()
    assert verify_site(publisher.site)
    assert host.run().status == 0
    host.assert_enforces("1.2.0")
    publish(publisher, "1.1.0", other=b"new\n")  # the same files, even after pruning
    assert verify_site(publisher.site)
    assert host.run().status == 0
    host.assert_enforces("1.1.0")


@pytest.mark.everything
def test_killed_packing_leaves_hosts_their_files(host: Host, publisher: Publisher, tmp_path: Path) -> None:
    publish(publisher, "1.0.0")
    assert host.run().status == 0
    source = tmp_path / "web"
    for path, data in {"manifest.yaml": b"resources: []\n", **FILES}.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(data)
    command = [sys.executable, "-m", "puller", "site", "publish", str(publisher.site.directory), str(source)]
    begun = 0
    for attempt in range(6):
        (source / "attempt").write_text(f"{attempt}\n")
        with subprocess.Popen([*command, "--version", "2.0.0"], stdout=subprocess.DEVNULL) as process:
            hidden = publisher.site.public / "targets"
            # Kill it at two different moments: when it starts to pack, and slightly later.
            while process.poll() is None and not list(hidden.glob(".build-*/.*")):
                time.sleep(0.001)
            time.sleep(attempt / 100)
            process.send_signal(signal.SIGKILL)
        if process.returncode == 0:
            break
        begun += bool(list(publisher.site.public.rglob(".*")))
        publisher.deploy()
        assert verify_site(publisher.site)
        assert host.run().status == 0
        host.assert_enforces("1.0.0")
    assert begun
    publish(publisher, "3.0.0")
    assert not list(publisher.site.public.rglob(".*"))
    assert verify_site(publisher.site)
    assert host.run().status == 0
    host.assert_enforces("3.0.0")
