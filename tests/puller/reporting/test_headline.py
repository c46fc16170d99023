"""The first line of ``puller status``."""

from datetime import UTC, datetime
from typing import Any

import pytest

from foundation.problems import ProblemCode
from puller.exit_status import ExitStatus
from puller.reporting.headline import Records, Sync, cause, headline, services_to_run
from puller.reporting.report import BundleReport, Event, HoldReason, Report, State
from puller.system import systemd_units
from puller.system.commands import Command, Completed
from puller.system.systemd_units import StoppedService, Timer, find_timer
from tests.puller.problems import failure
from tests.support.rows import each_row
from tests.support.stories import Host, Publisher

START = datetime(2026, 11, 27, 2, 14, 8, tzinfo=UTC)
FAILED = Event(type="service", name="app", state=State.FAILED, problems=[failure("x")])
UNMET = Event(type="file", name="/x", state=State.SKIPPED, unmet_requirements=["service#app"])


def records(status: int = 0, *events: Event, report: dict[str, Any] | None = None, **fields: Any) -> Records:
    bundle = {"name": "web", "version": "1.5.0", "outcome": "applied", "events": list(events)}
    pieces = {"bundle": {}, **(report or {})}
    bundles = [BundleReport(**(bundle | pieces.pop("bundle")))]
    last = Report(
        run="r", started="", finished="", host="", puller="", exit_status=status, bundles=bundles, **pieces
    )
    return Records(**{"report": last, "timer": Timer(is_active=True, next_start=START), **fields})


QUARANTINED = {"held": "x", "held_because": HoldReason.QUARANTINE, "published": "1.6.0"}
WAITING = {"held": "x", "held_because": HoldReason.ROLLOUT, "published": "1.6.0"}
NEXT = "next run 2026-11-27 02:14 UTC"


@each_row(
    ("found", "line"),
    [
        (records(), f"in sync; {NEXT}; nothing to do"),
        (records(2), f"in sync; {NEXT}; nothing to do"),
        (
            records(4, FAILED, UNMET),
            f"out of sync: service#app and 1 other failed; {NEXT}; to do: `puller explain service#app`",
        ),
        (
            records(14),
            f"in sync, but the site cannot be reached; {NEXT}; to do: check the network and the address of the site",
        ),
        (
            records(20, report={"bundle": QUARANTINED}),
            f"in sync, but web 1.6.0 is held; {NEXT}; to do: correct the bundle and publish a new version, or "
            "`puller quarantine clear web`",
        ),
        (
            records(20, report={"bundle": WAITING}),
            f"in sync, but web 1.6.0 is held; {NEXT}; nothing to do",
        ),
        (
            records(not_applying="disabled by ann: audit", is_disabled=True),
            f"held: disabled by ann: audit; {NEXT}; to do: `puller enable` to apply again",
        ),
        (
            records(not_applying="outside of the windows"),
            f"held: outside of the windows; {NEXT}; nothing to do",
        ),
        (
            records(report={"only": ["file#/x"]}),
            f"unknown: the last run was partial; {NEXT}; to do: `puller run`",
        ),
        (records(cut_short=True), f"unknown: the last run was interrupted; {NEXT}; to do: `puller run`"),
        (Records(report=None), "unknown: no run has finished yet; to do: `puller run`"),
        (
            Records(report=None, running_since="2026-11-27T01:04:00+00:00"),
            "a run is in progress since 2026-11-27 01:04 UTC; nothing to do",
        ),
        (
            records(timer=Timer(is_active=False)),
            "in sync; no next run, puller.timer is not active; to do: `systemctl enable --now puller.timer`",
        ),
        (
            records(timer=Timer(is_active=False), of_user=True),
            "in sync; no next run, puller.timer is not active; to do: `systemctl --user enable --now puller.timer`",
        ),
        (records(timer=Timer(is_active=True)), "in sync; next run by puller.timer; nothing to do"),
        (records(damaged=["web: is damaged"]), f"out of sync: web: is damaged; {NEXT}; to do: `puller run`"),
    ],
)
def test_line_has_state_next_run_and_advice(found: Records, line: str) -> None:
    assert str(headline(found)) == line


