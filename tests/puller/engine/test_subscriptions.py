"""A subscriber waits for all its subjects, and a pending refresh runs once, in this or a later run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puller.engine.catalog_run import apply_catalog
from puller.engine.engine import Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.reporting.report import Event
from puller.system.processes import StopRequests

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host, Publisher

Apply = Callable[..., dict[str, Event]]
IDS = f"owner: '{os.geteuid()}', group: '{os.getegid()}', mode: '0644'"


def apply_in(directory: Path, text: str, *, noop: bool = False) -> dict[str, Event]:
    path = directory / "manifest.yaml"
    path.write_text(text.replace("DIR", str(directory)).replace("IDS", IDS))
    manifest = load_manifest(path, "manifest.yaml", Inputs({}, {}))
    pending = PendingRefreshes(directory / "pending.json", "web", noop=noop)
    applied = apply_catalog(
        manifest,
        Settings(noop=noop),
        StopRequests(),
        pending,
        state_directory=directory,
        fetch=lambda url: b"",
    )
    return {event.alias or event.name: event for event in applied.events}


@pytest.fixture
def apply(tmp_path: Path) -> Apply:
    """Return ``apply(text, noop=…)``, which returns the events by alias or name. ``DIR`` is a temporary directory."""
    return lambda text, **options: apply_in(tmp_path, text, **options)


def states(events: Mapping[str, Event]) -> dict[str, str]:
    return {name: event.state.value for name, event in events.items()}


TWO_SUBJECTS = """
resources:
  - file: [{DIR/conf: {alias: conf, content: TEXT, IDS}}]
  - exec: [{check: {command: "test -e DIR/ready"}}]
  - exec:
      - run:
          command: "sh -c 'echo ran >> DIR/log'"
          subscribe: [file#conf, exec#check]
          MORE
"""


@pytest.mark.parametrize("more", ["refreshonly: true", "creates: DIR/log"])
def test_a_failed_subject_skips_its_subscriber(apply: Apply, tmp_path: Path, more: str) -> None:
    log = tmp_path / "log"
    text = TWO_SUBJECTS.replace("MORE", more).replace("TEXT", "one")
    for _ in range(2):
        events = apply(text)
        assert events["run"].state.value == "skipped"
        assert events["run"].unmet_requirements == ["exec#check"]
        assert not log.exists()
    (tmp_path / "ready").touch()
    assert apply(text)["run"].changed
    assert log.read_text() == "ran\n"
    # The check's command changes in every run, so it refreshes its subscriber.
    events = apply(text, noop=True)
    assert events["run"].state.value == "would change"


def test_a_pending_refresh_ignores_creates(apply: Apply, tmp_path: Path) -> None:
    text = """
    resources:
      - file: [{DIR/conf: {alias: conf, content: TEXT, IDS}}]
      - file: [{PARENT/other: {alias: other, content: x, IDS}}]
      - exec: [{run: {command: "sh -c 'echo ran >> DIR/log'", creates: DIR/log, subscribe: [file#conf, file#other]}}]
    """
    good, bad = (text.replace("PARENT", parent) for parent in ("DIR", "DIR/missing"))
    log = tmp_path / "log"
    assert states(apply(good.replace("TEXT", "one"))) == {
        "conf": "changed",
        "other": "changed",
        "run": "refreshed",
    }
    assert states(apply(bad.replace("TEXT", "two"))) == {
        "conf": "changed",
        "other": "failed",
        "run": "skipped",
    }
    assert states(apply(bad.replace("TEXT", "two"))) == {
        "conf": "stable",
        "other": "failed",
        "run": "skipped",
    }
    assert states(apply(good.replace("TEXT", "two"))) == {
        "conf": "stable",
        "other": "stable",
        "run": "refreshed",
    }
    assert states(apply(good.replace("TEXT", "two"))) == {
        "conf": "stable",
        "other": "stable",
        "run": "stable",
    }
    assert log.read_text() == "ran\nran\n"


def test_a_subject_that_is_left_out_blocks_nothing(apply: Apply) -> None:
    text = TWO_SUBJECTS.replace("MORE", "").replace("TEXT", "one")
    text = text.replace('"test -e DIR/ready"', '"test -e DIR/ready", control: {if: false}')
    assert states(apply(text)) == {"conf": "changed", "check": "skipped", "run": "refreshed"}


def test_subscribers_of_a_skipped_subscriber_wait(apply: Apply, tmp_path: Path) -> None:
    text = TWO_SUBJECTS.replace("MORE", "").replace("TEXT", "one")
    text += "  - exec: [{last: {command: 'true', refreshonly: true, subscribe: [exec#run]}}]\n"
    assert states(apply(text)) == {"conf": "changed", "check": "failed", "run": "skipped", "last": "skipped"}
    (tmp_path / "ready").touch()
    assert states(apply(text))["last"] == "refreshed"


def test_a_failed_resource_of_a_child_skips_subscribers(apply: Apply, tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text(
        "resources: [{exec: [{one: {command: 'true'}}, {two: {command: 'false'}}]}]"
    )
    text = """
    resources:
      - apply: [{child.yaml: {}}]
      - exec: [{run: {command: 'true', refreshonly: true, subscribe: [apply#child.yaml]}}]
    """
    assert states(apply(text))["run"] == "skipped"


def test_a_session_knows_that_a_subject_failed_later(
    execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULLER_SESSION", str(tmp_path / "session"))
    assert execute("session", "new", "--directory", str(tmp_path / "session"))[0] == 0
    ready = tmp_path / "ready"
    ready.touch()
    subject = ("ensure", "exec", f"test -e {ready}")
    subscriber = ("ensure", "exec", "true", "--refreshonly", "--subscribe", f"exec#test -e {ready}")
    assert execute(*subject)[0] == 0
    ready.unlink()
    assert execute(*subject)[0] == 4
    assert execute(*subscriber)[0] == 4
    ready.touch()
    assert execute(*subject)[0] == 0
    assert "refreshed" in execute(*subscriber)[1]


def test_a_pending_refresh_survives_a_new_release(host: Host, publisher: Publisher) -> None:
    manifest = """\
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0755"}
      - "{{ facts.machine }}": {ensure: directory}
      - "{{ facts.machine }}/conf": {content: one}
      - "{{ facts.machine }}/MISSING": {content: two}
  - exec:
      - reload:
          command: "sh -c 'echo ran >> {{ facts.machine }}/log'"
          refreshonly: true
          subscribe: ["file#{{ facts.machine }}/conf", "file#{{ facts.machine }}/MISSING"]
"""
    log = host.machine / "log"
    publisher.publish("1.0.0", manifest.replace("MISSING", "no/other"))
    host.run()
    host.run()
    assert (host.machine / "conf").exists()
    assert not log.exists()
    publisher.publish("1.0.1", manifest.replace("MISSING", "other"))
    assert (host.run().status, log.read_text()) == (0, "ran\n")
    assert (host.run().status, log.read_text()) == (0, "ran\n")


# --- laws ---------------------------------------------------------------------------------------------------

COUNT = 6


@st.composite
def graphs(draw: Any) -> list[list[int]]:
    """Return the subjects of each resource. All subjects precede their subscribers."""
    return [
        draw(st.lists(st.sampled_from(range(index)), unique=True, max_size=3)) if index else []
        for index in range(COUNT)
    ]


RUNS = st.lists(
    st.tuples(st.sets(st.integers(0, COUNT - 1)), st.sets(st.integers(0, COUNT - 1))), min_size=1, max_size=4
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(graphs(), RUNS)
def test_no_subscriber_runs_before_all_its_subjects(
    tmp_path_factory: pytest.TempPathFactory, graph: list[list[int]], runs: list[tuple[set[int], set[int]]]
) -> None:
    """Compare several runs with a small model, with files that fail or change and their subscribers."""
    directory = tmp_path_factory.mktemp("law")
    version = dict.fromkeys(range(COUNT), 0)
    done = dict.fromkeys(range(COUNT), -1)
    pending: set[int] = set()
    ran: dict[int, int] = dict.fromkeys(range(COUNT), 0)
    for failing, changing in [*runs, (set(), set())]:
        for index in changing:
            version[index] += 1
        lines = ["resources:"]
        for index, subjects in enumerate(graph):
            place = f"DIR/missing/f{index}" if index in failing else f"DIR/f{index}"
            lines.append(f"  - file: [{{{place}: {{alias: f{index}, content: 'v{version[index]}', IDS}}}}]")
            if subjects:
                names = ", ".join(
                    [f"file#f{subject}" for subject in subjects]
                    + [f"exec#s{subject}" for subject in subjects if graph[subject]]
                )
                command = f"sh -c 'echo >> DIR/s{index}'"
                lines.append(
                    f'  - exec: [{{s{index}: {{command: "{command}", refreshonly: true, subscribe: [{names}]}}}}]'
                )
        events = apply_in(directory, "\n".join(lines))
        changed = {index for index in range(COUNT) if index not in failing and done[index] != version[index]}
        done |= {index: version[index] for index in changed}
        good: dict[int, bool] = {}
        refreshed: set[int] = set()
        for index, subjects in enumerate(graph):
            good[index] = all(subject not in failing and good.get(subject, True) for subject in subjects)
            if any(subject in changed or subject in refreshed for subject in subjects):
                pending.add(index)
            if subjects and good[index] and index in pending:
                pending.discard(index)
                refreshed.add(index)
                ran[index] += 1
            if subjects:
                expected = "skipped" if not good[index] else "refreshed" if index in refreshed else "stable"
                assert events[f"s{index}"].state.value == expected
        for index in range(COUNT):
            log = directory / f"s{index}"
            assert (len(log.read_text()) if log.exists() else 0) == ran[index]
    assert not pending
