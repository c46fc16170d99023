"""Stored reports of real runs: short and complete if all resources are in sync."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from puller.reporting.history import identity

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

Explain = Callable[[str], str]


def last_run(host: "Host") -> dict[str, Any]:
    result: dict[str, Any] = json.loads((host.state / "last-run.json").read_bytes())
    return result


def kept(host: "Host") -> list[str]:
    """Return the names of reports without their times, oldest first."""
    names = sorted(path.name for path in (host.state / "runs").glob("*.json"))
    return [name.partition("-")[2] for name in names]


def test_idle_run_reports_stable_counts_by_bundle(settled: "Host") -> None:
    assert settled.run().status == 0
    report = last_run(settled)
    (bundle,) = report["bundles"]
    assert report["format"] == 4
    assert (bundle["name"], bundle["version"], bundle["outcome"]) == ("web", "1.0.0", "applied")
    assert "events" not in bundle
    assert bundle["in_order"]["resources"] == bundle["summary"]["resources"] == 4
    assert set(settled.states().values()) == {"stable"}, "each resource that was checked is still known"
    assert kept(settled) == ["eventful.json", "quiet.json"]


def test_the_same_is_found_in_order_again_without_another_file(settled: "Host") -> None:
    settled.run()
    before = sorted((settled.state / "runs" / "in-order").iterdir())
    settled.run()
    assert sorted((settled.state / "runs" / "in-order").iterdir()) == before


def test_status_metrics_and_explanations_say_as_much_as_ever(settled: "Host", tmp_path: Path) -> None:
    settled.configure(reports={"textfile": str(tmp_path / "puller.prom")})
    assert settled.run().status == 0
    assert settled.status()["last_run"]["summaries"]["web"].startswith("4 resources, 4 stable, 0 changed")
    assert 'puller_resources{bundle="web",state="stable"} 4\n' in (tmp_path / "puller.prom").read_text()
    _, output = settled.puller("explain", f"file#{settled.machine}/motd")
    assert "stable" in output
    assert "in sync" in output
    assert settled.puller("status", "--check").status == 0


def test_failed_and_changed_resources_are_listed(settled: "Host") -> None:
    assert settled.run().status == 0
    (settled.machine / "motd").unlink()
    (settled.machine / "motd").mkdir()
    (settled.machine / "motd" / "full").touch()
    assert settled.run().status != 0
    (bundle,) = last_run(settled)["bundles"]
    (event,) = (event for event in bundle["events"] if event["state"] == "failed")
    assert event["name"] == f"{settled.machine}/motd"
    assert kept(settled)[-1] == "eventful.json"
    status, output = settled.puller("status", "--check")
    assert (status, output.startswith("PULLER CRITICAL")) == (2, True)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_lost_list_is_not_reported_as_missing_resources(
    settled: "Host", harm: Callable[[Path], object]
) -> None:
    assert settled.run().status == 0
    for path in (settled.state / "runs" / "in-order").iterdir():
        harm(path)
    _, output = settled.puller("explain", f"file#{settled.machine}/motd")
    assert "so the unchanged resources are unknown" in output
    assert "not in that run" not in output
    assert "in sync" not in output
    assert settled.status()["last_run"]["summaries"]["web"].startswith("4 resources, 4 stable")
    assert settled.run().status == 0
    _, output = settled.puller("explain", f"file#{settled.machine}/motd")
    assert "in sync" in output


def test_reports_of_eventful_runs_are_kept_longer(settled: "Host") -> None:
    settled.configure(reports={"keep": 1, "quiet_for": "1h", "eventful_for": "3d"})
    data = (settled.state / "last-run.json").read_bytes()
    now = datetime.now(UTC)
    for hours, kind in ((2, "quiet"), (2.5, "eventful"), (80, "eventful")):
        run = identity(now - timedelta(hours=hours))
        (settled.state / "runs" / f"{run}-{kind}.json").write_bytes(data)
    assert settled.run().status == 0
    assert kept(settled) == ["eventful.json", "eventful.json", "quiet.json"]


def test_a_refused_release_is_an_event(settled: "Host", publisher: "Publisher") -> None:
    publisher.publish("2.0.0", "resources: 5\n")
    assert settled.run().status == 13
    assert kept(settled)[-1] == "eventful.json"
    assert settled.run().status == 13
    assert settled.puller("status", "--check").status == 1


def test_run_has_a_report_despite_unwritable_metrics(settled: "Host", tmp_path: Path) -> None:
    settled.configure(reports={"textfile": str(tmp_path / "missing" / "puller.prom")})
    assert settled.run().status == 78
    assert kept(settled) == ["eventful.json", "eventful.json"]
    assert last_run(settled)["exit_status"] == 78


def test_a_dry_run_keeps_no_report_and_no_list(settled: "Host") -> None:
    def found() -> list[Path]:
        return sorted((settled.state / "runs").rglob("*"))

    before = found()
    settled.run("--noop")
    assert found() == before
