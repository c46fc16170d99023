"""One time limit for all fetches of a run. Then the run enforces the stored version, and the next run resumes."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.simulators import moodyserver as moody

if TYPE_CHECKING:
    from tests.simulators.moodyserver import MoodyServer
    from tests.support.stories import Host, Publisher


@pytest.fixture
def server(settled: Host, publisher: Publisher) -> Iterator[MoodyServer]:
    """Yield the server of the host. If it is slow, its newest version takes ten seconds to fetch."""
    noise = {"files/noise": random.Random(1).randbytes(800_000)}
    publisher.publish("1.1.0", files={**publisher.story_files, **noise})
    with moody.serving(publisher.served) as server:
        server.pace = 0.2
        settled.configure(site=server.url, http={"retries": 0, "total_timeout": 2})
        yield server


@pytest.mark.attack("slow.body")
def test_slow_server_delays_a_run_up_to_the_limit(settled: Host, server: MoodyServer) -> None:
    server.mood = lambda: "slow"
    (settled.machine / "motd").unlink()
    settled.configure(http={"retries": 3, "total_timeout": 4})
    outcome = settled.run()
    assert outcome.status == 14
    reported = r"took longer than the limit of \S+ s; \S+ kB of 80\d\.\d kB are downloaded"
    settled.assert_told(f"{reported}, and the next attempt resumes there", outcome)
    settled.assert_enforces("1.0.0")

    server.mood = lambda: ""
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")
    desired = [part for path, part in server.asked if "web-1.1.0" in path]
    assert desired[0] == ""
    assert all(part.startswith("bytes=") for part in desired[1:])


@pytest.mark.attack("slow.body")
@pytest.mark.everything
def test_the_limit_is_for_all_files_together(settled: Host, server: MoodyServer, tmp_path: Path) -> None:
    """Each of the ten documents times out after half a second of silence."""
    (tmp_path / "elsewhere").mkdir()
    settled.run()
    with moody.serving(tmp_path / "elsewhere") as silent:
        silent.mood = lambda: "silent"
        documents = [f"{silent.url}/{number}.yaml" for number in range(10)]
        http = {"retries": 0, "total_timeout": 3, "read_timeout": 0.5}
        settled.configure(data=documents, http=http)
        outcome = settled.run()
    assert outcome.status == 14
    assert outcome.output.count("no response for 0.5 s") < 7
    settled.assert_told("9.yaml: is not requested, because the 3 s of total_timeout have passed", outcome)
    settled.assert_enforces("1.1.0")


@pytest.mark.attack("slow.body")
def test_a_slow_mirror_leaves_time_for_the_others(
    settled: Host, server: MoodyServer, publisher: Publisher
) -> None:
    server.mood = lambda: "slow"
    with moody.serving(publisher.served) as other:
        settled.configure(site=[server.url, other.url], http={"retries": 0, "total_timeout": 5})
        outcome = settled.run()
    assert outcome.status == 0
    assert re.search(f"{server.url}/targets/web/.*: took longer than the limit of", outcome.output)
    settled.assert_enforces("1.1.0")
    assert [part for path, part in server.asked if "web-1.1.0" in path] == [""]
    ((_, expected),) = [each for each in other.asked if "web-1.1.0" in each[0]]
    assert expected.startswith("bytes=")
