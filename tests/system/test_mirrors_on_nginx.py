"""A real web server with interrupted downloads, and several mirrors, some of which are down."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.nginx import Nginx
    from tests.support.stories import Host, Publisher

pytestmark = pytest.mark.nginx

LARGE = {"files/large": random.Random(1).randbytes(600_000)}


def set_up(nginx: Nginx, directive: str) -> None:
    """Start nginx again with an additional directive, or without one."""
    configuration = nginx.work / "nginx.conf"
    plain = re.sub(r"^http \{.*$", "http {", configuration.read_text(), flags=re.MULTILINE)
    nginx.stop()
    configuration.write_text(plain.replace("http {", f"http {{ {directive}"))
    nginx.start()


def statuses(nginx: Nginx) -> list[int]:
    """Return the statuses for the bundle with the large file, oldest first. nginx logs a request when it ends."""
    log = "\n".join(nginx.log())
    return [int(status) for status in re.findall(r'"GET \S*web-1\.1\.0\S* [^"]+" (\d+)', log)]


def publish(publisher: Publisher) -> None:
    publisher.publish("1.1.0", files={**publisher.story_files, **LARGE})


def cut_off(host: Host, nginx: Nginx, puller: str) -> Path:
    """Kill a run in the middle of its download and return the partial file."""
    set_up(nginx, "limit_rate 150k;")
    command = [puller, "run", "--config", str(host.configuration)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        end = time.monotonic() + 60
        while not (pieces := list(large_parts(host))) and time.monotonic() < end:
            time.sleep(0.05)
        run.send_signal(signal.SIGKILL)
    set_up(nginx, "")
    (part,) = pieces
    assert part.stat().st_size < len(LARGE["files/large"])
    return part


def large_parts(host: Host) -> list[Path]:
    pieces = (host.state / "downloads").glob(".*.part")
    return [part for part in pieces if part.stat().st_size >= 100_000]


def downloads(host: Host) -> list[Path]:
    return list((host.state / "downloads").iterdir())


@pytest.fixture
def published(host: Host, publisher: Publisher) -> Host:
    """A host that enforces 1.0.0, and a site with version 1.1.0, which has a large file."""
    publisher.publish("1.0.0")
    assert host.run().status == 0
    publish(publisher)
    return host


def test_a_killed_runs_download_is_gone_on_with(published: Host, nginx: Nginx, puller: str) -> None:
    cut_off(published, nginx, puller)
    assert published.run().status == 0
    published.assert_enforces("1.1.0")
    assert statuses(nginx)[-1] == 206
    assert downloads(published) == []


def test_a_part_that_is_not_the_beginning_is_started_over(published: Host, nginx: Nginx, puller: str) -> None:
    part = cut_off(published, nginx, puller)
    part.write_bytes(bytes(part.stat().st_size))
    assert published.run().status == 0
    published.assert_enforces("1.1.0")
    assert statuses(nginx)[-2:] == [206, 200]
    assert downloads(published) == []


def test_a_server_without_ranges_sends_the_whole(published: Host, nginx: Nginx, puller: str) -> None:
    cut_off(published, nginx, puller)
    set_up(nginx, "max_ranges 0;")
    assert published.run().status == 0
    published.assert_enforces("1.1.0")
    assert statuses(nginx)[-1] == 200
    assert downloads(published) == []


def test_a_file_that_is_shorter_on_the_server_is_not_taken(
    published: Host, nginx: Nginx, publisher: Publisher, puller: str
) -> None:
    part = cut_off(published, nginx, puller)
    on_server = publisher.newest("targets/web/*.tar.gz")
    whole = on_server.read_bytes()
    on_server.write_bytes(whole[: part.stat().st_size // 2])
    outcome = published.run()
    assert outcome.status == 14
    published.assert_told(r"ended early: \d+ of \d+ bytes arrived", outcome)
    published.assert_enforces("1.0.0")
    assert 416 in statuses(nginx), "the rest is asked for first"
    on_server.write_bytes(whole)
    assert published.run().status == 0
    published.assert_enforces("1.1.0")
    assert downloads(published) == []


def test_a_mirror_that_is_down_is_a_notice_of_every_run(
    published: Host, nginx: Nginx, publisher: Publisher
) -> None:
    down = "http://127.0.0.1:1"
    published.configure(site=[down, nginx.url])
    for version in ("1.2.0", "1.3.0"):
        publisher.publish(version)
        outcome = published.run()
        assert outcome.status == 0
        assert re.search(
            f"{down}: failed once since .*, next attempt at .*Connection refused", outcome.output
        )
        assert published.report().get("problems", []) == []
        published.assert_enforces(version)
    before = len(nginx.requests())
    outcome = published.run()
    assert outcome.status == 0
    assert f"{down}: failed once since" in outcome.output
    assert len(nginx.requests()) == before + 2, "a revalidation, at the mirror that works"


def fail_for(host: Host, days: int) -> None:
    """Set the age of the first mirror's failure to this number of days, with the next attempt due."""
    path = host.state / "trust/mirrors.json"
    memory = json.loads(path.read_text())
    (failing,) = memory["mirrors"].values()
    since = datetime.now(UTC) - timedelta(days=days)
    failing |= {"since": since.isoformat(), "times": 4 * days, "next_try": datetime.now(UTC).isoformat()}
    path.write_text(json.dumps(memory))


def test_a_mirror_that_is_down_for_a_week_is_a_warning(published: Host, nginx: Nginx) -> None:
    down = "http://127.0.0.1:1"
    published.configure(site=[down, nginx.url])
    assert published.run().status == 0
    fail_for(published, 6)
    published.run()
    assert published.report().get("problems", []) == []
    fail_for(published, 8)
    for _ in range(2):  # the second run skips the mirror, but prints the same warning
        outcome = published.run()
        published.assert_told(f"{down}: failed 33 times since .*Connection refused", outcome)
        check = published.puller("status", "--check")
        assert check.status == 1
        assert f"{down}: failed 33 times" in check.output
    published.configure(site=[nginx.url, f"{nginx.url}/"])
    assert published.run().status == 0
    assert published.report().get("problems", []) == []


def test_a_mirror_that_is_back_after_a_week_is_no_warning(
    published: Host, nginx: Nginx, publisher: Publisher
) -> None:
    published.configure(site=[nginx.url, str(publisher.served)])
    nginx.stop()
    published.run()
    fail_for(published, 8)
    published.assert_told(f"{nginx.url}: failed 33 times since", published.run())
    nginx.start()
    fail_for(published, 8)
    outcome = published.run()
    assert "failed" not in outcome.output
    assert published.report().get("problems", []) == []
