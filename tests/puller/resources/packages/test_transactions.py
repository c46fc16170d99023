"""Successive packages of a manifest are installed together, and each has its own outcome."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.manifest.graph.host_catalog import HostCatalog
from puller.reporting.report import Event
from puller.state import StateFile
from tests.simulators import packages as simulator

if TYPE_CHECKING:
    from tests.simulators.packages import Debian

Apply = Callable[..., dict[str, Event]]


PACKAGES = """
    resources:
      - package:
          - a: {}
          - b: {}
          - c: {ensure: latest}
          - d: {ensure: "1.0"}
          - e: {}
"""


@pytest.fixture
def debian() -> Debian:
    machine: Debian = simulator.Debian(repository={name: ["1.0"] for name in "abcde"})
    return machine


@pytest.fixture
def apply(load: Callable[..., Any], tmp_path: Path, debian: Debian) -> Apply:
    def run(text: str) -> dict[str, Event]:
        manifest = load(text, facts={"os": {"family": "Debian"}})
        pending = PendingRefreshes(tmp_path / "owed.json", "web", noop=True)
        return {
            event.name: event
            for event in Engine(manifest, debian, lambda url: b"", pending, Settings()).apply()
        }

    return run


def installed_together(machine: Debian) -> list[list[str]]:
    return [command[command.index("--") + 1 :] for command in machine.changed if "--" in command]


def states(events: dict[str, Event]) -> dict[str, str]:
    return {name: event.state.value for name, event in events.items()}


def test_packages_of_a_kind_install_together_and_all_change(apply: Apply, debian: Debian) -> None:
    events = apply(PACKAGES)
    assert installed_together(debian) == [["a", "b", "c"], ["d=1.0"], ["e"]]
    assert set(states(events).values()) == {"changed"}
    assert [*map(str, events["b"].differences)] == ["ensure absent → present"]
    assert set(states(apply(PACKAGES)).values()) == {"stable"}


def test_packages_of_two_bundles_install_together(
    load: Callable[..., Any], tmp_path: Path, debian: Debian
) -> None:
    texts = [f"resources: [{{package: [{names}]}}]" for names in ("a: {}", "{b: {}}, {c: {}}")]
    manifests = [load(text, facts={"os": {"family": "Debian"}}) for text in texts]
    pending = PendingRefreshes(tmp_path / "owed.json", "web")
    events = Engine(HostCatalog.of(manifests), debian, lambda url: b"", pending, Settings()).apply()
    assert {event.state for event in events} == {"changed"}
    assert installed_together(debian) == [["a", "b", "c"]]
    requested = sum(command[0] == "dpkg-query" for command in debian.looked)
    assert requested == 2, "once before, and once after the only change"


@pytest.mark.parametrize("problem", ["its script fails", "it is in no repository"])
def test_failed_package_does_not_fail_others(apply: Apply, debian: Debian, problem: str) -> None:
    if problem == "its script fails":
        debian.fails = {"b"}
    else:
        del debian.repository["b"]
    assert states(apply(PACKAGES)) == {
        "a": "changed",
        "b": "failed",
        "c": "changed",
        "d": "changed",
        "e": "changed",
    }


def test_requirement_separates_transactions(apply: Apply, debian: Debian) -> None:
    apply(PACKAGES.replace("b: {}", "b: {require: [package#a]}"))
    assert installed_together(debian)[:2] == [["a"], ["b", "c"]]


def test_fail_on_error_keeps_the_shared_transaction(apply: Apply, debian: Debian) -> None:
    events = apply("    fail_on_error: true" + PACKAGES)
    assert installed_together(debian) == [["a", "b", "c"], ["d=1.0"], ["e"]]
    assert set(states(events).values()) == {"changed"}


@pytest.mark.parametrize("fails", ["a", "b", "c"])
def test_fail_on_error_stops_after_a_shared_transaction(apply: Apply, debian: Debian, fails: str) -> None:
    debian.fails = {fails}
    events = apply("    fail_on_error: true" + PACKAGES)
    assert events[fails].state.value == "failed"
    for name in "abcde":
        is_installed = bool(debian.versions(name))
        assert (events[name].state.value == "changed") == (is_installed and name != fails), name
    assert {events[name].state.value for name in "de"} == {"skipped"}


def test_a_failed_health_check_stops_before_the_next_package(apply: Apply, debian: Debian) -> None:
    checked = PACKAGES.replace("a: {}", 'a: {health_checks: [{command: "false"}]}')
    events = apply("    fail_on_error: true" + checked)
    assert installed_together(debian) == [["a"]]
    assert (events["a"].state.value, events["b"].state.value) == ("failed", "skipped")


def test_conditional_packages_are_not_joined(apply: Apply, debian: Debian, tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text("resources: [{package: {name: b}}]")
    text = """
        resources:
          - package: {name: a}
          - apply: {name: child.yaml, control: {if: "false"}}
    """
    assert states(apply(text)) == {"a": "changed", "b": "skipped", "child.yaml": "skipped"}
    assert debian.versions("b") == []


def test_a_package_of_two_manifests_is_installed_with_the_others(
    apply: Apply, debian: Debian, tmp_path: Path
) -> None:
    (tmp_path / "child.yaml").write_text("resources: [{package: [{b: {ensure: '1.0'}}, {a: {}}, {c: {}}]}]")
    text = """
        resources:
          - package: [{a: {}}, {b: {}}]
          - apply: {name: child.yaml}
    """
    assert set(states(apply(text)).values()) == {"changed"}
    assert installed_together(debian) == [["a"], ["b=1.0"], ["c"]]


def test_refresh_is_pending_while_packages_are_retried(
    load: Callable[..., Any], tmp_path: Path, debian: Debian, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between two writes of the record must not lose the refresh of a half-changed package."""
    text = (
        PACKAGES
        + "      - exec: [{reload: {command: 'true', refreshonly: true, subscribe: ['package#b']}}]\n"
    )
    records: list[bool] = []
    save = StateFile.save

    def noting(file: StateFile[Any], document: Any) -> None:
        records.append("exec#reload" in document.pending.get("web", []))
        save(file, document)

    monkeypatch.setattr(StateFile, "save", noting)
    debian.fails = {"b"}
    manifest = load(text, facts={"os": {"family": "Debian"}})
    pending = PendingRefreshes(tmp_path / "owed.json", "web")
    events = Engine(manifest, debian, lambda url: b"", pending, Settings()).apply()
    assert [event.state.value for event in events if event.name == "b"] == ["failed"]
    assert records == [True, False], "recorded once, and taken off when it was not changed at all"


def test_fail_on_error_with_require_installs_one_by_one(apply: Apply, debian: Debian) -> None:
    debian.fails = {"b"}
    required = PACKAGES.replace("b: {}", "b: {require: [package#a]}").replace(
        "c: {ensure: latest}", "c: {ensure: latest, require: [package#b]}"
    )
    events = apply("    fail_on_error: true" + required)
    assert states(events) == {"a": "changed", "b": "failed", **dict.fromkeys("cde", "skipped")}
    assert not debian.versions("c")
