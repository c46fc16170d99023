"""A run that fetches a large file: its progress output, and its number of connections."""

import itertools
import os
import random
import re
import threading
from typing import TYPE_CHECKING

import msgspec

from puller.reporting.fetching import Record, load_fetching
from puller.reporting.history import save_status
from puller.state import Directories, write_state
from tests.simulators import moodyserver as moody

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher


NOISE = random.Random(2).randbytes(11_000_000)
FETCHED = r"web 1\.1\.0: fetched 11\.0 MB in \d+\.\d s, \d+\.\d [kMG]B/s\n"


def run_directories(host: "Host") -> Directories:
    return Directories(host.state, host.state.parent / "run")


def test_run_logs_transfers_and_status_shows_progress(settled: "Host", publisher: "Publisher") -> None:
    publisher.publish("1.1.0", files={**publisher.story_files, "files/noise": NOISE})
    directories, over = run_directories(settled), threading.Event()
    seen: list[Record] = []
    pieces = itertools.count()

    def look() -> str:
        """Read the progress between two chunks. Half of the archive far exceeds the client's buffers."""
        if next(pieces) == 500:
            for _ in range(1000):
                if (record := load_fetching(directories, os.getpid())) is not None:
                    seen.append(record)
                    break
                over.wait(0.01)
        return ""

    with moody.serving(publisher.served) as server:
        server.mood = look
        settled.configure(site=server.url)
        outcome = settled.run()
    assert outcome.status == 0, outcome.output
    (record,) = seen
    assert (record.what, record.doing) == ("web 1.1.0", "fetching")
    assert 0 < record.have < len(NOISE) < (record.size or 0)
    assert re.search(f"web 1.1.0: fetching from the site\n.*{FETCHED}", outcome.output, re.DOTALL)
    assert "\r" not in outcome.output
    assert not directories.fetching.exists()


def test_status_shows_the_transfer_of_a_running_agent(settled: "Host") -> None:
    directories = run_directories(settled)
    save_status(directories, "running")
    record = Record(
        process=os.getpid(),
        what="web 1.5.0",
        doing="fetching",
        have=312_400_000,
        size=701_200_000,
        rate=24.1e6,
        left=15.2,
    )
    write_state(directories.fetching, msgspec.json.encode(record))
    results = settled.status()["fetching"]
    assert (results["what"], results["have"], results["size"], results["left"]) == (
        "web 1.5.0",
        312_400_000,
        701_200_000,
        15.2,
    )
    _, output = settled.puller("status")
    assert "\n  fetching web 1.5.0: 312.4 MB of 701.2 MB, 24.1 MB/s, 16 s left\n" in output
    save_status(directories, "idle")
    assert settled.status()["fetching"] is None


def test_a_dry_run_records_nothing(settled: "Host", publisher: "Publisher") -> None:
    publisher.publish("1.1.0", files={**publisher.story_files, "files/noise": NOISE})
    outcome = settled.run("--noop")
    assert re.search(FETCHED, outcome.output)
    assert not run_directories(settled).fetching.exists()


def test_several_bundles_share_a_connection(host: "Host", publisher: "Publisher") -> None:
    names = ["web", "db", "cache"]
    for number, name in enumerate(names):
        noise = NOISE[100_000 * number :][:100_000]  # a host would reuse a shared file
        manifest = f"resources: [{{exec: [{{{name}: {{command: 'true', refreshonly: true}}}}]}}]\n"
        publisher.publish("1.0.0", manifest, files={"files/noise": noise}, name=name)
    with moody.serving(publisher.served) as server:
        connections: list[str] = []

        def note() -> str:
            connections.append(threading.current_thread().name)
            return ""

        server.mood = note
        host.configure(site=server.url, bundles=[{"name": name} for name in names])
        assert host.run().status == 0
        requested = [path for path, _ in server.asked if path.endswith(".tar.gz")]
    assert len(requested) == 3
    # The server has a thread for each connection. The revalidation at the start has its own connection.
    assert len(set(connections)) <= 2
