"""Health checks and interrupted runs decide whether a new bundle passes or is rolled back."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bundles.store.store import Store
from foundation.problems import ProblemCode
from puller.run.policy.holds import Quarantine
from puller.state import Directories
from tests.support.stories import Host, Outcome, Publisher

# The exit code of the check is in a file of the machine, so that a bundle or a test can make it fail.
CHECKED = """\
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/health": {content: "CODE\\n"}
      - "{{ facts.machine }}/motd": {content: "Hello from VERSION\\n"}
      - "{{ facts.machine }}/app.conf":
          source: files/app.conf
          health_checks:
            - {name: app, command: "sh -c 'echo it is so; exit $(cat {{ facts.machine }}/health)'"}
"""


def checked(code: int) -> str:
    """Return a manifest whose check exits with ``code``."""
    return CHECKED.replace("CODE", str(code))


@pytest.fixture
def healthy(host: Host, publisher: Publisher) -> Host:
    """Return a host on which 1.0.0 has passed."""
    publisher.publish("1.0.0", checked(0))
    assert host.run().status == 0
    return host


def quarantined(host: Host) -> list[str]:
    path = host.state / "quarantine.json"
    return [entry["version"] for entry in json.loads(path.read_bytes())["bundles"]] if path.exists() else []


def trials(host: Host) -> dict[str, Any]:
    path = host.state / "journal.json"
    return dict(json.loads(path.read_bytes())["trials"]) if path.exists() else {}


def bundle_report(host: Host) -> dict[str, Any]:
    return dict(host.report()["bundles"][0])


def test_bundle_that_breaks_a_check_is_rolled_back(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(2))
    outcome = healthy.run()
    assert outcome.status == 7
    why = r"web: 1\.1\.0 is given up: file#\S+/app\.conf: health check app: exit status 2 \(CRITICAL\): it is so"
    healthy.assert_told(why, outcome)
    assert healthy.problem_codes() == {ProblemCode.ROLLED_BACK}
    healthy.assert_enforces("1.0.0")
    assert (healthy.machine / "health").read_text() == "0\n"
    assert quarantined(healthy) == ["1.1.0"]
    assert trials(healthy) == {}
    report = bundle_report(healthy)
    assert (report["version"], report["given_up"]["version"]) == ("1.0.0", "1.1.0")
    assert "CRITICAL" in report["given_up"]["outcome"]
    assert report["summary"]["failed"] == 0


def test_abandoned_version_is_skipped_until_the_next(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(2))
    assert healthy.run().status == 7
    outcome = healthy.run()
    assert outcome.status == 20
    assert re.search(r"held: web 1\.1\.0 has been quarantined since .*: file#.*CRITICAL", outcome.output)
    assert "changed=" not in outcome.output
    assert "web 1.1.0 has been quarantined since " in healthy.status()["bundles"][0]["held"]
    healthy.assert_enforces("1.0.0")

    publisher.publish("1.2.0", checked(0))
    assert healthy.run().status == 0
    healthy.assert_enforces("1.2.0")
    assert healthy.status()["bundles"][0]["good"] == "1.2.0"


def test_a_warning_gives_nothing_up(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(1))
    assert healthy.run().status == 6  # one resource has failed, others were changed
    healthy.assert_enforces("1.1.0")
    assert quarantined(healthy) == []
    assert healthy.status()["bundles"][0]["good"] == "1.0.0"


def test_new_failure_after_a_warning_abandons_the_bundle(healthy: Host, publisher: Publisher) -> None:
    manifest = checked(0).replace('      - "{{ facts.machine }}/health": {content: "0\\n"}\n', "")
    (healthy.machine / "health").write_text("1\n")
    spoil = "  - exec:\n      - spoil: {command: \"sh -c 'echo 3 > {{ facts.machine }}/health'\"}\n"
    publisher.publish("1.1.0", manifest.replace("resources:\n", f"resources:\n{spoil}"))
    assert healthy.run().status == 7
    assert quarantined(healthy) == ["1.1.0"]


def with_command(command: str, additional: str = "") -> str:
    """Return a manifest with another command in its check."""
    usual = """command: "sh -c 'echo it is so; exit $(cat {{ facts.machine }}/health)'\""""
    assert usual in CHECKED
    return checked(0).replace(usual, f"command: {json.dumps(command)}{additional}")


