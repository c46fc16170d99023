"""The parts of a run and how long each took, in seconds."""

import contextlib
import time
from collections.abc import Iterator
from enum import StrEnum


class Phase(StrEnum):
    """A part of a run; what is in none of them takes a few milliseconds."""

    REFRESH = "refresh"
    """What does the site publish?"""
    FETCH = "fetch"
    """Bundles are downloaded, verified, and unpacked."""
    RESOLVE = "resolve"
    """Manifests are read with facts and data; all bundles become one catalog."""
    APPLY = "apply"
    """Resources, with their health checks; after a rollback once more."""


class Phases:
    """A watch, stopped for each phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, phase: Phase) -> Iterator[None]:
        """Count what the block takes, whatever it ends with."""
        began = time.perf_counter()
        try:
            yield
        finally:
            taken = time.perf_counter() - began
            self.seconds[phase] = round(self.seconds.get(phase, 0.0) + taken, 4)
