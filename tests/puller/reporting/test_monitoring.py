"""``puller status --check``: one line of output, and the exit status of a Nagios plugin."""

import json
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from puller.exit_status import ExitStatus
from puller.reporting.history import save_status
from puller.reporting.monitoring import Records, judge
from puller.reporting.report import BundleReport, Event, Health, Report, State, Summary
from puller.state import Directories
from tests.puller.problems import failure
from tests.support.rows import each_row
from tests.support.stories import Host, Publisher, WebServer

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
OLDEST = timedelta(hours=2)


def report(exit_status: int = 0, *, minutes: float = 12, **fields: Any) -> Report:
    """Return the report of a run that ended this number of minutes ago."""
    finished = (NOW - timedelta(minutes=minutes)).isoformat()
    return Report(
        run="1", started=finished, finished=finished, host="a", puller="1", exit_status=exit_status, **fields
    )


CRITICAL = {1, 4, 6, 8, 10, 11, 12, 15, 64, 75, 78}
WARNING = {7, 13, 14, 16, 130, 143}


@each_row("status", ExitStatus)
def test_exit_status_maps_to_a_monitoring_state(status: ExitStatus) -> None:
    expected = "CRITICAL" if status in CRITICAL else "WARNING" if status in WARNING else "OK"
    verdict = judge(Records(report(status), enforced={"web": "1.0.0"}), NOW, OLDEST)
    assert verdict.health == expected
    assert f"the last run ended with exit status {int(status)}" in str(verdict)


@each_row(
    ("records", "health", "said"),
    [
        (Records(None), "UNKNOWN", "no run has finished on this host yet"),
        (Records(report(minutes=121)), "CRITICAL", "no run has finished since 2026-11-22 09:59 UTC"),
        (Records(report(minutes=119)), "OK", ""),
        (Records(report(minutes=600), running_since=NOW - timedelta(minutes=20)), "OK", ""),
        (
            Records(report(minutes=600), running_since=NOW - timedelta(minutes=300)),
            "CRITICAL",
            "a run is in progress since 2026-11-22 07:00 UTC",
        ),
        (
            Records(report(minutes=-60)),
            "WARNING",
            "the last run ended 2026-11-22 13:00 UTC, after the current time 2026-11-22 12:00 UTC",
        ),
        (Records(report(), cut_short=True), "WARNING", "the last run was interrupted"),
        (Records(report(), damaged=["web: is damaged"]), "CRITICAL", "web: is damaged"),
        (Records(report(), notes=["PINS ARE LOST"]), "WARNING", "PINS ARE LOST"),
        (Records(report(), unsent=["3 reports wait to be sent"]), "WARNING", "3 reports wait to be sent"),
        (Records(None, unreadable="is not a report"), "UNKNOWN", "PULLER UNKNOWN - is not a report"),
        (Records(report(), enforced={"web": None}), "CRITICAL", "web: no version is enforced"),
        (Records(report(problems=[failure("a mirror\nis away")])), "WARNING", "a mirror is away"),
        (Records(report(20), held=["disabled by ann: TICKET-7"]), "OK", "disabled by ann: TICKET-7"),
        (
            Records(report(13, bundles=[BundleReport(name="a", summary=Summary(failed=1))])),
            "CRITICAL",
            "exit status 13",
        ),
    ],
)
def test_run_records_map_to_a_monitoring_state(records: Records, health: str, said: str) -> None:
    verdict = judge(records, NOW, OLDEST)
    assert verdict.health is Health(health)
    assert str(verdict).startswith(f"PULLER {health} - ")
    assert said in str(verdict)


def test_most_serious_state_is_first_in_the_line() -> None:
    event = Event(
        type="exec", name="a | b", state=State.FAILED, problems=[failure("exit code 1,\nexpected 0")]
    )
    bundle = BundleReport(name="web", events=[event], summary=Summary(failed=1, changed=2, refreshed=1))
    records = Records(report(6, bundles=[bundle]), enforced={"web": "1.0.0"}, cut_short=True)
    assert str(judge(records, NOW, OLDEST)) == (
        "PULLER CRITICAL - the last run ended with exit status 6; exec#a ¦ b: exit code 1, expected 0; "
        "the last run was interrupted; web 1.0.0 is enforced | age=720s;;7200 exit_status=6 failed=1 changed=3"
    )


def check(host: Host, *options: str) -> tuple[int, str]:
    status, output = host.puller("status", "--check", *options)
    assert output.count("\n") == 1
    return status, output


def test_a_host_through_its_days(host: Host, publisher: Publisher, web: WebServer) -> None:
    status, output = check(host)
    assert (status, output) == (3, "PULLER UNKNOWN - no run has finished on this host yet\n")
    publisher.publish("1.0.0")
    assert host.run().status == 0
    status, output = check(host)
    assert status == 0
    assert re.match(
        r"PULLER OK - the last run ended with exit status 0; web 1\.0\.0 is enforced \| "
        r"age=\d+s;;7200 exit_status=0 failed=0 changed=4\n$",
        output,
    )
    web.stop()
    assert host.run().status == 14
    assert check(host)[0] == 1
    web.start()
    publisher.publish("1.1.0", 'resources: [{exec: [{"false": {}}]}]')
    assert host.run().status == 4
    status, output = check(host)
    assert (status, "exec#false: exit code 1, expected 0" in output) == (2, True)
    assert host.puller("status").status == 0
    assert "  on trial since " in host.puller("status").output
    assert ", resources failed in the last 1 run\n" in host.puller("status").output
    assert check(host, "--max-age", "0s")[0] == 2


def test_a_run_that_was_killed_is_told(settled: Host) -> None:
    save_status(Directories(settled.state, Path(settled.settings["run_directory"])), "running")
    file = Path(settled.settings["run_directory"]) / "status.json"
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"process": gone.pid}))
    status, output = check(settled)
    assert (status, "the last run was interrupted" in output) == (1, True)
    assert "did not finish" in settled.puller("status").output


def spoil_report(host: Host) -> None:
    (host.state / "last-run.json").write_text("{")


def spoil_configuration(host: Host) -> None:
    host.configuration.write_text("bundles: 7\n")


def spoil_bundle(host: Host) -> None:
    (host.state / "bundles" / "web" / "current").unlink()
    (host.state / "bundles" / "web" / "current").symlink_to("nowhere")


@pytest.mark.parametrize(
    ("spoil", "status"), [(spoil_report, 3), (spoil_configuration, 3), (spoil_bundle, 2)]
)
def test_records_that_cannot_be_used_are_no_success(
    settled: Host, spoil: Callable[[Host], None], status: int
) -> None:
    spoil(settled)
    assert check(settled)[0] == status


def test_programs_get_the_verdict_with_all_that_it_is_made_of(settled: Host) -> None:
    status, output = settled.puller("status", "--check", "--format", "json")
    result = json.loads(output)
    assert (status, result["health"], result["bundles"][0]["enforced"]) == (0, "OK", "1.0.0")
    assert result["message"].startswith("PULLER OK - ")


def test_invalid_age_is_refused(settled: Host) -> None:
    refused = settled.puller("status", "--check", "--max-age", "soon")
    assert refused.status == 64
    assert "--max-age is 'soon', expected" in refused.output
