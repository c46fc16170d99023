"""Services that have stopped, as systemd reports them."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from puller.system.commands import Command, run
from puller.system.timers import is_systemd_running

_PATIENCE = 5.0  # seconds
_STOPPED = frozenset({"inactive", "failed"})
_EXITED = "1"
"""``ExecMainCode`` of a process that exited by itself: ``CLD_EXITED`` of sigaction(2). Others ended by a signal."""


class StoppedService(NamedTuple):
    """A service that is not running."""

    name: str
    reason: str
    """``failed with exit status 3``, or ``stopped``."""


def find_stopped(names: Sequence[str], *, of_user: bool = False) -> list[StoppedService]:
    """Return the services that have stopped. Empty if systemd is not running or does not answer.

    Unknown units do not count, because a unit of another service manager is unknown to this one.
    """
    if not names or not is_systemd_running():
        return []
    properties = "--property=LoadState,ActiveState,Result,ExecMainCode,ExecMainStatus"
    units = [name if "." in name else f"{name}.service" for name in names]
    variables = {"LC_ALL": "C"}
    if of_user:
        variables["XDG_RUNTIME_DIR"] = f"/run/user/{os.geteuid()}"
    manager = "--user" if of_user else "--system"
    words = ["systemctl", manager, "show", "--no-pager", properties, "--", *units]
    try:
        completed = run(Command(words, variables, timeout=_PATIENCE))
    except OSError:
        return []
    blocks = completed.stdout.strip().split("\n\n")
    if completed.exit_code != 0 or len(blocks) != len(names):
        return []
    states = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]
    return [
        StoppedService(name, _reason(state))
        for name, state in zip(names, states, strict=True)
        if state.get("LoadState") == "loaded" and state.get("ActiveState") in _STOPPED
    ]


def _reason(state: dict[str, str]) -> str:
    if state["ActiveState"] != "failed":
        return "stopped"
    if state.get("Result") == "exit-code" and state.get("ExecMainCode") == _EXITED:
        return f"failed with exit status {state.get('ExecMainStatus', '')}"
    return f"failed ({state.get('Result', 'unknown')})"
