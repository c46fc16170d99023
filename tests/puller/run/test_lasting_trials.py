"""A version on trial must be in order in several runs, for a time, before it becomes the last good one."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from bundles.format.release import DEFAULT_DURATION, Requirement, Runs, TrialRule, requirement_of
from bundles.store.store import Store
from foundation.problems import ProblemCode
from foundation.times import Duration
from puller.run import judging
from puller.run.trials import Moment, Trial, Trials
from puller.state import Directories
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem
from tests.puller.conftest import Load
from tests.puller.run.test_health_gate import checked, quarantined, trials
from tests.support.stories import Host, Publisher
from tests.support.sweeps import Sweep, killed_before

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
TWO_RUNS = "trial: {duration: 0s, runs: 2}\n"
TEN_MINUTES = "trial: {duration: 10m}\n"


@pytest.fixture
def lasting(host: Host, publisher: Publisher) -> Host:
    """Return a host on which 1.0.0 has passed. Trials of later versions last as their manifests state."""
    publisher.publish("1.0.0", checked(0))
    assert host.run().status == 0
    assert host.status()["bundles"][0]["good"] == "1.0.0"
    host.lasting_trials = True
    host.configure()
    return host


def versions(host: Host) -> tuple[str, str | None, bool]:
    """Return the enforced version, the last good one, and whether a trial is open."""
    bundle = host.status()["bundles"][0]
    return bundle["enforced"], bundle["good"], "trial" in bundle


def end_the_time(host: Host) -> None:
    """Let the time of an open trial be over, by the clock of the day, as after a restart of the machine."""
    path = host.state / "journal.json"
    record = json.loads(path.read_bytes())
    record["trials"]["web"] |= {
        "in_order_since": "2026-01-01T00:00:00Z",
        "in_order_boot": "an earlier boot",
        "until": "2026-01-01T00:10:00Z",
    }
    path.write_text(json.dumps(record))


def break_the_check(host: Host, code: int = 2) -> None:
    (host.machine / "health").write_text(f"{code}\n")


# The rule.


@pytest.mark.parametrize(
    ("rules", "has_checks", "required"),
    [
        ([], False, (0, 1)),
        ([], True, (DEFAULT_DURATION, 1)),
        ([None, TrialRule(Duration(60))], True, (60, 1)),
        ([TrialRule(runs=Runs(3)), TrialRule(Duration(60), Runs(2))], False, (60, 3)),
        ([TrialRule(Duration(0)), TrialRule(Duration(60), Runs(2))], True, (0, 2)),
    ],
)
def test_each_key_comes_from_the_first_rule(
    rules: list[TrialRule | None], has_checks: bool, required: tuple[float, int]
) -> None:
    assert requirement_of(*rules, has_health_checks=has_checks) == required


def trial_of(*moments: tuple[float, float, str], runs: int = 1) -> list[tuple[bool, float]]:
    """Return whether a trial of ten minutes is over after each attempt, and the minutes until its end.

    A moment has the minutes of the clock of the day, the minutes since the boot, and the identity of the boot.
    """
    trial, ends = Trial("1.1.0", "0" * 64, "", {}), []
    for clock, uptime, boot in moments:
        now = NOW + timedelta(minutes=clock)
        trial = trial.continued(Requirement(600, runs), Moment(now, boot, uptime * 60))
        assert trial.until is not None
        ends.append((trial.is_over(now), (trial.until - now) / timedelta(minutes=1)))
    return ends


def test_a_trial_is_over_after_its_time_and_its_runs() -> None:
    ends = trial_of(*((minutes, 100 + minutes, "a") for minutes in (0, 5, 9, 10, 20)), runs=3)
    assert [is_over for is_over, _ in ends] == [False, False, False, True, True]
    ends = trial_of((0, 100, "a"), (10, 110, "a"), (11, 111, "a"), runs=3)
    assert [is_over for is_over, _ in ends] == [False, False, True]


YEAR = 366 * 24 * 60.0


@pytest.mark.parametrize("jump", [YEAR, -YEAR, 10, -1])
def test_a_clock_that_jumps_does_not_change_a_trial(jump: float) -> None:
    ends = trial_of((0, 100, "a"), (jump + 4, 104, "a"), (jump + 9, 109, "a"), (jump + 10, 110, "a"))
    assert ends == [(False, 10), (False, 6), (False, 1), (True, 0)]


def test_time_before_and_after_a_boot_counts() -> None:
    ends = trial_of((0, 100, "a"), (4, 1, "b"), (9, 6, "b"), (10, 7, "b"))
    assert ends == [(False, 10), (False, 6), (False, 1), (True, 0)]


def test_a_clock_that_is_set_back_after_a_boot_counts() -> None:
    ends = trial_of((0, 100, "a"), (4, 1, "b"), (-YEAR, 2, "b"), (7 - YEAR, 9, "b"))
    assert ends == [(False, 10), (False, 6), (False, 5), (True, -2)]


def test_a_clock_that_went_back_at_a_boot_begins_again() -> None:
    ends = trial_of((0, 100, "a"), (-YEAR, 1, "b"), (9 - YEAR, 10, "b"), (10 - YEAR, 11, "b"))
    assert ends == [(False, 10), (False, 10), (False, 1), (True, 0)]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("trial: 10m", "trial is '10m', expected a mapping"),
        ("trial: {duration: soon}", "duration is 'soon', expected a duration"),
        ("trial: {runs: 0}", "runs is 0, expected a number of runs from 1 to 10000"),
        ("trial: {runs: two}", "runs is 'two', expected a number of runs"),
        ("trial: {times: 2}", "times is not a key of trial"),
    ],
)
def test_a_wrong_rule_is_refused(host: Host, publisher: Publisher, written: str, message: str) -> None:
    publisher.publish("1.0.0", f"{written}\n{checked(0)}")
    outcome = host.run()
    assert outcome.status == 13
    assert message in outcome.output
    host.lasting_trials = True
    host.configure(bundles=[{"name": "web", **yaml.safe_load(written)}])
    outcome = host.puller("config", "check")
    assert outcome.status == 78
    assert message in outcome.output


SERVICE = """\
resources:
  - service:
      - app: {ensure: running, health_checks: [{name: answers, command: "sh -c 'exit 2'"}]}
