"""``puller run`` in its own process: busy, stopped, killed, and without permissions."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from foundation.problems import ProblemCode

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher, WebServer

# A command that runs until it is released, after the file changes and before its subscriber.
SLOW = """\
      - wait:
          command: sh -c 'touch begun; while [ ! -e go ]; do sleep 0.02; done; touch ended'
          cwd: "{{ facts.machine }}"
          creates: ended
          require: ["file#{{ facts.machine }}/motd"]
      - after:
          command: touch after
          cwd: "{{ facts.machine }}"
          creates: after
"""


def slow(publisher: Publisher) -> str:
    """Return the usual manifest with a slow command before the refresh."""
    files, refresh = publisher.story.split("  - exec:\n")
    return f"{files}  - exec:\n{SLOW}{refresh}"


@contextmanager
def running(host: Host, *prefix: str) -> Iterator[subprocess.Popen[str]]:
    """Start ``puller run`` in its own process, and kill it after the block."""
    command = [*prefix, sys.executable, "-m", "puller", "run", "--config", str(host.configuration)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


@pytest.mark.attack("overlap.two-runs")
def test_a_second_run_at_the_same_time_is_busy_and_does_nothing(settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", slow(publisher))
    with running(settled) as first:
        wait_for(settled.machine / "begun", first)
        assert settled.status()["running_since"] is not None
        before = settled.report()
        status, output = settled.run()
        assert status == 75
        assert output == (
            f"puller: {settled.settings['run_directory']}/lock: another run is active (process {first.pid}), so "
            "nothing was done\n"
        )
        assert settled.report() == before
        (settled.machine / "go").touch()
        assert finish(first)[0] == 0
    assert settled.status()["running_since"] is None
    settled.assert_enforces("1.1.0")


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.attack("signals.sigterm")),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.attack("signals.sigint")),
    ],
)
@pytest.mark.representatives(1)
def test_signal_finishes_the_current_resource_only(
    settled: Host, publisher: Publisher, number: signal.Signals, status: int
) -> None:
    publisher.publish("1.1.0", slow(publisher))
    with running(settled) as run:
        wait_for(settled.machine / "begun", run)
        run.send_signal(number)
        (settled.machine / "go").touch()
        assert finish(run)[0] == status
    assert (settled.machine / "ended").exists()
    assert settled.states() == {
        "file#.": "stable",
        "file#motd": "changed",
        "file#app.conf": "stable",
        "exec#wait": "changed",
        "exec#after": "skipped",
        "exec#reload": "skipped",
    }
    reasons = {event.get("skip_reason") for event in settled.report()["bundles"][0]["events"][-2:]}
    assert reasons == {f"stopped by {number.name}"}
    assert settled.status()["last_run"]["exit_status"] == status
    assert settled.status()["bundles"][0]["good"] == "1.0.0", "nobody knows yet whether 1.1.0 is good"

    assert settled.run().status == 0
    assert settled.states()["exec#reload"] == "refreshed", "the refresh that the first run owed"
    assert settled.status()["bundles"][0]["good"] == "1.1.0"


def test_a_signal_while_the_site_is_silent_ends_the_run_at_once(settled: Host, web: WebServer) -> None:
    web.stall_at = "timestamp.json"
    with running(settled) as run:
        assert web.stalled.wait(60)
        run.send_signal(signal.SIGTERM)
        status, output = finish(run)
    assert (status, output) == (143, "ERROR  stopped by SIGTERM\n")
    assert settled.status()["last_run"]["exit_status"] == 143

    web.stall_at = ""
    assert settled.run().status == 0


@pytest.mark.attack("crash.command")
def test_run_killed_before_a_refresh_is_completed(settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", slow(publisher))
    with running(settled) as run:
        wait_for(settled.machine / "begun", run)
        run.kill()
    (settled.machine / "go").touch()
    assert settled.status()["running_since"] is None
    assert (settled.machine / "motd").read_text() == "Hello from 1.1.0\n"
    assert (settled.machine / "reloads").read_text() == "1.0.0\n"

    outcome = settled.run()
    assert outcome.status == 0
    assert settled.states()["file#motd"] == "stable"
    assert settled.states()["exec#reload"] == "refreshed"
    assert (settled.machine / "reloads").read_text() == "1.0.0\n1.1.0\n"
    assert "0 changed" in settled.run().output


def test_unreadable_state_is_reported_and_kept(settled: Host) -> None:
    """Root is also denied if it lacks the capabilities that bypass permissions."""
    unprivileged: tuple[str, ...] = ()
    if os.geteuid() == 0:
        unprivileged = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner", "--")
    settled.state.chmod(0)
    with running(settled, *unprivileged) as run:
        status, output = finish(run)
    assert status == 78
    assert re.search(rf"puller: {settled.state}\S*: .*[Pp]ermission denied", output), output

    settled.state.chmod(0o700)
    assert settled.run().status == 0
    settled.assert_enforces("1.0.0")


def test_oversized_file_is_refused_during_the_download(settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", files={**publisher.story_files, "files/large": os.urandom(1_000_000)})
    (settled.machine / "motd").unlink()
    with running(settled, "prlimit", "--fsize=500000", "--") as run:
        status, output = finish(run)
    assert status == 14
    assert re.search(r"downloads/\w+\.tar\.gz\S*: [Ff]ile too large", output), output
    settled.assert_enforces("1.0.0")
    assert list((settled.state / "downloads").iterdir()) == []

    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")


def test_stopped_bundle_stops_later_bundles(host: Host, publisher: Publisher) -> None:
    stop = "  - exec:\n      - stop: {command: \"sh -c 'kill -TERM $PPID'\"}\n"
    publisher.publish("1.0.0", publisher.story + stop)
    publisher.publish("1.0.0", "resources: [{exec: [{of base: {command: 'true'}}]}]\n", name="base")
    host.configure(bundles=[{"name": "web"}, {"name": "base"}])
    outcome = host.run()
    assert outcome.status == 143
    host.assert_told("base: not applied: stopped by SIGTERM", outcome)
    assert host.problem_codes() == {ProblemCode.STOPPED}
    assert [bundle["outcome"] for bundle in host.report()["bundles"]] == [
        "applied",
        "not applied: stopped by SIGTERM",
    ]
    assert {event["state"] for event in host.report()["bundles"][1]["events"]} == {"skipped"}
    publisher.publish("1.1.0")
    assert host.run().status == 0
    assert {event["state"] for event in host.report()["bundles"][1]["events"]} <= {
        "stable",
        "changed",
        "refreshed",
    }
