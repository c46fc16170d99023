"""Services that have stopped, as systemd reports them."""

from collections.abc import Sequence
from typing import NamedTuple

from puller.system.timers import show_units

_PROPERTIES = ("LoadState", "ActiveState", "Result", "ExecMainCode", "ExecMainStatus")
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
    if not names:
        return []
    units = [name if "." in name else f"{name}.service" for name in names]
    states = show_units(units, _PROPERTIES, of_user=of_user)
    return [
        StoppedService(name, _reason(state))
        for name, state in zip(names, states or (), strict=False)
        if state.get("LoadState") == "loaded" and state.get("ActiveState") in _STOPPED
    ]


def _reason(state: dict[str, str]) -> str:
    if state["ActiveState"] != "failed":
        return "stopped"
    if state.get("Result") == "exit-code" and state.get("ExecMainCode") == _EXITED:
        return f"failed with exit status {state.get('ExecMainStatus', '')}"
    return f"failed ({state.get('Result', 'unknown')})"
