"""Loading and applying manifests with children."""

import os
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.reporting.report import Event
from puller.system.processes import StopRequests

IDS = f"owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'"
Load = Callable[..., Manifest]
Apply = Callable[..., dict[str, Event]]


def no_network(url: str) -> bytes:
    raise AssertionError(f"{url} was fetched")


@pytest.fixture
def load_all(tmp_path: Path) -> Load:
    """Return ``load_all({name: text})``, which loads ``manifest.yaml``. ``DIR`` is a directory for effects."""

    def build(files: Mapping[str, str], **facts: Any) -> Manifest:
        for name, text in files.items():
            path = tmp_path / "web" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).replace("DIR", str(tmp_path)).replace("IDS", IDS))
        return load_manifest(tmp_path / "web" / "manifest.yaml", "web/manifest.yaml", Inputs(facts, {}))

    return build


@pytest.fixture
def apply_all(load_all: Load, tmp_path: Path) -> Apply:
    """Return a function that applies files and returns the events of the run by name, in order."""

    def run(files: Mapping[str, str], *, noop: bool = False, **facts: Any) -> dict[str, Event]:
        manifest = load_all(files, **facts)
        applied = apply_catalog(
            manifest,
            Settings(noop=noop),
            StopRequests(),
            PendingRefreshes(tmp_path / "owed.json", "web", noop=noop),
            state_directory=tmp_path,
            fetch=no_network,
        )
        return {event.alias or event.name: event for event in applied.events}

    return run
