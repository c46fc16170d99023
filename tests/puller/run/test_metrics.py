"""Metrics of real runs: values that survive a run that fails early, and reasons for a held bundle."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bundles.publisher.channels import RolloutRequest

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

BREAKS = """\
resources:
  - file:
      - "{{ facts.machine }}/motd":
          content: broken
          owner: "{{ facts.uid }}"
          group: "{{ facts.gid }}"
          mode: "0644"
          health_checks: [{command: "sh -c 'exit 2'", tries: 1}]
"""


class Measured:
    """A host with a textfile of metrics, read by the reference parser."""

    def __init__(self, host: "Host", path: Path) -> None:
        self.host, self.path = host, path
        host.configure(reports={"textfile": str(path)})

    def run(self, *options: str, status: int = 0) -> "Measured":
        outcome = self.host.run(*options)
        assert outcome.status == status, outcome.output
        return self

    def all(self, name: str) -> dict[tuple[str, ...], float]:
        """Return the values of a metric by the values of its labels, without the label ``bundle``."""
        return {
            tuple(value for label, value in sorted(sample.labels.items()) if label != "bundle"): sample.value
            for family in text_string_to_metric_families(self.path.read_text())
            for sample in family.samples
            if sample.name == f"puller_{name}"
        }

    def __getitem__(self, name: str) -> float | None:
        return self.all(name).get(())

    def held(self) -> list[str]:
        return [reason for (reason,), value in self.all("bundle_held").items() if value]


@pytest.fixture
def measured(settled: "Host", tmp_path: Path) -> Measured:
    return Measured(settled, tmp_path / "puller.prom").run()


def site_away(host: "Host") -> None:
    host.configure(site="http://127.0.0.1:9/")


def data_wrong(host: "Host") -> None:
    Path(host.settings["host_data"]).write_text("a: [\n")


def test_good_run_records_time_and_expiry_of_trust(measured: Measured) -> None:
    assert measured["last_good_run_timestamp_seconds"] == measured["last_run_timestamp_seconds"]
    expiry, now = measured["metadata_expiry_timestamp_seconds"], datetime.now(UTC)
    assert expiry is not None
    assert timedelta(days=6) < datetime.fromtimestamp(expiry, UTC) - now <= timedelta(days=7)
    assert measured.all("bundle_info") == {("1.0.0",): 1}
    since = measured["bundle_enforced_since_timestamp_seconds"]
    assert since is not None
    assert now - timedelta(hours=1) < datetime.fromtimestamp(since, UTC) <= now
    assert measured.all("resources_by_type") == {("stable", "exec"): 1, ("stable", "file"): 3}


def test_a_run_has_its_phases_with_next_to_nothing_beside_them(measured: Measured) -> None:
    phases = measured.all("last_run_phase_duration_seconds")
    assert {*phases} == {("refresh",), ("fetch",), ("resolve",), ("apply",)}
    duration = measured["last_run_duration_seconds"]
    assert duration is not None
    assert 0 < sum(phases.values()) <= duration + 0.002
    assert {*measured.host.report()["phases"]} == {"refresh", "fetch", "resolve", "apply"}


@pytest.mark.parametrize(("harm", "status"), [(site_away, 14), (data_wrong, 78)])
def test_metrics_of_the_good_run_survive_failures(
    measured: Measured, harm: Callable[["Host"], None], status: int
) -> None:
    lasting = (
        "last_good_run_timestamp_seconds",
        "metadata_expiry_timestamp_seconds",
        "bundle_enforced_since_timestamp_seconds",
        "bundle_quarantined",
    )
    before = {name: measured[name] for name in lasting}
    last = measured["last_run_timestamp_seconds"]
    harm(measured.host)
    for _ in range(2):
        measured.run(status=status)
        assert {name: measured[name] for name in lasting} == before
        assert None not in before.values()
        assert measured.all("bundle_info") == {("1.0.0",): 1}
        assert measured["last_run_exit_status"] == status
        assert (measured["last_run_timestamp_seconds"] or 0) > (last or 0)
    assert (measured["last_run_problems"] or 0) > 0


def test_a_run_that_applies_nothing_or_a_part_is_no_good_run(measured: Measured) -> None:
    good = measured["last_good_run_timestamp_seconds"]
    measured.run("--only", f"file#{measured.host.machine}/motd")
    assert (measured["last_run_applied"], measured["last_good_run_timestamp_seconds"]) == (0, good)
    assert measured.host.puller("disable", "--reason", "looking").status == 0
    measured.run(status=20)
    assert (measured["last_run_applied"], measured["last_good_run_timestamp_seconds"]) == (0, good)
    assert measured.host.puller("enable").status == 0
    measured.run()
    assert measured["last_run_applied"] == 1
    assert (measured["last_good_run_timestamp_seconds"] or 0) > (good or 0)


def test_a_dry_run_writes_no_metrics(measured: Measured) -> None:
    before = measured.path.read_bytes()
    measured.run("--noop")
    assert measured.path.read_bytes() == before


def test_a_host_that_never_had_a_good_run_has_no_time_of_one(host: "Host", tmp_path: Path) -> None:
    site_away(host)
    measured = Measured(host, tmp_path / "puller.prom").run(status=15)
    assert measured["last_good_run_timestamp_seconds"] is None
    assert measured["metadata_expiry_timestamp_seconds"] is None
    assert measured["last_run_exit_status"] == 15


def test_release_outside_its_turn_is_held_by_the_rollout(measured: Measured, publisher: "Publisher") -> None:
    publisher.publish("2.0.0", request=RolloutRequest(percent=0.0))
    measured.run(status=20)
    assert measured.held() == ["rollout"]
    assert measured["last_good_run_timestamp_seconds"] == measured["last_run_timestamp_seconds"]


def test_a_release_that_is_not_understood_is_held_as_rejected(
    measured: Measured, publisher: "Publisher"
) -> None:
    publisher.publish("2.0.0", "resources: 5\n")
    assert measured.run(status=13).held() == ["rejected"]


def test_a_release_that_does_not_arrive_is_held_as_unavailable(
    measured: Measured, publisher: "Publisher"
) -> None:
    publisher.publish("2.0.0")
    bundle = publisher.newest("targets/web/*.tar.gz")
    bundle.write_bytes(bundle.read_bytes()[:-1] + b"!")
    assert measured.run(status=10).held() == ["unavailable"]


def test_abandoned_release_is_held_by_the_quarantine(measured: Measured, publisher: "Publisher") -> None:
    publisher.publish("2.0.0", BREAKS)
    measured.run(status=7)
    assert (measured["bundle_given_up"], measured["bundle_quarantined"]) == (1, 1)
    assert measured.held() == ["quarantine"]
    measured.run(status=20)
    assert (measured["bundle_given_up"], measured["bundle_quarantined"]) == (0, 1)
    assert measured.held() == ["quarantine"]


def test_restless_resources_are_counted_and_named(measured: Measured) -> None:
    assert measured["restless_resources"] == 0
    for _ in range(3):
        (measured.host.machine / "motd").write_text("of another tool\n")
        measured.run()
    assert measured["restless_resources"] == 1
    assert measured.all("restless_resource_changes") == {(f"file#{measured.host.machine}/motd",): 3}
    measured.run()
    assert measured["restless_resources"] == 1, "also after a run that changed nothing"
