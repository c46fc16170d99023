"""Health checks decide about a new bundle: kept, or given up for the last good one; so do runs that are cut short."""

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

from bundles.store import Store
from puller.quarantine import Quarantine
from puller.state import Directories
from tests.conftest import Host, Outcome, Publisher

# A check whose outcome is in a file of the machine, so that a bundle, or anybody else, breaks what it looks at.
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
    """A manifest after which the check ends with ``code``."""
    return CHECKED.replace("CODE", str(code))


@pytest.fixture
def healthy(host: Host, publisher: Publisher) -> Host:
    """A host on which 1.0.0 is in force, and healthy."""
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


def test_a_bundle_that_breaks_a_check_is_given_up_for_the_last_good_one(
    healthy: Host, publisher: Publisher
) -> None:
    publisher.publish("1.1.0", checked(2))
    outcome = healthy.run()
    assert outcome.status == 7
    why = r"web: 1\.1\.0 is given up: file#\S+/app\.conf: health check app: CRITICAL: it is so"
    healthy.assert_told(why, outcome)
    healthy.assert_enforces("1.0.0")
    assert (healthy.machine / "health").read_text() == "0\n"
    assert quarantined(healthy) == ["1.1.0"]
    assert trials(healthy) == {}
    report = bundle_report(healthy)
    assert (report["version"], report["given_up"]["version"]) == ("1.0.0", "1.1.0")
    assert "CRITICAL" in report["given_up"]["outcome"]
    assert report["summary"]["failed"] == 0


def test_what_was_given_up_is_not_tried_again_and_the_next_version_is(
    healthy: Host, publisher: Publisher
) -> None:
    publisher.publish("1.1.0", checked(2))
    assert healthy.run().status == 7
    outcome = healthy.run()
    assert outcome.status == 20
    assert re.search(r"held: web 1\.1\.0 is quarantined since .*: file#.*CRITICAL", outcome.output)
    assert "changed=" not in outcome.output
    assert "web 1.1.0 is quarantined" in healthy.status()["bundles"][0]["held"]
    healthy.assert_enforces("1.0.0")

    publisher.publish("1.2.0", checked(0))
    assert healthy.run().status == 0
    healthy.assert_enforces("1.2.0")
    assert healthy.status()["bundles"][0]["good"] == "1.2.0"


@pytest.mark.parametrize("code", [1, 3])
def test_a_warning_or_an_unknown_result_gives_nothing_up(
    healthy: Host, publisher: Publisher, code: int
) -> None:
    publisher.publish("1.1.0", checked(code))
    assert healthy.run().status == 6  # the resource has failed, others were changed
    healthy.assert_enforces("1.1.0")
    assert quarantined(healthy) == []
    assert healthy.status()["bundles"][0]["good"] == "1.0.0"


def test_a_check_that_failed_before_the_change_does_not_count_against_it(
    healthy: Host, publisher: Publisher
) -> None:
    manifest = checked(0).replace('      - "{{ facts.machine }}/health": {content: "0\\n"}\n', "")
    publisher.publish("1.1.0", manifest)
    assert healthy.run().status == 0
    (healthy.machine / "health").write_text("2\n")  # the disk of the database is full, say
    publisher.publish("1.2.0", manifest)
    assert healthy.run().status == 6
    healthy.assert_enforces("1.2.0")
    assert quarantined(healthy) == []

    (healthy.machine / "health").write_text("0\n")
    assert healthy.run().status == 0
    assert healthy.status()["bundles"][0]["good"] == "1.2.0"


def test_a_check_that_breaks_while_a_bundle_is_still_on_trial_gives_it_up(
    healthy: Host, publisher: Publisher
) -> None:
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


def test_what_breaks_on_the_way_is_found_although_its_resource_was_not_reached(
    healthy: Host, publisher: Publisher
) -> None:
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


