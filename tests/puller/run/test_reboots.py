"""Reboots of a host: requested by a resource, at the end of a run, within windows, and once for each reason."""

import contextlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from foundation.problems import ProblemCode
from puller.errors import ManifestError
from puller.resources.reboots.machine import Machine
from puller.resources.reboots.schedule import Share, slot_of
from puller.run import reboots
from puller.run.agent import Agent
from puller.state import only_run
from puller.system.commands import Command, Completed
from tests.puller.conftest import Load
from tests.support.stories import Host, Publisher
from tests.support.sweeps import Sweep, killed_before

NOW = datetime(2026, 11, 28, 1, 0, tzinfo=UTC)
RULES = "when: required, min_uptime: 0s, delay: 5m"
REQUIRED = "resources: [{reboot: [{updates: {" + RULES + "}}]}]\n"


class FakeMachine:
    """A machine of files, whose shutdown(8) only records the restart."""

    def __init__(self, root: Path) -> None:
        self.root, self.now, self.boots = root, NOW, 0
        self.calls: list[list[str]] = []
        self.log = root.with_name("calls")
        """The same calls in a file, also of processes that were killed."""
        self.restarts: list[datetime] = []
        self.refuses = False
        self.needs_restarting = (0, "No core libraries or services have been updated since boot-up.\n")
        """Exit status and output of needs-restarting(1)."""
        for name in (
            "proc/1",
            "proc/sys/kernel/random",
            "run/systemd/system",
            "run/systemd/shutdown",
            "boot",
        ):
            (root / name).mkdir(parents=True)
        (root / "proc/1/stat").write_text("1 (systemd) S " + "0 " * 18 + "0 0\n")
        (root / "proc/sys/kernel/osrelease").write_text("6.1.0-26-amd64\n")
        self.install_kernel("6.1.0-26-amd64")
        self.boot()

    def boot(self) -> None:
        """Restart the machine: a new boot, and an empty /run."""
        self.boots += 1
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"boot-{self.boots}\n")
        (self.root / "proc/uptime").write_text("100000.0 0.0\n")
        for name in ("reboot-required", "reboot-required.pkgs", "systemd/shutdown/scheduled"):
            (self.root / "run" / name).unlink(missing_ok=True)

    def require(self, package: str = "libc6") -> None:
        (self.root / "run/reboot-required").touch()
        (self.root / "run/reboot-required.pkgs").write_text(f"{package}\n")

    def install_kernel(self, release: str) -> None:
        (self.root / "lib/modules" / release).mkdir(parents=True)
        (self.root / f"boot/vmlinuz-{release}").touch()

    @property
    def scheduled(self) -> Path:
        return self.root / "run/systemd/shutdown/scheduled"

    def execute(self, command: Command) -> Completed:
        words = [*command.arguments]
        if "needs-restarting" in words:
            status, printed = self.needs_restarting
            return Completed(status, None, False, printed, "", 0.0)
        assert words[0] == "shutdown", words
        self.calls.append(words)
        with self.log.open("a") as log:
            log.write(f"{words}\n")
        if self.refuses:
            return Completed(1, None, False, "", "Access denied", 0.0)
        if words[1] == "-c":
            self.scheduled.unlink()
        else:
            at = self.now + timedelta(minutes=0 if words[2] == "now" else int(words[2]))
            self.restarts.append(at)
            if at > self.now:
                self.scheduled.write_text(f"USEC={int(at.timestamp() * 1e6)}\nMODE=reboot\n")
        return Completed(0, None, False, "", "", 0.0)

    def machine(self) -> Machine:
        return Machine(self.root, self.execute, 0)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    machine = FakeMachine(tmp_path / "root")
    monkeypatch.setattr(reboots, "this_machine", machine.machine)
    monkeypatch.setattr(reboots, "current_time", lambda: machine.now)
    return machine


def pending(host: Host) -> list[dict[str, Any]]:
    return [{"state": "waiting", **item} for item in host.report().get("reboots", [])]


