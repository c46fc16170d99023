"""``puller check`` as a monitoring plugin for enforced bundles. ``--run`` repairs the failures."""

import fcntl
import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.stories import Host, Outcome, Publisher

CHECKED = """\
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/page":
          content: "ready\\n"
          health_checks:
            - {name: page, file: {path: "{{ facts.machine }}/page", contains: ready}}
            - {name: other, command: "sh -c 'test ! -e {{ facts.machine }}/broken || exit 2'"}
"""


@pytest.fixture
def healthy(host: Host, publisher: Publisher) -> Host:
    publisher.publish("1.0.0", CHECKED)
    assert host.run().status == 0
    return host


def first_line(outcome: Outcome) -> str:
    return outcome.output.splitlines()[0]


def told(host: Host, *options: str) -> dict[str, Any]:
    output = host.puller("check", "--format", "json", *options).output
    return dict(json.loads(output[output.index("{\n") :]))


def test_passing_checks_print_a_plugin_line(healthy: Host) -> None:
    outcome = healthy.puller("check")
    assert outcome.status == 0
    pattern = r"PULLER OK - 2 checks OK \| time=\d+\.\d{3}s checks=2 failed=0"
    assert re.fullmatch(pattern, first_line(outcome))
    assert "page: OK: " in outcome.output
    assert healthy.puller("check", "web").status == 0


def test_failing_check_is_critical_and_not_repaired(healthy: Host) -> None:
    (healthy.machine / "page").write_text("broken\n")
    before = {path: path.stat().st_mtime_ns for path in healthy.state.rglob("*")}
    outcome = healthy.puller("check")
    assert outcome.status == 2
    assert first_line(outcome).startswith("PULLER CRITICAL - web: file#")
    assert "health check page: CRITICAL: " in first_line(outcome)
    assert "; 1 of 2 checks OK | " in first_line(outcome)
    assert (healthy.machine / "page").read_text() == "broken\n"
    assert {path: path.stat().st_mtime_ns for path in healthy.state.rglob("*")} == before
    result = told(healthy)
    assert (result["health"], result["enforced"]) == ("CRITICAL", {"web": "1.0.0"})
    assert [check["status"] for check in result["checks"]] == ["CRITICAL", "OK"]


def test_run_repairs_a_reported_failure(healthy: Host) -> None:
    (healthy.machine / "page").write_text("broken\n")
    outcome = healthy.puller("check", "--run")
    assert outcome.status == 0, outcome.output
    assert "PULLER OK - 2 checks OK; a run was made, which changed 1 resource (exit status 0) |" in (
        outcome.output
    )
    assert (healthy.machine / "page").read_text() == "ready\n"
    report = healthy.report()["run"]
    assert healthy.puller("check", "--run").status == 0
    assert healthy.report()["run"] == report  # all checks passed, so no run was made


def test_unrepairable_failure_stays_critical(healthy: Host) -> None:
    (healthy.machine / "broken").write_text("")
    result = healthy.puller("check", "--run")
    assert result.status == 2
    assert "a run was made, which changed nothing (exit status 4)" in result.output
    assert "PULLER CRITICAL - web: file#" in result.output


def test_a_host_that_is_disabled_is_asked_and_not_repaired(healthy: Host) -> None:
    (healthy.machine / "page").write_text("broken\n")
    assert healthy.puller("disable", "--reason", "migration").status == 0
    report = healthy.report()["run"]
    outcome = healthy.puller("check", "--run")
    assert outcome.status == 2
    assert "no run was made: disabled" in first_line(outcome)
    assert (healthy.machine / "page").read_text() == "broken\n"
    assert healthy.report()["run"] == report


def test_host_outside_its_windows_is_not_repaired(healthy: Host) -> None:
    (healthy.machine / "page").write_text("broken\n")
    start = datetime.now(UTC) - timedelta(hours=3)
    window = {"from": f"{start:%H:%M}", "to": f"{start + timedelta(hours=1):%H:%M}"}
    healthy.configure(windows=[window])
    outcome = healthy.puller("check", "--run")
    assert outcome.status == 2
    assert "no run was made: " in first_line(outcome)
    assert (healthy.machine / "page").read_text() == "broken\n"


