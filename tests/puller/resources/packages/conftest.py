"""Simulated Debian and Fedora machines, and jobs for their package managers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from hiera.expressions.expressions import Scope
from puller.resources.base import Resource
from puller.resources.packages.manager import Job
from puller.resources.packages.package import Package
from puller.system.protocol import System
from tests.simulators import packages as simulator

if TYPE_CHECKING:
    from tests.simulators.packages import Machine

NewJob = Callable[..., Job]
Make = Callable[..., Resource[Any, Any]]
MakePackage = Callable[..., Package]


@pytest.fixture
def log() -> list[str]:
    """Collect the lines that jobs log."""
    return []


@pytest.fixture
def job(log: list[str]) -> NewJob:
    """Return a function that makes a job for declared packages: ``job(machine, "tool", …, noop=…)``."""

    def build(machine: Machine, *declared: str, noop: bool = False, **limits: Any) -> Job:
        times = {"timeout": 60.0, "lock_timeout": 10.0, **limits}
        return Job(system=machine, declared=lambda: declared, log=log.append, noop=noop, **times)

    return build


@pytest.fixture
def package(make: Make) -> MakePackage:
    """Return a function that makes a package: ``package(machine, "tool", ensure=…)``.

    ``others`` are the other declared packages, and ``shared`` is the shared state of the run.
    """

    def build(
        machine: Machine,
        name: str = "tool",
        *,
        noop: bool = False,
        others: tuple[str, ...] = (),
        shared: dict[type, Any] | None = None,
        log: Callable[[str], None] = lambda line: None,
        family: str | None = None,
        context: dict[str, Any] | None = None,
        **properties: Any,
    ) -> Package:
        family = family or ("Debian" if type(machine).__name__ == "Debian" else "RedHat")
        system: System = simulator.LookingOnly(machine) if noop else machine
        resource = make(Package, {"name": name, **properties})
        assert isinstance(resource, Package)
        resource.context = msgspec.structs.replace(
            resource.context,
            system=system,
            scope=Scope({"os": {"family": family}}),
            shared={} if shared is None else shared,
            declared=lambda _: (name, *others),
            noop=noop,
            log=log,
            **(context or {}),
        )
        return resource

    return build
