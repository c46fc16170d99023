"""Whether a unit of systemd is active, and enabled."""

from bundles.deadline import Deadline
from puller.checks.answers import Answer, NotCarriedOut
from puller.checks.kinds import Service
from puller.system.commands import Command
from puller.system.protocol import System

_ENABLED = frozenset({"enabled", "enabled-runtime", "alias", "static", "indirect", "generated", "transient"})
_NOT_ENABLED = frozenset({"disabled", "masked", "masked-runtime", "linked", "linked-runtime", ""})
_PROPERTIES = ("LoadState", "ActiveState", "SubState", "UnitFileState")


def ask(wanted: Service, deadline: Deadline, system: System) -> Answer:
    """Ask systemd. Raises ``NotCarriedOut``, and ``OSError`` when systemctl cannot be started."""
    options = [f"--property={','.join(_PROPERTIES)}", "--", wanted.unit]
    limit = deadline.at_most(deadline.seconds)
    completed = system.query(Command(["systemctl", "show", "--no-pager", *options], timeout=limit))
    if completed.exit_code != 0:
        raise NotCarriedOut(f"systemctl show: {completed.outcome}: {completed.tail(2) or 'no output'}")
    found = dict(line.partition("=")[::2] for line in completed.stdout.splitlines())
    active, file_state = found.get("ActiveState"), found.get("UnitFileState", "")
    if not active or "LoadState" not in found:
        raise NotCarriedOut(f"systemctl show says nothing of {wanted.unit}")
    wrong = []
    if found["LoadState"] in ("error", "bad-setting"):
        wrong.append(f"{wanted.unit} cannot be loaded: {found['LoadState']}")
    state = "not there" if found["LoadState"] == "not-found" else f"{active} ({found.get('SubState')})"
    if (active in ("active", "reloading")) is not wanted.active:
        wrong.append(f"{wanted.unit} is {state}, wanted {'active' if wanted.active else 'inactive'}")
    elif not wanted.active and active not in ("inactive", "failed"):  # on its way
        wrong.append(f"{wanted.unit} is {state}, wanted inactive")
    if wanted.enabled is not None:
        if file_state not in _ENABLED | _NOT_ENABLED:
            raise NotCarriedOut(f"{wanted.unit}: what {file_state!r} means is not known")
        if (file_state in _ENABLED) is not wanted.enabled:
            word = "enabled" if wanted.enabled else "disabled"
            wrong.append(f"{wanted.unit} is {file_state or 'without a unit file'}, wanted {word}")
    return Answer(wrong, f"{wanted.unit} is {state}")