@each_row("status", ExitStatus)
def test_only_applied_bundles_are_in_sync(status: ExitStatus) -> None:
    """No status of a run whose bundles were not applied is in sync."""
    unapplied = {"bundle": {"outcome": "nothing to enforce"}}
    assert headline(records(status, report=unapplied)).sync is Sync.OUT_OF_SYNC
    assert headline(records(status, FAILED)).sync is Sync.OUT_OF_SYNC


@pytest.mark.parametrize(
    ("output", "timer"),
    [
        (
            "ActiveState=active\nNextElapseUSecRealtime=Fri 2026-11-27 02:14:08 UTC\n",
            Timer(is_active=True, next_start=START),
        ),
        ("ActiveState=active\nNextElapseUSecRealtime=\n", Timer(is_active=True)),
        ("ActiveState=inactive\nNextElapseUSecRealtime=\n", Timer(is_active=False)),
        ("Failed to connect to bus\n", None),
    ],
)
def test_timer_has_its_state_and_its_next_start(
    output: str, timer: Timer | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    def show(command: Command) -> Completed:
        assert command.arguments[0] == "systemctl"
        return Completed(0, None, False, output, "", 0.0)

    monkeypatch.setattr(systemd_units, "_BOOTED", tmp_path)
    monkeypatch.setattr(systemd_units, "run", show)
    assert find_timer() == timer


def test_machine_without_systemd_has_no_timer(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(systemd_units, "_BOOTED", tmp_path / "missing")
    assert find_timer() is None


def test_status_begins_with_the_line(host: Host, publisher: Publisher) -> None:
    def first() -> str:
        return host.puller("status").output.splitlines()[0]

    assert first().startswith("unknown: no run has finished yet; ")
    publisher.publish("1.0.0")
    assert host.run().status == 0
    assert first().startswith("in sync; ")
    assert host.status()["headline"]["sync"] == "in sync"
    publisher.publish("1.1.0", f"{publisher.story}      - 'false': {{}}\n")
    assert host.run().status == 6
    assert first().startswith("out of sync: exec#false failed; ")
    assert host.puller("disable", "--reason", "audit").status == 0
    assert first().startswith("held: disabled by ")


STOPPED = StoppedService("hello", "failed with exit status 3")
FULL = failure("/var/lib/puller/trust/timestamp.json: No space left on device", ProblemCode.STORE_FAILURE)
INVALID = failure("config.yaml: unknown key", ProblemCode.INVALID_CONFIGURATION)


def test_stopped_service_is_out_of_sync_with_its_journal() -> None:
    assert str(headline(records(stopped=[STOPPED]))) == (
        f"out of sync: service#hello failed with exit status 3 after the last run; {NEXT}; "
        "to do: `journalctl -e -u hello`"
    )


def test_restless_resource_is_something_to_do() -> None:
    assert str(headline(records(restless=["service#hello"]))) == (
        f"in sync, but service#hello changes in every run; {NEXT}; to do: `puller explain service#hello`"
    )


def test_failed_resource_outranks_a_stopped_service() -> None:
    assert "service#app failed" in str(headline(records(4, FAILED, stopped=[STOPPED])))


def test_full_disk_is_not_a_wrong_configuration() -> None:
    line = str(headline(records(ExitStatus.CONFIGURATION, report={"problems": [FULL]})))
    assert line == f"in sync, but {FULL.message}; {NEXT}; to do: `puller doctor`"


def test_invalid_configuration_leads_to_its_check() -> None:
    line = str(headline(records(ExitStatus.CONFIGURATION, report={"problems": [FULL, INVALID]})))
    assert line.endswith("to do: `puller config check`")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (records(4, FAILED), ("service#app: x", "`puller explain service#app`")),
        (records(ExitStatus.CONFIGURATION, report={"problems": [FULL]}), (FULL.message, "")),
        (records(), ("", "")),
    ],
)
def test_cause_is_the_first_problem_with_the_next_step(found: Records, expected: tuple[str, str]) -> None:
    assert found.report is not None
    assert cause(found.report) == expected


def service(name: str, ensure: str) -> Event:
    return Event(type="service", name=name, state=State.STABLE, provider="systemd", final_ensure=ensure)


def test_only_services_left_running_are_queried() -> None:
    report = records(0, service("on", "running"), service("off", "stopped")).report
    assert report is not None
    assert services_to_run(report) == ["on"]
