"""Checkouts among other resources: duplicates, dependent resources, and dry runs that agree with real runs."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from tests.support.git_remotes import Remote


def apply(directory: Path, *resources: dict[str, Any], noop: bool = False) -> list[str]:
    """Apply resources and return their states in order."""
    (directory / "manifest.yaml").write_text(yaml.safe_dump({"resources": list(resources)}))
    manifest = load_manifest(directory / "manifest.yaml", "manifest.yaml", Inputs({}, {}))
    system = NoopSystem() if noop else LocalSystem()
    settings = Settings(noop=noop, state_directory=directory / "state")
    engine = Engine(manifest, system, lambda url: b"", PendingRefreshes(None, "test"), settings)
    return [str(event.state) for event in engine.apply()]


def test_equal_declarations_are_a_single_tree(tmp_path: Path, remote: Remote) -> None:
    def declared(**properties: Any) -> dict[str, Any]:
        return {"checkout": [{f"{tmp_path}/app": {"url": remote.url, **properties}}]}

    assert apply(tmp_path, declared(), declared(revision="v1", force=True)) == ["changed"]
    assert (tmp_path / "app/file").read_text() == "one"
    with pytest.raises(ManifestError, match="revision is 'v2' here and 'v1' there"):
        apply(tmp_path, declared(revision="v1"), declared(revision="v2"))
    with pytest.raises(ManifestError, match="ensure is 'latest' here and 'present' there"):
        apply(tmp_path, declared(), declared(ensure="latest"))


@pytest.mark.everything
def test_noop_assumes_files_of_a_planned_clone(tmp_path: Path, remote: Remote) -> None:
    ours = {"owner": os.geteuid(), "group": os.getegid(), "mode": "0644"}
    resources = (
        {"checkout": [{f"{tmp_path}/app": {"url": remote.url, "revision": "v1"}}]},
        {"file": [{f"{tmp_path}/copy": {**ours, "source": f"{tmp_path}/app/file"}}]},
        {"file": [{f"{tmp_path}/app/local.conf": {**ours, "content": "x"}}]},
        {"link": [{f"{tmp_path}/current": {"target": "app"}}]},
        {"file": [{f"{tmp_path}/current/other.conf": {**ours, "content": "x"}}]},
    )
    assert apply(tmp_path, *resources, noop=True) == ["would change"] * 5
    assert not (tmp_path / "app").exists()
    assert apply(tmp_path, *resources) == ["changed"] * 5
    assert (tmp_path / "copy").read_text() == "one"
    assert apply(tmp_path, *resources) == ["stable"] * 5
    assert apply(tmp_path, *resources, noop=True) == ["stable"] * 5


@pytest.mark.everything
@pytest.mark.root
def test_a_dry_run_refuses_a_tree_below_a_new_home(open_to_all: Path, remote: Remote) -> None:
    theirs = {"ensure": "directory", "owner": "nobody", "group": "nogroup", "mode": "0755"}
    resources = (
        {"file": [{f"{open_to_all}/home": theirs}]},
        {"checkout": [{f"{open_to_all}/home/app": {"url": remote.url, "revision": "v1"}}]},
    )
    assert apply(open_to_all, *resources, noop=True) == ["would change", "failed"]
    assert apply(open_to_all, *resources) == ["changed", "failed"]
    assert apply(open_to_all, *resources, noop=True) == ["stable", "failed"]
