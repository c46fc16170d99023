"""Properties of units from systemd, and the state of a timer: whether it is active, and its next start."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from puller.system.commands import Command, run

AGENT_TIMER = "puller.timer"
_BOOTED = Path("/run/systemd/system")
"""Exists if systemd is the init system, see sd_booted(3)."""
_PATIENCE = 5.0  # seconds
_FORMAT = "%a %Y-%m-%d %H:%M:%S UTC"
"""The format of systemctl in the locale C and the time zone UTC. Old versions have no option for other formats."""


class Timer(NamedTuple):
    """The state of a timer."""

    is_active: bool
    next_start: datetime | None = None
    """``None`` also if the timer counts from the last run and not by the wall clock."""


def is_systemd_running() -> bool:
    """Return whether systemd is the init system."""
    return _BOOTED.is_dir()


def find_timer(name: str = AGENT_TIMER, *, of_user: bool = False) -> Timer | None:
    """Return the state of a timer. ``None`` if systemd is not running or does not answer."""
    units = show_units([name], ("ActiveState", "NextElapseUSecRealtime"), of_user=of_user)
    if not units or "ActiveState" not in units[0]:
        return None
    state = units[0]
    return Timer(state["ActiveState"] == "active", _parse(state.get("NextElapseUSecRealtime", "")))


def show_units(
    names: Sequence[str], properties: Sequence[str], *, of_user: bool = False
) -> list[dict[str, str]] | None:
    """Return properties of each unit, as ``systemctl show`` prints them in the locale C and in UTC.

    ``None`` if systemd is not running or does not answer for all units.
    """
    if not is_systemd_running():
        return None
    variables = {"LC_ALL": "C", "TZ": "UTC"}
    if of_user:
        variables["XDG_RUNTIME_DIR"] = f"/run/user/{os.geteuid()}"
    manager = "--user" if of_user else "--system"
    words = ["systemctl", manager, "show", "--no-pager", f"--property={','.join(properties)}", "--", *names]
    try:
        completed = run(Command(words, variables, timeout=_PATIENCE))
    except OSError:
        return None
    blocks = completed.stdout.strip().split("\n\n")
    if completed.exit_code != 0 or len(blocks) != len(names):
        return None
    return [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]


def _parse(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _FORMAT).replace(tzinfo=UTC)
    except ValueError:  # empty while a run is in progress
        return None
