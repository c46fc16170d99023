"""The examples of the design documents load unchanged, and behave as documented."""

import os
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ManifestError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.reporting.report import Event
from puller.system.processes import StopRequests

CASES: list[dict[str, Any]] = yaml.load(
    (Path(__file__).parents[2] / "cases" / "manifests" / "design_documents.yaml").read_text(),
    yaml.CSafeLoader,
)
RUN = [case for case in CASES if "runs" in case]
LOADED = [case for case in CASES if "refused" not in case]


def no_network(url: str) -> bytes:
    raise AssertionError(f"{url} was fetched")


def load(case: dict[str, Any], directory: Path, *, adapted: bool) -> Manifest:
    resources = case.get("with", "") + case["text"]
    for old, new in case.get("replace", {}).items() if adapted else ():
        resources = resources.replace(old, new.replace("DIR", str(directory)))
    if adapted:
        resources = resources.replace("owner: root", f"owner: '{os.geteuid()}'")
        resources = resources.replace("group: root", f"group: '{os.getegid()}'")
    (directory / "manifests").mkdir(exist_ok=True)
    path = directory / "manifests" / "manifest.yaml"
    data = yaml.safe_dump({"data": case.get("data", {})})
    path.write_text(f"{data}resources:\n{textwrap.indent(resources, '  ')}")
    return load_manifest(path, "manifest.yaml", Inputs(case.get("facts", {}), {}))


@pytest.mark.parametrize("case", LOADED, ids=lambda case: case["name"])
def test_an_example_loads_verbatim(case: dict[str, Any], tmp_path: Path) -> None:
    manifest = load(case, tmp_path, adapted=False)
    assert [declaration.failure for declaration in manifest.declarations if declaration.failure] == []


@pytest.mark.parametrize("case", [case for case in CASES if "refused" in case], ids=lambda case: case["name"])
def test_an_example_that_another_document_contradicts_is_refused(
    case: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ManifestError, match=case["refused"]):
        load(case, tmp_path, adapted=False)


@pytest.mark.parametrize("case", RUN, ids=lambda case: case["name"])
def test_example_has_the_documented_effect(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "manifests" / "files").mkdir(parents=True)
    for run in case["runs"]:
        for name, text in run.get("before", {}).items():
            write(tmp_path / name, text)
        manifest = load(case, tmp_path, adapted=True)
        if "noop" in run:
            events = apply(manifest, tmp_path, noop=True)
            messages = {name: event.noop_message for name, event in events.items()}
            assert {name: messages[name] for name in placed(run["noop"], tmp_path)} == placed(
                run["noop"], tmp_path
            )
        events = apply(manifest, tmp_path, noop=False)
        states = {name: event.state.value for name, event in events.items()}
        assert {name: states[name] for name in placed(run["states"], tmp_path)} == placed(
            run["states"], tmp_path
        )
        for name, text in run.get("files", {}).items():
            result = (tmp_path / name).read_text() if (tmp_path / name).exists() else None
            assert result == text, name


def placed(expected: dict[str, str], directory: Path) -> dict[str, str]:
    return {name.replace("DIR", str(directory)): value for name, value in expected.items()}


def write(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
    else:
        path.write_text(text)


def apply(manifest: Manifest, directory: Path, *, noop: bool) -> dict[str, Event]:
    applied = apply_catalog(
        manifest,
        Settings(noop=noop),
        StopRequests(),
        PendingRefreshes(directory / "owed.json", "examples", noop=noop),
        state_directory=directory,
        fetch=no_network,
    )
    return {event.name: event for event in applied.events}
