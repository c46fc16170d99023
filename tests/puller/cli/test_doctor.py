"""``puller doctor``: each check finds its problem, names the fix, and changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from puller.reporting.report import RestlessResource
from puller.run import diagnosis
from puller.run.host_state import HostState
from puller.system.systemd_units import StoppedService, Timer
from tests.support.stories import Execute, Host, Publisher


@pytest.fixture(autouse=True)
def _timer_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    start = datetime(2126, 11, 27, 6, 30, tzinfo=UTC)
    monkeypatch.setattr(diagnosis, "find_timer", lambda of_user: Timer(is_active=True, next_start=start))
    monkeypatch.setattr(diagnosis, "_is_clock_synchronised", lambda: True)


@pytest.fixture
def healthy(publisher: Publisher, host: Host) -> Host:
    """A host after a good run."""
    publisher.publish("1.0.0")
    assert host.run().status == 0
    return host


def diagnose(host: Host, execute: Execute) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit status, and the worst check of each subject."""
    status, output = execute("doctor", "--config", str(host.configuration), "--format", "json")
    order = ["ok", "unknown", "warning", "problem"]
    checks: dict[str, dict[str, Any]] = {}
    for check in json.loads(output)["checks"]:
        known = checks.get(check["subject"])
        if known is None or order.index(check["verdict"]) > order.index(known["verdict"]):
            checks[check["subject"]] = check
    return status, checks


def files_of(host: Host) -> Iterator[tuple[str, bytes, float]]:
    for path in sorted(host.state.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path), path.read_bytes(), path.stat().st_mtime


def test_a_healthy_host_has_no_problem(healthy: Host, execute: Execute) -> None:
    before = list(files_of(healthy))
    status, checks = diagnose(healthy, execute)
    assert {check["verdict"] for check in checks.values()} == {"ok"}
    assert status == 0
    assert {*checks} == {
        "configuration",
        "trust anchor",
        "clock",
        "site",
        "metadata",
        "timer",
        "last run",
        "disk space",
        "permissions",
        "state",
        "bundles",
        "extras",
    }
    assert list(files_of(healthy)) == before


def test_each_check_is_one_line_with_its_fix(
    healthy: Host, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "find_timer", lambda of_user: Timer(is_active=False))
    status, output = execute("doctor", "--config", str(healthy.configuration))
    (line,) = (line for line in output.splitlines() if " timer " in line)
    assert line.endswith("puller.timer is not active → systemctl enable --now puller.timer")
    assert (status, output.splitlines()[-1]) == (1, "1 problem")


def break_configuration(host: Host) -> None:
    host.configuration.write_text("site: [")


def remove_anchor(host: Host) -> None:
    (host.configuration.parent / "root.json").unlink()


def damage_quarantine(host: Host) -> None:
    (host.state / "quarantine.json").write_text("{")


def damage_bundle(host: Host) -> None:
    manifest = next(host.state.glob("bundles/web/*/manifest.yaml"))
    manifest.chmod(0o644)
    manifest.write_text("resources: []\n")


def fail_last_run(host: Host) -> None:
    path = host.state / "last-run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "exit_status": 4}))


def fail_last_run_on_a_full_disk(host: Host) -> None:
    path = host.state / "last-run.json"
    problem = {
        "code": "store-failure",
        "message": "/state/trust: No space left on device",
        "severity": "error",
    }
    path.write_text(json.dumps({**json.loads(path.read_text()), "exit_status": 78, "problems": [problem]}))


def age_last_run(host: Host) -> None:
    path = host.state / "last-run.json"
    finished = (datetime.now(UTC) - timedelta(hours=5)).isoformat()
    path.write_text(json.dumps({**json.loads(path.read_text()), "finished": finished}))


def date_last_run_in_the_future(host: Host) -> None:
    path = host.state / "last-run.json"
    finished = (datetime.now(UTC) + timedelta(days=5)).isoformat()
    path.write_text(json.dumps({**json.loads(path.read_text()), "finished": finished}))


@pytest.mark.parametrize(
    ("fault", "subject", "verdict", "fix"),
    [
        (break_configuration, "configuration", "problem", "puller config check"),
        (remove_anchor, "trust anchor", "problem", "copy root.json"),
        (damage_quarantine, "state", "problem", "puller run"),
        (damage_bundle, "bundles", "problem", "puller run"),
        (fail_last_run, "last run", "problem", "puller status"),
        (age_last_run, "last run", "warning", "puller run"),
        (date_last_run_in_the_future, "clock", "problem", "timedatectl"),
    ],
)
def test_a_fault_has_its_verdict_and_fix(
    fault: Any, subject: str, verdict: str, fix: str, healthy: Host, execute: Execute
) -> None:
    fault(healthy)
    before = list(files_of(healthy))
    status, checks = diagnose(healthy, execute)
    assert checks[subject]["verdict"] == verdict
    assert fix in checks[subject]["fix"]
    assert status == (1 if verdict == "problem" else 0)
    assert list(files_of(healthy)) == before


