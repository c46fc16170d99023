"""Reasons for a held host: its operator, windows, a pin, a rollout. Fetching continues, and outputs name the reason."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from bundles.format.release import place
from bundles.publisher.channels import RolloutRequest
from bundles.publisher.published import OFFERED
from tests.support.stories import Execute, Host, Publisher, WebServer


def closed_window() -> dict[str, object]:
    """Return a window of an hour that opened three hours ago."""
    start = datetime.now(UTC) - timedelta(hours=3)
    return {"from": f"{start:%H:%M}", "to": f"{start + timedelta(hours=1):%H:%M}"}


def open_window() -> dict[str, object]:
    now = datetime.now(UTC)
    return {"from": f"{now - timedelta(hours=1):%H:%M}", "to": f"{now + timedelta(hours=1):%H:%M}"}


def operate(host: Host, execute: Execute, *words: str) -> str:
    status, output = execute(*words, "--config", str(host.configuration))
    assert status == 0, output
    return output


def test_disabled_host_fetches_and_applies_nothing(
    settled: Host, publisher: Publisher, web: WebServer, execute: Execute
) -> None:
    operate(settled, execute, "disable", "--reason", "an audit", "--until", "2d")
    publisher.publish("1.1.0")
    (settled.machine / "motd").unlink()
    outcome = settled.run()
    assert outcome.status == 20
    assert re.search(r"nothing is applied: disabled by \S+ since .* until .*: an audit", outcome.output)
    assert not (settled.machine / "motd").exists()
    assert settled.enforced == "1.0.0"
    assert "an audit" in settled.report()["paused"]
    assert len(settled.unpacked("web")) == 2  # 1.1.0 is unpacked and verified

    operate(settled, execute, "enable")
    web.requests.clear()
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")
    assert not any("targets" in path for path in web.requests)


def test_while_nothing_is_applied_an_attack_is_still_found(
    settled: Host, publisher: Publisher, execute: Execute
) -> None:
    operate(settled, execute, "disable", "--reason", "an audit")
    publisher.publish("1.1.0")
    archive = publisher.newest("targets/web/*.tar.gz")
    archive.write_bytes(bytes(archive.stat().st_size))
    assert settled.run().status == 10


def test_disabled_host_keeps_bounded_bundles(
    settled: Host, publisher: Publisher, web: WebServer, execute: Execute
) -> None:
    operate(settled, execute, "disable", "--reason", "an audit")
    for version in ("1.1.0", "1.2.0", "1.3.0"):
        publisher.publish(version)
        assert settled.run().status == 20
    fetched = settled.unpacked("web")
    assert len(fetched) == 2
    web.stop()
    assert settled.run().status == 14
    assert settled.unpacked("web") == fetched, "what is fetched already stays while the site is away"


def test_outside_of_its_windows_a_host_waits(settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0")
    settled.configure(windows=[closed_window()])
    outcome = settled.run()
    assert outcome.status == 20
    assert re.search(r"outside the maintenance windows, the next one opens \d{4}-", outcome.output)
    assert any("outside the maintenance windows" in line for line in settled.status()["holds"]["lines"])
    settled.assert_enforces("1.0.0")

    settled.configure(windows=[closed_window(), open_window()])
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")


def test_a_pin_of_the_operator_wins_over_the_channel(
    settled: Host, publisher: Publisher, execute: Execute
) -> None:
    operate(settled, execute, "pin", "web")
    publisher.publish("1.1.0")
    assert settled.run().status == 0
    settled.assert_enforces("1.0.0")
    operate(settled, execute, "unpin", "web")
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")


def test_pin_to_an_unpublished_version_is_a_local_error(settled: Host, execute: Execute) -> None:
    operate(settled, execute, "pin", "web", "9.9.9")
    outcome = settled.run()
    assert outcome.status == 78
    settled.assert_told("web: this host is held at 9.9.9: .*web 9.9.9 is not published", outcome)
    settled.assert_enforces("1.0.0")


@pytest.mark.everything
def test_host_keeps_its_pinned_version_without_the_site(
    settled: Host, publisher: Publisher, execute: Execute
) -> None:
    operate(settled, execute, "pin", "web")
    for number in range(OFFERED + 1):
        publisher.publish(f"2.{number}.0")
    assert "1.0.0" not in publisher.site.record("web").index.releases
    for _ in range(2):
        assert settled.run().status == 0
        settled.assert_enforces("1.0.0")
    operate(settled, execute, "pin", "web", "2.0.0")
    assert settled.run().status == 78
    settled.assert_enforces("1.0.0")


def test_rollback_applies_the_previous_version_and_holds(
    settled: Host, publisher: Publisher, execute: Execute
) -> None:
    publisher.publish("1.1.0")
    assert settled.run().status == 0
    output = operate(settled, execute, "rollback", "web", "--reason", "logins fail")
    assert "web 1.0.0 is current again, was 1.1.0" in output
    settled.assert_enforces("1.0.0")
    outcome = settled.run()
    assert outcome.status == 20
    assert re.search(
        r"held: web 1\.1\.0 has been quarantined since .*: rolled back by \S+: logins fail", outcome.output
    )

    operate(settled, execute, "quarantine", "clear", "web")
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")


def test_status_states_when_a_rollout_reaches_the_host(
    settled: Host, publisher: Publisher, execute: Execute
) -> None:
    here = place(str(settled.settings["host_name"]), "web", "1.1.0")
    publisher.publish("1.1.0", request=RolloutRequest(percent=int(here)))
    outcome = settled.run()
    assert outcome.status == 20
    held = f"web 1.1.0 reaches this host at {here + 0.01:g} %, now {int(here)} %"
    assert f"held: {held}" in outcome.output
    assert settled.status()["bundles"][0]["held"] == held
    settled.assert_enforces("1.0.0")
    assert f"  held: {held}\n" in operate(settled, execute, "status")

    publisher.say(lambda channels: channels.steer("web", "stable", RolloutRequest(percent=int(here) + 1)))
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")


def test_new_host_outside_a_rollout_runs_the_old_release(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0")
    publisher.publish("1.1.0", request=RolloutRequest(percent=0))
    assert host.run().status == 20
    host.assert_enforces("1.0.0")


def test_halted_rollout_moves_no_host(settled: Host, publisher: Publisher) -> None:
    here = place(str(settled.settings["host_name"]), "web", "1.1.0")
    publisher.publish("1.1.0", request=RolloutRequest(percent=int(here) + 1))
    publisher.say(lambda channels: channels.halt("web", "stable"))
    outcome = settled.run()
    assert outcome.status == 20
    assert "was halted by the publisher at" in outcome.output
    settled.assert_enforces("1.0.0")

    publisher.say(lambda channels: channels.steer("web", "stable", resume=True))
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")
    publisher.say(lambda channels: channels.halt("web", "stable"))
    assert settled.run().status == 0
    settled.assert_enforces("1.1.0")


def test_offline_run_enforces_local_bundles(settled: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0")
    publisher.served.rename(publisher.served.with_name("away"))
    (settled.machine / "motd").unlink()
    outcome = settled.run("--offline")
    assert outcome.status == 0
    assert settled.status()["last_run"]["problems"] == []
    settled.assert_enforces("1.0.0")