ANY_OTHER = {
    "exit status 22: curl: \\(22\\) The requested URL returned error: 404": (
        "sh -c 'echo \"curl: (22) The requested URL returned error: 404\" >&2; exit 22'",
        "",
    ),
    r"exit status 3 \(UNKNOWN\): what; why": ("sh -c 'echo what; echo why >&2; exit 3'", ""),
    "cannot be started: its command is empty": (" ", ""),
    "cannot be started: no executable 'no-such-program' in ": ("no-such-program --fast", ""),
    r"killed after 0\.\d s, its time limit: begun": (
        "sh -c 'echo begun; exec sleep 600'",
        ", timeout: 300ms",
    ),
    "ended by signal SIGKILL: no output": ("sh -c 'kill -9 $$'", ""),
}


@pytest.mark.parametrize(("said", "command", "more"), [(said, *how) for said, how in ANY_OTHER.items()])
def test_any_state_but_ok_or_warning_abandons_the_bundle(
    healthy: Host, publisher: Publisher, said: str, command: str, more: str
) -> None:
    publisher.publish("1.1.0", with_command(command, more) + '  - exec:\n      - "false": {}\n')
    outcome = healthy.run()
    assert outcome.status == 7
    healthy.assert_told(rf"1\.1\.0 is given up: file#\S+/app\.conf: health check app: {said}", outcome)
    healthy.assert_enforces("1.0.0")
    (entry,) = json.loads((healthy.state / "quarantine.json").read_bytes())["bundles"]
    assert re.search(f"health check app: {said}", entry["reason"])
    checked_file, failed = entry["failed"]
    assert re.search(rf"file#\S+/app\.conf: health check app: {said}", checked_file)
    assert failed == "exec#false: exit code 1, expected 0"
    status, listed = healthy.puller("quarantine", "list")
    assert (status, "  failed: exec#false: exit code 1" in listed) == (0, True)


@pytest.mark.everything
def test_check_unavailable_before_the_change_is_ignored(healthy: Host, publisher: Publisher) -> None:
    manifest = with_command("{{ facts.machine }}/check")
    publisher.publish("1.1.0", manifest)
    program = healthy.machine / "check"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    assert healthy.run().status == 0
    program.unlink()
    publisher.publish("1.2.0", manifest)
    assert healthy.run().status == 6
    healthy.assert_enforces("1.2.0")
    assert quarantined(healthy) == []


def test_check_failing_before_the_change_is_ignored(healthy: Host, publisher: Publisher) -> None:
    manifest = checked(0).replace('      - "{{ facts.machine }}/health": {content: "0\\n"}\n', "")
    publisher.publish("1.1.0", manifest)
    assert healthy.run().status == 0
    (healthy.machine / "health").write_text("2\n")  # a failure unrelated to the release
    publisher.publish("1.2.0", manifest)
    assert healthy.run().status == 6
    healthy.assert_enforces("1.2.0")
    assert quarantined(healthy) == []

    (healthy.machine / "health").write_text("0\n")
    assert healthy.run().status == 0
    assert healthy.status()["bundles"][0]["good"] == "1.2.0"


def test_check_that_breaks_during_the_trial_abandons_it(healthy: Host, publisher: Publisher) -> None:
    broken = (
        checked(0)
        .replace('motd": {', 'no-such/motd": {')
        .replace('      - "{{ facts.machine }}/health": {content: "0\\n"}\n', "")
    )
    publisher.publish("1.1.0", broken)
    assert healthy.run().status in (4, 6)
    assert trials(healthy)["web"]["version"] == "1.1.0"
    (healthy.machine / "health").write_text("2\n")
    assert healthy.run().status == 7
    healthy.assert_enforces("1.0.0")


