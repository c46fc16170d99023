"""The check at the end of a run: a resource fails if a later resource of the same run has undone its change."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.engine.progress import Touches
from puller.manifest.declaration import Declaration
from puller.manifest.graph.host_catalog import HostCatalog
from puller.manifest.manifest import Manifest
from puller.reporting.report import Event
from puller.resources.base import ANYTHING
from puller.resources.files.file import File
from puller.resources.files.link import Link
from puller.system.processes import StopRequests
from tests.support.rows import each_row

IDS = f"owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'"
Run = Callable[..., dict[str, Event]]

UNDOING = """
    resources:
      - file: [{DIR/conf: {alias: conf, content: "1", IDS}}]
      - exec: [{"rm -f DIR/conf": {alias: undo, onlyif: test -e DIR/conf}}]
"""


@pytest.fixture
def run(load: Callable[..., Manifest], tmp_path: Path) -> Run:
    """Return ``run(text, …)``, which returns the events by alias or name. Each text is a bundle."""

    def apply(*texts: str, heard: list[str] | None = None, **settings: Any) -> dict[str, Event]:
        manifests = [load(text.replace("DIR", str(tmp_path)).replace("IDS", IDS)) for text in texts]

        def listener(declaration: Declaration, event: Event) -> None:
            if heard is not None:
                heard.append(str(event.state))

        applied = apply_catalog(
            HostCatalog.of(manifests) if len(manifests) > 1 else manifests[0],
            Settings(listener=listener, **settings),
            StopRequests(),
            PendingRefreshes(tmp_path / "state/pending.json", "web", noop=True),
            state_directory=tmp_path / "state",
            fetch=lambda url: b"",
        )
        return {event.alias or event.name: event for event in applied.events}

    return apply


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often Puller reads the state of each file and link, by base name."""
    counts: Counter[str] = Counter()
    for kind in (File, Link):
        look = kind.look

        def counted(self: Any, look: Any = look) -> Any:
            counts[os.path.basename(self.properties.name)] += 1
            return look(self)

        monkeypatch.setattr(kind, "look", counted)
    return counts


def states(events: Mapping[str, Event]) -> dict[str, str]:
    return {name: event.state.value for name, event in events.items()}


# Undone changes


def test_an_undone_change_is_a_failure_in_every_run(run: Run) -> None:
    for _ in range(2):
        heard: list[str] = []
        events = run(UNDOING, heard=heard)
        assert states(events) == {"conf": "failed", "undo": "changed"}
        assert (
            events["conf"]
            .errors[0]
            .startswith("at the end of the run, it is out of sync again: ensure absent → present")
        )
        assert "exec#rm -f" in events["conf"].errors[0]
        assert [*map(str, events["conf"].differences)] == ["ensure absent → present"]
        assert heard == ["changed", "changed", "failed"], "the listener gets the failure as well"


def test_an_undone_resource_that_was_stable_has_failed(run: Run, tmp_path: Path) -> None:
    run("resources: [{file: [{DIR/conf: {content: '1', IDS}}]}]")
    events = run(UNDOING)
    assert states(events) == {"conf": "failed", "undo": "changed"}
    assert not (tmp_path / "conf").exists()


def test_another_bundle_can_undo_a_resource(run: Run) -> None:
    first, second = UNDOING.split("      - exec")
    events = run(first, f"    resources:\n      - exec{second}")
    assert states(events) == {"conf": "failed", "undo": "changed"}


def test_links_on_the_way_to_a_path_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    touches = Touches()
    touches.add(3, [f"{tmp_path}/real/conf"])
    assert touches.last([f"{tmp_path}/alias/conf"]) == (3, True)


def test_paths_do_not_depend_on_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    touches = Touches()
    touches.add(3, ["/"])
    assert touches.last(["/"]) == (3, True)


def test_a_child_manifest_fails_with_its_undone_resource(run: Run, tmp_path: Path) -> None:
    child, undo = UNDOING.split("      - exec")
    (tmp_path / "child.yaml").write_text(child.replace("DIR", str(tmp_path)).replace("IDS", IDS))
    events = run(f"    resources:\n      - apply: [child.yaml]\n      - exec{undo}")
    assert states(events) == {"conf": "failed", "child.yaml": "failed", "undo": "changed"}
    assert events["child.yaml"].children == {"failed": 1}


# Resources that are read again


def test_a_run_without_changes_looks_once(run: Run, looks: Counter[str]) -> None:
    text = "resources: [{file: [{DIR/a: {content: '1', IDS}}, {DIR/b: {content: '1', IDS}}]}]"
    run(text)
    looks.clear()
    assert set(states(run(text)).values()) == {"stable"}
    assert looks == {"a": 1, "b": 1}