def test_required_reboot_is_scheduled_once(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    publisher.publish("1.0.0", REQUIRED)
    assert host.run().status == 0
    assert host.states()["reboot#updates"] == "stable"
    assert not fake.calls
    fake.require()
    outcome = host.run()
    assert outcome.status == 0, outcome.output
    assert fake.calls == [["shutdown", "-r", "+5"]]
    assert host.states()["reboot#updates"] == "changed"
    assert pending(host)[0]["reasons"] == ["/run/reboot-required (libc6)"]
    assert host.run().status == 0
    assert host.states()["reboot#updates"] == "stable"
    assert pending(host)[0]["state"] == "scheduled"
    for command in ("status", "check"):
        assert "reboot#updates: a reboot is due" in host.puller(command).output
        result = json.loads(host.puller(command, "--format", "json").output)
        assert result["reboots"][0]["state"] == "scheduled"
    fake.boot()
    for command in ("status", "check"):  # also before the first run after the boot
        assert "reboot#updates" not in host.puller(command).output
    assert host.run().status == 0
    assert not pending(host)
    assert len(fake.calls) == 1


def test_dry_run_predicts_the_reboot(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    publisher.publish("1.0.0", REQUIRED)
    fake.require()
    assert "would" in host.run("--noop").output.lower()
    assert not (host.state / "reboots.json").exists()
    assert not fake.calls


def test_newer_kernel_requires_a_reboot(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    publisher.publish("1.0.0", REQUIRED)
    fake.install_kernel("6.1.0-9-amd64")
    fake.install_kernel("6.1.0-99-rt-amd64")
    host.run()
    assert not fake.calls
    fake.install_kernel("6.1.0-28-amd64")
    host.run()
    assert pending(host)[0]["reasons"] == [
        "kernel 6.1.0-28-amd64 is installed, and 6.1.0-26-amd64 is running"
    ]


UPDATED = """\
Core libraries or services have been updated since boot-up:
  * glibc
  * systemd

Reboot is required to fully utilize these updates.
More information: https://access.redhat.com/solutions/27943
"""


@pytest.mark.parametrize("program", ["needs-restarting", "dnf"])
def test_updated_packages_of_dnf_require_a_reboot(
    host: Host, publisher: Publisher, fake: FakeMachine, program: str
) -> None:
    publisher.publish("1.0.0", REQUIRED)
    (fake.root / "usr/bin").mkdir(parents=True)
    (fake.root / "usr/bin" / program).touch()
    host.run()
    assert not fake.calls
    fake.needs_restarting = (1, UPDATED)
    assert host.run().status == 0
    assert pending(host)[0]["reasons"] == ["updated packages (glibc, systemd)"]
    assert len(fake.calls) == 1
    fake.boot()
    fake.needs_restarting = (0, "Reboot should not be necessary.\n")
    assert host.run().status == 0
    assert not pending(host)


def test_missing_needs_restarting_is_a_failure(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    publisher.publish("1.0.0", REQUIRED)
    (fake.root / "usr/bin").mkdir(parents=True)
    (fake.root / "usr/bin/dnf").touch()
    fake.needs_restarting = (1, "No such command: needs-restarting. Please use /usr/bin/dnf --help\n")
    outcome = host.run()
    assert outcome.status == 4
    assert "install dnf-utils" in outcome.output
    assert not fake.calls


def test_remaining_reason_fails_without_a_loop(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    publisher.publish("1.0.0", REQUIRED)
    fake.install_kernel("6.1.0-28-amd64")
    host.run()
    fake.boot()  # the boot loader starts the old kernel
    for _ in range(3):
        assert host.run().status == 4
        (event,) = host.report()["bundles"][0]["events"]
        assert event["problems"][0]["code"] == ProblemCode.REASON_REMAINS
    assert len(fake.calls) == 1
    fake.install_kernel("6.1.0-30-amd64")
    assert host.run().status == 0
    assert len(fake.calls) == 2


def test_cancelled_reboot_waits_for_a_day(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    publisher.publish("1.0.0", REQUIRED)
    fake.require()
    host.run()
    fake.scheduled.unlink()
    fake.now += timedelta(minutes=30)
    host.run()
    assert pending(host)[0]["state"] == "cancelled"
    assert len(fake.calls) == 1
    fake.now += timedelta(days=1)
    host.run()
    assert len(fake.calls) == 2


def test_refused_shutdown_is_repeated(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    publisher.publish("1.0.0", REQUIRED)
    fake.require()
    fake.refuses = True
    outcome = host.run()
    assert outcome.status == 4
    assert "Access denied" in outcome.output
    fake.refuses = False
    assert host.run().status == 0
    assert len(fake.calls) == 2


def test_package_manager_is_never_interrupted(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    publisher.publish("1.0.0", REQUIRED)
    fake.require()
    lock = fake.root / "var/lib/dpkg/lock"
    lock.parent.mkdir(parents=True)
    lock.touch()

    take = f"import fcntl; f = open({str(lock)!r}, 'w'); fcntl.lockf(f, fcntl.LOCK_EX)"
    code = f"{take}; print('locked', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        host.run()
        assert not fake.calls
        assert "package manager" in pending(host)[0]["waits_for"]
        holder.communicate(b"\n")
    host.run()
    assert len(fake.calls) == 1


def test_trial_lasts_until_after_the_boot(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    publisher.publish("1.0.0", REQUIRED)
    host.run()
    publisher.publish("1.1.0", REQUIRED)
    fake.require()
    assert "on trial until a run in order after the next boot" in host.run().output
    host.run()
    assert host.status()["bundles"][0]["good"] == "1.0.0"
    fake.boot()
    host.run()
    assert host.status()["bundles"][0]["good"] == "1.1.0"


def test_disabled_host_is_not_restarted(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    publisher.publish("1.0.0", REQUIRED)
    host.run()
    fake.require()
    host.puller("disable", "--reason", "work")
    host.run()
    assert not fake.calls


def test_run_without_reboot_leaves_it_to_the_next(
    host: Host, publisher: Publisher, fake: FakeMachine
) -> None:
    publisher.publish("1.0.0", REQUIRED)
    fake.require()
    outcome = host.run("--no-reboot")
    assert outcome.status == 0
    assert not fake.calls
    assert host.states()["reboot#updates"] == "stable"
    for command in ("status", "check"):
        assert "a reboot is due" in host.puller(command).output
        assert "for a run without --no-reboot" in host.puller(command).output
    host.run()
    assert fake.calls == [["shutdown", "-r", "+5"]]


def test_five_hosts_restart_two_at_a_time(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    window = "windows: [{from: '01:00', to: '05:00'}]"
    rules = f"{RULES}, {window}, share: 40%, duration: 15m, number: NUMBER"
    restarts: list[datetime] = []
    for number in range(5):
        text = rules.replace("NUMBER", str(number))
        publisher.publish(f"1.{number}.0", "resources: [{reboot: [{updates: {" + text + "}}]}]\n")
        fake.now, fake.restarts = NOW - timedelta(minutes=60), []
        host.run()
        assert not pending(host)
        kernel = f"6.1.0-{27 + number}-amd64"  # the tree gets a kernel update, as by the package manager
        fake.install_kernel(kernel)
        while not fake.restarts and fake.now < NOW + timedelta(hours=6):
            host.run()
            fake.now += timedelta(minutes=30)
        restarts += fake.restarts
        assert kernel in pending(host)[0]["reasons"][0]
        (fake.root / "proc/sys/kernel/osrelease").write_text(f"{kernel}\n")
        fake.boot()
        host.run()
        assert not pending(host)
    assert len(restarts) == 5
    ends = [at + timedelta(minutes=15) for at in restarts]
    assert min(restarts) >= NOW
    assert max(ends) <= NOW + timedelta(hours=4)
    for at in restarts:
        assert sum(start <= at < end for start, end in zip(restarts, ends, strict=True)) <= 2


def test_disabling_cancels_a_scheduled_reboot(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    publisher.publish("1.0.0", REQUIRED)
    fake.require()
    host.run()
    outcome = host.puller("disable", "--reason", "work")
    assert outcome.status == 0
    assert "the reboot scheduled for 2026-11-28 01:05 UTC is cancelled" in outcome.output
    assert fake.calls[-1] == ["shutdown", "-c"]
    host.puller("disable", "--reason", "work")
    assert len(fake.calls) == 2


def test_killed_run_requests_the_reboot_again(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    publisher.publish("1.0.0", REQUIRED)
    fake.require()
    host.run()
    path = host.state / "reboots.json"
    record = json.loads(path.read_bytes())
    del fake.calls[:]
    fake.scheduled.unlink()
    record["request"]["is_scheduled"] = False  # the record before shutdown(8)
    path.write_text(json.dumps(record))
    assert host.run().status == 0
    assert fake.calls == [["shutdown", "-r", "+5"]]


def test_other_run_is_never_interrupted(
    host: Host, publisher: Publisher, fake: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish("1.0.0", REQUIRED)
    host.run()
    fake.require()
    with contextlib.ExitStack() as other:
        monkeypatch.setattr(
            Agent, "_send", lambda *_: other.enter_context(only_run(Path(host.settings["run_directory"])))
        )
        outcome = host.run()
    assert outcome.status == 0
    assert "another run is active, which decides about the reboot" in outcome.output
    assert not fake.calls
    monkeypatch.undo()
    monkeypatch.setattr(reboots, "this_machine", fake.machine)
    monkeypatch.setattr(reboots, "current_time", lambda: fake.now)
    host.run()
    assert fake.calls == [["shutdown", "-r", "+5"]]


def test_newer_decision_of_another_run_counts(
    host: Host, publisher: Publisher, fake: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish("1.0.0", REQUIRED)
    host.run()
    fake.require()
    send = Agent._send
    runs = iter([host.run])

    def send_slowly(agent: Agent, delivery: Any) -> None:
        for run in runs:
            run()
        send(agent, delivery)

    monkeypatch.setattr(Agent, "_send", send_slowly)
    outcome = host.run()
    assert "another run has decided about the reboot" in outcome.output
    assert fake.calls == [["shutdown", "-r", "+5"]]
    record = json.loads((host.state / "reboots.json").read_bytes())
    assert record["request"]["is_scheduled"]
    assert record["pending"][0]["state"] == "scheduled"


@pytest.mark.everything
@pytest.mark.parametrize("remains", [False, True])
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.sample(1)
def test_killed_run_reboots_once_for_a_reason(
    host: Host, publisher: Publisher, fake: FakeMachine, sweep: Sweep, tmp_path: Path, remains: bool
) -> None:
    publisher.publish("1.0.0", REQUIRED)
    host.run()
    if remains:
        fake.install_kernel("6.1.0-28-amd64")  # the boot loader starts the old kernel
    else:
        fake.require()
    places = {host.state: tmp_path / "kept-state", fake.root: tmp_path / "kept-root"}
    for place, kept in places.items():
        shutil.copytree(place, kept, symlinks=True)

    def is_killed_at(number: int) -> bool:
        for place, kept in places.items():
            shutil.rmtree(place)
            shutil.copytree(kept, place, symlinks=True)
        fake.log.write_text("")
        was_killed = killed_before(number, host.run)
        host.run()
        assert fake.scheduled.exists()
        fake.boot()
        for _ in range(2):
            outcome = host.run()
            assert outcome.status == (4 if remains else 0), outcome.output
        assert fake.log.read_text() == "['shutdown', '-r', '+5']\n"
        return was_killed

    assert sweep(is_killed_at) > 20


def test_reboot_comes_after_other_resources(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    owned = 'content: x, mode: "0644", owner: "{{ facts.uid }}", group: "{{ facts.gid }}"'
    file = '{file: [{"{{ facts.machine }}/made": {' + owned + "}}]}"
    text = REQUIRED.replace("]}]\n", "]}, " + file + "]\n")
    publisher.publish("1.0.0", text)
    host.machine.mkdir()
    host.run()
    assert [*host.states()] == ["file#made", "reboot#updates"]


def test_subscribed_change_requires_a_reboot(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    name = "{{ facts.machine }}/conf"
    text = (
        "resources:\n"
        "  - file: [{NAME: {content: TEXT, owner: '{{ facts.uid }}', group: '{{ facts.gid }}', mode: '0644'}}]\n"
        "  - reboot: [{conf: {subscribe: ['file#NAME'], min_uptime: 2d, max_uptime: 9d}}]\n"
    ).replace("NAME", name)
    text = text.replace(f"[{{{name}:", f"[{{'{name}':")
    publisher.publish("1.0.0", text.replace("TEXT", "one"))
    host.machine.mkdir()
    outcome = host.run()
    assert host.states()["reboot#conf"] == "refreshed", outcome.output
    assert pending(host)[0]["state"] == "waiting"
    assert host.run().status == 0
    assert host.states()["reboot#conf"] == "stable"
    assert "a reboot is due" in host.puller("status").output
    (fake.root / "proc/uptime").write_text("200000.0 0.0\n")
    host.run()
    assert len(fake.calls) == 1
    fake.boot()
    host.run()
    assert not pending(host)


def test_reboot_waits_for_the_window_of_its_host(host: Host, publisher: Publisher, fake: FakeMachine) -> None:
    text = RULES + ", windows: [{from: '03:00', to: '04:00'}]"
    publisher.publish("1.0.0", "resources: [{reboot: [{updates: {" + text + "}}]}]\n")
    fake.require()
    host.run()
    assert not fake.calls
    assert pending(host)[0] == {
        "resource": "reboot#updates",
        "reasons": ["/run/reboot-required (libc6)"],
        "since": "2026-11-28T01:00:00+00:00",
        "state": "waiting",
        "at": "2026-11-28T03:00:00+00:00",
    }
    fake.now = NOW + timedelta(hours=2, minutes=50)  # too late for a reboot of 15 minutes
    host.run()
    assert not fake.calls
    fake.now = NOW + timedelta(days=1, hours=1, minutes=30)
    host.run()
    assert fake.restarts == [NOW + timedelta(days=1, hours=2)]


def test_hashed_slots_spread_a_fleet() -> None:
    share = Share.parse("20%")
    slots = Counter(slot_of(f"web{number}.example.com", None, share) for number in range(2000))
    assert set(slots) == set(range(share.slots))
    assert max(slots.values()) <= 2000 * 0.22


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ("{min_uptime: 1d}", "when"),
        ("{when: required, number: 3}", "share"),
        ("{when: required, delay: 90s}", "delay"),
        ("{when: required, message: -c}", "message"),
        ("{when: required, share: 200%}", "share"),
        ("{when: required, windows: [{from: 800}]}", "windows"),
        ("{when: required, windows: [{from: '01:00', to: '02:00'}], share: 10%}", "windows"),
    ],
)
def test_impossible_reboots_are_rejected(load: Load, properties: str, name: str) -> None:
    with pytest.raises(ManifestError) as error:
        load("resources: [{reboot: [{x: " + properties + "}]}]")
    assert name in {problem.property for problem in error.value.problems}
