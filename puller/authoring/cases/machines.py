"""The machine of a case: facts of a known system, and those that the case gives over them."""

from collections.abc import Mapping
from typing import Any

from puller.facts.values import merged


def machine_facts(system: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a machine with this system, with those that are ``given`` over them; raises ``ValueError``."""
    known: dict[str, Any] = {} if system is None else _facts_of(system)
    facts: dict[str, Any] = merged(known, given)
    return facts


def _facts_of(system: str) -> dict[str, Any]:
    from puller.values.suggestions import did_you_mean

    if system not in _SYSTEMS:
        raise ValueError(f"is {system!r}, which is no known system{did_you_mean(system, _SYSTEMS)}")
    return _SYSTEMS[system]


_SYSTEMS: Mapping[str, dict[str, Any]] = {
    "debian-12": {
        "kernel": "Linux",
        "os": {
            "family": "Debian",
            "name": "Debian",
            "architecture": "amd64",
            "hardware": "x86_64",
            "release": {"full": "12.11", "major": "12", "minor": "11"},
            "distro": {"codename": "bookworm", "id": "Debian"},
        },
        "networking": {"hostname": "machine", "fqdn": "machine.example.com", "domain": "example.com"},
    },
    "rocky-9": {
        "kernel": "Linux",
        "os": {
            "family": "RedHat",
            "name": "Rocky",
            "architecture": "x86_64",
            "hardware": "x86_64",
            "release": {"full": "9.6", "major": "9", "minor": "6"},
        },
        "networking": {"hostname": "machine", "fqdn": "machine.example.com", "domain": "example.com"},
    },
}
