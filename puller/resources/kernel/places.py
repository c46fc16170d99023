"""The files that kernel parameters of this host have their lines in, where that is not the usual one.

What is to be taken away when nobody declares it any more is known by its key alone.
"""

from collections.abc import Mapping

import msgspec

from puller.resources.base import Context
from puller.state.state_file import StateFile

_LOSS = "lines of parameters in files of their own stay when nobody declares them any more"


class _Places(msgspec.Struct, forbid_unknown_fields=True, tag_field="format", tag=1):
    """The files by normalised key."""

    paths: dict[str, str] = {}


def remember(paths: Mapping[str, str], context: Context) -> None:
    """Note in which files keys are. Raises ``OSError``."""
    if (file := _record(context)) is not None:
        known = (file.load(context.log) or _Places()).paths
        if not paths.items() <= known.items():
            file.save(_Places({**known, **paths}))


def find_place(key: str, context: Context) -> str | None:
    """The file of a normalised key; ``None``: the usual one. Raises ``OSError``."""
    file = _record(context)
    found = file and file.load(context.log, noop=context.noop)
    return found.paths.get(key) if found else None


def _record(context: Context) -> "StateFile[_Places] | None":
    state = context.state_directory
    return None if state is None else StateFile(state / "sysctls.json", _Places, _LOSS)