def test_while_a_run_is_at_work_nothing_is_asked(healthy: Host) -> None:
    lock = os.open(Path(healthy.settings["run_directory"]) / "lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for options in ((), ("--run",)):
            outcome = healthy.puller("check", *options)
            assert outcome.status == 3
            assert first_line(outcome).startswith(
                "PULLER UNKNOWN - another command holds the lock, so the checks did not run |"
            )
    finally:
        os.close(lock)
    assert healthy.puller("check").status == 0


def test_a_host_with_nothing_enforced_is_unknown(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", CHECKED)
    outcome = host.puller("check")
    assert outcome.status == 3
    assert first_line(outcome).startswith("PULLER UNKNOWN - web: no version is enforced |")
    assert host.puller("check", "nothing").status == 64


def test_a_damaged_bundle_is_not_in_order(healthy: Host) -> None:
    current = healthy.state / "bundles/web/current"
    manifest = current.resolve() / "manifest.yaml"
    os.chmod(manifest.parent, 0o700)
    os.chmod(manifest, 0o600)
    manifest.write_text("resources: []\n")
    outcome = healthy.puller("check")
    assert outcome.status == 2
    assert "web: the enforced version is damaged: " in first_line(outcome)


def test_a_configuration_that_cannot_be_read_is_unknown(healthy: Host) -> None:
    healthy.configuration.write_text("bundles: [")
    outcome = healthy.puller("check")
    assert outcome.status == 3
    assert first_line(outcome).startswith("PULLER UNKNOWN - ")


def test_checks_whose_values_cannot_be_had_are_unknown(host: Host, publisher: Publisher) -> None:
    """The data of this host change, and the enforced bundle stays."""
    text = CHECKED.replace("contains: ready", "contains: \"{{ lookup('data.word') }}\"")
    host.configure()
    data = Path(host.settings["host_data"])
    data.write_text("data: {word: ready}\n")
    publisher.publish("1.0.0", text)
    assert host.run().status == 0
    assert host.puller("check").status == 0
    data.write_text("data: {}\n")
    outcome = host.puller("check")
    assert outcome.status == 3, outcome.output
    assert "word" in first_line(outcome)


def test_secrets_of_checks_are_masked(host: Host, publisher: Publisher) -> None:
    data = Path(host.settings["host_data"])
    data.write_text("data:\n  # @sensitive\n  password: hunter2-of-the-host\n")
    text = CHECKED.replace("contains: ready", 'contains: "{{ data.password }}"')
    publisher.publish("1.0.0", text)
    assert host.run().status == 6
    for options in ((), ("--format", "json")):
        outcome = host.puller("check", *options)
        assert outcome.status == 2, outcome.output
        assert "hunter2" not in outcome.output


def test_a_secret_that_was_there_before_is_not_shown(host: Host, publisher: Publisher) -> None:
    data = Path(host.settings["host_data"])
    data.write_text("data:\n  # @sensitive\n  password: hunter2-of-the-host\n")
    text = CHECKED.replace("ready\\n", "{{ data.password }}").replace("contains: ready", "exists: true")
    text = text.replace("test ! -e {{ facts.machine }}/broken || exit 2", "cat {{ facts.machine }}/page")
    publisher.publish("1.0.0", text)
    assert host.run().status == 0
    data.write_text("data:\n  # @sensitive\n  password: another-one\n")
    outcome = host.puller("check")
    assert outcome.status == 0, outcome.output
    assert "other: exit status 0 (OK): Sensitive [value redacted]" in outcome.output
    assert "hunter2" not in outcome.output


CHILD = """\
resources:
  - file:
      - "{{ facts.machine }}":
          ensure: directory
          owner: "{{ facts.uid }}"
          group: "{{ facts.gid }}"
          mode: "0755"
          health_checks: [{file: {path: "{{ facts.machine }}", type: directory}}]
"""


def test_checks_of_an_inapplicable_child_are_unknown(host: Host, publisher: Publisher) -> None:
    data = Path(host.settings["host_data"])
    data.write_text("data: {word: ready}\n")
    manifest = "resources:\n  - apply:\n      - child.yaml: {data: {word: \"{{ lookup('data.word') }}\"}}\n"
    publisher.publish("1.0.0", manifest, files={"child.yaml": CHILD.encode()})
    assert host.run().status == 0
    outcome = host.puller("check")
    assert (outcome.status, "1 check OK" in outcome.output) == (0, True), outcome.output
    data.write_text("data: {}\n")
    outcome = host.puller("check")
    assert outcome.status == 3, outcome.output
    assert "apply#child.yaml" in first_line(outcome)


def test_check_of_an_excluded_resource_is_not_run(host: Host, publisher: Publisher) -> None:
    text = CHECKED.replace('content: "ready\\n"', 'control: {if: "false"}\n          content: "ready\\n"')
    publisher.publish("1.0.0", text)
    assert host.run().status == 0
    outcome = host.puller("check")
    assert outcome.status == 0
    assert first_line(outcome).startswith("PULLER OK - the enforced versions have no health checks |")


def test_secrets_of_other_kinds_are_masked_in_runs_and_checks(host: Host, publisher: Publisher) -> None:
    data = Path(host.settings["host_data"])
    data.write_text("data:\n  # @sensitive\n  password: hunter2-of-the-host\n")
    requested = (
        "http: {url: 'http://127.0.0.1:1/{{ data.password }}', headers: ['X-Token: {{ data.password }}']}"
    )
    check = '{name: page, file: {path: "{{ facts.machine }}/page", contains: ready}}'
    assert check in CHECKED
    publisher.publish("1.0.0", CHECKED.replace(check, f"{{{requested}}}"))
    run = host.run("-v")
    assert run.status == 6
    outcomes = [
        run,
        host.puller("check"),
        host.puller("check", "--format", "json"),
        host.puller("check", "--run"),
    ]
    assert [outcome.status for outcome in outcomes[1:]] == [2, 2, 2]
    for outcome in outcomes:
        assert "hunter2" not in outcome.output
    explained = host.puller("explain", f"file#{host.machine}/page")
    assert "hunter2" not in explained.output
