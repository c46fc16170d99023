"""Values of ``ensure`` in Ansible, Puppet, Salt and Chef, and the states of Puller that they mean."""

from collections.abc import Callable, Mapping

_STATES: Mapping[str, tuple[str, ...]] = {
    "add": ("present",),
    "added": ("present",),
    "created": ("present",),
    "deleted": ("absent",),
    "dir": ("directory",),
    "disabled": ("stopped", "absent"),
    "down": ("stopped",),
    "enabled": ("running", "present"),
    "exist": ("exists", "present"),
    "exists": ("present",),
    "file": ("present",),
    "folder": ("directory",),
    "gone": ("absent",),
    "installed": ("present",),
    "link": ("present",),
    "missing": ("absent",),
    "newest": ("latest",),
    "reloaded": ("running",),
    "remove": ("absent", "unmounted"),
    "removed": ("absent", "unmounted"),
    "restarted": ("running",),
    "start": ("running",),
    "started": ("running",),
    "stop": ("stopped",),
    "symlink": ("present",),
    "touch": ("present",),
    "uninstalled": ("absent",),
    "up": ("running",),
    "updated": ("latest", "present"),
    "upgraded": ("latest", "present"),
}


def state_meant_by(word: str, is_valid: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the valid state that a word of another tool means, as a tuple. Empty if the word is unknown."""
    return next(((state,) for state in _STATES.get(word, ()) if is_valid(state)), ())
