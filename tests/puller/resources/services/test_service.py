"""The service resource: every current state with every desired state, on a simulated systemd.

``tests/system/test_services.py`` runs the same states on a real systemd.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ResourceError
from puller.manifest.manifest import Manifest
from puller.reporting.report import State
from puller.resources.base import PropertyError, Resource
from puller.resources.services.service import Service
from puller.resources.services.systemd import Systemd, manager_of
from puller.resources.services.unit_files import UNIT_DIRECTORIES, parse_last_read
from puller.system import systemd_units
from puller.system.commands import Command, Completed
from puller.system.identity import Identity
from puller.system.local import LocalSystem
from puller.system.protocol import System
from tests.simulators import systemd as simulator

if TYPE_CHECKING:
    from tests.simulators.systemd import SimulatedSystemd, SimulatedUnit

Make = Callable[..., Resource[Any, Any]]


@pytest.fixture
def machine() -> SimulatedSystemd:
    simulated_systemd: SimulatedSystemd = simulator.SimulatedSystemd()
    return simulated_systemd


@pytest.fixture
def service(make: Make, machine: SimulatedSystemd, tmp_path: Path) -> Callable[..., Resource[Any, Any]]:
    """Return a function that makes a service on the simulated machine: ``service("plain", enable=True, …)``.

    ``others`` are the other declared services. With ``new_run``, only records of earlier runs are known.
    """
    shared: dict[type, Any] = {Systemd: {}}
    state = tmp_path / "state"

    def build(name: str, *, noop: bool = False, others: tuple[str, ...] = (), **properties: Any) -> Any:
        uncertain = properties.pop("uncertain", False)
        if properties.pop("new_run", False):
            shared[Systemd].clear()
        resource = make(Service, {"name": name, **properties}, uncertain=uncertain)
        system: System = simulator.LookingOnly(machine) if noop else machine
        names = (name, *others)
        resource.context = msgspec.structs.replace(
            resource.context,
            system=system,
            shared=shared,
            declared=lambda _: names,
            noop=noop,
            state_directory=state,
        )
        shared[Systemd].setdefault((system, ""), Systemd(resource.context, lambda: names, machine.sleep))
        return resource

    return build


def apply(resource: Resource[Any, Any], *, refresh: bool = False) -> list[str]:
    """Apply the service as the engine does. Return the first differences."""
    actual = resource.look()
    differences = resource.differences(actual, refresh=refresh)
    if differences:
        resource.change(differences, actual)
        assert not resource.differences(resource.look())
    return [str(difference) for difference in differences]


def predict(resource: Resource[Any, Any], *, refresh: bool = False) -> str:
    try:
        actual = resource.look()
        differences = resource.differences(actual, refresh=refresh)
        return resource.noop_message(differences, actual) if differences else "stable"
    except ResourceError as error:
        return f"failure: {error}"


def bring_into(machine: SimulatedSystemd, state: str) -> str:
    name, steps = simulator.STATES[state]
    for step in steps:
        machine.execute(Command(["systemctl", *step]))
    machine.ran.clear()
    return str(name)


EVERY_PAIR = [
    pytest.param(state, desired, id=f"{state}, expected {desired}")
    for state in simulator.STATES
    for desired in simulator.DESIRED
]


@pytest.mark.parametrize(("state", "desired"), EVERY_PAIR)
@pytest.mark.representatives(30)
def test_every_state_converges_in_a_run_or_is_refused(
    machine: SimulatedSystemd, service: Make, state: str, desired: dict[str, Any]
) -> None:
    name = bring_into(machine, state)
    if refusal := simulator.refusal(state, desired):
        with pytest.raises(ResourceError, match=refusal.replace("[", r"\[")):
            apply(service(name, **desired))
        return
    apply(service(name, **desired))
    unit = machine.unit(name)
    assert (unit.active == "active") is (desired["ensure"] == "running")
    result = unit.file_state(unit.file)
    if desired.get("enable") == "masked":
        assert result == "masked"
    elif "enable" in desired:
        assert (result == "enabled") is desired["enable"]
    machine.ran.clear()
    assert apply(service(name, **desired)) == []
    assert machine.told() == [], "the second run changes nothing"


@pytest.mark.parametrize(("state", "desired"), EVERY_PAIR)
@pytest.mark.representatives(30)
def test_noop_predicts_the_run_and_changes_nothing(
    machine: SimulatedSystemd, service: Make, state: str, desired: dict[str, Any]
) -> None:
    name = bring_into(machine, state)
    predicted = predict(service(name, noop=True, **desired))
    assert machine.told() == []
    try:
        done = apply(service(name, **desired))
    except ResourceError as error:
        # A dry run cannot predict that the process will fail.
        assert predicted == f"failure: {error}" or "exit code 1" in str(error)
    else:
        assert (predicted == "stable") == (done == [])


@pytest.mark.parametrize(
    ("state", "desired", "refresh", "message"),
    [
        ("stopped and disabled", {}, False, "Would have started"),
        ("stopped and disabled", {"enable": True}, False, "Would have started, would have enabled"),
        ("running and enabled", {"ensure": "stopped"}, False, "Would have stopped"),
        ("running and enabled", {"ensure": "stopped", "enable": False}, False,
         "Would have stopped, would have disabled"),
        ("running and disabled", {"enable": True}, False, "Would have enabled"),
        ("running and enabled", {"enable": False}, False, "Would have disabled"),
        ("running and enabled", {"enable": True}, False, "stable"),
        ("running and enabled", {}, True, "Would have restarted via subscribe"),
        ("running and disabled", {"enable": True}, True, "Would have restarted via subscribe, would have enabled"),
        ("stopped and disabled", {}, True, "Would have started"),
        ("running and enabled", {"ensure": "stopped"}, True, "Would have stopped"),
        ("stopped and disabled", {"ensure": "stopped"}, True, "stable"),
    ],
)  # fmt: skip
def test_noop_messages(
    machine: SimulatedSystemd, service: Make, state: str, desired: dict[str, Any], refresh: bool, message: str
) -> None:
    name = bring_into(machine, state)
    assert predict(service(name, noop=True, **desired), refresh=refresh) == message


# Queries


def test_single_query_reads_all_services(machine: SimulatedSystemd, service: Make) -> None:
    """The reference starts three processes for a service in sync."""
    names = tuple(f"app{number}" for number in range(25))
    machine.files |= {f"{name}.service": simulator.SLEEP for name in names}
    for name in names:
        machine._start(machine.unit(name), "")
    apply(service(names[0], others=names))
    machine.ran.clear()
    service(names[0], others=names, new_run=True)
    for name in names:
        assert apply(service(name, others=names)) == []
    assert [item[1:3] for item in machine.ran] == [["--system", "show"]]


def test_single_query_reads_boot_states(machine: SimulatedSystemd, service: Make) -> None:
    names = tuple(f"app{number}" for number in range(10))
    machine.files |= {f"{name}.service": simulator.SLEEP + simulator.INSTALL for name in names}
    for name in names:
        apply(service(name, enable=True, others=names))
    machine.ran.clear()
    service(names[0], others=names, new_run=True)
    for name in names:
        assert apply(service(name, enable=True, others=names)) == []
    assert [item[1:3] for item in machine.ran] == [["--system", "show"]]


def test_the_question_is_asked_again_after_a_change(machine: SimulatedSystemd, service: Make) -> None:
    names = ("plain", "static", "indirect")
    apply(service("plain", others=names))
    machine.ran.clear()
    apply(service("static", others=names))
    assert [item[1:3] for item in machine.ran].count(["--system", "show"]) == 3, (
        "for all, before, and after the start"
    )
    assert machine.told() == ["start static.service"]


def test_invalid_unit_name_fails_alone(machine: SimulatedSystemd, service: Make) -> None:
    machine.refuses_names = {"odd"}
    apply(service("plain", others=("odd",)))
    with pytest.raises(
        ResourceError, match="systemctl show: exit code 1; it said: Failed to get properties: odd"
    ):
        apply(service("odd", others=("plain",)))


def test_a_unit_that_came_after_the_question_is_found(machine: SimulatedSystemd, service: Make) -> None:
    assert apply(service("static", ensure="stopped", others=("late",))) == []
    machine.files["late.service"] = simulator.SLEEP
    assert apply(service("late", others=("static",))) == ["ensure stopped → running"]


def test_without_systemd_the_failure_says_so(machine: SimulatedSystemd, service: Make) -> None:
    def query(command: Command) -> Completed:
        raise FileNotFoundError(2, "no executable 'systemctl'")

    machine.query = query  # type: ignore[method-assign]  # the program is missing
    with pytest.raises(ResourceError, match="systemctl cannot be started: no executable 'systemctl'"):
        service("plain").look()


def test_silent_systemctl_in_a_chroot_is_a_failure(machine: SimulatedSystemd, service: Make) -> None:
    output = "Running in chroot, ignoring command 'show'"
    machine.query = lambda command: simulator.done("", 0, output)  # type: ignore[method-assign]  # as in a chroot
    with pytest.raises(ResourceError, match=f"systemctl show: exit code 0; it said: {output}"):
        service("plain").look()


# Unit files that change


def test_daemon_reload_runs_once_and_only_when_required(machine: SimulatedSystemd, service: Make) -> None:
    """The reference reloads before every command: three times for a service in sync."""
    bring_into(machine, "running and enabled")
    assert apply(service("plain"), refresh=True) == ["restarted, because of a change in an earlier run"]
    assert machine.told() == ["restart plain.service"]
    machine.files["plain.service"] = simulator.SLEEP + "# changed\n" + simulator.INSTALL
    machine.ran.clear()
    apply(service("plain"), refresh=True)
    assert machine.told() == ["daemon-reload", "restart plain.service"]
    machine.ran.clear()
    apply(service("plain"), refresh=True)
    assert machine.told() == ["restart plain.service"]


DROPIN = {"plain.service.d/first.conf": "[Service]\nEnvironment=A=1\n"}


def test_new_drop_in_is_loaded_before_its_restart(machine: SimulatedSystemd, service: Make) -> None:
    """systemd 252 ignores new directories of drop-ins, so NeedDaemonReload is "no"."""
    bring_into(machine, "running and enabled")
    machine.files |= DROPIN
    assert not machine.unit("plain").needs_reload
    apply(service("plain"), refresh=True)
    assert machine.told() == ["daemon-reload", "restart plain.service"]
    assert "A=1" in str(machine.units["plain.service"].read)


@pytest.mark.parametrize("wanted", [{}, {"ensure": "stopped"}])
def test_changed_unit_files_are_loaded_once_before_the_next_read(
    machine: SimulatedSystemd, service: Make, wanted: dict[str, Any]
) -> None:
    bring_into(machine, "running and enabled" if not wanted else "stopped and disabled")
    machine.files |= DROPIN
    for _ in range(3):
        assert apply(service("plain", **wanted)) == []
    del machine.files["plain.service.d/first.conf"]
    assert apply(service("plain", new_run=True, **wanted)) == []
    assert machine.told() == ["daemon-reload", "daemon-reload"]


def test_unit_files_of_a_killed_run_are_loaded_by_the_next(machine: SimulatedSystemd, service: Make) -> None:
    bring_into(machine, "running and enabled")
    apply(service("plain"))
    machine.files |= DROPIN
    apply(service("plain", new_run=True), refresh=True)
    assert machine.told() == ["daemon-reload", "restart plain.service"]


def test_reload_by_another_program_is_recognised(machine: SimulatedSystemd, service: Make) -> None:
    bring_into(machine, "running and enabled")
    machine.files |= DROPIN
    machine.execute(Command(["systemctl", "daemon-reload"]))
    apply(service("plain"))
    assert machine.told() == ["daemon-reload"]


def test_unknown_reload_time_causes_a_reload(machine: SimulatedSystemd, service: Make) -> None:
    """RHEL 8 has systemd 239, which lacks the property and the option."""
    bring_into(machine, "running and enabled")
    machine._show_manager = lambda: simulator.done("", 1, "unrecognized option")  # type: ignore[method-assign]
    for _ in range(2):
        apply(service("plain"))
        apply(service("plain", new_run=True))
    assert machine.told() == ["daemon-reload"]


def test_noop_reads_nothing_anew_and_asks_files_instead(machine: SimulatedSystemd, service: Make) -> None:
    bring_into(machine, "static and running")
    machine.files["static.service.d/first.conf"] = simulator.INSTALL
    assert predict(service("static", noop=True, enable=True)) == "Would have enabled"
    assert machine.told() == []


def test_damaged_unit_record_is_tolerated(machine: SimulatedSystemd, service: Make, tmp_path: Path) -> None:
    apply(service("plain"))
    (tmp_path / "state/units.json").write_text("not json")
    apply(service("plain", new_run=True))
    assert (tmp_path / "state/units.json.unreadable").exists()
    assert machine.told() == ["start plain.service"]


@pytest.mark.parametrize(
    ("time", "monotonic", "expected"),
    [
        ("Thu 1970-01-01 00:01:40.500000 UTC", "110000000", 100.5),
        ("Thu 1970-01-01 00:01:40.500000 UTC", "90000000", 90.0),
        ("Thu 1970-01-01 00:01:40.500000 CET", "110000000", None),
        ("", "0", None),
    ],
)
def test_of_two_clocks_the_earlier_answer_counts(time: str, monotonic: str, expected: float | None) -> None:
    """The wall clock may have been set since. The monotonic clock stops while the machine sleeps."""
    shown = f"UnitsLoadTimestamp={time}\nUnitsLoadTimestampMonotonic={monotonic}\n"
    assert parse_last_read(shown, now=200.0, monotonic=200.0) == expected
    assert parse_last_read("", now=200.0, monotonic=200.0) is None


def test_static_unit_with_a_new_install_section_is_enabled(machine: SimulatedSystemd, service: Make) -> None:
    """systemd still reports *static* for the loaded unit, which counts as enabled."""
    bring_into(machine, "static and running")
    machine.files["static.service"] = simulator.SLEEP + simulator.INSTALL
    assert apply(service("static", enable=True)) == ["enable disabled → enabled"]
    assert machine.told() == ["daemon-reload", "enable static.service"]


@pytest.mark.parametrize("enable", [None, False])
def test_a_unit_that_does_not_exist_is_stopped_and_disabled(
    machine: SimulatedSystemd, service: Make, enable: bool | None
) -> None:
    for noop in (False, True):
        resource = service("missing", ensure="stopped", enable=enable, noop=noop)
        assert resource.differences(resource.look(), refresh=True) == []
    with pytest.raises(ResourceError, match=r"unknown unit missing\.service"):
        apply(service("missing", ensure="stopped", enable=True))


def test_noop_assumes_a_planned_unit_file(machine: SimulatedSystemd, service: Make) -> None:
    resource = service("late", noop=True, enable=True)
    assert predict(resource) == "failure: unknown unit late.service"
    resource.context.system.expect(f"{UNIT_DIRECTORIES[0]}/late.service", "file")
    looking: Any = resource.context.system
    looking.exists = lambda path: path == f"{UNIT_DIRECTORIES[0]}/late.service"
    assert predict(resource) == "Would have started, would have enabled"


def test_noop_believes_in_a_unit_that_a_package_may_bring(machine: SimulatedSystemd, service: Make) -> None:
    assert predict(service("late", noop=True, uncertain=True)) == "Would have started"
    assert predict(service("late", noop=True, uncertain=True, ensure="stopped")) == "stable"


def test_the_template_of_an_instance_is_a_unit_file_of_it(machine: SimulatedSystemd, service: Make) -> None:
    unit = service("instance@one").look()
    assert "/etc/systemd/system/instance@.service" in unit.files()
    assert "/etc/systemd/system/instance@one.service" in unit.files()


# Transient states


@pytest.mark.parametrize(
    ("passing", "then", "desired", "expected"),
    [
        ("activating", "active", {}, []),
        ("reloading", "active", {}, []),
        ("deactivating", "inactive", {"ensure": "stopped"}, []),
        ("deactivating", "inactive", {}, ["ensure stopped → running"]),
        ("activating", "active", {"ensure": "stopped"}, ["ensure running → stopped"]),
        ("maintenance", "inactive", {"ensure": "stopped"}, []),
    ],
)
def test_a_state_that_passes_is_waited_for(
    machine: SimulatedSystemd,
    service: Make,
    passing: str,
    then: str,
    desired: dict[str, Any],
    expected: list[str],
) -> None:
    """The reference treats every such state as an error, or a starting service as stopped."""
    unit = machine.unit("plain")
    unit.active, unit.sub, unit.loaded = passing, "start", True
    unit.passing = [(passing, "start"), (then, "dead" if then == "inactive" else "running")]
    assert apply(service("plain", **desired)) == expected


def test_a_state_that_does_not_pass_is_not_waited_for_for_ever(
    machine: SimulatedSystemd, service: Make
) -> None:
    unit = machine.unit("plain")
    unit.active, unit.sub, unit.loaded = "activating", "start", True

    def hang(unit: SimulatedUnit) -> None:
        unit.passing = [("activating", "start")] * 1000

    machine.on_start = hang
    machine.journal = ["it is slow"]
    resource = service("plain")
    assert [str(difference) for difference in resource.differences(resource.look())] == [
        "ensure activating (start) → running"
    ]
    assert machine.pauses == 120
    machine._start = lambda unit, where: hang(unit)  # type: ignore[method-assign]  # exits 0, does not run
    with pytest.raises(ResourceError, match=r"plain\.service is activating \(start\), though .*\nit is slow"):
        apply(resource)


# Crash loops


def crash_loop(machine: SimulatedSystemd, *, restarts: int = 3) -> SimulatedUnit:
    """Set ``plain`` to wait for its next start after exit code 3."""
    unit = machine.unit("plain")
    unit.active, unit.sub, unit.loaded = "activating", "auto-restart", True
    unit.restarts, unit.ended = restarts, ("1", "3")
    machine.journal = ["cannot read /etc/app\x1b[31m.conf"]
    return unit


@pytest.mark.parametrize("noop", [True, False])
def test_unit_that_waits_for_its_restart_fails(machine: SimulatedSystemd, service: Make, noop: bool) -> None:
    crash_loop(machine)
    resource = service("plain", noop=noop)
    with pytest.raises(ResourceError) as failure:
        resource.differences(resource.look())
    assert str(failure.value) == (
        "plain.service does not keep running: its process has ended with exit code 3, and systemd restarts it. "
        "Its journal:\ncannot read /etc/app\\x1b[31m.conf"
    )
    assert machine.told() == []
    assert machine.pauses <= 12


def test_crash_loop_is_restarted_by_its_subscription(machine: SimulatedSystemd, service: Make) -> None:
    crash_loop(machine)
    assert apply(service("plain"), refresh=True) == ["ensure activating (auto-restart) → running"]
    assert machine.told() == ["start plain.service"]


def test_crash_loop_can_be_stopped(machine: SimulatedSystemd, service: Make) -> None:
    unit = crash_loop(machine)
    assert apply(service("plain", ensure="stopped")) != []
    assert unit.active == "inactive"


def test_service_that_recovers_meanwhile_is_in_order(machine: SimulatedSystemd, service: Make) -> None:
    unit = crash_loop(machine, restarts=1)
    unit.passing = [("active", "running")]
    assert apply(service("plain")) == []


@pytest.mark.parametrize(
    ("seen", "is_failure"),
    [
        # Each pair: number of restarts, and seconds since the start of the process.
        ([(0, 99), (1, 9), (1, 99)], [False, False, False]),
        ([(3, 9), (3, 99)], [False, False]),
        ([(0, 9), (4, 9), (5, 9), (5, 9), (5, 99)], [False, True, True, True, False]),
        ([(1, 9), (4, 9), (0, 9)], [False, True, False]),
    ],
)
def test_restarts_since_the_last_run_are_a_crash_loop(
    machine: SimulatedSystemd,
    service: Make,
    monkeypatch: pytest.MonkeyPatch,
    seen: list[tuple[int, float]],
    is_failure: list[bool],
) -> None:
    bring_into(machine, "running and disabled")
    start = time.time()
    for look, ((restarts, age), fails) in enumerate(zip(seen, is_failure, strict=True)):
        machine.unit("plain").restarts = restarts
        monkeypatch.setattr(time, "time", lambda now=start + look * 30: now)
        monkeypatch.setattr(systemd_units, "age", lambda fields, age=age: age)
        for noop in (True, False):
            resource = service("plain", new_run=True, noop=noop)
            actual = resource.look()
            if fails:
                with pytest.raises(
                    ResourceError, match=r"^plain\.service does not keep running: systemd has restarted"
                ):
                    resource.differences(actual)
            else:
                assert resource.differences(actual) == []
    assert {*machine.told()} <= {"daemon-reload"}, "nothing is started"


def test_rare_restarts_are_in_order(
    machine: SimulatedSystemd, service: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_into(machine, "running and disabled")
    unit, week = machine.unit("plain"), 7 * 24 * 3600.0
    for restarts in (1, 3, 5):
        monkeypatch.setattr(time, "time", lambda now=restarts * week: now)
        unit.restarts = restarts
        assert apply(service("plain", new_run=True)) == []


def test_young_process_is_watched_until_it_ends(
    machine: SimulatedSystemd, service: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_into(machine, "running and disabled")

    def ends(pid: int, seconds: float) -> bool:
        crash_loop(machine, restarts=1)
        return True

    monkeypatch.setattr(systemd_units, "age", lambda fields: 1.0)
    monkeypatch.setattr(systemd_units, "ends_within", ends)
    resource = service("plain")
    with pytest.raises(ResourceError, match="its process has ended with exit code 3"):
        resource.differences(resource.look())


def test_process_is_watched_for_a_bounded_time() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not systemd_units.ends_within(process.pid, 0.05)
        process.kill()
        assert systemd_units.ends_within(process.pid, 60)
    assert systemd_units.ends_within(process.pid, 60)


# Start at boot


def test_unit_that_a_started_unit_wants_is_enabled(machine: SimulatedSystemd, service: Make) -> None:
    machine.unit("static").wanted_by = "multi-user.target"
    assert apply(service("static", ensure="stopped", enable=True)) == []
    machine.unit("static").wanted_by = "plain.service"
    desired = {"ensure": "stopped", "enable": True, "new_run": True}
    with pytest.raises(ResourceError, match="no unit that starts at boot requires it"):
        apply(service("static", **desired))
    machine.execute(Command(["systemctl", "enable", "plain"]))
    assert apply(service("static", **desired)) == []


def test_unit_of_a_target_that_boot_does_not_reach_fails(machine: SimulatedSystemd, service: Make) -> None:
    machine.files["plain.service"] = simulator.SLEEP + "[Install]\nWantedBy=rescue.target\n"
    for noop in (True, False):
        output = predict(service("plain", noop=noop, ensure="stopped", enable=True))
        assert output == (
            "failure: plain.service is disabled and would not start at boot: its [Install] section names "
            "rescue.target, and a boot into multi-user.target does not reach that; add WantedBy= to an [Install] "
            "section, or leave enable out"
        )
    assert machine.told() == ["daemon-reload"]


def test_unit_of_a_socket_is_enabled_with_the_socket(machine: SimulatedSystemd, service: Make) -> None:
    machine.files["activated.service"] = simulator.SLEEP + "[Install]\nAlso=activated.socket\n"
    machine.files["activated.socket"] = "[Install]\nWantedBy=sockets.target\n"

    def enable(unit: SimulatedUnit, where: str) -> None:
        unit.triggered_by = "activated.socket"
        machine.units["activated.socket"] = simulator.SimulatedUnit(
            "activated.socket", read=simulator.SLEEP, wanted_by="sockets.target"
        )

    machine._enable = enable  # type: ignore[method-assign]
    desired = {"ensure": "stopped", "enable": True}
    assert predict(service("activated", noop=True, **desired)) == "Would have enabled"
    assert apply(service("activated", **desired)) == ["enable indirect without effect → enabled"]
    assert apply(service("activated", **desired)) == []


def test_changed_install_section_is_applied(machine: SimulatedSystemd, service: Make) -> None:
    bring_into(machine, "stopped and enabled")
    desired = {"ensure": "stopped", "enable": True}
    assert apply(service("plain", **desired)) == []
    machine.files["plain.service"] += "Alias=other.service\n"
    machine.ran.clear()
    assert predict(service("plain", noop=True, new_run=True, **desired)) == "Would have enabled"
    resource = service("plain", new_run=True, **desired)
    resource.change(resource.differences(actual := resource.look()), actual)
    assert machine.told() == ["daemon-reload", "reenable plain.service"]


def test_init_script_is_enabled_by_its_links(machine: SimulatedSystemd, service: Make) -> None:
    unit = machine.unit("odd")
    unit.generated, unit.source = "generated", "/etc/init.d/odd"
    assert apply(service("odd", ensure="stopped", enable=False)) == []

    def enable(unit: SimulatedUnit, where: str) -> None:
        unit.wanted_by = "multi-user.target"

    def disable(unit: SimulatedUnit, where: str) -> None:
        unit.wanted_by = ""

    machine._enable, machine._disable = enable, disable  # type: ignore[method-assign]
    for enabled, verb in ((True, "enable"), (False, "disable")):
        machine.ran.clear()
        assert apply(service("odd", ensure="stopped", enable=enabled)) != []
        assert machine.told() == [f"{verb} odd.service", "daemon-reload"]
        assert apply(service("odd", ensure="stopped", enable=enabled)) == []
        machine.files[f"{verb}.service"] = simulator.SLEEP  # A dry run does not reload systemd.
        dry_run = service("odd", ensure="stopped", enable=enabled, noop=True, new_run=True)
        assert dry_run.differences(dry_run.look()) == []
        assert apply(service("odd", ensure="stopped", enable=enabled)) == []


# Failures


def test_failure_contains_systemctl_and_journal_output(machine: SimulatedSystemd, service: Make) -> None:
    """The reference ignores exit codes and loses the output."""
    with pytest.raises(ResourceError) as failure:
        apply(service("fails"))
    assert str(failure.value) == (
        "systemctl start fails.service: exit code 1; it said: Job for fails.service failed because the control"
        " process exited with error code. Its journal:\n"
        "it is broken\nfails.service: Failed with result 'exit-code'."
    )


@pytest.mark.attack("secrets.sensitive")
def test_nothing_of_the_journal_is_shown_of_a_sensitive_service(
    machine: SimulatedSystemd, service: Make
) -> None:
    with pytest.raises(ResourceError) as failure:
        apply(service("fails", sensitive=True))
    assert "it is broken" not in str(failure.value)


def test_crashed_service_is_started_despite_its_limit(machine: SimulatedSystemd, service: Make) -> None:
    bring_into(machine, "failed")
    machine.files["fails.service"] = simulator.SLEEP + simulator.INSTALL
    apply(service("fails"))
    assert machine.told() == ["daemon-reload", "reset-failed fails.service", "start fails.service"]


@pytest.mark.parametrize("state", ["running and enabled", "stopped and enabled"])
def test_start_limit_is_reset_before_a_start(machine: SimulatedSystemd, service: Make, state: str) -> None:
    bring_into(machine, state)
    machine.units["plain.service"].starts_left = 0
    apply(service("plain"), refresh=state.startswith("running"))
    assert machine.told()[-2:] == ["reset-failed plain.service", "start plain.service"]
    assert machine.units["plain.service"].active == "active"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (
            "static",
            "it lacks an [Install] section, so other units start it and it cannot be enabled or disabled",
        ),
        ("indirect", "it is enabled through another unit, which its [Install] section names"),
        ("generated", "it was made by a generator from something else, such as /etc/fstab or /etc/init.d"),
        ("transient", "it was made by a program and is gone with the next boot"),
    ],
)
def test_unit_that_cannot_be_disabled_counts_as_enabled(
    machine: SimulatedSystemd, service: Make, state: str, why: str
) -> None:
    """In the reference, a static unit counts as enabled too, but disabling it fails without a reason."""
    name = {"static": "static", "indirect": "indirect"}.get(state, "odd")
    if name == "odd":
        machine.unit("odd").generated = state
    assert apply(service(name, ensure="stopped", enable=False)) == []
    machine.unit(name).wanted_by = "multi-user.target"
    machine.execute(Command(["systemctl", "daemon-reload"]))
    machine.ran.clear()
    if state != "transient":
        assert apply(service(name, ensure="stopped", enable=True)) == []
    with pytest.raises(ResourceError) as failure:
        apply(service(name, ensure="running", enable=False))
    assert str(failure.value) == f"{name}.service is {state} and cannot be disabled: {why}"
    assert machine.told() == [], "it is said before anything is started"


def test_a_masked_service_that_should_be_stopped_is_in_order(
    machine: SimulatedSystemd, service: Make
) -> None:
    bring_into(machine, "masked")
    assert apply(service("plain", ensure="stopped")) == []


# Masks

MASKED = {"ensure": "stopped", "enable": "masked"}


@pytest.mark.parametrize("name", ["plain", "missing"])
@pytest.mark.parametrize("enable", [True, False])
def test_mask_of_puller_is_removed(machine: SimulatedSystemd, service: Make, name: str, enable: bool) -> None:
    if name == "plain":
        bring_into(machine, "running and enabled")
    apply(service(name, **MASKED))
    stops = ["stop plain.service"] if name == "plain" else []
    assert machine.told() == [*stops, f"mask {name}.service"]
    machine.files["missing.service"] = simulator.SLEEP + simulator.INSTALL
    desired: dict[str, Any] = {"ensure": "running" if enable else "stopped", "enable": enable}
    predicted = predict(service(name, noop=True, new_run=True, **desired))
    last = "would have started, would have enabled" if enable else "would have disabled"
    assert predicted == f"Would have unmasked, {last}"
    machine.ran.clear()
    apply(service(name, new_run=True, **desired))
    assert f"unmask {name}.service" in machine.told()[:2]
    assert (machine.unit(name).active == "active") is enable
    assert apply(service(name, new_run=True, **desired)) == []
    assert apply(service(name, new_run=True, **MASKED))


def test_foreign_mask_stays(machine: SimulatedSystemd, service: Make) -> None:
    """Also if Puller has found the unit masked as declared, or has masked it before."""
    bring_into(machine, "masked")
    assert apply(service("plain", **MASKED)) == []
    for _ in range(2):
        for wanted in ({"enable": True}, {"ensure": "stopped", "enable": False}):
            for noop in (False, True):
                output = predict(service("plain", noop=noop, new_run=True, **wanted))
                assert (
                    output == "failure: plain.service is masked; to allow it: systemctl unmask plain.service"
                )
        machine.execute(Command(["systemctl", "unmask", "plain"]))
        apply(service("plain", **MASKED))
        machine.execute(Command(["systemctl", "unmask", "plain"]))
        machine.execute(Command(["systemctl", "mask", "plain"]))


def test_runtime_mask_is_not_permanent(machine: SimulatedSystemd, service: Make) -> None:
    bring_into(machine, "masked until the next boot")
    assert apply(service("plain", **MASKED)) == ["enable masked-runtime → masked"]


class Killed(BaseException):
    """Raised where a test simulates a kill."""


@pytest.mark.parametrize("verb", ["stop", "mask", "unmask"])
@pytest.mark.parametrize("before", [True, False])
def test_run_after_a_kill_converges_and_knows_its_masks(
    machine: SimulatedSystemd, service: Make, verb: str, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_into(machine, "running and enabled")
    act = machine._act

    def killed(requested: str, unit: SimulatedUnit, where: str) -> Completed:
        if requested != verb:
            return act(requested, unit, where)
        if not before:
            act(requested, unit, where)
        raise Killed

    if verb == "unmask":
        apply(service("plain", **MASKED))
    expected = MASKED if verb != "unmask" else {"enable": True}
    monkeypatch.setattr(machine, "_act", killed)
    with pytest.raises(Killed):
        apply(service("plain", **expected))
    monkeypatch.undo()
    apply(service("plain", new_run=True, **MASKED))
    assert machine.unit("plain").masked
    apply(service("plain", new_run=True, enable=True))
    assert machine.unit("plain").active == "active"


@pytest.mark.parametrize("damage", ["not json", '{"plain.service": 5}', '["plain.service"]'])
def test_damaged_mask_record_is_set_aside(
    machine: SimulatedSystemd, service: Make, tmp_path: Path, damage: str
) -> None:
    apply(service("plain", **MASKED))
    (tmp_path / "state/masks.json").write_text(damage)
    assert "is masked; to allow it" in predict(service("plain", noop=True, new_run=True, enable=True))
    assert (tmp_path / "state/masks.json").read_text() == damage, "a dry run leaves it"
    with pytest.raises(ResourceError, match="is masked; to allow it"):
        apply(service("plain", new_run=True, enable=True))
    assert (tmp_path / "state/masks.json.unreadable").read_text() == damage


def test_of_a_mask_that_failed_nothing_is_remembered(machine: SimulatedSystemd, service: Make) -> None:
    machine._mask = lambda unit, where: simulator.done("", 1, "no space")  # type: ignore[method-assign, assignment]  # this once
    with pytest.raises(ResourceError, match=r"systemctl mask plain\.service: exit code 1; it said: no space"):
        apply(service("plain", **MASKED))
    del machine._mask
    bring_into(machine, "masked")
    with pytest.raises(ResourceError, match="is masked; to allow it"):
        apply(service("plain", enable=True))


def test_running_unit_without_a_file_can_be_stopped(machine: SimulatedSystemd, service: Make) -> None:
    bring_into(machine, "running and disabled")
    del machine.files["plain.service"]
    machine.units["plain.service"].file = None
    resource = service("plain", ensure="stopped")
    actual = resource.look()
    resource.change(resource.differences(actual), actual)
    assert machine.units["plain.service"].active == "inactive"


@pytest.mark.attack("data-names.services")
def test_options_end_before_a_name(machine: SimulatedSystemd, service: Make) -> None:
    apply(service("plain", enable=True))
    apply(service("plain", ensure="stopped", enable=False))
    named = [item for item in machine.ran if not {"daemon-reload", "--timestamp=us+utc"} & set(item)]
    assert all("--" in item[-3:-1] for item in named if item[0] == "systemctl")


# Reloads


def apply_reload(resource: Resource[Any, Any]) -> list[str]:
    """Apply the service as the engine does if only a resource of ``reload`` has changed."""
    actual = resource.look()
    differences = resource.reload_differences(actual)
    if differences:
        resource.change(differences, actual)
        assert not resource.differences(resource.look())
    return [str(difference) for difference in differences]


def predict_reload(resource: Resource[Any, Any]) -> str:
    actual = resource.look()
    differences = resource.reload_differences(actual)
    return resource.noop_message(differences, actual) if differences else "stable"


RELOAD = {"reload": ["file#/etc/app.conf"]}


@pytest.mark.parametrize(
    ("steps", "desired", "told", "message"),
    [
        (["start"], {}, ["reload"], "Would have reloaded"),
        (["start"], {"enable": True}, ["reload", "enable"], "Would have reloaded, would have enabled"),
        (["start", "enable"], {"enable": False}, ["reload", "disable"],
         "Would have reloaded, would have disabled"),
        ([], {}, ["start"], "Would have started"),
        ([], {"enable": True}, ["start", "enable"], "Would have started, would have enabled"),
        ([], {"ensure": "stopped"}, [], "stable"),
        (["start"], {"ensure": "stopped"}, ["stop"], "Would have stopped"),
        (["start"], {"ensure": "stopped", "enable": "masked"}, ["stop", "mask"],
         "Would have stopped, would have masked"),
    ],
)  # fmt: skip
def test_reload_has_the_expected_result(
    machine: SimulatedSystemd,
    service: Make,
    steps: list[str],
    desired: dict[str, Any],
    told: list[str],
    message: str,
) -> None:
    """A service that must be started reads everything then, and a service that must be stopped needs no reload."""
    for step in steps:
        machine.execute(Command(["systemctl", step, "reloads"]))
    machine.ran.clear()
    assert predict_reload(service("reloads", noop=True, **RELOAD, **desired)) == message
    assert machine.told() == []
    apply_reload(service("reloads", **RELOAD, **desired))
    assert machine.told() == [f"{verb} reloads.service" for verb in told]
    assert apply(service("reloads", **RELOAD, **desired)) == []


@pytest.mark.parametrize("steps", [[], ["start"]])
@pytest.mark.parametrize("noop", [True, False])
def test_unit_without_reload_fails_in_advance(
    machine: SimulatedSystemd, service: Make, steps: list[str], noop: bool
) -> None:
    for step in steps:
        machine.execute(Command(["systemctl", step, "plain"]))
    message = r"^plain\.service cannot reload \(CanReload=no\): let it subscribe to its files"
    with pytest.raises(ResourceError, match=message):
        service("plain", noop=noop, **RELOAD).look()
    assert service("plain", noop=noop, ensure="stopped", **RELOAD).look()


def test_future_unit_may_support_reload(machine: SimulatedSystemd, service: Make) -> None:
    dry = service("late", noop=True, uncertain=True, **RELOAD)
    assert predict_reload(dry) == "Would have started"


def test_new_unit_file_decides_on_reload_support(machine: SimulatedSystemd, service: Make) -> None:
    machine.execute(Command(["systemctl", "start", "plain"]))
    service("plain").look()
    machine.files["plain.service.d/reload.conf"] = "[Service]\nExecReload=/bin/true\n"
    machine.ran.clear()
    assert predict_reload(service("plain", noop=True, new_run=True, **RELOAD)) == "Would have reloaded"
    apply_reload(service("plain", new_run=True, **RELOAD))
    assert machine.told() == ["daemon-reload", "reload plain.service"]
    del machine.files["plain.service.d/reload.conf"]
    with pytest.raises(ResourceError, match="cannot reload"):
        service("plain", new_run=True, **RELOAD).look()


def test_a_reload_that_fails_is_told_with_the_journal(machine: SimulatedSystemd, service: Make) -> None:
    machine.execute(Command(["systemctl", "start", "reloads"]))
    machine.journal = ["line 3: what is this"]
    machine.on_reload = lambda unit: simulator.done("", 1, "Job for reloads.service failed.")
    with pytest.raises(ResourceError) as failure:
        apply_reload(service("reloads", **RELOAD))
    assert str(failure.value) == (
        "systemctl reload reloads.service: exit code 1; it said: Job for reloads.service failed."
        " Its journal:\nline 3: what is this"
    )


def test_a_service_that_ends_over_its_reload_has_failed(machine: SimulatedSystemd, service: Make) -> None:
    machine.execute(Command(["systemctl", "start", "reloads"]))

    def end(unit: SimulatedUnit) -> None:
        unit.active, unit.sub = "failed", "failed"

    machine.on_reload = end
    with pytest.raises(ResourceError, match=r"reloads\.service is stopped \(failed\), though systemctl"):
        apply_reload(service("reloads", **RELOAD))


# Services of a user


@pytest.fixture
def of_root(service: Make, machine: SimulatedSystemd, tmp_path: Path) -> Make:
    """Return a function that makes a service of the test's user: ``of_root("plain", …)``. Its manager runs."""
    me = pwd.getpwuid(os.geteuid())
    here = tmp_path / "run"
    (here / "systemd").mkdir(parents=True)
    (here / "systemd/private").touch()

    def build(name: str, **properties: Any) -> Any:
        resource = service(name, scope="user", user=me.pw_name, **properties)
        manager = msgspec.structs.replace(
            manager_of(Identity.find(me.pw_name)), environment={"XDG_RUNTIME_DIR": str(here)}
        )
        resource.__dict__["_manager"] = manager
        systems = resource.context.shared[Systemd]
        names = [name]
        key = (resource.context.system, manager.records)
        systems.setdefault(key, Systemd(resource.context, lambda: names, machine.sleep, manager))
        return resource

    return build


