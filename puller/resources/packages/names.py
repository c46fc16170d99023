"""Canonical names of packages: ``hello`` and ``hello:amd64`` are one package on an amd64 machine."""

import os
from collections.abc import Mapping
from typing import Any

from puller.resources.packages.providers import suffix_of_family

_ANY_OF_THIS_MACHINE = ("all", "any", "native", "noarch")


def canonical_name(name: str, facts: Mapping[str, Any]) -> str:
    """Return a name without the machine's own architecture.

    dpkg separates the architecture by a colon, rpm by a dot. Facts are read only for names with an architecture.
    """
    package, colon, architecture = name.partition(":")
    if colon:
        return package if architecture in (*_ANY_OF_THIS_MACHINE, _architecture(facts)) else name
    package, dot, architecture = name.rpartition(".")
    if dot and architecture in ("noarch", "x86_64", "aarch64") and _suffix(facts) == ".rpm":
        return package if architecture in ("noarch", _architecture(facts)) else name
    return name


def _system(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    system = facts.get("os")
    return system if isinstance(system, Mapping) else {}


def _architecture(facts: Mapping[str, Any]) -> str:
    """Return the architecture as the package manager of the machine writes it."""
    architecture = str(_system(facts).get("architecture") or _native())
    return {"aarch64": "arm64"}.get(architecture, architecture) if _suffix(facts) == ".deb" else architecture


def _suffix(facts: Mapping[str, Any]) -> str:
    return suffix_of_family(_system(facts).get("family") or "Debian")


def _native() -> str:
    machine = os.uname().machine
    return {"x86_64": "amd64"}.get(machine, machine)
