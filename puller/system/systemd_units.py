"""Properties and states of systemd's units: start at boot, running processes, stopped services, and timers.

* ``UnitFileState`` describes the links of a unit file, not their effect. A static unit that another unit wants starts
  at boot. An enabled unit that only ``rescue.target`` wants does not.
* A unit starts at boot if the default target wants it, directly or through other units, or if such a unit triggers
  it (socket, timer, path). Targets of events, such as ``bluetooth.target`` and ``sleep.target``, count as reached: the
  units that they want start with the event.
* systemd is queried about the units in between only if no target that every boot reaches wants the unit.
* systemd reports *active* as soon as a process was started. With ``Restart=``, a unit that keeps crashing is *active*
  most of the time. The end of a young process is therefore awaited for a bounded time. Older processes need no wait.
"""

import os
import select
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from puller.system.commands import Command, run

DEFAULT = "default.target"
DEPENDENTS = ("WantedBy", "RequiredBy", "UpheldBy", "BoundBy", "TriggeredBy")
"""The properties of a unit that name the units which start it."""

_BUS = (
    "/etc/dbus-1/system-services",
    "/usr/local/share/dbus-1/system-services",
    "/usr/share/dbus-1/system-services",
)
"""Directories that declare units for D-Bus to start."""
_USUAL = ("multi-user.target", "graphical.target")
_BASE = frozenset(
    {"basic.target", "paths.target", "slices.target", "sockets.target", "sysinit.target", "timers.target"}
)
"""Units that each of the usual default targets requires (bootup(7))."""
_EVENTS = frozenset(
    f"{name}.target"
    for name in (
        "bluetooth", "printer", "smartcard", "sound", "usb-gadget", "time-set",
        "sleep", "suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate",
        "shutdown", "reboot", "poweroff", "halt", "kexec", "soft-reboot", "exit", "final", "umount",
        "system-update", "graphical-session", "graphical-session-pre", "xdg-desktop-autostart",
    )
)  # fmt: skip


class Node(msgspec.Struct, frozen=True):
    """A unit, and the units that start it."""

    id: str
    load: str
    dependents: tuple[str, ...]

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> "Node":
        """Return the unit that ``systemctl show`` describes."""
        dependents = " ".join(fields.get(name, "") for name in DEPENDENTS).split()
        return cls(fields.get("Id", ""), fields.get("LoadState", ""), tuple(dict.fromkeys(dependents)))


