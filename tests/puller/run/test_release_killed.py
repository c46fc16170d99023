"""A download of a release by files, killed before each change to the disk: no file is lost or incomplete."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.client.client import TrustClient
from bundles.format.release import Release
from bundles.store.store import Store
from bundles.transport.mirror import DirectoryMirror
from puller.run.site_refresh import Arrival
from tests.support.sweeps import killed_before

if TYPE_CHECKING:
    from tests.support.stories import Publisher
    from tests.support.sweeps import Sweep

# The child only makes system calls, so threads of other tests cannot block it.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

NOISE = {f"noise/{number}": random.Random(number).randbytes(30_000) for number in range(6)}
CHANGED = {**NOISE, "noise/1": NOISE["noise/1"][::-1], "more/2": NOISE["noise/2"][::-1]}


class Follower:
    """A host with 1.0.0, and a client of a site with 1.1.0."""

    def __init__(self, publisher: Publisher, directory: Path) -> None:
        self.publisher = publisher
        self.directory = directory
        publisher.publish("1.0.0", files=NOISE)
        Arrival(self.client(), Release.of("web", "1.0.0"), self.store, self.downloads).install()
        publisher.publish("1.1.0", files=CHANGED)
        for archive in publisher.served.glob("targets/web/*.tar.gz"):
            archive.unlink()  # the client has to fetch single files
        self.client().refresh()

    @property
    def store(self) -> Store:
        return Store(self.directory / "bundles")

    @property
    def downloads(self) -> Path:
        return self.directory / "downloads"

    def client(self) -> TrustClient:
        mirror = DirectoryMirror(str(self.publisher.served))
        anchor = self.publisher.site.metadata / "1.root.json"
        client = TrustClient(self.directory / "trust", anchor, [mirror], ["web"])
        client.refresh()
        return client

    def update(self) -> None:
        arrival = Arrival(self.client(), Release.of("web", "1.1.0"), self.store, self.downloads)
        arrival.install()


@pytest.fixture
def follower(publisher: Publisher, tmp_path: Path) -> Iterator[Follower]:
    (tmp_path / "follower").mkdir()
    yield (made := Follower(publisher, tmp_path / "follower"))
    made.store.remove("web")


@pytest.mark.everything
def test_killed_at_any_step_the_next_run_gets_there(follower: Follower, tmp_path: Path, sweep: Sweep) -> None:
    before = follower.directory

    def is_killed_at(number: int) -> bool:
        follower.directory = shutil.copytree(before, tmp_path / f"at-{number}", symlinks=True)
        was_killed = killed_before(number, follower.update)
        store = follower.store
        assert all(store.verify("web", bundle.sha256) == [] for bundle in store.installed("web"))
        assert "1.0.0" in {bundle.version for bundle in store.installed("web")}
        follower.update()
        assert {bundle.version for bundle in store.installed("web")} == {"1.0.0", "1.1.0"}
        assert all(store.verify("web", bundle.sha256) == [] for bundle in store.installed("web"))
        store.prune("web", except_for=store.installed("web")[0].sha256)
        assert list(follower.downloads.iterdir()) == []
        assert not [name for name in os.listdir(store.root / "web") if name.startswith(".")]
        store.remove("web")
        return was_killed

    assert sweep(is_killed_at) > 40