def test_final_check_reads_changed_files_only(run: Run, looks: Counter[str], tmp_path: Path) -> None:
    files = "".join(f"\n      - DIR/{number}: {{content: '1', IDS}}" for number in range(50))
    text = f"resources:\n  - file:{files}\n"
    run(text)
    (tmp_path / "20").write_text("2")
    looks.clear()
    run(text)
    assert looks.pop("20") == 2, "before and after its change, as nothing is changed later"
    assert set(looks.values()) == {1}


def test_a_changed_directory_leaves_its_content_alone(run: Run, looks: Counter[str], tmp_path: Path) -> None:
    text = """
        resources:
          - file:
              - DIR/d/a: {content: "1", IDS, after: [file#dir]}
              - DIR/d: {alias: dir, ensure: directory, IDS}
          - file: [{DIR/d/b: {content: "1", IDS}}]
          - file: [{DIR/d2: {ensure: directory, IDS, after: ["file#DIR/d/b"]}}]
    """.replace("mode: '0644'", "mode: '0755'")
    run(text)
    (tmp_path / "d").chmod(0o700)
    looks.clear()
    run(text)
    assert looks == {"a": 1, "b": 1, "d": 2, "d2": 1}


@pytest.mark.parametrize(
    ("options", "times"), [("", 1), ("creates: DIR/flag", 2), ("unless: test -e DIR/flag", 2)]
)
def test_a_command_of_every_run_causes_no_further_look(
    run: Run, looks: Counter[str], options: str, times: int
) -> None:
    text = """
        resources:
          - file: [{DIR/a: {content: "1", IDS}}]
          - exec: [{"touch DIR/flag": {OPTIONS}}]
    """.replace("OPTIONS", options)
    run("resources: [{file: [{DIR/a: {content: '1', IDS}}]}]")
    looks.clear()
    run(text)
    assert looks["a"] == times


def test_guards_of_commands_are_not_run_again(run: Run, tmp_path: Path) -> None:
    text = """
        resources:
          - exec:
              - guarded: {provider: shell, command: "touch DIR/done", unless: "echo >> DIR/asked; test -e DIR/done"}
          - file: [{DIR/a: {content: "1", IDS}}]
          - exec: [{"touch DIR/flag": {creates: DIR/flag}}]
    """
    assert set(states(run(text)).values()) == {"changed"}
    assert (tmp_path / "asked").read_text() == "\n" * 2, "before the command, and after it"


def test_a_created_path_must_last(run: Run) -> None:
    text = """
        resources:
          - exec: [{"touch DIR/flag": {alias: make, creates: DIR/flag}}]
          - file: [{DIR/flag: {alias: undo, ensure: absent}}]
    """
    events = run(text)
    assert states(events) == {"make": "failed", "undo": "changed"}


def test_resources_with_noop_are_not_looked_at_again(run: Run) -> None:
    text = UNDOING.replace('content: "1"', 'content: "1", noop: true')
    run("resources: [{file: [{DIR/conf: {content: '1', IDS}}]}]")
    assert states(run(text)) == {"conf": "stable", "undo": "changed"}


def test_a_stopped_run_looks_at_nothing_again(run: Run, looks: Counter[str]) -> None:
    reasons = iter(["", "", "stopped"])
    events = run(UNDOING, stopping=lambda: next(reasons))
    assert states(events) == {"conf": "changed", "undo": "changed"}


def test_a_file_of_unknown_content_is_not_fetched_again() -> None:
    def lasts(**properties: Any) -> bool:
        made = File.properties_type(name="/srv/a", source="https://example.com/a", **properties)
        return File.lasting(made) is not None

    assert not lasts()
    assert lasts(checksum="0" * 64)


# Subjects


@each_row(
    ("touched", "subject", "is_touched"),
    [
        ("/a/b", "/a/b", True),
        ("/a/b", "/a/b/c", False),
        ("/a/b/", "/a/b/c", True),
        ("/a/b/", "/a/b", True),
        ("/a/b/", "/a/bc", False),
        ("/a/b/c", "/a/b", False),
        ("/a/b/c", "/a/b/", True),
        ("/a/b/c/", "/a/b/", True),
        ("/a/b", "/a/b/", True),
        ("/a/b", "/", True),
        ("/", "/", True),
        ("/", "/a", True),
        ("packages", "packages", True),
        ("packages", "mount", False),
        (ANYTHING, "/a/b", True),
        (ANYTHING, "packages", True),
    ],
)
def test_a_change_touches_subjects(touched: str, subject: str, is_touched: bool) -> None:
    touches = Touches()
    touches.add(3, [touched])
    place, is_named = touches.last([subject])
    assert (place == 3) == is_touched
    assert is_named == (touched != ANYTHING)
