"""The service resource on a real systemd, and how well the simulated one imitates it."""

from __future__ import annotations

import re
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.system.conftest import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

UNITS = "etc/systemd/system"
OF_PACKAGES = "usr/lib/systemd/system"
COMPARED = ("Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "NeedDaemonReload")


SIMULATOR = Path(__file__).parents[1] / "simulators/systemd.py"
simulator: Any = SimpleNamespace(**run_path(str(SIMULATOR)))  # tests are not a package to import from


def write_units(machine: Machine, files: dict[str, str]) -> None:
    for name, text in files.items():
        (machine.root / OF_PACKAGES / name).write_text(text)
    linked = machine.root / simulator.LINKED.lstrip("/")
    linked.parent.mkdir(parents=True, exist_ok=True)
    linked.write_text(simulator.SLEEP + simulator.INSTALL)
    machine.run("systemctl", "daemon-reload")


def show(machine: Machine, name: str) -> dict[str, str]:
    lines = machine.run(
        "systemctl", "show", f"--property={','.join(COMPARED)}", "--", name
    ).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)


def forget(machine: Machine, name: str) -> None:
    """Bring a unit back into the state in which it was written."""
    for step in (["stop"], ["unmask"], ["disable"], ["disable", "--runtime"], ["reset-failed"]):
        machine.run("systemctl", *step, name, check=False)


def test_the_simulated_systemd_does_what_the_real_one_does(debian: Machine) -> None:
    write_units(debian, simulator.FILES)
    for state, (name, steps) in simulator.STATES.items():
        imitation = simulator.SimulatedSystemd()
        for step in steps:
            debian.run("systemctl", *step, check=False)
            imitation._run(["systemctl", *step])
        shown = dict(line.split("=", 1) for line in imitation.unit(name).show().splitlines())
        assert show(debian, name) == {key: shown[key] for key in COMPARED}, state
        forget(debian, name)


def apply(machine: Machine, manifest: dict[str, Any], *options: str) -> Completed:
    (machine.root / "root/manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    return machine.run(
        "puller", "apply", "/root/manifest.yaml", "--verbose", *options, check=False, timeout=120
    )


def outcomes(done: Completed) -> dict[str, str]:
    """What became of each service, by its alias."""
    return dict(re.findall(r"service#(.*?) \(.*?\) (would change|\w+)", done.stdout))


def of_its_own(number: int, state: str) -> tuple[str, dict[str, str], list[list[str]]]:
    """The unit, files and steps of a state, under names that no other state uses."""
    name, steps = simulator.STATES[state]
    own = f"s{number}-{name}"
    plain = name.removesuffix(".service").partition("@")[0]
    files = {f"s{number}-{file}": text for file, text in simulator.FILES.items() if file.startswith(plain)}
    return (
        own,
        files,
        [[word if word[:2] == "--" or i == 0 else own for i, word in enumerate(step)] for step in steps],
    )


def test_every_state_converges_in_one_run_or_is_refused(debian: Machine) -> None:
    states = {state: n for n, state in enumerate(simulator.STATES) if not state.startswith("linked")}
    own = {state: of_its_own(number, state) for state, number in states.items()}
    write_units(debian, {name: text for _, files, _ in own.values() for name, text in files.items()})
    for desired in simulator.DESIRED:
        for name, _, steps in own.values():
            forget(debian, name)
            for step in steps:
                debian.run("systemctl", *step, check=False)
        converge(debian, desired, {state: name for state, (name, _, _) in own.items()})


def converge(machine: Machine, desired: dict[str, Any], services: dict[str, str]) -> None:
    """Noop, a run, a second run; and what systemd says then."""
    bodies = [{name: {**desired, "alias": state}} for state, name in services.items()]
    manifest = {"resources": [{"service": bodies}]}
    predicted = outcomes(apply(machine, manifest, "--noop"))
    done = apply(machine, manifest)
    first, second = outcomes(done), outcomes(apply(machine, manifest))
    assert first.keys() == predicted.keys() == services.keys(), done.stdout
    for state, name in services.items():
        where = f"{state}, wanted {desired}:\n{done.stdout}"
        if simulator.refusal(state, desired):
            assert first[state] == "failed", where
            assert predicted[state] == "failed" or state == "failed", where
            continue
        assert (first[state], predicted[state]) in [("stable", "stable"), ("changed", "would change")], where
        assert second[state] == "stable", where
        found = show(machine, name)
        assert (found["ActiveState"] == "active") is (desired["ensure"] == "running"), where
        if "enable" in desired:
            enabled = found["UnitFileState"] in ("enabled", "enabled-runtime", "static", "indirect")
            assert enabled is desired["enable"], where


