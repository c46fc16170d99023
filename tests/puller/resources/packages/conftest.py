"""A Debian and a Fedora in memory, and jobs for their package managers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from puller.resources.packages.job import Job

if TYPE_CHECKING:
    from tests.simulators.packages import Machine

NewJob = Callable[..., Job]


@pytest.fixture(scope="session")
def simulator() -> Any:
    """The module ``tests/simulators/packages.py``, loaded by path as tests are not a package."""
    return SimpleNamespace(**run_path(str(Path(__file__).parents[3] / "simulators/packages.py")))


@pytest.fixture
def log() -> list[str]:
    """The lines that jobs log."""
    return []


@pytest.fixture
def job(log: list[str]) -> NewJob:
    """``job(machine, "tool", …, noop=…)``: for a run that declares these packages."""

    def build(machine: Machine, *declared: str, noop: bool = False, **limits: Any) -> Job:
        times = {"timeout": 60.0, "lock_timeout": 10.0, **limits}
        return Job(system=machine, declared=lambda: declared, log=log.append, noop=noop, **times)

    return build