def noting(run: Callable[[Command], Completed], commands: list[Command]) -> Callable[[Command], Completed]:
    def noted(command: Command) -> Completed:
        commands.append(command)
        return run(command)

    return noted


def test_a_service_of_a_user_is_asked_for_and_told_by_that_user(
    machine: SimulatedSystemd, of_root: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[Command] = []
    for name in ("query", "execute"):
        real = getattr(machine, name)
        monkeypatch.setattr(machine, name, noting(real, commands))
    assert apply(of_root("plain", enable=True)) == [
        "ensure stopped → running",
        "enable disabled → enabled",
    ]
    assert apply(of_root("plain", enable=True)) == []
    systemctl = [command for command in commands if command.arguments[0] == "systemctl"]
    assert {command.arguments[1] for command in systemctl} == {"--user"}
    assert {command.identity and command.identity.uid for command in systemctl} == {os.geteuid()}
    assert all("XDG_RUNTIME_DIR" in command.environment for command in systemctl)


def test_the_journal_of_a_users_service_is_that_of_the_user(machine: SimulatedSystemd, of_root: Make) -> None:
    with pytest.raises(ResourceError, match="Its journal:\nit is broken"):
        apply(of_root("fails"))
    requested = next(item for item in machine.ran if "--quiet" in item)
    assert requested[-2:] == ["--user-unit=fails.service", f"_UID={os.geteuid()}"]


def test_a_user_without_a_manager_is_told_how_to_get_one(of_root: Make, tmp_path: Path) -> None:
    (tmp_path / "run/systemd/private").unlink()
    for noop in (False, True):
        with pytest.raises(
            ResourceError, match="has no systemd, being neither logged in nor lingering; to let"
        ):
            of_root("plain", noop=noop).look()
    dry = of_root("plain", noop=True, uncertain=True)
    assert predict(dry) == "Would have started", "an earlier command may let the user linger"


def test_a_manager_that_is_about_to_start_is_waited_for(of_root: Make, tmp_path: Path) -> None:
    private, lingering = tmp_path / "run/systemd/private", tmp_path / "lingering"
    private.unlink()
    resource: Any = of_root("plain")
    manager, system = resource._manager, LocalSystem()
    system.exists = lambda path: (private if path == str(private) else lingering).exists()  # type: ignore[method-assign]
    with pytest.raises(ResourceError, match="neither logged in nor lingering"):
        manager.require(system, lambda seconds: None)
    lingering.touch()
    manager.require(system, lambda seconds: private.touch())
    private.unlink()
    with pytest.raises(ResourceError, match="neither logged in nor lingering"):
        manager.require(system, lambda seconds: None)


def test_unknown_user_is_a_failure_unless_created_in_the_run(service: Make) -> None:
    user = {"scope": "user", "user": "nobody-here"}
    for noop in (False, True):
        with pytest.raises(ResourceError, match="user is 'nobody-here', an unknown user"):
            service("plain", noop=noop, **user).look()
    assert predict(service("plain", noop=True, uncertain=True, enable=True, **user)) == (
        "Would have started, would have enabled"
    )


# Complete runs


BOTH = """
    resources:
      - file:
          - DIR/unit: {content: UNIT, IDS, alias: unit}
          - DIR/conf: {content: CONF, IDS, alias: conf}
      - service: [{reloads: {subscribe: [file#unit], reload: [file#conf]MORE}}]
"""


@pytest.fixture
def run_both(
    load: Callable[..., Manifest], machine: SimulatedSystemd, tmp_path: Path
) -> Callable[..., State]:
    """Return a function that runs with these texts of two files, and returns the state of the service."""

    def apply_all(unit: str, conf: str, additional: str = "", *, noop: bool = False) -> State:
        ids = f"owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'"
        text = BOTH.replace("DIR", str(tmp_path)).replace("IDS", ids).replace("MORE", additional)
        manifest = load(text.replace("UNIT", unit).replace("CONF", conf))
        pending = PendingRefreshes(tmp_path / "owed.json", "web", noop=noop)
        system = simulator.LookingOnly(machine) if noop else machine
        machine.ran.clear()
        return Engine(manifest, system, lambda url: b"", pending, Settings(noop=noop)).apply()[-1].state

    return apply_all


def test_restart_covers_a_pending_reload(machine: SimulatedSystemd, run_both: Callable[..., State]) -> None:
    assert run_both("a", "a") is State.CHANGED
    assert machine.told() == ["start reloads.service"], "what was started is not reloaded"
    assert run_both("a", "b", noop=True) is State.WOULD_CHANGE
    assert run_both("a", "b") is State.REFRESHED
    assert machine.told() == ["reload reloads.service"]
    assert run_both("b", "c") is State.REFRESHED
    assert machine.told() == ["restart reloads.service"]
    assert run_both("b", "c") is State.STABLE
    assert run_both("c", "c") is State.REFRESHED
    assert machine.told() == ["restart reloads.service"]


class Ended(BaseException):
    """Raised where a test simulates a kill."""


@pytest.mark.parametrize(
    ("killed", "then", "told"),
    [
        (("a", "b"), ("a", "b"), "reload"),
        (("b", "a"), ("b", "a"), "restart"),
        (("b", "b"), ("b", "b"), "restart"),
        (("b", "a"), ("b", "b"), "restart"),
        (("a", "b"), ("b", "b"), "restart"),
    ],
)
@pytest.mark.parametrize("how", ["fails", "is killed"])
def test_kind_of_pending_refresh_survives_a_kill(
    machine: SimulatedSystemd,
    run_both: Callable[..., State],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    killed: tuple[str, str],
    then: tuple[str, str],
    told: str,
) -> None:
    run_both("a", "a")
    act = machine._act

    def interrupted(verb: str, unit: SimulatedUnit, where: str) -> Completed:
        if verb not in ("restart", "reload"):
            return act(verb, unit, where)
        if how == "fails":
            return Completed(1, None, False, "", "no", 0.0)
        raise Ended

    with monkeypatch.context() as patched:
        patched.setattr(machine, "_act", interrupted)
        if how == "fails":
            assert run_both(*killed) is State.FAILED
        else:
            with pytest.raises(Ended):
                run_both(*killed)
    assert run_both(*then) is State.REFRESHED
    assert machine.told() == [f"{told} reloads.service"]
    assert run_both(*then) is State.STABLE


def test_pending_restart_stays_when_the_service_now_reloads(
    machine: SimulatedSystemd, run_both: Callable[..., State], tmp_path: Path
) -> None:
    run_both("a", "a")
    PendingRefreshes(tmp_path / "owed.json", "web").record(["service#reloads", "reload service#reloads"])
    assert run_both("a", "a") is State.REFRESHED
    assert machine.told() == ["restart reloads.service"]
    assert PendingRefreshes(tmp_path / "owed.json", "web").before == set()


def test_a_service_that_is_not_managed_waits_for_nothing(
    run_both: Callable[..., State], machine: SimulatedSystemd, tmp_path: Path
) -> None:
    run_both("a", "a")
    PendingRefreshes(tmp_path / "owed.json", "web").record(["reload service#reloads"])
    run_both("a", "a", ", control: {if: 'false'}")
    assert PendingRefreshes(tmp_path / "owed.json", "web").before == set()


MANIFEST = """
    resources:
      - file: [{{DIR/one: {{content: {text}, IDS}}}}, {{DIR/two: {{content: {text}, IDS}}}}]
      - service: [{{plain: {{subscribe: [file#DIR/one, file#DIR/two]}}}}]
"""


@pytest.fixture
def run(load: Callable[..., Manifest], machine: SimulatedSystemd, tmp_path: Path) -> Callable[[str], State]:
    """Return a function that runs with this text of both files, and returns the state of the service."""

    def apply_all(text: str) -> State:
        ids = f"owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'"
        manifest = load(MANIFEST.format(text=text).replace("DIR", str(tmp_path)).replace("IDS", ids))
        pending = PendingRefreshes(tmp_path / "owed.json", "web")
        return Engine(manifest, machine, lambda url: b"", pending, Settings()).apply()[-1].state

    return apply_all


def test_service_restarts_once_for_many_changes(
    machine: SimulatedSystemd, run: Callable[[str], State]
) -> None:
    bring_into(machine, "running and enabled")
    assert run("new") is State.REFRESHED
    assert machine.told() == ["restart plain.service"]
    machine.ran.clear()
    assert run("new") is State.STABLE
    assert machine.told() == []


def test_stopped_service_is_started_and_not_restarted(
    machine: SimulatedSystemd, run: Callable[[str], State]
) -> None:
    assert run("new") is State.CHANGED
    assert machine.told() == ["start plain.service"]


def test_a_restart_that_failed_is_made_up_for_in_the_next_run(
    machine: SimulatedSystemd, run: Callable[[str], State]
) -> None:
    bring_into(machine, "running and enabled")
    machine._restart = lambda unit, where: simulator.done("", 1)  # type: ignore[method-assign]  # fails once
    assert run("new") is State.FAILED
    del machine._restart
    assert run("new") is State.REFRESHED


# Errors at load


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ensure": "present"}, "ensure is 'present', expected running or stopped"),
        ({"scope": "user"}, "user is missing; it is required with scope: user"),
        ({"user": "app"}, "user is given, but requires scope: user"),
        ({"scope": "user", "user": "-x"}, "user is '-x', expected the name of a user"),
        ({"scope": "user", "user": "a/b"}, "user is 'a/b', expected the name of a user"),
        (
            {"enable": "masked"},
            "enable is 'masked', expected ensure: stopped with it, as a masked service cannot start",
        ),
        (
            {"name": "--now"},
            r"name is '--now', expected letters, digits and \. _ \+ : ~ - @, the first a letter or digit",
        ),
        ({"name": "a b"}, "name is 'a b', expected letters"),
        ({"name": "app; rm -rf /"}, "name is 'app; rm -rf /', expected letters"),
        ({"name": "../app"}, r"name is '\.\./app', expected letters"),
        ({"name": "app*"}, r"name is 'app\*', expected letters"),
        ({"name": ".app"}, r"name is '\.app', expected letters"),
        ({"name": ""}, "name is '', expected letters"),
        ({"name": "a\n"}, r"name is 'a\\n', expected letters"),
        ({"name": "a" * 256}, "expected at most 255 characters"),
        (
            {"name": "getty@"},
            "name is 'getty@', which is a template, expected an instance such as 'getty@name'",
        ),
        ({"name": "getty@.service"}, "which is a template"),
    ],
)
def test_properties_that_make_no_sense_are_refused_at_load(
    make: Make, properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(PropertyError, match=message):
        make(Service, {"name": "app", **properties})


@pytest.mark.parametrize(
    "name", ["httpd", "nginx.service", "my-app_v2", "getty@tty1", "a+b", "a~b", "a:b", "x.timer"]
)
def test_names(make: Make, name: str) -> None:
    """The reference rejects instances of templates."""
    assert make(Service, {"name": name}).properties.name == name


def test_running_is_the_default_and_boot_start_is_unmanaged(make: Make) -> None:
    properties = make(Service, {"name": "app"}).properties
    assert (properties.ensure, properties.enable) == ("running", None)


def test_escaped_names_of_units_and_instances_are_managed(machine: SimulatedSystemd, service: Make) -> None:
    machine.files[r"srv\x2da@.service"] = simulator.SLEEP + simulator.INSTALL
    machine.execute(Command(["systemctl", "daemon-reload"]))
    machine.ran.clear()
    name = r"srv\x2da@one\x2dtwo"
    apply(service(name, enable=True))
    assert machine.told() == [f"start {name}.service", f"enable {name}.service"]
    assert apply(service(name, enable=True)) == []
    apply(service(f"{name}.service", ensure="stopped", enable=False))
    assert apply(service(name, ensure="stopped", enable=False)) == []


@pytest.mark.parametrize("name", [r"a\2db", r"a\x2D", r"a\xzz", "a\\", r"a\\x2d", "\\"])
def test_invalid_escapes_of_a_name_are_refused(service: Make, name: str) -> None:
    with pytest.raises(PropertyError, match=r"expected escapes of systemd-escape"):
        service(name)
