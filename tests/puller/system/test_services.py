"""Stopped services, from the output of ``systemctl show``."""

import pytest

from puller.system import systemd_units
from puller.system.commands import Command, Completed
from puller.system.systemd_units import StoppedService, find_stopped

OUTPUT = """LoadState=loaded
ActiveState=active
Result=success
ExecMainCode=0
ExecMainStatus=0

LoadState=loaded
ActiveState=failed
Result=exit-code
ExecMainCode=1
ExecMainStatus=3

LoadState=loaded
ActiveState=inactive
Result=success
ExecMainCode=1
ExecMainStatus=0

LoadState=loaded
ActiveState=failed
Result=oom-kill
ExecMainCode=2
ExecMainStatus=9

LoadState=not-found
ActiveState=inactive
Result=success
ExecMainCode=0
ExecMainStatus=0
"""
EXPECTED = [
    StoppedService("b", "failed with exit status 3"),
    StoppedService("c", "stopped"),
    StoppedService("d", "failed (oom-kill)"),
]


def answer(monkeypatch: pytest.MonkeyPatch, output: str, exit_code: int = 0) -> list[Command]:
    """Let systemd answer every query with ``output``. Return the list of commands."""
    commands: list[Command] = []

    def run(command: Command) -> Completed:
        commands.append(command)
        return Completed(exit_code, None, False, output, "", 0.0)

    monkeypatch.setattr(systemd_units, "is_systemd_running", lambda: True)
    monkeypatch.setattr(systemd_units, "run", run)
    return commands


def test_stopped_services_have_their_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = answer(monkeypatch, OUTPUT)
    assert find_stopped(["a", "b", "c", "d", "e"]) == EXPECTED
    assert list(commands[0].arguments)[-5:] == [
        "a.service",
        "b.service",
        "c.service",
        "d.service",
        "e.service",
    ]


def test_unit_names_with_suffix_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = answer(monkeypatch, OUTPUT.partition("\n\n")[0])
    assert find_stopped(["a.socket"]) == []
    assert commands[0].arguments[-1] == "a.socket"


@pytest.mark.parametrize(("output", "exit_code"), [("", 0), (OUTPUT, 1), (OUTPUT, 0)])
def test_unusable_answer_names_no_service(
    output: str, exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, output, exit_code)
    assert find_stopped(["a", "b"]) == []


def test_query_requires_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = answer(monkeypatch, OUTPUT)
    monkeypatch.setattr(systemd_units, "is_systemd_running", lambda: False)
    assert find_stopped(["a", "b", "c", "d", "e"]) == []
    assert commands == []


def test_user_services_are_queried_of_their_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = answer(monkeypatch, OUTPUT.partition("\n\n")[0])
    assert find_stopped(["a"], of_user=True) == []
    assert "--user" in commands[0].arguments
    assert "XDG_RUNTIME_DIR" in commands[0].environment
