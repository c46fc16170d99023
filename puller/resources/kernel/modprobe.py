"""Calls of modprobe."""

import os

from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Context
from puller.system.commands import SEARCH_PATH, Command
from puller.system.protocol import System

_TIMEOUT = 120.0  # seconds; a driver may look for its devices
_TOOL = "/usr/sbin/modprobe"


def load(name: str, system: System) -> None:
    """Load a module with what it needs; raises ``ResourceError``."""
    _run(system, "--", name)


def unload(name: str, system: System) -> None:
    """Unload a module with what nothing else needs; raises ``ResourceError``."""
    _run(system, "-r", "--", name)


def require_modprobe(context: Context) -> None:
    """Raise ``ResourceError`` when there is no modprobe, and in noop no earlier resource may bring it."""
    is_there = any(os.access(f"{directory}/modprobe", os.X_OK) for directory in SEARCH_PATH.split(":"))
    if not is_there and not (context.noop and context.uncertain(_TOOL)):
        raise ResourceError(
            "modprobe is not installed", code=ProblemCode.MISSING_DEPENDENCY, hint="it is in the package kmod"
        )


def _run(system: System, *arguments: str) -> None:
    completed = system.execute(Command(["modprobe", *arguments], {"LC_ALL": "C.UTF-8"}, timeout=_TIMEOUT))
    if completed.exit_code != 0:
        printed = completed.tail()
        what = f"modprobe {' '.join(arguments)}: {completed.outcome}"
        raise ResourceError(what + (f"; it printed:\n{printed}" if printed else ""))
