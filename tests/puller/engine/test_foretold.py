"""A dry run predicts the changes of a run for each resource, including effects of earlier resources."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.manifest import Manifest
from puller.reporting.report import Event
from puller.system import commands
from puller.system.processes import StopRequests
from tests.simulators import fileserver

if TYPE_CHECKING:
    from tests.simulators.fileserver import FileServer


IDS = f"owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'"
Outcomes = dict[str, tuple[str, list[str]]]


@pytest.fixture
def server() -> Iterator[FileServer]:
    with fileserver.serving() as running:
        yield running


@pytest.fixture
def foretold_and_done(
    load: Callable[..., Manifest], tmp_path: Path
) -> Callable[[str], tuple[Outcomes, Outcomes]]:
    """Return a function that returns states and errors by alias, in a dry run and in the following run."""

    def run(text: str) -> tuple[Outcomes, Outcomes]:
        manifest = text.replace("DIR", str(tmp_path)).replace("IDS", IDS)
        return tuple(outcomes(load(manifest), noop=noop) for noop in (True, False))  # type: ignore[return-value]

    def outcomes(manifest: Manifest, *, noop: bool) -> Outcomes:
        pending = tmp_path / "state/owed.json"
        settings = Settings(noop=noop)
        applied = apply_catalog(
            manifest,
            settings,
            StopRequests(),
            PendingRefreshes(pending, "web", noop=settings.noop),
            state_directory=pending.parent,
            fetch=no_network,
        )
        return {event.alias: (in_noop(event), event.errors) for event in applied.events}

    return run


def no_network(url: str) -> bytes:
    raise AssertionError(f"{url} was fetched")


def in_noop(event: Event) -> str:
    return "would change" if event.changed else event.state.value


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


BRINGING = {
    "command": 'exec: [{"cp DIR/bundle/conf.j2 DIR/brought": {alias: bringing}}]',
    "scaffold": "scaffold: [{DIR/tree: {alias: bringing, source: bundle, engine: jinja}}]",
    "file": 'file: [{DIR/brought: {alias: bringing, content: "of a file\n", IDS}}]',
}


@pytest.mark.parametrize("how", BRINGING)
@pytest.mark.parametrize("property_name", ["source", "template"])
@pytest.mark.parametrize("before", [None, "another\n"])
def test_file_is_copied_from_an_earlier_resource(
    foretold_and_done: Callable[[str], tuple[Outcomes, Outcomes]],
    tmp_path: Path,
    how: str,
    property_name: str,
    before: str | None,
) -> None:
    write(tmp_path / "bundle/conf.j2", "in the bundle\n")
    if before:
        write(tmp_path / "copy", before)
    source = "DIR/tree/conf.j2" if how == "scaffold" else "DIR/brought"
    copy = f"file: [{{DIR/copy: {{alias: copy, {property_name}: {source}, IDS}}}}]"
    foretold, done = foretold_and_done(f"resources:\n  - {BRINGING[how]}\n  - {copy}\n")
    assert foretold == done == {"bringing": ("would change", []), "copy": ("would change", [])}


def test_scaffold_is_rendered_from_an_earlier_resource(
    foretold_and_done: Callable[[str], tuple[Outcomes, Outcomes]], tmp_path: Path
) -> None:
    write(tmp_path / "bundle/conf", "in the bundle\n")
    foretold, done = foretold_and_done("""
        resources:
          - exec: [{"cp -r DIR/bundle DIR/brought": {alias: bringing, creates: DIR/brought}}]
          - scaffold: [{DIR/tree: {alias: tree, source: DIR/brought, engine: jinja}}]
          - file: [{DIR/copy: {alias: copy, source: DIR/tree/conf, IDS}}]
    """)
    expected = dict.fromkeys(("bringing", "tree", "copy"), ("would change", list[str]()))
    assert foretold == done == expected


@pytest.mark.parametrize("how", ["scaffold", "file"])
def test_source_changed_by_an_earlier_resource_differs(
    foretold_and_done: Callable[[str], tuple[Outcomes, Outcomes]], tmp_path: Path, how: str
) -> None:
    write(tmp_path / "bundle/conf.j2", "in the bundle\n")
    for name in ("tree/conf.j2", "brought", "copy"):
        write(tmp_path / name, "before\n")
    source = "DIR/tree/conf.j2" if how == "scaffold" else "DIR/brought"
    copy = f"file: [{{DIR/copy: {{alias: copy, source: {source}, IDS}}}}]"
    foretold, done = foretold_and_done(f"resources:\n  - {BRINGING[how]}\n  - {copy}\n")
    assert foretold == done == {"bringing": ("would change", []), "copy": ("would change", [])}


def test_file_is_copied_from_a_planned_archive(
    foretold_and_done: Callable[[str], tuple[Outcomes, Outcomes]], tmp_path: Path, server: FileServer
) -> None:
    server.files["/app.tar.gz"] = packed("app/conf", b"of the archive\n")
    (tmp_path / "cache").mkdir()
    foretold, done = foretold_and_done(f"""
        resources:
          - archive:
              - DIR/cache/app.tar.gz:
                  {{alias: archive, url: "{server.url}/app.tar.gz", extract_parent: DIR/opt/new, {IDS[:-14]}}}
          - file:
              - DIR/copy: {{alias: copy, source: DIR/opt/new/app/conf, IDS}}
              - DIR/opt/new/app/extra: {{alias: inside, content: "a", IDS}}
              - DIR/opt/beside: {{alias: beside, content: "a", IDS}}
              - DIR/elsewhere/conf: {{alias: elsewhere, content: "a", IDS}}
              - DIR/typo: {{alias: typo, source: DIR/nowhere, IDS}}
    """)
    assert foretold == done
    assert {name: state for name, (state, _) in done.items()} == {
        "archive": "would change",
        "copy": "would change",
        "inside": "would change",
        "beside": "would change",
        "elsewhere": "failed",
        "typo": "failed",
    }
    assert done["elsewhere"][1] == [f"directory {tmp_path}/elsewhere does not exist"]


def test_validator_of_a_planned_archive_is_expected(
    foretold_and_done: Callable[[str], tuple[Outcomes, Outcomes]],
    tmp_path: Path,
    server: FileServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "SEARCH_PATH", f"{tmp_path}/bin:{commands.SEARCH_PATH}")
    server.files["/tool.tar.gz"] = packed("tool/check", b"#!/bin/sh\ngrep -q good $1\n", mode=0o755)
    for name in ("bin", "cache"):
        (tmp_path / name).mkdir()
    foretold, done = foretold_and_done(f"""
        resources:
          - archive:
              - DIR/cache/tool.tar.gz:
                  {{alias: archive, url: "{server.url}/tool.tar.gz", extract_parent: DIR/opt/new, {IDS[:-14]}}}
          - link: [{{DIR/bin/check: {{alias: link, target: DIR/opt/new/tool/check}}}}]
          - file:
              - DIR/valid: {{alias: valid, content: "good", validate: "check {{}}", IDS}}
              - DIR/typo: {{alias: typo, content: "good", validate: "chekc {{}}", IDS}}
    """)
    assert {name: state for name, (state, _) in foretold.items()} == {
        "archive": "would change",
        "link": "would change",
        "valid": "would change",
        "typo": "failed",
    }
    assert {name: state for name, (state, _) in done.items()} == {
        name: state for name, (state, _) in foretold.items()
    }


def packed(name: str, data: bytes, mode: int = 0o644) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), mode
        archive.addfile(member, io.BytesIO(data))
    return target.getvalue()


MOUNTED = """\
resources:
  - file:
      - defaults: {IDS}
      - DIR/replaced: {content: "new\\n"}
      - DIR/removed: {ensure: absent}
      - DIR/same: {content: "mounted\\n", mode: "0640"}
      - DIR/tree: {ensure: absent, force: true}
      - DIR/tree/below: {ensure: absent, force: true}
      - DIR/with space: {content: "new\\n", force: true}
  - scaffold:
      - DIR/scaffolded: {source: templates, engine: jinja}
      - DIR/purged: {source: templates, engine: jinja, purge: true}
  - archive:
      - DIR/app.tar.gz: {ensure: absent}
