"""Manifests with edits, applied by the engine to files below a temporary directory."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.reporting.report import Event
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.protocol import System

Apply = Callable[..., dict[str, Event]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Create and return the directory of the edited files."""
    directory = tmp_path / "etc"
    directory.mkdir()
    return directory


@pytest.fixture
def apply(load: Callable[..., Any], tmp_path: Path) -> Apply:
    """Return a function that applies edits in order: ``apply({"line#a": {…}, …}, noop=…)``.

    It returns events by reference.
    """

    def run(
        resources: dict[str, dict[str, Any]],
        *,
        noop: bool = False,
        system: System | None = None,
        state: Path | None = None,
    ) -> dict[str, Event]:
        entries = [
            {kind: [{name: properties}]}
            for (kind, _, name), properties in ((key.partition("#"), each) for key, each in resources.items())
        ]
        manifest = load(yaml.safe_dump({"resources": entries}, allow_unicode=True))
        pending = PendingRefreshes(tmp_path / "owed.json", "web", noop=True)
        system = system or (NoopSystem() if noop else LocalSystem())
        settings = Settings(diffs=True, noop=noop, state_directory=state or tmp_path / "state")
        events: Sequence[Event] = Engine(manifest, system, lambda url: b"", pending, settings).apply()
        return {str(event.reference): event for event in events}

    return run