"""
Judge = Callable[..., str]


class Systemd(LocalSystem):
    """A machine on which systemd describes the service ``app``."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__()
        self.fields = fields

    def query(self, command: Command) -> Completed:
        if "--" not in command.arguments:
            return super().query(command)
        names = command.arguments[command.arguments.index("--") + 1 :]
        blocks = [self.fields if name == "app" else {"Id": name, "LoadState": "loaded"} for name in names]
        text = "\n\n".join("\n".join(f"{key}={value}" for key, value in block.items()) for block in blocks)
        return Completed(0, None, False, f"{text}\n", "", 0.0)


@pytest.fixture
def judge(load: Load, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Return a function that looks at a service between two runs, and returns the failure."""
    declarations = load(SERVICE).declarations

    def look(shown: dict[str, str], restarts: dict[str, int], *, is_new_boot: bool = False) -> str:
        running = {
            "ActiveState": "active",
            "SubState": "running",
            "NRestarts": "0",
            "UnitFileState": "enabled",
        }
        fields = {"Id": "app.service", "LoadState": "loaded", **running, **shown}
        monkeypatch.setattr(judging, "show_units", lambda names, properties: [fields])
        return judging.find_failure_between_runs(
            declarations, {}, restarts, Systemd(fields), is_new_boot=is_new_boot
        )

    return look


@pytest.mark.parametrize(
    ("before", "now", "times"),
    [
        (0, 0, ""),
        (3, 3, ""),
        (0, 1, "1 time"),
        (3, 5, "2 times"),
        (3, 0, ""),  # started by hand, which sets the count to 0
        (3, 2, "2 times"),
        (None, 4, ""),  # the last run did not start it
    ],
)
def test_restarts_by_systemd_are_failures(judge: Judge, before: int | None, now: int, times: str) -> None:
    why = judge({"NRestarts": str(now)}, {} if before is None else {"app": before})
    assert (f"service#app: systemd has restarted it {times} since the last run" in why) is bool(times)
    assert ("systemd has restarted" in why) is bool(times)


STOPPED = {"ActiveState": "inactive", "SubState": "dead"}


@pytest.mark.parametrize(
    ("shown", "is_new_boot", "is_failure"),
    [
        ({}, False, False),
        (STOPPED, False, True),
        ({**STOPPED, "UnitFileState": "disabled"}, False, True),
        # After a boot, Puller starts a service that does not start at boot.
        ({**STOPPED, "UnitFileState": "disabled"}, True, False),
        (STOPPED, True, True),
        ({"ActiveState": "failed", "UnitFileState": "disabled"}, True, True),
        # systemd is starting it.
        ({**STOPPED, "Job": "17"}, True, False),
        ({"ActiveState": "activating", "SubState": "start"}, False, False),
        ({"ActiveState": "activating", "SubState": "auto-restart"}, True, True),
    ],
)
def test_a_starting_service_is_no_failure(
    judge: Judge, shown: dict[str, str], is_new_boot: bool, is_failure: bool
) -> None:
    why = judge(shown, {"app": 0}, is_new_boot=is_new_boot)
    assert ("health check keeps running: CRITICAL" in why) is is_failure, why
    # The health checks of the version say something about it only if nothing is starting.
    assert ("health check answers" in why) is (not shown or is_failure)


def test_restarts_are_counted_anew_after_a_boot(tmp_path: Path) -> None:
    trials = Trials(Directories(tmp_path, tmp_path), pytest.fail, noop=True, boot="second")
    trial = Trial("1.1.0", "0" * 64, "", {}, restarts={"app": 3})
    for boot, counts in {"second": {"app": 3}, "first": {"app": 0}}.items():
        assert trials.restarts(replace(trial, in_order_boot=boot)) == counts


# Runs.


def test_a_bundle_with_checks_passes_after_five_minutes(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", checked(0))
    outcome = lasting.run()
    assert outcome.status == 0
    assert "web 1.1.0 is on trial until a run after " in outcome.output
    assert versions(lasting) == ("1.1.0", "1.0.0", True)
    trial = lasting.report()["bundles"][0]["trial"]
    lasts = datetime.fromisoformat(trial["until"]) - datetime.fromisoformat(trial["since"])
    assert timedelta(minutes=5) <= lasts < timedelta(minutes=6)
    assert lasting.run().status == 0
    assert versions(lasting) == ("1.1.0", "1.0.0", True)
    end_the_time(lasting)
    assert lasting.run().status == 0
    assert versions(lasting) == ("1.1.0", "1.1.0", False)
    assert "trial" not in lasting.report()["bundles"][0]


def test_a_bundle_without_checks_passes_in_its_first_run(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0")
    assert lasting.run().status == 0
    assert versions(lasting) == ("1.1.0", "1.1.0", False)


def test_a_bundle_passes_after_its_number_of_runs(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", TWO_RUNS + checked(0))
    assert "web 1.1.0 is on trial" in lasting.run().output
    assert versions(lasting) == ("1.1.0", "1.0.0", True)
    assert lasting.run().status == 0
    assert versions(lasting) == ("1.1.0", "1.1.0", False)


def test_the_configuration_decides_before_the_manifest(lasting: Host, publisher: Publisher) -> None:
    lasting.configure(bundles=[{"name": "web", "trial": {"runs": 1}}])
    publisher.publish("1.1.0", TWO_RUNS + checked(0))
    assert lasting.run().status == 0
    assert versions(lasting) == ("1.1.0", "1.1.0", False)


def test_the_release_decides_before_the_manifest(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", "trial: {duration: 0s}\n" + checked(0), trial=TrialRule(runs=Runs(3)))
    assert "web 1.1.0 is on trial until 2 runs in order, the last one after" in lasting.run().output
    # A run without the site, and a pin to the same version, keep the rule.
    lasting.run("--offline")
    assert versions(lasting) == ("1.1.0", "1.0.0", True)
    assert lasting.puller("pin", "web", "1.1.0").status == 0
    assert lasting.run().status == 0
    assert versions(lasting) == ("1.1.0", "1.1.0", False)


def test_the_configuration_decides_before_the_release(lasting: Host, publisher: Publisher) -> None:
    lasting.configure(bundles=[{"name": "web", "trial": {"runs": 1}}])
    publisher.publish("1.1.0", TWO_RUNS + checked(0), trial=TrialRule(runs=Runs(3)))
    assert lasting.run().status == 0
    assert versions(lasting) == ("1.1.0", "1.1.0", False)


def test_a_publisher_shortens_and_extends_a_running_trial(lasting: Host, publisher: Publisher) -> None:
    manifest = TEN_MINUTES + checked(0)
    publisher.publish("1.1.0", manifest)
    lasting.run()
    publisher.publish("1.1.0", manifest, trial=TrialRule(Duration(0), Runs(3)))
    lasting.run()
    assert versions(lasting) == ("1.1.0", "1.0.0", True)
    publisher.publish(
        "1.1.0", manifest, trial=TrialRule(runs=Runs(2))
    )  # the time of the manifest counts again
    assert "on trial until a run after" in lasting.run().output
    publisher.publish("1.1.0", manifest, trial=TrialRule(Duration(0)))
    lasting.run()
    assert versions(lasting) == ("1.1.0", "1.1.0", False)


@pytest.mark.everything
def test_rule_of_a_release_survives_a_failed_first_run(lasting: Host, publisher: Publisher) -> None:
    fails = "  - exec: [{\"sh -c '! test -e {{ facts.machine }}/broken'\": {}}]\n"
    (lasting.machine / "broken").touch()
    publisher.publish("1.1.0", checked(0) + fails, trial=TrialRule(Duration(0), Runs(2)))
    assert lasting.run().status in (4, 6)
    (lasting.machine / "broken").unlink()
    lasting.run("--offline")
    assert versions(lasting) == ("1.1.0", "1.0.0", True)
    lasting.run("--offline")
    assert versions(lasting) == ("1.1.0", "1.1.0", False)


def test_a_failure_between_two_runs_rolls_back(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", TEN_MINUTES + checked(0))
    assert lasting.run().status == 0
    break_the_check(lasting)  # the next run would repair it
    outcome = lasting.run()
    assert outcome.status == 7
    assert "web: 1.1.0 is given up: the trial has failed between two runs: file#" in outcome.output
    assert lasting.problem_codes() == {ProblemCode.ROLLED_BACK}
    assert quarantined(lasting) == ["1.1.0"]
    assert versions(lasting) == ("1.0.0", "1.0.0", False)
    assert (lasting.machine / "motd").read_text() == "Hello from 1.0.0\n"
    given_up = lasting.report()["bundles"][0]["given_up"]
    assert (given_up["version"], given_up["outcome"][:8]) == ("1.1.0", "given up")
    assert lasting.run().status == 20
    assert quarantined(lasting) == ["1.1.0"]


@pytest.mark.everything
def test_a_failure_after_the_trial_rolls_nothing_back(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", TWO_RUNS + checked(0))
    lasting.run()
    lasting.run()
    break_the_check(lasting)
    assert lasting.run().status == 0
    assert versions(lasting) == ("1.1.0", "1.1.0", False)
    assert (lasting.machine / "health").read_text() == "0\n"


def test_a_dry_run_between_two_runs_changes_no_trial(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", TWO_RUNS + checked(0))
    lasting.run()
    before = trials(lasting)
    break_the_check(lasting)
    outcome = lasting.run("--noop")
    assert "web: 1.1.0 would be given up: the trial has failed between two runs: file#" in outcome.output
    assert outcome.status == 0
    assert trials(lasting) == before
    assert quarantined(lasting) == []
    assert versions(lasting) == ("1.1.0", "1.0.0", True)
    assert lasting.run().status == 7
    summary = lasting.report()["bundles"][0]["summary"]
    assert f"web 1.0.0: 4 resources, 2 stable, 0 changed, {summary['changed']} would change" in outcome.output


@pytest.mark.everything
def test_failed_resources_begin_the_time_again(lasting: Host, publisher: Publisher) -> None:
    fails = "  - exec: [{\"sh -c '! test -e {{ facts.machine }}/broken'\": {}}]\n"
    publisher.publish("1.1.0", TWO_RUNS + checked(0) + fails)
    lasting.run()
    (lasting.machine / "broken").touch()
    assert lasting.run().status in (4, 6)
    assert (trials(lasting)["web"]["failed"], trials(lasting)["web"]["in_order"]) == (1, 0)
    (lasting.machine / "broken").unlink()
    lasting.run()
    assert versions(lasting) == ("1.1.0", "1.0.0", True)
    lasting.run()
    assert versions(lasting) == ("1.1.0", "1.1.0", False)


@pytest.mark.everything
def test_a_partial_run_does_not_count(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", TWO_RUNS + checked(0))
    lasting.run()
    lasting.run("--only", f"file#{lasting.machine}/motd")
    assert versions(lasting) == ("1.1.0", "1.0.0", True)
    lasting.run()
    assert versions(lasting) == ("1.1.0", "1.1.0", False)


def test_a_partial_run_does_not_hide_a_failure(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", TWO_RUNS + checked(0))
    lasting.run()
    break_the_check(lasting)
    repaired = [f"file#{lasting.machine}/{name}" for name in ("health", "app.conf")]
    outcome = lasting.run("--only", repaired[0], "--only", repaired[1])
    assert "web 1.1.0: the trial has failed between two runs: file#" in outcome.output
    assert (lasting.machine / "health").read_text() == "0\n"
    assert versions(lasting) == ("1.1.0", "1.0.0", True)
    assert lasting.run().status == 7
    assert quarantined(lasting) == ["1.1.0"]


def test_a_check_that_failed_before_the_change_does_not_count(lasting: Host, publisher: Publisher) -> None:
    own = '      - "{{ facts.machine }}/health": {content: "0\\n"}\n'
    assert own in checked(0)
    break_the_check(lasting)
    publisher.publish("1.1.0", TEN_MINUTES + checked(0).replace(own, ""))
    assert lasting.run().status in (4, 6)
    (lasting.machine / "health").write_text("0\n")
    assert lasting.run().status == 0
    break_the_check(lasting)
    assert lasting.run().status in (4, 6)
    assert quarantined(lasting) == []


def test_the_next_version_ends_a_trial(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", TEN_MINUTES + checked(0))
    lasting.run()
    publisher.publish("1.2.0", TWO_RUNS + checked(0))
    lasting.run()
    assert versions(lasting) == ("1.2.0", "1.0.0", True)
    break_the_check(lasting)
    assert lasting.run().status == 7
    assert versions(lasting) == ("1.0.0", "1.0.0", False)
    assert quarantined(lasting) == ["1.2.0"]


FAILS = "  - exec: [{\"sh -c '! test -e {{ facts.machine }}/broken'\": {}}]\n"


def test_a_trial_ends_with_a_pin_to_another_version(host: Host, publisher: Publisher) -> None:
    """A run of the pinned version fails, and the machine is in its state. That says nothing about the trial."""
    publisher.publish("1.0.0", checked(0) + FAILS)
    assert host.run().status == 0
    host.lasting_trials = True
    host.configure()
    publisher.publish("1.1.0", TEN_MINUTES + checked(0).replace("/motd", "/news") + FAILS)
    assert host.run().status == 0
    host.puller("pin", "web", "1.0.0")
    (host.machine / "broken").touch()
    assert host.run().status in (4, 6)
    assert trials(host) == {}
    break_the_check(host)
    (host.machine / "broken").unlink()
    host.puller("unpin", "web")
    assert host.run().status == 0
    assert versions(host) == ("1.1.0", "1.0.0", True)
    assert trials(host)["web"]["in_order"] == 1
    assert quarantined(host) == []


def test_a_trial_ends_when_its_bundle_leaves_the_host(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.0.0", name="second", files={}, manifest="resources: []\n")
    publisher.publish("1.1.0", TEN_MINUTES + checked(0))
    assert lasting.run().status == 0
    lasting.configure(bundles=[{"name": "second"}])
    lasting.run("--noop")
    assert "web" in trials(lasting)
    assert lasting.run().status == 0
    assert trials(lasting) == {}
    break_the_check(lasting)
    lasting.configure(bundles=[{"name": "web"}])
    assert lasting.run().status == 0
    assert versions(lasting) == ("1.1.0", "1.0.0", True)
    assert quarantined(lasting) == []


def test_without_another_version_the_run_repairs(host: Host, publisher: Publisher) -> None:
    host.lasting_trials = True
    host.configure()
    publisher.publish("1.0.0", TEN_MINUTES + checked(0))
    assert host.run().status == 0
    end_the_time(host)
    break_the_check(host)
    outcome = host.run()
    assert "No other version is available for a rollback" in outcome.output
    assert (host.machine / "health").read_text() == "0\n"
    assert versions(host) == ("1.0.0", None, True)
    end_the_time(host)
    assert host.run().status == 0
    assert versions(host) == ("1.0.0", "1.0.0", False)


# ``puller check`` between two runs.


def test_a_failure_in_puller_check_rolls_back(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", TEN_MINUTES + checked(0))
    lasting.run()
    assert lasting.puller("check").status == 0
    break_the_check(lasting)
    outcome = lasting.puller("check")
    assert outcome.status == 2
    assert "web 1.1.0 is on trial, and the next run gives it up" in outcome.output
    break_the_check(lasting, 0)  # a check that fails at times has failed
    assert "the next run gives it up: puller check: file#" in lasting.puller("status").output
    assert lasting.run().status == 7
    assert quarantined(lasting) == ["1.1.0"]


def test_puller_check_judges_nothing_after_the_trial(lasting: Host) -> None:
    break_the_check(lasting)
    outcome = lasting.puller("check")
    assert outcome.status == 2
    assert "on trial" not in outcome.output
    assert trials(lasting) == {}


def test_a_time_without_a_zone_is_damage(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", TEN_MINUTES + checked(0))
    assert lasting.run().status == 0
    path = lasting.state / "journal.json"
    path.write_text(path.read_text().replace('Z"', '"'))

    outcome = lasting.run()

    assert "journal.json" in outcome.output
    assert "trials of bundles start again" in outcome.output


SECOND = """\
resources:
  - file:
      - "{{ facts.machine }}/second":
          content: VERSION
          owner: "{{ facts.uid }}"
          group: "{{ facts.gid }}"
          mode: "0644"
          health_checks: [{command: "sh -c 'test ! -e {{ facts.machine }}/broken || exit 2'"}]
"""


@pytest.mark.everything
def test_a_bundle_is_judged_once_between_two_runs(host: Host, publisher: Publisher) -> None:
    host.lasting_trials = True
    host.configure(bundles=[{"name": "web"}, {"name": "second"}])
    publisher.publish("1.0.0", TEN_MINUTES + checked(0))
    publisher.publish("1.0.0", "trial: {duration: 0s}\n" + SECOND, name="second", files={})
    assert host.run().status == 0
    publisher.publish("1.1.0", TEN_MINUTES + SECOND, name="second", files={})
    assert host.run().status == 0
    break_the_check(host)
    (host.machine / "broken").touch()

    outcome = host.run()

    assert "second: 1.1.0 is given up" in outcome.output
    assert outcome.output.count("No other version is available for a rollback") == 1


@pytest.mark.everything
def test_a_full_disk_at_the_end_of_a_trial_loses_nothing(
    lasting: Host, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version cannot become the last good one, so the next version still has to undo its changes."""
    extra = checked(0).replace("motd", "extra")
    publisher.publish("1.1.0", TWO_RUNS + extra)
    assert lasting.run().status == 0
    assert (lasting.machine / "extra").exists()

    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(Store, "mark_good", refuse)
        for _ in range(3):
            output = lasting.run().output
            assert "no space left" in output
            assert "interrupted" not in output
    assert versions(lasting) == ("1.1.0", "1.0.0", True)
    publisher.publish("1.2.0", "give_up_after: 1\n" + checked(0) + '  - exec: [{"false": {}}]\n')
    assert lasting.run().status == 7
    assert versions(lasting) == ("1.0.0", "1.0.0", False)
    assert not (lasting.machine / "extra").exists()


WITH_A_SECRET = """\
data:
  # @sensitive
  password: new-secret
resources:
  - file:
      - "{{ facts.machine }}/secret":
          content: "{{ data.password }}"
          owner: "{{ facts.uid }}"
          group: "{{ facts.gid }}"
          mode: "0600"
  - file:
      - "{{ facts.machine }}/app":
          content: VERSION
          owner: "{{ facts.uid }}"
          group: "{{ facts.gid }}"
          mode: "0644"
          health_checks:
            - {command: "sh -c 'cat {{ facts.machine }}/secret; test ! -e {{ facts.machine }}/broken || exit 2'"}
"""


@pytest.mark.everything
def test_checks_between_two_runs_hide_an_earlier_secret(lasting: Host, publisher: Publisher) -> None:
    publisher.publish("1.1.0", TEN_MINUTES + WITH_A_SECRET, files={})
    assert lasting.run().status == 0
    (lasting.machine / "secret").write_text("old-secret")  # as before a change of the data
    (lasting.machine / "broken").touch()

    outcome = lasting.run()

    assert quarantined(lasting) == ["1.1.0"]
    assert "old-secret" not in outcome.output
    assert "old-secret" not in (lasting.state / "quarantine.json").read_text()


@pytest.mark.everything
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_killed_run_does_not_repair_a_failed_trial(
    lasting: Host, publisher: Publisher, sweep: Sweep, tmp_path: Path
) -> None:
    publisher.publish("1.1.0", TWO_RUNS + checked(0))
    assert lasting.run().status == 0
    break_the_check(lasting)
    places = {lasting.state: tmp_path / "kept-state", lasting.machine: tmp_path / "kept-machine"}
    for place, kept in places.items():
        shutil.copytree(place, kept, symlinks=True)

    def is_killed_at(number: int) -> bool:
        for place, kept in places.items():
            shutil.rmtree(place)
            shutil.copytree(kept, place, symlinks=True)
        was_killed = killed_before(number, lasting.run)
        lasting.run()
        assert quarantined(lasting) == ["1.1.0"]
        assert (lasting.state / "bundles/web/good").resolve() == (
            lasting.state / "bundles/web/current"
        ).resolve()
        assert (lasting.machine / "motd").read_text() == "Hello from 1.0.0\n"
        assert (lasting.machine / "health").read_text() == "0\n"
        assert trials(lasting) == {}
        return was_killed

    assert sweep(is_killed_at) > 20
