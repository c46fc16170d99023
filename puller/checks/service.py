"""Check of a systemd unit: whether it keeps running, and whether it starts at boot."""

import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from bundles.deadline import Deadline
from puller.checks.kinds import Answer, NotCarriedOut, Service
from puller.system import systemd_units
from puller.system.commands import Command
from puller.system.protocol import System
from puller.system.systemd_units import DEFAULT, DEPENDENTS, Boot, Node, is_started_by_bus

_HAVE_LINKS = frozenset({"enabled", "alias"})
_WITHOUT_LINKS = frozenset({"static", "indirect", "generated"})
_NOT_ENABLED = frozenset(
    {"disabled", "enabled-runtime", "transient", "masked", "masked-runtime", "linked", "linked-runtime", ""}
)
_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "UnitFileState",
    "FragmentPath",
    "Id",
    *DEPENDENTS,
    *systemd_units.PROPERTIES,
)


class Unit(msgspec.Struct, frozen=True):
    """A unit as systemd reports it, and whether it starts at boot."""

    name: str
    fields: Mapping[str, str]
    boot: Callable[[], Boot]
    crash: str = ""
    """How its process ended while it was watched. Empty if it keeps running, or does not run."""

    @property
    def load(self) -> str:
        return self.fields.get("LoadState", "")

    @property
    def active(self) -> str:
        return self.fields.get("ActiveState", "")

    @property
    def file_state(self) -> str:
        return self.fields.get("UnitFileState", "")

    def __str__(self) -> str:
        state = f"{self.active} ({self.fields.get('SubState', '')})"
        return "missing" if self.load == "not-found" else state + (f", {self.crash}" if self.crash else "")

    @property
    def is_active(self) -> bool:
        """Whether it runs and keeps running. A unit that is about to start does not run."""
        return self.active in ("active", "reloading", "refreshing") and not self.crash

    @property
    def is_enabled(self) -> bool:
        """Whether it starts at boot. Raises ``NotCarriedOut`` for an unknown state of its file, and ``OSError``."""
        if self.file_state not in _HAVE_LINKS | _WITHOUT_LINKS | _NOT_ENABLED:
            raise NotCarriedOut(f"{self.name}: unknown state {self.file_state!r} of the unit file")
        if self.file_state in _NOT_ENABLED:
            return False
        if self.boot().starts(Node.parse(self.fields)):
            return True
        return is_started_by_bus(self.fields.get("Id", ""), self.fields.get("FragmentPath", ""))

    @property
    def is_disabled(self) -> bool:
        """Whether it has no links. A unit that needs no links must also not start at boot."""
        if self.file_state in _WITHOUT_LINKS:
            return not self.is_enabled
        return self.file_state in _NOT_ENABLED - {"enabled-runtime"}


def ask(check: Service, deadline: Deadline, system: System) -> Answer:
    """Query systemd. Raises ``NotCarriedOut``, and ``OSError`` if systemctl cannot be started."""
    unit = look(check.unit, deadline, system, check.scope)
    wrong = []
    if unit.load in ("error", "bad-setting"):
        wrong.append(f"{check.unit} cannot be loaded: {unit.load}")
    is_so = unit.is_active if check.active else unit.active in ("inactive", "failed")
    if not is_so:
        wrong.append(f"{check.unit} is {unit}, expected {'active' if check.active else 'inactive'}")
    if check.enabled is not None and not (unit.is_enabled if check.enabled else unit.is_disabled):
        word = "enabled" if check.enabled else "disabled"
        state = unit.file_state or "without a unit file"
        effect = (
            " and does not start at boot" if check.enabled and unit.file_state not in _NOT_ENABLED else ""
        )
        wrong.append(f"{check.unit} is {state}{effect}, expected {word}")
    return Answer(wrong, f"{check.unit} is {unit}")


def look(name: str, deadline: Deadline, system: System, scope: str = "system") -> Unit:
    """Return the unit as systemd reports it. Watches a young process until it is old enough, or ends.

    Raises ``NotCarriedOut`` and ``OSError``.
    """

    def show(properties: Sequence[str], *names: str) -> list[dict[str, str]]:
        return _show(properties, names, deadline, system, scope)

    def boot() -> Boot:
        (default,) = show(("Id",), DEFAULT)
        return Boot(ask_nodes, default.get("Id", ""), (), of_user=scope == "user")

    def ask_nodes(names: Sequence[str]) -> dict[str, Node]:
        shown = show(("Id", "LoadState", *DEPENDENTS), *names)
        return {name: Node.parse(fields) for name, fields in zip(names, shown, strict=True)}

    # default.target first, because this loads the units that it wants. The queried unit then lists them.
    *_, fields = show(_PROPERTIES, DEFAULT, name)
    # Keep half of the time for the second query.
    is_crashing = systemd_units.ends_early(fields, at_most=deadline.at_most(deadline.seconds) / 2)
    if is_crashing:
        *_, fields = show(_PROPERTIES, DEFAULT, name)
    crash = ""
    if is_crashing or systemd_units.is_restarting(fields):
        how = systemd_units.last_exit(fields)
        crash = f"its process has ended{f' with {how}' if how else ''}"
    return Unit(name, fields, boot, crash)


def _show(
    properties: Sequence[str], names: Sequence[str], deadline: Deadline, system: System, scope: str
) -> list[dict[str, str]]:
    """Return the properties of each unit. Raises ``NotCarriedOut`` and ``OSError``."""
    options = [f"--property={','.join(properties)}", "--", *names]
    limit = deadline.at_most(deadline.seconds)
    words = ["systemctl", f"--{scope}", "show", "--no-pager", *options]
    place = {"XDG_RUNTIME_DIR": f"/run/user/{os.geteuid()}"} if scope == "user" else {}
    completed = system.query(Command(words, place, timeout=limit))
    if completed.exit_code != 0:
        raise NotCarriedOut(f"systemctl show: {completed.outcome}: {completed.tail(2) or 'no output'}")
    blocks = completed.stdout.strip("\n").split("\n\n")
    shown = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]
    if len(shown) != len(names) or "Id" not in shown[-1]:
        raise NotCarriedOut(f"systemctl show returns nothing about {names[-1]}")
    return shown