def test_the_first_bundle_of_a_host_stays_whatever_its_checks_say(host: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", checked(2))
    outcome = host.run()
    assert outcome.status == 6
    host.assert_told("there is no other bundle on this host to return to", outcome)
    host.assert_enforces("1.0.0")
    assert quarantined(host) == []


def test_when_going_back_helps_nothing_the_exit_status_says_so(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(0).replace('/health": {content: "0\\n"}', '/other": {content: "x"}'))
    assert healthy.run().status == 0
    spoil = "  - exec:\n      - spoil: {command: \"sh -c 'echo 2 > {{ facts.machine }}/health'\"}\n"
    manifest = checked(0).replace('      - "{{ facts.machine }}/health": {content: "0\\n"}\n', "")
    checks = manifest.index('      - "{{ facts.machine }}/app.conf"')
    publisher.publish("1.2.0", manifest[:checks] + spoil + "  - file:\n" + FILE_DEFAULTS + manifest[checks:])
    outcome = healthy.run()
    assert outcome.status == 8
    healthy.assert_told("web: went back to 1.1.0, and not all is well", outcome)
    healthy.assert_enforces("1.1.0")


FILE_DEFAULTS = '      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}\n'


def test_a_dry_run_puts_nothing_on_trial(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(2))
    assert healthy.run("--noop").status == 0
    healthy.assert_enforces("1.0.0")
    assert (quarantined(healthy), trials(healthy)) == ([], {})


# --- runs that are cut short ------------------------------------------------------------------------------------

SLOW = """\
  - exec:
      - wait:
          command: sh -c 'echo $PPID > begun; while [ -e block ]; do sleep 0.05; done'
          cwd: "{{ facts.machine }}"
          timeout: 60s
"""


def cut_short(host: Host, *, by: signal.Signals = signal.SIGKILL) -> Outcome:
    """A run that ends by a signal in the middle of its resources."""
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
    healthy.assert_told(r"the run that began \S+ did not come to its end", outcome)
    told = r"web 1\.1\.0: the last run was cut short while it applied it \(the process was killed\); trying it again"
    healthy.assert_told(told, outcome)
    healthy.assert_enforces("1.1.0")
    assert trials(healthy) == {}
    assert healthy.status()["bundles"][0]["good"] == "1.1.0"


def test_two_runs_in_a_row_that_were_killed_lead_back(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(0) + SLOW)
    cut_short(healthy)
    cut_short(healthy)
    outcome = healthy.run()
    assert outcome.status == 7
    why = r"web: 1\.1\.0 is given up: 2 runs in a row were cut short while they applied it, at last because the process"
    healthy.assert_told(why, outcome)
    healthy.assert_enforces("1.0.0")
    assert quarantined(healthy) == ["1.1.0"]
    assert healthy.run().status == 20


def test_a_restart_of_the_machine_is_told_from_a_killed_process(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(0) + SLOW)
    cut_short(healthy)
    journal = healthy.state / "journal.json"
    boot = trials(healthy)["web"]["boot"]
    journal.write_text(journal.read_text().replace(boot, "another boot"))
    outcome = healthy.run()
    healthy.assert_told(r"the last run was cut short while it applied it \(the machine restarted\)", outcome)


def test_a_run_that_was_asked_to_stop_was_not_cut_short(healthy: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(0) + SLOW)
    for _ in range(3):
        assert cut_short(healthy, by=signal.SIGTERM).status == 143
        assert trials(healthy)["web"]["boot"] == ""
    assert healthy.run().status == 0
    healthy.assert_enforces("1.1.0")


def test_without_a_bundle_to_return_to_a_run_that_was_cut_short_is_tried_for_ever(
    host: Host, publisher: Publisher
) -> None:
    publisher.publish("1.0.0", checked(0) + SLOW)
    host.machine.mkdir(parents=True)
    for _ in range(3):
        cut_short(host)
    assert host.run().status == 0
    host.assert_enforces("1.0.0")


def test_a_way_back_that_was_cut_short_is_gone_by_the_next_run(healthy: Host, publisher: Publisher) -> None:
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


@pytest.mark.parametrize("fails", ["puller.enforcing.apply_manifest", "os.symlink"])
def test_what_could_not_even_begin_was_not_cut_short(
    host: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    publisher.publish("1.0.0", checked(1))  # so that it is never good, and does not end the trial of another
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


def test_a_way_back_that_was_stopped_proves_nothing(host: Host, publisher: Publisher) -> None:
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


def test_when_going_back_after_killed_runs_helps_nothing_the_exit_status_says_so(
    host: Host, publisher: Publisher
) -> None:
    doomed = '  - exec:\n      - doomed: {command: "test ! -e {{ facts.machine }}/doom"}\n'
    publisher.publish("1.0.0", checked(0) + doomed)
    assert host.run().status == 0
    publisher.publish("1.1.0", checked(0) + SLOW)
    cut_short(host)
    cut_short(host)
    (host.machine / "doom").touch()
    outcome = host.run()
    assert outcome.status == 8
    host.assert_told("web: went back to 1.0.0, and not all is well", outcome)


def test_the_reason_of_a_quarantine_is_short_whatever_checks_print(
    healthy: Host, publisher: Publisher
) -> None:
    publisher.publish("1.1.0", checked(2).replace("echo it is so", "seq 100000"))
    assert healthy.run().status == 7
    (entry,) = json.loads((healthy.state / "quarantine.json").read_bytes())["bundles"]
    assert re.search(r"CRITICAL: .{200}…$", entry["reason"])
    said = bundle_report(healthy)["given_up"]["events"][-1]["health_checks"][0]["output"]
    assert said.endswith("100000")