class Boot:
    """The units that one manager starts at boot. Methods raise the errors of ``ask``.

    ``ask`` returns units by name. ``default`` is the target of ``default.target``. ``nodes`` are units to check later,
    so that the units in between are queried together.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[str]], Mapping[str, Node]],
        default: str,
        nodes: Iterable[Node],
        *,
        of_user: bool,
    ) -> None:
        self.default = default
        self._ask = ask
        is_usual = of_user or default in _USUAL
        reached = {default, DEFAULT, *(_BASE if is_usual else ())}
        self._reached = reached | ({"multi-user.target"} if default == "graphical.target" else set())
        self._nodes = {node.id: node for node in nodes}

    def starts(self, node: Node) -> str:
        """Return the unit that starts ``node`` at boot or with an event, empty if none does."""
        if direct := self._direct(node):
            return direct
        self._nodes[node.id] = node
        self._ask_for_unknown()
        return next((name for name in node.dependents if self._is_started(name, {node.id})), "")

    def reaches(self, name: str) -> bool:
        """Return whether a unit that is started by ``name`` starts at boot or with an event."""
        return bool(self.starts(Node("", "loaded", (name,))))

    def _direct(self, node: Node) -> str:
        return next((name for name in node.dependents if self._is_reached(name)), "")

    def _is_reached(self, name: str) -> bool:
        return name in self._reached or name in _EVENTS or name.endswith(".device")

    def _ask_for_unknown(self) -> None:
        """Query all units through which the known units may start, level by level."""
        while names := {
            name
            for node in self._nodes.values()
            if not self._direct(node)
            for name in node.dependents
            if name not in self._nodes
        }:
            answers = self._ask(sorted(names))
            self._nodes.update({name: answers.get(name, Node(name, "not-found", ())) for name in names})

    def _is_started(self, name: str, visited: set[str]) -> bool:
        if self._is_reached(name):
            return True
        node = self._nodes[name]
        if name in visited or node.load != "loaded":
            return False
        visited.add(name)
        return any(
            self._is_started(other, visited)
            for other in node.dependents
            if other in self._nodes or self._is_reached(other)
        )


def is_started_by_bus(unit: str, fragment: str, aliases: Iterable[str] = ()) -> bool:
    """Return whether D-Bus starts a unit when a program requests its name.

    ``fragment`` is the unit file. ``aliases`` are additional names of the unit, besides those of links.
    """
    names = {unit, *aliases}
    directories = {os.path.dirname(fragment), "/etc/systemd/system"}
    return any(
        name in names
        or any(os.path.basename(os.path.realpath(f"{directory}/{name}")) == unit for directory in directories)
        for name in _started_by_bus()
    )


def _started_by_bus() -> Iterator[str]:
    for directory in _BUS:
        for path in _files(directory):
            try:
                with open(path, errors="replace") as stream:
                    settings = [line.partition("=") for line in stream]
            except OSError:  # such as a dangling link
                continue
            yield from (value.strip() for name, _, value in settings if name.strip() == "SystemdService")


def _files(directory: str) -> list[str]:
    try:
        return [f"{directory}/{name}" for name in os.listdir(directory) if name.endswith(".service")]
    except OSError:
        return []


# Units that keep crashing.

WATCH = 3.0
"""Seconds that a process must run before its unit counts as running."""

PROPERTIES = (
    "ExecMainCode", "ExecMainStartTimestampMonotonic", "ExecMainStatus", "MainPID", "NRestarts", "SubState",
)  # fmt: skip
"""The properties of a unit that these functions read."""

_CODES = {"1": "exit code", "2": "signal", "3": "signal"}  # CLD_EXITED, CLD_KILLED, CLD_DUMPED: wait(2)


def number(fields: Mapping[str, str], name: str) -> int:
    """Return a property as a number, 0 if this version of systemd lacks it."""
    text = fields.get(name, "")
    return int(text) if (text.isascii() and text.isdecimal()) else 0


def is_restarting(fields: Mapping[str, str]) -> bool:
    """Return whether the process has ended and systemd is about to restart it."""
    return fields.get("SubState", "").startswith("auto-restart")


def last_exit(fields: Mapping[str, str]) -> str:
    """Return how the last process ended: ``exit code 3``, ``signal 9``. Empty if it runs or never ran."""
    word = _CODES.get(fields.get("ExecMainCode", ""))
    return f"{word} {fields.get('ExecMainStatus', '')}" if word else ""


def age(fields: Mapping[str, str]) -> float | None:
    """Return the running time of the main process in seconds, ``None`` without a main process."""
    since = number(fields, "ExecMainStartTimestampMonotonic")
    return time.monotonic() - since / 1e6 if since and number(fields, "MainPID") else None


def ends_early(fields: Mapping[str, str], *, at_most: float = WATCH) -> bool:
    """Return whether a young main process ends early. Waits up to ``at_most`` seconds."""
    seconds = age(fields)
    if seconds is None or seconds >= WATCH:
        return False
    return ends_within(number(fields, "MainPID"), min(WATCH - seconds, at_most))


def ends_within(pid: int, seconds: float) -> bool:
    """Wait for a process to end. Return ``False`` if it still runs after ``seconds``, or cannot be watched."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:  # an old kernel, or a process of another user namespace
        return False
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(descriptor)


AGENT_TIMER = "puller.timer"
_BOOTED = Path("/run/systemd/system")
"""Exists if systemd is the init system, see sd_booted(3)."""
_QUERY_TIMEOUT = 5.0  # seconds
_TIME_FORMAT = "%a %Y-%m-%d %H:%M:%S UTC"
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
    return Timer(state["ActiveState"] == "active", _parse_time(state.get("NextElapseUSecRealtime", "")))


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
        completed = run(Command(words, variables, timeout=_QUERY_TIMEOUT))
    except OSError:
        return None
    blocks = completed.stdout.strip().split("\n\n")
    if completed.exit_code != 0 or len(blocks) != len(names):
        return None
    return [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]


def _parse_time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:  # empty while a run is in progress
        return None


_SERVICE_PROPERTIES = ("LoadState", "ActiveState", "Result", "ExecMainCode", "ExecMainStatus")
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
    states = show_units(units, _SERVICE_PROPERTIES, of_user=of_user)
    return [
        StoppedService(name, _stop_reason(state))
        for name, state in zip(names, states or (), strict=False)
        if state.get("LoadState") == "loaded" and state.get("ActiveState") in _STOPPED
    ]


def _stop_reason(state: dict[str, str]) -> str:
    if state["ActiveState"] != "failed":
        return "stopped"
    if state.get("Result") == "exit-code" and state.get("ExecMainCode") == _EXITED:
        return f"failed with exit status {state.get('ExecMainStatus', '')}"
    return f"failed ({state.get('Result', 'unknown')})"
