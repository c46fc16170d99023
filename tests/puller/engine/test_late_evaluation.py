"""Expressions that could not be evaluated while the manifest was read are evaluated again before their resource."""

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.reporting.report import Event, State
from puller.system.processes import StopRequests

IDS = f"owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'"
Run = Callable[..., dict[str, Event]]


def no_network(url: str) -> bytes:
    raise AssertionError(f"{url} was fetched")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that returns the events of a run by name or alias. ``DIR`` is the manifest's directory."""

    def build(text: str, *, noop: bool = False) -> dict[str, Event]:
        path = tmp_path / "manifest.yaml"
        path.write_text(textwrap.dedent(text).replace("DIR", str(tmp_path)).replace("IDS", IDS))
        manifest = load_manifest(path, "web/manifest.yaml", Inputs({"set": 1}, {}))
        settings, pending = Settings(noop=noop), tmp_path / "state" / "owed.json"
        applied = apply_catalog(
            manifest,
            settings,
            StopRequests(),
            PendingRefreshes(pending, "web", noop=settings.noop),
            state_directory=pending.parent,
            fetch=no_network,
        )
        return {event.alias or event.name: event for event in applied.events}

    return build


MADE = """
    data: {raw: "{{ '{{ facts.set }}' }}"}
    resources:
      - exec:
          - sh -c 'echo 42 > DIR/made.txt': {alias: maker, creates: DIR/made.txt}
      - file:
          - DIR/copy: {alias: copy, content: "{{ data.raw }} {{ read_file('made.txt') }}", IDS}
      - exec:
          - for: n in [1, 2]
            "touch DIR/done-{{ n }}":
              {alias: "{{ n }}", environment: ["A={{ read_file('made.txt') | trim }}"], creates: "DIR/done-{{ n }}"}
"""


def test_result_of_an_earlier_resource_is_read_late(run: Run, tmp_path: Path) -> None:
    events = run(MADE)
    assert {name: event.state for name, event in events.items()} == dict.fromkeys(
        ("maker", "copy", "1", "2"), State.CHANGED
    )
    assert (tmp_path / "copy").read_text() == "{{ facts.set }} 42\n"
    assert {event.state for event in run(MADE).values()} == {State.STABLE}


def test_dry_run_lists_awaited_resources(run: Run, tmp_path: Path) -> None:
    events = run(MADE, noop=True)
    assert {event.state for event in events.values()} == {State.WOULD_CHANGE}
    assert events["copy"].noop_message == (
        f"Would have been evaluated with {tmp_path}/made.txt, which an earlier resource creates"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.yaml"]


def test_a_dry_run_knows_a_file_that_would_be_written(run: Run) -> None:
    text = """
        resources:
          - file:
              - DIR/made.txt: {content: x, IDS}
              - DIR/copy: {content: "{{ read_file('made.txt') }}", IDS}
    """
    assert {event.state for event in run(text, noop=True).values()} == {State.WOULD_CHANGE}
    assert {event.state for event in run(text).values()} == {State.CHANGED}


def test_a_child_may_wait_for_a_file_at_the_root_of_the_bundle(run: Run, tmp_path: Path) -> None:
    (tmp_path / "roles").mkdir()
    (tmp_path / "roles" / "child.yaml").write_text(
        f"resources: [{{file: [{{{tmp_path}/copy: "
        f"{{content: \"{{{{ read_file('bundle:made.txt') }}}}\", {IDS}}}}}]}}]\n"
    )
    text = """
        resources:
          - file: [{DIR/made.txt: {content: x, IDS}}]
          - apply: [{roles/child.yaml: {}}]
    """
    assert {event.state for event in run(text, noop=True).values()} == {State.WOULD_CHANGE}
    assert {event.state for event in run(text).values()} == {State.CHANGED}
    assert (tmp_path / "copy").read_text() == "x"


@pytest.mark.parametrize("noop", [False, True])
def test_never_created_path_fails_with_its_line(run: Run, tmp_path: Path, noop: bool) -> None:
    events = run("resources: [{file: [{DIR/a: {content: \"{{ read_file('no') }}\", IDS}}]}]\n", noop=noop)
    event = events[f"{tmp_path}/a"]
    assert event.state is State.FAILED
    (error,) = event.errors
    assert error.startswith("web/manifest.yaml:1: content: {{ read_file('no') }}: no cannot be read")


def test_late_names_and_references_stay_failures(run: Run, tmp_path: Path) -> None:
    events = run("""
        resources:
          - file:
              - DIR/made.txt: {content: "exec#true", IDS}
          - exec:
              - "true": {require: ["{{ read_file('made.txt') }}"]}
    """)
    assert events["true"].state is State.FAILED


def test_a_value_that_is_not_valid_when_it_is_there_is_a_failure(run: Run, tmp_path: Path) -> None:
    events = run("""
        resources:
          - file:
              - DIR/made.txt: {content: "0999", IDS}
              - DIR/copy: {content: x, owner: root, group: root, mode: "{{ read_file('made.txt') }}"}
    """)
    (error,) = events[f"{tmp_path}/copy"].errors
    assert error.startswith("web/manifest.yaml:5: mode is '0999', expected octal digits")


def test_parent_data_apply_to_late_evaluation(run: Run, tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text(
        f"resources: [{{file: [{{{tmp_path}/copy: {{content: \"{{{{ read_file('made.txt') }}}}\", {IDS}}}}}]}}]\n"
    )
    events = run("""
        resources:
          - file:
              - DIR/made.txt: {content: x, IDS}
          - apply:
              - child.yaml: {noop: true}
    """)
    assert events[f"{tmp_path}/copy"].state is State.WOULD_CHANGE
    assert not (tmp_path / "copy").exists()
