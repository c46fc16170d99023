"""Names of systemd units, and the links that enable, mask or alias them.

* systemctl creates these links, so manifests do not declare them.
* An incomplete name means a service, as in systemctl(1): ``cron`` is ``cron.service``.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from puller.resources.base import Declared
from puller.resources.services.unit_files import UNIT_DIRECTORIES
from puller.system.real_paths import RealPaths

SUFFIXES = frozenset(
    (
        "service",
        "socket",
        "device",
        "mount",
        "automount",
        "swap",
        "target",
        "path",
        "timer",
        "slice",
        "scope",
    )
)


def unit_of(name: str) -> str:
    """Return the full name of a unit."""
    return name if name.rpartition(".")[2] in SUFFIXES and "." in name else f"{name}.service"


DIRECTORY = "/etc/systemd/system"
"""Directory in which ``systemctl enable``, ``link`` and ``mask`` create links of the system's units."""

_MASK = "/dev/null"
_WANTED_BY = (".wants", ".requires", ".upholds")


def links_of(name: str) -> Iterator[str]:
    """Yield the paths in ``DIRECTORY`` that belong to a unit. The name may omit its suffix.

    These are the unit itself, its aliases, and links in the ``.wants`` and similar directories of other units.
    """
    unit = unit_of(name)
    names = {unit, aliased_unit(unit, RealPaths())}
    with contextlib.suppress(OSError):  # a machine without systemd
        for entry in os.listdir(DIRECTORY):
            path = os.path.join(DIRECTORY, entry)
            if entry in names or _target(path) in names:
                yield path
            elif entry.endswith(_WANTED_BY):
                yield from (inner for inner in _paths(path, names) if os.path.lexists(inner))


def aliased_unit(unit: str, paths: RealPaths) -> str:
    """Return the unit that a name resolves to on this machine: ``sshd.service`` is a link to ``ssh.service``."""
    for directory in UNIT_DIRECTORIES:
        path = f"{directory}/{unit}"
        target = paths.directory(path)
        if target != paths.of(path):
            name = os.path.basename(target)
            is_unit = target != _MASK and unit_of(name) == name
            return name if is_unit else unit
        if os.path.lexists(path):
            break
    return unit


def contradictory_links(services: Sequence[Any], declared: Declared) -> Iterator[tuple[Any, Any, str]]:
    """Find declared links that enable a unit against ``enable`` of its service, or disable it."""
    enable = {unit_of(one.name): one for one in services if one.scope == "system" and one.enable is not None}
    for properties in (*declared("link"), *declared("file")) if enable else ():
        above, _, unit = properties.name.rpartition("/")
        service = enable.get(unit)
        if service is None or not above.endswith(_WANTED_BY) or os.path.dirname(above) != DIRECTORY:
            continue
        if (properties.ensure == "absent") is (service.enable is True):
            yield (
                service,
                properties,
                f"does not agree with enable: {str(service.enable).lower()} of the service",
            )


def _paths(directory: str, names: set[str]) -> Iterator[str]:
    return (os.path.join(directory, name) for name in names)


def _target(path: str) -> str:
    """Return the name of a link's target, empty if the path is not a link."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return ""