def test_a_failed_run_states_its_cause(healthy: Host, execute: Execute) -> None:
    fail_last_run_on_a_full_disk(healthy)
    check = diagnose(healthy, execute)[1]["last run"]
    assert check["fact"].endswith("exit status 78: /state/trust: No space left on device")
    assert check["fix"] == "correct the cause, then `puller run`"


def test_a_service_that_stopped_is_a_problem(
    healthy: Host, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = [StoppedService("hello", "failed with exit status 3")]
    monkeypatch.setattr(diagnosis, "find_stopped", lambda names, of_user: stopped)
    status, checks = diagnose(healthy, execute)
    assert (status, checks["services"]["verdict"]) == (1, "problem")
    assert checks["services"]["fact"] == "service#hello failed with exit status 3 after the last run"
    assert checks["services"]["fix"] == "`journalctl -e -u hello`, then `puller run`"


def test_services_are_unknown_without_an_answer_of_systemd(
    healthy: Host, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "services_to_run", lambda report: ["hello"])
    monkeypatch.setattr(diagnosis, "find_stopped", lambda names, of_user: [])
    assert diagnose(healthy, execute)[1]["services"]["verdict"] == "ok"
    monkeypatch.setattr(diagnosis, "find_timer", lambda of_user: None)
    assert diagnose(healthy, execute)[1]["services"]["verdict"] == "unknown"


@pytest.mark.everything
def test_a_restless_resource_is_a_warning(
    healthy: Host, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = RestlessResource(bundle="web", reference="service#hello", runs=5, changes=4)
    monkeypatch.setattr(diagnosis, "load_restless", lambda *_, **__: [resource])
    status, checks = diagnose(healthy, execute)
    assert (status, checks["restless"]["verdict"]) == (0, "warning")
    assert checks["restless"]["fix"] == "puller explain service#hello"


@pytest.mark.everything
def test_the_fix_of_a_clock_needs_a_time_service(
    healthy: Host, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "_is_clock_synchronised", lambda: False)
    for has_service, fix in (
        (True, "timedatectl set-ntp true"),
        (False, "install systemd-timesyncd or chrony"),
    ):
        monkeypatch.setattr(diagnosis, "_has_time_service", lambda has=has_service: has)
        assert diagnose(healthy, execute)[1]["clock"]["fix"] == fix


def test_a_site_without_answer_is_a_problem(healthy: Host, execute: Execute) -> None:
    healthy.configure(site="http://127.0.0.1:1/")
    status, checks = diagnose(healthy, execute)
    assert (status, checks["site"]["verdict"]) == (1, "problem")


@pytest.mark.everything
def test_one_of_two_mirrors_without_answer_is_a_warning(
    healthy: Host, publisher: Publisher, execute: Execute
) -> None:
    healthy.configure(site=["http://127.0.0.1:1/", str(publisher.site.public)])
    status, checks = diagnose(healthy, execute)
    assert (status, checks["site"]["verdict"]) == (0, "warning")


def test_metadata_that_expires_is_a_problem(
    healthy: Host, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    for left, verdict in ((timedelta(days=1), "warning"), (timedelta(days=-1), "problem")):
        moment = datetime.now(UTC) + left
        monkeypatch.setattr(HostState, "metadata_expiry", lambda self, moment=moment: moment)
        checks = diagnose(healthy, execute)[1]
        assert checks["metadata"]["verdict"] == verdict
        assert "puller site refresh" in checks["metadata"]["fix"]


def test_a_full_disk_is_a_problem(healthy: Host, execute: Execute, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs

    def full(path: Any) -> os.statvfs_result:
        values = list(real(path))
        values[4] = 0  # f_bavail
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", full)
    status, checks = diagnose(healthy, execute)
    assert (status, checks["disk space"]["verdict"]) == (1, "problem")


@pytest.mark.everything
def test_a_host_before_its_first_run_has_no_problem(
    host: Host, publisher: Publisher, execute: Execute
) -> None:
    publisher.publish("1.0.0")
    status, checks = diagnose(host, execute)
    assert status == 0
    assert (checks["last run"]["verdict"], checks["last run"]["fix"]) == ("warning", "puller run")
    assert checks["metadata"]["verdict"] == "unknown"
    assert not (host.state / "trust").exists()


@pytest.mark.everything
def test_signs_are_words_without_utf8(
    healthy: Host, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("puller.cli.host.check.is_utf8", lambda: False)
    output = execute("doctor", "--config", str(healthy.configuration))[1]
    assert output.isascii()
    assert all(line.startswith("ok ") for line in output.splitlines())
