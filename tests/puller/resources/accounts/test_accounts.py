"""Users and groups: every current state with every desired state, on simulated tools.

``tests/system/test_accounts.py`` runs the same table with the real tools.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.manifest import Manifest
from puller.reporting.report import Event, State
from puller.resources.accounts import account_databases, user_state
from tests.simulators import accounts as simulator

if TYPE_CHECKING:
    from tests.simulators.accounts import Accounts

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[4]
CASES: dict[str, list[dict[str, Any]]] = yaml.load(
    (ROOT / "tests/cases/accounts.yaml").read_text(), yaml.CSafeLoader
)
TABLE = [
    pytest.param(kind, case, id=f"{kind}, {case['case']}") for kind, cases in CASES.items() for case in cases
]

ALLOWED = [
    pytest.param(kind, case, id=f"{kind}, {case['case']}")
    for kind, cases in CASES.items()
    for case in cases
    if "refused" not in case
]

HASH = "$6$salt$" + "a" * 86
OTHER = "$y$j9T$salt$" + "b" * 43
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFhxL3Jg0kn3yCEJlXc2eGNFtt8mgXWvdOsqvQbZyPuK a@example.com"

Load = Callable[..., Manifest]
Apply = Callable[..., list[Event]]


def filled(value: Any, homes: Path | str) -> Any:
    """Return a value of the table with its placeholders replaced."""
    if isinstance(value, dict):
        return {filled(name, homes): filled(item, homes) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, homes) for item in value]
    if not isinstance(value, str):
        return value
    for name, text in {"HOMES": str(homes), "HASH": HASH, "OTHER": OTHER, "KEY": KEY}.items():
        value = value.replace(name, text)
    return value


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "homes"
    directory.mkdir()
    monkeypatch.setattr(user_state, "HOMES", str(directory))
    return directory


@pytest.fixture
def machine(tmp_path: Path, homes: Path, monkeypatch: pytest.MonkeyPatch) -> Accounts:
    monkeypatch.setattr(account_databases, "DIRECTORY", str(tmp_path / "etc"))
    accounts: Accounts = simulator.Accounts(tmp_path / "etc")
    return accounts


@pytest.fixture
def apply(machine: Accounts, load: Load, tmp_path: Path) -> Apply:
    """Return a function that applies resources and returns the events: ``apply([{"user": [{"a": {…}}]}], noop=…)``."""

    def run(resources: list[Any], *, noop: bool = False) -> list[Event]:
        manifest = load(yaml.safe_dump({"resources": resources}))
        system = simulator.LookingOnly(machine) if noop else machine
        pending = PendingRefreshes(tmp_path / "pending.json", "web", noop=noop)
        return Engine(manifest, system, lambda url: b"", pending, Settings(noop=noop)).apply()

    return run


def bring(machine: Accounts, homes: Path, case: Mapping[str, Any]) -> None:
    """Create the current state of a case with the commands in the table."""
    for name in case.get("users", ()):
        machine.bring(f"useradd -M -d /x -- {name}")
    for line in filled(case.get("found", []), homes):
        match shlex.split(line):
            case ["mkdir", path]:
                Path(path).mkdir()
            case ["chown", uid, path]:
                os.chown(path, int(uid), int(uid))
            case ["ln", "-s", target, path]:
                Path(path).symlink_to(target)
            case _:
                machine.bring(line)


def files(machine: Accounts) -> list[str]:
    return [database.path.read_text() for database in (machine.passwd, machine.group, machine.shadow)]


@pytest.mark.parametrize(("kind", "case"), TABLE)
@pytest.mark.representatives(20)
def test_every_state_converges_in_a_run_or_is_refused(
    machine: Accounts, homes: Path, apply: Apply, kind: str, case: dict[str, Any]
) -> None:
    bring(machine, homes, case)
    name, before = kind[0] if kind == "group" else "a", files(machine)
    desired = [{kind: [{name: filled(case["wants"], homes)}]}]
    (event,) = apply(desired)
    if refusal := filled(case.get("refused", ""), homes):
        assert event.state is State.FAILED
        assert refusal in event.errors[0]
        assert (machine.ran, files(machine)) == ([], before), "nothing is half done"
        return
    commands = [shlex.split(line) for line in filled(case.get("commands", []), homes)]
    changes = bool(commands or case.get("changes"))
    assert (event.state, event.errors) == (State.CHANGED if changes else State.STABLE, [])
    assert machine.ran == commands
    assert event.notes == filled([case["note"]] if "note" in case else [], homes)
    check_after(machine, homes, case)
    machine.ran.clear()
    machine.acted.clear()
    (event,) = apply(desired)
    assert event.state is State.STABLE
    assert (machine.ran, machine.acted) == ([], []), "the second run changes nothing and starts no process"


def check_after(machine: Accounts, homes: Path, case: Mapping[str, Any]) -> None:
    for path, uid in filled(case.get("owner", {}), homes).items():
        assert os.stat(path).st_uid == uid
    if "missing" in case:
        assert not Path(filled(case["missing"], homes)).exists()
    if "there" in case:
        assert Path(filled(case["there"], homes)).is_dir()
    if "field" in case:
        assert machine.shadow.lines["a"][1] == filled(case["field"], homes)
    if "keys" in case:
        assert (homes / "a/.ssh/authorized_keys").read_text().splitlines() == filled(case["keys"], homes)
        assert machine.acted == ["a"]


@pytest.mark.parametrize(("kind", "case"), TABLE)
@pytest.mark.representatives(20)
def test_noop_predicts_the_run_and_changes_nothing(
    machine: Accounts, homes: Path, apply: Apply, kind: str, case: dict[str, Any]
) -> None:
    bring(machine, homes, case)
    name, before = kind[0] if kind == "group" else "a", files(machine)
    (event,) = apply([{kind: [{name: filled(case["wants"], homes)}]}], noop=True)
    assert (machine.ran, machine.acted, files(machine)) == ([], [], before)
    if refusal := filled(case.get("refused", ""), homes):
        assert refusal in event.errors[0]
    else:
        expected = filled(case.get("noop", ""), homes)
        assert (event.noop_message, event.errors) == (expected, [])
        assert event.state is (State.WOULD_CHANGE if expected else State.STABLE)


@pytest.mark.parametrize(("kind", "case"), ALLOWED)
@pytest.mark.representatives(20)
def test_interrupted_run_is_completed_by_the_next(
    machine: Accounts, homes: Path, apply: Apply, kind: str, case: dict[str, Any]
) -> None:
    bring(machine, homes, case)
    name = kind[0] if kind == "group" else "a"
    desired = [{kind: [{name: filled(case["wants"], homes)}]}]
    for allowed in count():
        machine.after = CutShort(allowed)
        (event,) = apply(desired)
        machine.after = lambda: None
        if event.state in (State.CHANGED, State.STABLE):
            break
        assert "cut short" in event.errors[0]
    check_after_last(machine, homes, case)


class CutShort:
    """Raises an exception after the last allowed change."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed

    def __call__(self) -> None:
        self.allowed -= 1
        if self.allowed < 0:
            raise RuntimeError("cut short")


def check_after_last(machine: Accounts, homes: Path, case: Mapping[str, Any]) -> None:
    machine.acted[:] = machine.acted[:1]
    check_after(machine, homes, case)