"""


@pytest.mark.root
@pytest.mark.parametrize("options", [("--noop",), ()])
def test_mounted_paths_are_neither_replaced_nor_removed(tmp_path: Path, options: tuple[str, ...]) -> None:
    files = ("replaced", "removed", "same", "with space", "scaffolded/conf", "app.tar.gz")
    for name in files:
        write(tmp_path / name, "under it\n")
    write(tmp_path / "templates/conf", "new\n")
    write(tmp_path / "mounted", "mounted\n")
    write(tmp_path / "data/precious", "precious\n")
    for name in ("tree/below", "purged/below"):
        (tmp_path / name).mkdir(parents=True)
    write(tmp_path / "manifest.yaml", MOUNTED.replace("DIR", str(tmp_path)).replace("IDS", IDS))
    mounts = [f"mount --bind mounted '{name}'" for name in files]
    mounts += [f"mount --bind data {name}/below" for name in ("tree", "purged")]
    script = " && ".join([*mounts, 'exec "$@"'])
    puller = [
        sys.executable,
        "-m",
        "puller",
        "apply",
        "manifest.yaml",
        "-v",
        f"--state-directory={tmp_path}/state",
    ]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh", *puller, *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    for name, what in {
        "scaffolded": f"{tmp_path}/scaffolded/conf is a mount point, which cannot be replaced",
        "purged": f"{tmp_path}/purged/below/precious is below the mount point {tmp_path}/purged/below, so it is not",
        "app.tar.gz": f"{tmp_path}/app.tar.gz is a mount point, which cannot be removed",
        "replaced": f"{tmp_path}/replaced is a mount point, which cannot be replaced",
        "removed": f"{tmp_path}/removed is a mount point, which cannot be removed",
        "tree": f"{tmp_path}/tree cannot be removed: {tmp_path}/tree/below is mounted below it",
        "tree/below": f"{tmp_path}/tree/below is a mount point, which cannot be removed",
        "with space": f"{tmp_path}/with space is a mount point, which cannot be replaced",
    }.items():
        assert f"#{tmp_path}/{name} failed" in done.stdout
        assert what in done.stdout
    assert f"file#{tmp_path}/same {'would change' if options else 'changed'}" in done.stdout
    assert (tmp_path / "data/precious").read_text() == "precious\n"
    assert (tmp_path / "mounted").read_text() == "mounted\n"
