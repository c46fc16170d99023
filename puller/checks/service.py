"""Whether a unit of systemd is active, and enabled."""

import os

import msgspec

from bundles.deadline import Deadline
from puller.checks.answers import Answer, NotCarriedOut
from puller.checks.kinds import Service
from puller.system.commands import Command
from puller.system.protocol import System

_ENABLED = frozenset({"enabled", "enabled-runtime", "alias", "static", "indirect", "generated", "transient"})
_NOT_ENABLED = frozenset({"disabled", "masked", "masked-runtime", "linked", "linked-runtime", ""})
_PROPERTIES = ("LoadState", "ActiveState", "SubState", "UnitFileState")


class Unit(msgspec.Struct, frozen=True):
    """A unit in the words of systemd."""

    name: str
    load: str
    active: str
    sub: str
    file_state: str

    def __str__(self) -> str:
        return "not there" if self.load == "not-found" else f"{self.active} ({self.sub})"

    @property
    def is_active(self) -> bool:
        """Whether it is; one on its way is not."""
        return self.active in ("active", "reloading")

    @property
    def is_enabled(self) -> bool:
        """Whether it is; raises ``NotCarriedOut`` for a word of systemd that is not known."""
        if self.file_state not in _ENABLED | _NOT_ENABLED:
            raise NotCarriedOut(f"{self.name}: what {self.file_state!r} means is not known")
        return self.file_state in _ENABLED


def ask(wanted: Service, deadline: Deadline, system: System) -> Answer:
    """Ask systemd. Raises ``NotCarriedOut``, and ``OSError`` when systemctl cannot be started."""
    unit = look(wanted.unit, deadline, system, wanted.scope)
    wrong = []
    if unit.load in ("error", "bad-setting"):
        wrong.append(f"{wanted.unit} cannot be loaded: {unit.load}")
    is_so = unit.is_active if wanted.active else unit.active in ("inactive", "failed")
    if not is_so:
        wrong.append(f"{wanted.unit} is {unit}, wanted {'active' if wanted.active else 'inactive'}")
    if wanted.enabled is not None and unit.is_enabled is not wanted.enabled:
        word = "enabled" if wanted.enabled else "disabled"
        wrong.append(f"{wanted.unit} is {unit.file_state or 'without a unit file'}, wanted {word}")
    return Answer(wrong, f"{wanted.unit} is {unit}")


def look(name: str, deadline: Deadline, system: System, scope: str = "system") -> Unit:
    """The unit as systemd knows it; raises ``NotCarriedOut`` and ``OSError``."""
    options = [f"--property={','.join(_PROPERTIES)}", "--", name]
    limit = deadline.at_most(deadline.seconds)
    words = ["systemctl", f"--{scope}", "show", "--no-pager", *options]
    place = {"XDG_RUNTIME_DIR": f"/run/user/{os.geteuid()}"} if scope == "user" else {}
    completed = system.query(Command(words, place, timeout=limit))
    if completed.exit_code != 0:
        raise NotCarriedOut(f"systemctl show: {completed.outcome}: {completed.tail(2) or 'no output'}")
    found = dict(line.partition("=")[::2] for line in completed.stdout.splitlines())
    if not found.get("ActiveState") or "LoadState" not in found:
        raise NotCarriedOut(f"systemctl show says nothing of {name}")
    return Unit(name, *(found.get(key, "") for key in _PROPERTIES))
