"""Exports of hosts, collected into data for other hosts.

* Each value is checked against its type in the manifest of the host's version, since a host may send any value.
* A host with a missing or invalid value is omitted and listed. Incomplete values would break the configuration of
  other hosts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from puller.reporting.sent_report import PublishedBundle
from puller.values.export_types import Export, Value, find_problem

Types = Callable[[str], Mapping[str, Export]]
"""Return the exports that a version of the bundle declares. Raise ``ValueError`` with the reason if they are unknown.
"""


class Collected(msgspec.Struct):
    """The exports of one bundle, by host, and the reasons for which hosts were omitted."""

    bundle: str
    values: dict[str, dict[str, Value]] = {}
    left_out: dict[str, str] = {}


def collect(bundle: str, standings: Iterable[tuple[str, PublishedBundle]], types: Types) -> Collected:
    """Return the exports of the hosts that enforce a bundle, sorted by host name."""
    collected = Collected(bundle)
    for host, standing in sorted(standings):
        if not standing.enforced:
            continue
        try:
            declared = types(standing.enforced)
        except ValueError as error:
            collected.left_out[host] = str(error)
            continue
        if not declared and not standing.exports:
            continue
        if why := _why_not(declared, standing.exports):
            collected.left_out[host] = why
        else:
            collected.values[host] = {name: standing.exports[name] for name in sorted(declared)}
    return collected


def _why_not(declared: Mapping[str, Export], values: Mapping[str, Value]) -> str:
    if problem := find_problem(values):
        return problem
    for name in sorted(values.keys() - declared.keys()):
        return f"exports {ascii(name)[:80]}, which its version does not declare"
    for name, export in declared.items():
        if name not in values:
            return f"does not export {name}"
        if problem := export.type.problem(values[name]):
            return f"exports {name}, which {problem}"
    return ""


def as_data(collected: Sequence[Collected]) -> dict[str, Any]:
    """Return a data document: ``data.exports['web']`` contains the hosts with exports of the bundle ``web``."""
    return {"data": {"exports": {item.bundle: item.values for item in collected}}}


class Targets(msgspec.Struct):
    """A document of Prometheus' ``file_sd``, and the reasons for which hosts were omitted, by bundle and host."""

    groups: list[dict[str, Any]] = []
    left_out: dict[tuple[str, str], str] = {}


def as_targets(collected: Sequence[Collected], address: str, port: str) -> Targets:
    """Make a group for each host that has both exports. Its other exports are labels.

    If ``port`` is empty, ``address`` is the whole target.
    """
    targets = Targets()
    for item in collected:
        for host, values in item.values.items():
            missing = [name for name in (address, port) if name and name not in values]
            if missing:
                targets.left_out[item.bundle, host] = f"does not export {' and '.join(missing)}"
                continue
            own = {"puller_host": host, "puller_bundle": item.bundle}
            others = {
                f"puller_{name}": _label(value)
                for name, value in values.items()
                if name not in (address, port)
            }
            target = _target(values[address], values.get(port))
            targets.groups.append({"targets": [target], "labels": own | others})
    return targets


def _target(address: Value, port: Value | None) -> str:
    host = f"[{address}]" if ":" in str(address) and port is not None else str(address)
    return host if port is None else f"{host}:{port}"


def _label(value: Value) -> str:
    if isinstance(value, list):
        return ",".join(map(_label, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_suspicious(before: int, now: int) -> bool:
    """Return whether more than half of the hosts have gone. The cause may be missing reports, not removed hosts."""
    return now * 2 < before