@pytest.mark.everything
def test_breakage_is_found_without_reaching_the_resource(healthy: Host, publisher: Publisher) -> None:
    manifest = checked(2).replace(
        "          source: files/app.conf\n",
        '          source: files/app.conf\n          require: ["exec#fails"]\n',
    )
    publisher.publish("1.1.0", manifest + '  - exec:\n      - fails: {command: "false"}\n')
    assert healthy.run().status == 7
    healthy.assert_enforces("1.0.0")


def test_a_failed_resource_alone_gives_nothing_up(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(0) + '  - exec:\n      - fails: {command: "false"}\n')
    assert healthy.run().status == 6
    healthy.assert_enforces("1.1.0")
    assert trials(healthy)["web"]["version"] == "1.1.0"
    publisher.publish("1.2.0", checked(0))
    assert healthy.run().status == 0
    assert trials(healthy) == {}


def test_first_bundle_of_a_host_stays_despite_its_checks(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", checked(2))
    outcome = host.run()
    assert outcome.status == 6
    host.assert_told("No other version is available for a rollback", outcome)
    assert host.problem_codes() == {ProblemCode.ROLLBACK_FAILS}
    host.assert_enforces("1.0.0")
    assert quarantined(host) == []


@pytest.mark.everything
def test_when_rolling_back_helps_nothing_the_exit_status_says_so(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(0).replace('/health": {content: "0\\n"}', '/other": {content: "x"}'))
    assert healthy.run().status == 0
    spoil = "  - exec:\n      - spoil: {command: \"sh -c 'echo 2 > {{ facts.machine }}/health'\"}\n"
    manifest = checked(0).replace('      - "{{ facts.machine }}/health": {content: "0\\n"}\n', "")
    checks = manifest.index('      - "{{ facts.machine }}/app.conf"')
    publisher.publish("1.2.0", manifest[:checks] + spoil + "  - file:\n" + FILE_DEFAULTS + manifest[checks:])
    outcome = healthy.run()
    assert outcome.status == 8
    assert healthy.problem_codes() >= {ProblemCode.ROLLED_BACK, ProblemCode.ROLLBACK_FAILS}
    healthy.assert_told("web: rolled back to 1.1.0, but resources or health checks still fail", outcome)
    healthy.assert_enforces("1.1.0")


FILE_DEFAULTS = '      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}\n'


def test_a_dry_run_puts_nothing_on_trial(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(2))
    assert healthy.run("--noop").status == 0
    healthy.assert_enforces("1.0.0")
    assert (quarantined(healthy), trials(healthy)) == ([], {})


# --- interrupted runs -----------------------------------------------------------------------------------------

SLOW = """\
  - exec:
      - wait:
          command: sh -c 'echo $PPID > begun; while [ -e block ]; do sleep 0.05; done'
          cwd: "{{ facts.machine }}"
          timeout: 60s
"""


def cut_short(host: Host, *, by: signal.Signals = signal.SIGKILL) -> Outcome:
    """Kill or stop a run while it applies its resources."""
    (host.machine / "block").touch()
    (host.machine / "begun").unlink(missing_ok=True)
    command = [sys.executable, "-m", "puller", "run", "--config", str(host.configuration)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        begun = wait_for(host.machine / "begun", process)
        process.send_signal(by)
        if by is signal.SIGKILL:
            os.killpg(begun, signal.SIGKILL) if begun != os.getpgrp() else None
        (host.machine / "block").unlink()
        output, _ = process.communicate(timeout=30)
    return Outcome(process.returncode, output)


def wait_for(path: Path, process: subprocess.Popen[str]) -> int:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text().strip()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return os.getpgid(int(path.read_text()))


def test_a_run_that_was_killed_is_told_and_tried_again(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(0) + SLOW)
    assert cut_short(healthy).status == -signal.SIGKILL
    assert trials(healthy)["web"]["boot"]
    outcome = healthy.run()
    assert outcome.status == 0
    healthy.assert_told(r"the run that began \S+ did not finish", outcome)
    assert ProblemCode.RUN_WARNING in healthy.problem_codes()
    reported = (
        r"web 1\.1\.0: the last run was interrupted while it applied this version "
        r"\(the process was killed\), trying again"
    )
    healthy.assert_told(reported, outcome)
    healthy.assert_enforces("1.1.0")
    assert trials(healthy) == {}
    assert healthy.status()["bundles"][0]["good"] == "1.1.0"


@pytest.mark.everything
def test_two_runs_in_a_row_that_were_killed_lead_back(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(0) + SLOW)
    cut_short(healthy)
    cut_short(healthy)
    outcome = healthy.run()
    assert outcome.status == 7
    why = (
        r"web: 1\.1\.0 is given up: 2 consecutive runs were interrupted while they applied this version, "
        r"most recently because the process"
    )
    healthy.assert_told(why, outcome)
    healthy.assert_enforces("1.0.0")
    assert quarantined(healthy) == ["1.1.0"]
    assert healthy.run().status == 20


@pytest.mark.everything
def test_a_restart_of_the_machine_is_told_from_a_killed_process(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(0) + SLOW)
    cut_short(healthy)
    journal = healthy.state / "journal.json"
    boot = trials(healthy)["web"]["boot"]
    journal.write_text(journal.read_text().replace(boot, "another boot"))
    outcome = healthy.run()
    healthy.assert_told(
        r"the last run was interrupted while it applied this version \(the machine restarted\)", outcome
    )


@pytest.mark.everything
def test_a_run_that_was_asked_to_stop_was_not_cut_short(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(0) + SLOW)
    for _ in range(3):
        assert cut_short(healthy, by=signal.SIGTERM).status == 143
        assert trials(healthy)["web"]["boot"] == ""
    assert healthy.run().status == 0
    healthy.assert_enforces("1.1.0")


@pytest.mark.everything
def test_first_bundle_is_retried_after_interrupted_runs(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", checked(0) + SLOW)
    host.machine.mkdir(parents=True)
    for _ in range(3):
        cut_short(host)
    assert host.run().status == 0
    host.assert_enforces("1.0.0")


@pytest.mark.everything
def test_a_rollback_that_was_cut_short_is_gone_by_the_next_run(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(0))
    assert healthy.run().status == 0
    directories = Directories(healthy.state, Path(healthy.settings["run_directory"]))
    current = Store(directories.bundles).current("web")
    assert current is not None
    Quarantine.load(directories, pytest.fail).add(
        "web", "1.1.0", current.sha256, "by a run that was killed then"
    )
    assert healthy.run().status == 20
    healthy.assert_enforces("1.0.0")
    assert healthy.status()["bundles"][0]["good"] == "1.0.0"


@pytest.mark.everything
@pytest.mark.parametrize("fails", ["puller.run.catalog.apply_catalog", "os.symlink"])
def test_unstarted_run_does_not_count_as_interrupted(
    host: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    publisher.publish("1.0.0", checked(1))  # never passes, so it does not end the trial of another version
    host.run()
    publisher.publish("1.1.0", checked(0))

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error", "a file of the state")

    with monkeypatch.context() as patched:
        patched.setattr(fails, fail)
        for _ in range(3):
            assert host.run().status not in (0, 7)
    outcome = host.run()
    assert outcome.status == 0
    assert "cut short" not in outcome.output
    host.assert_enforces("1.1.0")


@pytest.mark.everything
def test_a_rollback_that_was_stopped_proves_nothing(host: Host, publisher: Publisher) -> None:
    stop = "  - exec:\n      - stop: {command: \"sh -c 'test ! -e {{ facts.machine }}/doom || kill -TERM $PPID'\"}\n"
    publisher.publish("1.0.0", checked(1).replace("resources:\n", f"resources:\n{stop}"))
    host.run()
    (host.machine / "doom").touch()
    publisher.publish("1.1.0", checked(2))
    assert host.run().status == 143
    assert quarantined(host) == ["1.1.0"]
    assert (host.machine / "motd").read_text() == "Hello from 1.1.0\n"
    bundle = host.status()["bundles"][0]
    assert (bundle["enforced"], bundle["good"]) == ("1.0.0", None)
    (host.machine / "doom").unlink()
    assert host.run().status == 6
    host.assert_enforces("1.0.0")


@pytest.mark.everything
def test_useless_rollback_after_killed_runs_is_reported(host: Host, publisher: Publisher) -> None:
    doomed = '  - exec:\n      - doomed: {command: "test ! -e {{ facts.machine }}/doom"}\n'
    publisher.publish("1.0.0", checked(0) + doomed)
    assert host.run().status == 0
    publisher.publish("1.1.0", checked(0) + SLOW)
    cut_short(host)
    cut_short(host)
    (host.machine / "doom").touch()
    outcome = host.run()
    assert outcome.status == 8
    host.assert_told("web: rolled back to 1.0.0, but resources or health checks still fail", outcome)


def test_quarantine_reason_is_short_for_any_output(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(2).replace("echo it is so", "seq 100000"))
    assert healthy.run().status == 7
    (entry,) = json.loads((healthy.state / "quarantine.json").read_bytes())["bundles"]
    assert re.search(r"CRITICAL\): 99998 99999 100000$", entry["reason"])
    output = bundle_report(healthy)["given_up"]["events"][-1]["health_checks"][0]["output"]
    assert output.endswith("100000")


# --- resources that fail in every run -----------------------------------------------------------------------------

DOOMED = '  - exec:\n      - doomed: {command: "test -e {{ facts.machine }}/cure"}\n'


def doomed(runs: int | None, additional: str = "") -> str:
    """Return a manifest with a resource that fails until ``cure`` exists, and with ``give_up_after: runs``."""
    return ("" if runs is None else f"give_up_after: {runs}\n") + checked(0) + DOOMED + additional


def test_bundle_is_abandoned_after_its_number_of_failures(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", doomed(3))
    for run, runs in ((1, "1 consecutive run"), (2, "2 consecutive runs")):
        outcome = healthy.run()
        assert outcome.status in (4, 6)
        assert f"web 1.1.0: resources failed in {runs}, and the limit is 3" in outcome.output
        healthy.assert_enforces("1.1.0")
        assert trials(healthy)["web"]["failed"] == run
    outcome = healthy.run()
    assert outcome.status == 7
    why = (
        r"web: 1\.1\.0 is given up: resources failed in 3 consecutive runs, most recently: "
        r"exec#doomed: exit code 1, expected 0"
    )
    healthy.assert_told(why, outcome)
    healthy.assert_enforces("1.0.0")
    assert (quarantined(healthy), trials(healthy)) == (["1.1.0"], {})
    outcome = healthy.run()
    assert outcome.status == 20
    assert re.search(
        r"held: web 1\.1\.0 has been quarantined since .*: resources failed in 3 consecutive runs",
        outcome.output,
    )


@pytest.mark.parametrize("said", [None, 0])
def test_bundles_are_not_abandoned_by_default(healthy: Host, publisher: Publisher, said: int | None) -> None:
    publisher.publish("1.1.0", doomed(said))
    for _ in range(4):
        assert healthy.run().status in (4, 6)
    healthy.assert_enforces("1.1.0")
    assert quarantined(healthy) == []


@pytest.mark.parametrize(("author", "operator", "last"), [(None, 1, 7), (1, 0, 6), (3, 1, 7), (1, 2, 6)])
def test_the_operator_s_word_counts_before_the_author_s(
    healthy: Host, publisher: Publisher, author: int | None, operator: int, last: int
) -> None:
    healthy.configure(bundles=[{"name": "web", "give_up_after": operator}])
    publisher.publish("1.1.0", doomed(author))
    assert healthy.run().status == last


def test_passing_bundle_becomes_the_last_good_version(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", doomed(2))
    assert healthy.run().status == 6
    (healthy.machine / "cure").touch()
    assert healthy.run().status == 0
    (healthy.machine / "cure").unlink()
    for _ in range(3):
        assert healthy.run().status in (4, 6)
    healthy.assert_enforces("1.1.0")
    assert healthy.status()["bundles"][0]["good"] == "1.1.0"


@pytest.mark.everything
def test_killed_stopped_and_dry_runs_do_not_count(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", doomed(2, SLOW))
    assert healthy.run().status == 6
    assert healthy.run("--noop").status == 0
    assert cut_short(healthy).status == -signal.SIGKILL
    assert cut_short(healthy, by=signal.SIGTERM).status == 143
    assert healthy.puller("disable", "--reason", "TICKET-7").status == 0
    assert healthy.run().status == 20
    assert healthy.puller("enable").status == 0
    assert trials(healthy)["web"]["failed"] == 1
    outcome = healthy.run("--offline")
    assert outcome.status == 7
    healthy.assert_told("resources failed in 2 consecutive runs", outcome)
    healthy.assert_enforces("1.0.0")


@pytest.mark.everything
def test_every_version_has_a_count_of_its_own(healthy: Host, publisher: Publisher) -> None:
    for version in ("1.1.0", "1.2.0"):
        publisher.publish(version, doomed(2))
        assert healthy.run().status in (4, 6)
        healthy.assert_enforces(version)
    assert healthy.run().status == 7
    healthy.assert_enforces("1.0.0")
    assert quarantined(healthy) == ["1.2.0"]


@pytest.mark.everything
def test_cleared_version_is_counted_from_zero(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", doomed(2))
    assert [healthy.run().status for _ in range(2)] == [6, 7]
    assert healthy.puller("quarantine", "clear", "web").status == 0
    assert [healthy.run().status for _ in range(2)] == [6, 7]
    healthy.assert_enforces("1.0.0")


@pytest.mark.everything
def test_failures_abandon_nothing_without_a_good_bundle(host: Host, publisher: Publisher) -> None:
    for version in ("1.0.0", "1.1.0"):
        publisher.publish(version, doomed(1))
        for _ in range(2):
            assert host.run().status in (4, 6)
        host.assert_enforces(version)
    assert quarantined(host) == []
    (host.machine / "cure").touch()
    assert host.run().status == 0


@pytest.mark.everything
def test_an_operator_who_rolls_back_ends_the_count(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", doomed(3))
    assert healthy.run().status == 6
    assert healthy.puller("rollback", "web").status == 0
    healthy.assert_enforces("1.0.0")
    assert trials(healthy) == {}


@pytest.mark.everything
def test_pinned_version_is_abandoned_and_reported(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", doomed(1))
    publisher.publish("1.2.0", checked(0))
    assert healthy.puller("pin", "web", "1.1.0").status == 0
    assert healthy.run().status == 7
    healthy.assert_enforces("1.0.0")
    assert healthy.run().status == 20
    assert healthy.puller("unpin", "web").status == 0
    assert healthy.run().status == 0
    healthy.assert_enforces("1.2.0")


def test_failure_of_the_machine_has_its_exit_status(healthy: Host, publisher: Publisher) -> None:
    (healthy.machine / "cure").touch()
    publisher.publish("1.1.0", doomed(1))
    assert healthy.run().status == 0
    (healthy.machine / "cure").unlink()
    publisher.publish("1.2.0", doomed(1))
    outcome = healthy.run()
    assert outcome.status == 8
    healthy.assert_told("web: rolled back to 1.1.0, but resources or health checks still fail", outcome)
    assert quarantined(healthy) == ["1.2.0"]
