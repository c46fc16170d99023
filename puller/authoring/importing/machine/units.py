"""The state of units of systemd: masked, disabled and enabled ones, and the default target.

* Packages record the links of their units, so a missing link shows a disabled unit.
* Whether a unit runs is known only on a running machine, by its control group.
"""

from collections.abc import Iterator
from typing import Any, Final

from puller.authoring.importing.draft import Resource
from puller.authoring.importing.machine.machine_draft import SYSTEM_UNITS, MachineDraft

_PACKAGED: Final = ("usr/lib/systemd/system", "lib/systemd/system")
_ENABLED: Final = "var/lib/systemd/deb-systemd-helper-enabled"
_GROUPS: Final = "sys/fs/cgroup/system.slice"
_MANAGED: Final = (".service", ".timer", ".socket", ".path")
_INITIAL: Final = frozenset({"getty@tty1.service", "systemd-pstore.service", "systemd-timesyncd.service"})
"""Units that a new installation enables without a record."""
_STOPPED: Final = "A disabled unit is stopped in the draft, unless its processes run"


def add_units(draft: MachineDraft) -> None:
    """Add the units whose state differs from a new installation."""
    for name in draft.machine.names(SYSTEM_UNITS):
        path = f"{SYSTEM_UNITS}/{name}"
        link = draft.machine.link(path)
        if link == "/dev/null" and name.endswith(_MANAGED) and path not in draft.owned:
            _add_service(draft, name, {"ensure": "stopped", "enable": "masked"}, path)
        elif link is not None and name == "default.target" and path not in draft.owned:
            draft.add(Resource("link", f"/{path}", {"target": link}), path)
    recorded = {
        name.removesuffix(".dsh-also"): [
            path.lstrip("/") for path in draft.machine.lines(f"{_ENABLED}/{name}")
        ]
        for name in draft.machine.names(_ENABLED)
        if name.endswith(".dsh-also")
    }
    for unit, paths in sorted(recorded.items()):
        if (
            unit.endswith(_MANAGED)
            and _is_packaged(draft, unit)
            and paths
            and not any(draft.machine.exists(path) for path in paths)
        ):
            properties: dict[str, Any] = {"enable": False}
            if not draft.machine.exists(f"{_GROUPS}/{unit}"):
                draft.draft.assume(_STOPPED)
                properties = {"ensure": "stopped", **properties}
            _add_service(draft, unit, properties, f"{_ENABLED}/{unit}.dsh-also")
    for unit, path in _enabled_units(draft):
        if path not in recorded.get(unit, []) and path not in draft.owned and unit not in _INITIAL:
            _add_service(draft, unit, {"enable": True}, path)
    _subscribe(draft)
    draft.draft.check(
        "An enabled unit runs in the draft, whether it runs on this machine or not. "
        "A unit that was only started or stopped by hand is not part of the draft."
    )


def _is_packaged(draft: MachineDraft, unit: str) -> bool:
    return any(draft.machine.exists(f"{place}/{unit}") for place in _PACKAGED)


def _add_service(draft: MachineDraft, unit: str, properties: dict[str, Any], origin: str) -> None:
    """Add the state of a unit, unless an earlier rule has added it."""
    name = unit.removesuffix(".service")
    if unit.endswith(_MANAGED) and draft.find("service", name) is None:
        draft.add(Resource("service", name, properties), origin)


def _subscribe(draft: MachineDraft) -> None:
    """Restart the services whose unit files or drop-ins are part of the draft."""
    for resource in [*draft.manifest.resources]:
        if resource.type not in ("unit", "file") or not str(resource.properties.get("source", "")).startswith(
            f"files/{SYSTEM_UNITS}/"
        ):
            continue
        path = str(resource.properties["source"]).removeprefix(f"files/{SYSTEM_UNITS}/")
        directory = path.rpartition("/")[0]
        unit = directory.removesuffix(".d") if directory.endswith(".d") else path
        service = draft.find("service", unit.removesuffix(".service"))
        if service is None and _is_enabled_by_package(draft, unit):
            # The draft has no other resource of the unit. The drop-in needs a restart.
            _add_service(draft, unit, {"enable": True}, f"{SYSTEM_UNITS}/{path}")
            service = draft.find("service", unit.removesuffix(".service"))
        if service is not None and service.properties.get("enable") is True:
            service.properties.setdefault("subscribe", []).append(resource.reference)


def _is_enabled_by_package(draft: MachineDraft, unit: str) -> bool:
    recorded = draft.machine.lines(f"{_ENABLED}/{unit}.dsh-also")
    return any(draft.machine.exists(path.lstrip("/")) for path in recorded)


def _enabled_units(draft: MachineDraft) -> Iterator[tuple[str, str]]:
    """Yield the enabled units with the paths of their links."""
    seen = set()
    for directory in draft.machine.names(SYSTEM_UNITS):
        if not directory.endswith((".wants", ".requires")):
            continue
        for unit in draft.machine.names(f"{SYSTEM_UNITS}/{directory}"):
            path = f"{SYSTEM_UNITS}/{directory}/{unit}"
            if unit not in seen and draft.machine.link(path) is not None:
                seen.add(unit)
                yield unit, path
