"""A thousand runs against a publisher that keeps changing the site, and a web server with every kind of fault.

The story is generated from a seed, to reproduce failures. All runs are in this process: leaks of a run (descriptors,
threads, memory, files in the state directory) add up and are visible at the end.
"""

from __future__ import annotations

import collections
import gc
import os
import random
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.format.release import place
from bundles.publisher.channels import RolloutRequest

if TYPE_CHECKING:
    from tests.support.nginx import Nginx
    from tests.support.stories import Host, Outcome, Publisher

pytestmark = pytest.mark.nginx

RUNS = {True: 1000, False: 200}
"""Number of runs: thorough or not."""
SEED = 20_261_120

# Faults before the documented server block: a file with the fault's name in the working directory enables it.
FAULTS = """
    if (-f WORK/503) { return 503; }
    if (-f WORK/403) { return 403; }
    if (-f WORK/404) { return 404; }
    if (-f WORK/hangs-up) { return 444; }
    if (-f WORK/portal) { return 200 "<html>Please log in</html>"; }
    if (-f WORK/stalls) { rewrite ^ /.stalls last; }
    location = /.stalls { proxy_pass http://127.0.0.1:PORT; }
"""
NGINX_FAULTS = ("503", "403", "404", "hangs-up", "portal", "stalls")
SITE_FAULTS = ("down", "stale", "garbage", "empty", "half-synced")


@pytest.fixture
def silence() -> Iterator[int]:
    """Port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def publisher(tmp_path: Path, nginx: Nginx) -> Publisher:
    """Publisher whose site is served directly: a thousand copies of a growing site would take most of the time."""
    from tests.support.stories import Publisher

    class LivePublisher(Publisher):
        def deploy(self) -> None:
            pass

    return LivePublisher(tmp_path / "publisher", nginx.root)


@pytest.fixture
def execute() -> Callable[..., tuple[int, str]]:
    """Run commands in this process, so that leaks are visible."""
    from tests.support.stories import execute_here

    return execute_here


class World:
    """The publisher, the web server and the host, and all events."""

    def __init__(self, nginx: Nginx, publisher: Publisher, host: Host, silence: int) -> None:
        self.nginx, self.publisher, self.host = nginx, publisher, host
        self.dice = random.Random(SEED)
        self.published: list[str] = []
        """Every published version, in order."""
        self.counts: collections.Counter[str] = collections.Counter()
        self._old_copy = nginx.work / "old"
        self._misbehave(silence)
        nginx.root.rmdir()
        self._serve(publisher.site.public)

    # Actions of the publisher

    def publish(self) -> None:
        version = f"1.{len(self.published)}.0"
        percent = self.dice.choice([100, 100, 100, 50]) if self.published else 100
        self.publisher.publish(version, request=RolloutRequest(percent=percent))
        self.published.append(version)

    def go_back(self) -> None:
        if len(self.published) > 1:
            version = self.dice.choice(self.published)
            self.publisher.say(lambda channels: channels.roll_back("web", "stable", version))

    def refresh(self) -> None:
        self.publisher.refresh()

    def rotate(self) -> None:
        self.publisher.rotate(self.dice.choice(["timestamp", "snapshot", "targets", "root"]))

    def change_the_site(self) -> None:
        """Do one random action of a publisher, or nothing."""
        action = self.dice.choices(
            [None, self.publish, self.go_back, self.refresh, self.rotate], [10, 4, 1, 2, 1]
        )[0]
        if action:
            action()
            self.counts[f"publisher: {action.__name__}"] += 1

    # Runs

    def run_in_problem(self) -> None:
        """Run while the server or the site is faulty."""
        fault = self.dice.choice(NGINX_FAULTS + SITE_FAULTS)
        self.counts[f"fault: {fault}"] += 1
        undo = self._spoil(fault)
        try:
            outcome = self.host.run()
        finally:
            undo()
        assert outcome.status in (0, 10, 12, 13, 14, 15, 20), (fault, outcome)
        self.counts[f"exit {outcome.status}"] += 1
        self.assert_something_published_is_enforced(outcome)

    def run(self) -> None:
        """Run while the server and the site work."""
        outcome = self.host.run()
        self.counts[f"exit {outcome.status}"] += 1
        release = self.publisher.site.record("web").index.channels["stable"]
        rollout = release.rollout
        held = (
            rollout is not None and place(str(self.host.settings["host_name"]), "web", release.version) >= 50
        )
        enforced = self.assert_something_published_is_enforced(outcome)
        if held and rollout is not None and enforced != release.version:
            assert outcome.status == 20, outcome
            assert rollout.before is None or enforced == rollout.before.version
        else:
            assert outcome.status == 0, outcome
            assert enforced == release.version

    def assert_something_published_is_enforced(self, outcome: Outcome) -> str:
        enforced = self.host.enforced
        assert enforced in self.published, outcome
        self.host.assert_enforces(enforced)
        return enforced

    def _spoil(self, fault: str) -> Callable[[], object]:
        """Cause the fault and return the function that ends it."""
        if fault in NGINX_FAULTS:
            (self.nginx.work / fault).touch()
            return (self.nginx.work / fault).unlink
        if fault == "down":
            self.nginx.stop()
            return self.nginx.start
        if fault == "stale":
            self._serve(self._old_copy)
        else:
            self._serve(self._spoiled(fault))
        return lambda: self._serve(self.publisher.site.public)

    def _spoiled(self, fault: str) -> Path:
        """Return a copy of the site with the fault in it."""
        copy, public = self.nginx.work / "spoiled", self.publisher.site.public
        link_copy(self._old_copy if fault == "half-synced" else public, copy)
        timestamp = copy / "metadata" / "timestamp.json"
        timestamp.unlink()
        if fault == "garbage":
            timestamp.write_bytes(self.dice.randbytes(500))
        elif fault == "half-synced":  # the timestamp refers to metadata that are missing
            shutil.copy(public / "metadata" / "timestamp.json", timestamp)
        else:
            shutil.rmtree(copy / "metadata")
        return copy

    def keep_a_copy(self) -> None:
        """Copy the site, to serve the copy later as an attacker or a stale mirror does."""
        link_copy(self.publisher.site.public, self._old_copy)

    def _serve(self, tree: Path) -> None:
        link = self.nginx.root.with_name("next")
        link.symlink_to(tree)
        link.replace(self.nginx.root)

    def _misbehave(self, silence: int) -> None:
        path = self.nginx.work / "nginx.conf"
        faults = FAULTS.replace("WORK", str(self.nginx.work)).replace("PORT", str(silence))
        text = path.read_text().replace("listen 127.0.0.1", f"{faults}\n    listen 127.0.0.1", 1)
        path.write_text(text)
        self.nginx.stop()
        self.nginx.start()


def link_copy(source: Path, target: Path) -> None:
    """Copy a site with hard links. Its files are replaced and never written to."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=os.link)