def test_a_unit_file_kept_elsewhere_stays_known_when_it_is_disabled(debian: Machine) -> None:
    write_units(debian, {})
    debian.run("systemctl", "enable", simulator.LINKED)
    debian.run("systemctl", "start", "linked")
    manifest = {"resources": [{"service": [{"linked": {"ensure": "stopped", "enable": False}}]}]}
    assert "service#linked changed" in apply(debian, manifest).stdout
    assert show(debian, "linked")["UnitFileState"] == "linked"
    assert "service#linked stable" in apply(debian, manifest).stdout


def test_a_service_restarts_once_however_many_of_its_files_changed(debian: Machine) -> None:
    def manifest(text: str) -> dict[str, Any]:
        unit = simulator.SLEEP + f"# {text}\n" + simulator.INSTALL
        files = {f"/{UNITS}/app.service": unit, "/etc/app.conf": text, "/etc/app.d.conf": text}
        common = {"owner": "root", "group": "root", "mode": "0644"}
        service = {"enable": True, "subscribe": [f"file#{path}" for path in files]}
        bodies = [{path: {**common, "content": content}} for path, content in files.items()]
        return {"resources": [{"file": bodies}, {"service": [{"app": service}]}]}

    def starts() -> int:
        entries = debian.journal("app.service")
        return sum(entry["MESSAGE"].startswith("Started ") for entry in entries)

    assert "service#app changed" in apply(debian, manifest("one")).stdout, "on a fresh machine, in one run"
    assert starts() == 1
    assert "service#app stable" in apply(debian, manifest("one")).stdout
    assert 'noop="Would have restarted via subscribe"' in apply(debian, manifest("two"), "--noop").stdout
    assert starts() == 1
    assert "service#app refreshed" in apply(debian, manifest("two")).stdout
    assert starts() == 2
    assert show(debian, "app")["NeedDaemonReload"] == "no", "what runs now is what the unit file says"
    assert "service#app stable" in apply(debian, manifest("two")).stdout
    assert starts() == 2


def test_in_noop_a_unit_file_of_the_same_manifest_is_believed_in(debian: Machine) -> None:
    common = {"owner": "root", "group": "root", "mode": "0644"}
    file = {f"/{UNITS}/app.service": {**common, "content": simulator.SLEEP + simulator.INSTALL}}
    manifest = {"resources": [{"file": [file]}, {"service": [{"app": {"enable": True}}]}]}
    assert 'noop="Would have started, would have enabled"' in apply(debian, manifest, "--noop").stdout
    alone: dict[str, Any] = {"resources": [{"service": [{"app": {}}]}]}
    assert "there is no unit app.service" in apply(debian, alone, "--noop").stdout


def test_a_failure_carries_the_last_lines_of_the_journal(debian: Machine) -> None:
    write_units(debian, simulator.FILES)
    done = apply(debian, {"resources": [{"service": [{"fails": {}}]}]})
    assert done.returncode == 4
    assert "systemctl start fails.service: exit code 1; it said: Job for fails.service failed" in done.stdout
    assert "its journal says:" in done.stdout
    assert "it is broken" in done.stdout


def test_a_service_of_the_old_kind_counts_as_enabled_and_says_why_it_is_not_disabled(debian: Machine) -> None:
    script = debian.root / "etc/init.d/old"
    header = "# Provides: old\n# Default-Start: 2 3 4 5\n# Default-Stop: 0 1 6\n"
    script.write_text(f"#!/bin/sh\n### BEGIN INIT INFO\n{header}### END INIT INFO\n")
    script.chmod(0o755)
    debian.run("systemctl", "daemon-reload")
    done = apply(debian, {"resources": [{"service": [{"old": {"ensure": "stopped", "enable": False}}]}]})
    assert "old.service is generated and cannot be disabled: it was made by a generator" in done.stdout


def test_a_service_that_is_starting_is_waited_for(debian: Machine) -> None:
    slow = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sleep 3\n"
    write_units(debian, {"slow.service": slow})
    debian.run("systemctl", "start", "--no-block", "slow")
    assert show(debian, "slow")["ActiveState"] == "activating"
    assert "service#slow stable" in apply(debian, {"resources": [{"service": [{"slow": {}}]}]}).stdout


def test_a_hundred_services_in_order_cost_one_process(debian: Machine) -> None:
    names = [f"app{number}" for number in range(100)]
    write_units(debian, {f"{name}.service": simulator.SLEEP for name in names})
    counting = debian.root / "usr/local/bin/systemctl"
    counting.write_text('#!/bin/sh\necho "$2" >>/root/asked\nexec /bin/systemctl "$@"\n')
    counting.chmod(0o755)
    manifest = {"resources": [{"service": [{name: {"ensure": "stopped"}} for name in names]}]}
    assert "100 stable" in apply(debian, manifest).stdout
    assert (debian.root / "root/asked").read_text() == "show\n"
