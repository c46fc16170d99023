"""The diversion resource, with Debian's real tool and a private database: every state, kills, rejected input."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.reporting.report import Event, State
from puller.resources.base import PropertyError
from puller.resources.packages.diversion import Diversion
from puller.system import commands
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem
from tests.puller.resources.conftest import Make
from tests.simulators.diversions import TOOL, Diverting, DivertingInNoop
from tests.support.sweeps import Sweep

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="needs dpkg-divert")

PACKAGED, OURS = "of the package\n", "of Puller\n"


@pytest.fixture
def machine(tmp_path: Path) -> Diverting:
    return make_machine(tmp_path)


def make_machine(root: Path) -> Diverting:
    """Return a machine without diversions, and an empty directory for files of packages."""
    (root / "packages").mkdir(parents=True)
    (root / "packages/status").write_text("")
    (root / "bin").mkdir()
    return Diverting(root / "packages")


def files(machine: Diverting) -> dict[str, str]:
    """Return the files, and the diversions."""
    directory = machine.database.parent / "bin"
    result = {path.name: path.read_text() for path in sorted(directory.iterdir()) if path.is_file()}
    return {**result, "list": machine.tool("--list").stdout.replace(str(directory), "BIN")}


def put(machine: Diverting, **texts: str) -> None:
    for name, text in texts.items():
        (machine.database.parent / "bin" / name).write_text(text)


def divert(machine: Diverting, *options: str, to: str = "real") -> None:
    directory = machine.database.parent / "bin"
    owner = options or ("--local",)
    completed = machine.tool(
        *owner, "--rename", "--divert", f"{directory}/{to}", "--add", f"{directory}/tool"
    )
    assert completed.exit_code == 0, completed.stderr


def diverted_file(machine: Diverting, *options: str, to: str = "real") -> None:
    put(machine, tool=PACKAGED)
    divert(machine, *options, to=to)


def diverted_and_replaced(machine: Diverting) -> None:
    diverted_file(machine)
    put(machine, tool=OURS)


STATES: dict[str, Callable[[Diverting], object]] = {
    "nothing": lambda machine: None,
    "a file": lambda machine: put(machine, tool=PACKAGED),
    "only the other file": lambda machine: put(machine, real=PACKAGED),
    "both files": lambda machine: put(machine, tool=PACKAGED, real="precious\n"),
    "a link": lambda machine: (machine.database.parent / "bin/tool").symlink_to("elsewhere"),
    "a directory": lambda machine: (machine.database.parent / "bin/tool").mkdir(),
    "diverted": diverted_file,
    "diverted and replaced": diverted_and_replaced,
    "diverted without a file": divert,
    "diverted elsewhere": lambda machine: diverted_file(machine, to="other"),
    "diverted by a package": lambda machine: diverted_file(machine, "--package", "app"),
}
DESIRED: dict[str, dict[str, Any]] = {
    "present": {"to": "BIN/real"},
    "unmoved": {"to": "BIN/real", "rename": False},
    "absent": {"ensure": "absent"},
}
REFUSED = {
    ("both files", "present"): "both exist, and diverting it would overwrite one of them",
    ("a directory", "present"): "is a directory, and only files are diverted",
    ("a directory", "unmoved"): "is a directory, and only files are diverted",
    ("diverted and replaced", "absent"): "both exist, and removing its diversion would overwrite one of them",
    ("diverted by a package", "present"): "is diverted by the package app",
    ("diverted by a package", "unmoved"): "is diverted by the package app",
    ("diverted by a package", "absent"): "is diverted by the package app",
}


def apply(
    machine: LocalSystem, root: Path, *resources: dict[str, Any], noop: bool = False, made: bool = False
) -> list[Event]:
    """Apply resources. Return their events."""
    text = yaml.safe_dump({"resources": list(resources)}, sort_keys=False).replace("BIN", str(root / "bin"))
    (root / "manifest.yaml").write_text(text)
    manifest = load_manifest(root / "manifest.yaml", "manifest.yaml", Inputs({}, {}))
    settings = Settings(noop=noop, state_directory=root / "state", is_created_at=lambda path: made)
    return Engine(manifest, machine, lambda url: b"", PendingRefreshes(None, "test"), settings).apply()


def one(properties: dict[str, Any]) -> dict[str, Any]:
    return {"diversion": [{"BIN/tool": properties}]}


FILE = {
    "file": [{"BIN/tool": {"content": OURS, "owner": os.geteuid(), "group": os.getegid(), "mode": "0644"}}]
}


@pytest.mark.parametrize("desired", DESIRED)
@pytest.mark.parametrize("state", STATES)
def test_every_state_converges_as_the_dry_run_predicts(
    machine: Diverting, tmp_path: Path, state: str, desired: str
) -> None:
    STATES[state](machine)
    before = files(machine)
    (dry,) = apply(DivertingInNoop(machine.database), tmp_path, one(DESIRED[desired]), noop=True)
    assert files(machine) == before
    (real,) = apply(machine, tmp_path, one(DESIRED[desired]))
    assert dry.differences == real.differences
    if error := REFUSED.get((state, desired)):
        assert (dry.state, real.state) == (State.FAILED, State.FAILED)
        assert error in str(dry.errors)
        assert error in str(real.errors)
        assert files(machine) == before
        return
    assert dry.errors == real.errors == []
    after = files(machine)
    assert bool(real.differences) is (before != after)
    (again,) = apply(machine, tmp_path, one(DESIRED[desired]))
    assert (again.state, files(machine)) == (State.STABLE, after)
    texts = sorted(text for name, text in before.items() if name != "list")
    assert sorted(text for name, text in after.items() if name != "list") == texts, "no file is lost"
    if desired == "absent":
        assert after["list"] == ""
    else:
        assert after["list"] == "local diversion of BIN/tool to BIN/real\n"


def test_file_comes_after_the_diversion_of_its_path(machine: Diverting, tmp_path: Path) -> None:
    put(machine, tool=PACKAGED)
    for resources in ((FILE, one(DESIRED["present"])), (one(DESIRED["present"]), FILE)):
        before = files(machine)
        dry = apply(DivertingInNoop(machine.database), tmp_path, *resources, noop=True)
        assert files(machine) == before
        real = apply(machine, tmp_path, *resources)
        assert [event.reference for event in real] == [
            f"{kind}#{tmp_path}/bin/tool" for kind in ("diversion", "file")
        ]
        assert [event.differences for event in dry] == [event.differences for event in real]
        assert {event.state for event in apply(machine, tmp_path, *resources)} == {State.STABLE}
        assert (tmp_path / "bin/real").read_text() == PACKAGED
        assert (tmp_path / "bin/tool").read_text() == OURS
        (tmp_path / "bin/tool").unlink()
        (event,) = apply(machine, tmp_path, one(DESIRED["absent"]))
        assert event.errors == []
        assert files(machine) == {"tool": PACKAGED, "list": ""}


def test_file_that_puller_made_is_not_moved(machine: Diverting, tmp_path: Path) -> None:
    put(machine, tool=OURS)
    for noop in (True, False):
        system = DivertingInNoop(machine.database) if noop else machine
        (event,) = apply(system, tmp_path, one(DESIRED["present"]), noop=noop, made=True)
        assert event.errors == []
    assert files(machine) == {"tool": OURS, "list": "local diversion of BIN/tool to BIN/real\n"}


def test_other_place_changes_only_while_the_path_is_free(machine: Diverting, tmp_path: Path) -> None:
    diverted_and_replaced(machine)
    before = files(machine)
    (event,) = apply(machine, tmp_path, one({"to": "BIN/other"}))
    assert "both exist, and removing its diversion would overwrite one of them" in str(event.errors)
    assert files(machine) == before
    (tmp_path / "bin/tool").unlink()
    (event,) = apply(machine, tmp_path, one({"to": "BIN/other"}))
    assert files(machine) == {"other": PACKAGED, "list": "local diversion of BIN/tool to BIN/other\n"}


def test_machine_without_dpkg_reports_a_clear_error(
    machine: Diverting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SEARCH_PATH", "/no/such/directory")
    for noop in (True, False):
        (event,) = apply(machine, tmp_path, one(DESIRED["present"]), noop=noop)
        assert "dpkg-divert is not installed: only Debian and its derivatives" in str(event.errors)
    (event,) = apply(machine, tmp_path, one(DESIRED["absent"]))
    assert event.state is State.STABLE


class Killed(BaseException):
    """Raised where a test simulates a kill."""


class KilledMachine(Diverting):
    """A machine that is killed at this step: before, within or after a command."""

    def __init__(self, database: Path, at: int) -> None:
        super().__init__(database)
        self.at = at

    def _step(self) -> None:
        self.at -= 1
        if self.at == -1:
            raise Killed

    def execute(self, command: Command) -> Completed:
        self._step()
        if self.at == 0:  # the tool moves the file, and is killed before it writes its database
            database = self.database / "diversions"
            before = database.read_bytes() if database.exists() else b""
            super().execute(command)
            database.write_bytes(before)
            raise Killed
        self._step()
        completed = super().execute(command)
        self._step()
        return completed


@pytest.mark.parametrize("change", ["added", "removed", "moved"])
def test_run_after_a_kill_converges(tmp_path: Path, sweep: Sweep, change: str) -> None:
    first = None if change == "added" else DESIRED["present"]
    then = {"added": DESIRED["present"], "removed": DESIRED["absent"], "moved": {"to": "BIN/other"}}[change]

    def prepare(name: str) -> Diverting:
        machine = make_machine(tmp_path / name)
        put(machine, tool=PACKAGED)
        if first:
            apply(machine, tmp_path / name, one(first))
        return machine

    expected = prepare("expected")
    apply(expected, tmp_path / "expected", one(then))

    def is_killed(step: int) -> bool:
        root = tmp_path / f"step{step}"
        machine = prepare(root.name)
        try:
            apply(KilledMachine(machine.database, step), root, one(then))
        except Killed:
            assert PACKAGED in files(machine).values()
            assert [event.errors for event in apply(machine, root, one(then))] == [[]]
            assert files(machine) == files(expected)
            assert [event.state for event in apply(machine, root, one(then))] == [State.STABLE]
            return True
        return False

    assert sweep(is_killed) >= 3


# Errors at load


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ensure": "diverted"}, "ensure is 'diverted', expected present or absent"),
        ({"name": "bin/tool"}, "name is 'bin/tool', expected an absolute path"),
        ({"name": "/bin/../tool"}, "expected an absolute path"),
        ({"name": "--remove"}, "expected an absolute path"),
        ({"name": "/"}, "name is '/'"),
        ({"name": "/bin/tool\n/etc/shadow"}, "expected a path on one line"),
        ({"to": "real"}, "to is 'real', expected an absolute path"),
        ({"to": "/bin/real\n:"}, "expected a path on one line"),
        ({"to": "/bin/tool"}, "to is '/bin/tool', the path itself, expected another path"),
        ({"package": ""}, "package is '', expected the name of a package"),
        ({"package": "--local"}, "expected the name of a package"),
        ({"package": "LOCAL"}, "expected the name of a package"),
        ({"package": "a\nb"}, "expected the name of a package"),
    ],
)
def test_properties_that_make_no_sense_are_refused_at_load(
    make: Make, properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(PropertyError, match=message):
        make(Diversion, {"name": "/bin/tool", **properties})