def open_descriptors() -> int:
    gc.collect()  # a test holds the exception that ended a command, and with it frames and their open files
    return len(os.listdir("/proc/self/fd"))


def kinds_of_descriptors() -> dict[str, int]:
    """Return the targets of open descriptors, for the failure message."""
    links = Path("/proc/self/fd").iterdir()
    return dict(
        collections.Counter(str(link.readlink()).partition(":[")[0] for link in links if link.is_symlink())
    )


def resident() -> int:
    """Return the memory of this process in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_hundreds_of_runs_leak_nothing(
    nginx: Nginx,
    publisher: Publisher,
    host: Host,
    silence: int,
    tell: Callable[[str], None],
    thorough: bool,
) -> None:
    host.configure(
        http={"retries": 0, "connect_timeout": "1s", "read_timeout": "200ms", "total_timeout": "2s"}
    )
    world = World(nginx, publisher, host, silence)
    world.publish()
    world.keep_a_copy()
    world.run()
    memory: list[int] = []
    quarter = RUNS[thorough] // 4
    for number in range(RUNS[thorough]):
        world.change_the_site()
        if world.dice.random() < 0.3:
            world.run_in_problem()
        else:
            world.run()
        if number % quarter == 0:
            memory.append(resident())
            if number == quarter:
                before = open_descriptors(), threading.active_count()
        if world.dice.random() < 0.05:
            world.keep_a_copy()
    world.run()
    memory.append(resident())

    assert (open_descriptors(), threading.active_count()) == before, str(kinds_of_descriptors())
    assert memory[-1] - memory[2] < 16 * 1024 * 1024, memory
    files = [path for path in host.state.rglob("*") if path.is_file()]
    reports = [path for path in files if path.parent.name == "runs"]
    assert len(reports) <= 1000  # the default limit of a host
    remainder = [path for path in files if path.parent.name not in ("runs", "root_history")]
    assert len(remainder) < 40, sorted(map(str, remainder))  # the files of two bundles and of the metadata
    tell(f"{RUNS[thorough]} runs, {len(world.published)} releases: {dict(sorted(world.counts.items()))}")
    tell(f"memory in MiB, each {quarter} runs: {[round(size / 2**20, 1) for size in memory]}")
