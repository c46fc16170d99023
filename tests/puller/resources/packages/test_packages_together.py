"""Conflicting and dependent packages: a run never removes a declared package, and its dry run agrees."""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from foundation.problems import ProblemCode
from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.reporting.report import Event
from tests.simulators import packages as simulator

if TYPE_CHECKING:
    from tests.simulators.packages import Debian, Fedora, Machine

Run = Callable[..., dict[str, Event]]

CONFLICT = "resources: [{package: [aaa, bbb]}]"
APART = """
    resources:
      - package: [aaa]
      - exec: [{between: {command: 'true', creates: /}}]
      - package: [bbb]
"""
DEPENDENCY_ABSENT = "resources: [{package: [app, {liba: {ensure: absent}}]}]"


@pytest.fixture
def debian() -> Debian:
    """Return a Debian where ``aaa`` and ``bbb`` conflict, and ``app`` depends on ``liba``."""
    names = ("aaa", "bbb", "app", "liba", "other", "g++")
    machine: Debian = simulator.Debian(
        repository={name: ["1.0"] for name in names},
        conflicts={"aaa": ["bbb"], "bbb": ["aaa"]},
        depends={"app": ["liba"]},
    )
    return machine


@pytest.fixture
def run(load: Callable[..., Any], tmp_path: Path) -> Run:
    """Return a function that applies a manifest and returns events by name: ``run(machine, text, noop=…)``.

    Each URL has the content ``remote``.
    """

    def apply(machine: Machine, text: str, *, noop: bool = False, remote: bytes = b"") -> dict[str, Event]:
        family = "Debian" if type(machine).__name__ == "Debian" else "RedHat"
        manifest = load(text, facts={"os": {"family": family}})
        pending = PendingRefreshes(tmp_path / "pending.json", "web", noop=True)
        system = simulator.LookingOnly(machine) if noop else machine
        engine = Engine(manifest, system, lambda url: remote, pending, Settings(noop=noop))
        return {event.name: event for event in engine.apply()}

    return apply


def states(events: dict[str, Event]) -> list[str]:
    return [event.state.value for event in events.values() if event.type == "package"]


def expect_refusal(run: Run, machine: Machine, text: str, name: str, other: str) -> None:
    """Check that run and dry run fail for the same resource, and that a second run changes nothing.

    Both errors name the package ``other``.
    """
    predicted, first, second = run(machine, text, noop=True), run(machine, text), run(machine, text)
    for events in (predicted, first, second):
        assert events[name].state == "failed"
        assert other in events[name].errors[0]
    changes = [state.replace("would change", "changed") for state in states(predicted)]
    assert changes == states(first)
    assert states(second) == [state.replace("changed", "stable") for state in states(first)]


# Conflicting packages


@pytest.mark.parametrize("text", [CONFLICT, APART])
def test_a_package_never_replaces_a_declared_one(run: Run, debian: Debian, text: str) -> None:
    expect_refusal(run, debian, text, "bbb", "package#aaa")
    assert debian.versions("aaa")
    assert not debian.versions("bbb")


def test_an_installed_package_is_kept_for_its_later_declaration(run: Run, debian: Debian) -> None:
    run(debian, "resources: [{package: [bbb]}]")
    expect_refusal(run, debian, CONFLICT, "aaa", "package#bbb")
    assert debian.versions("bbb")


def test_a_removed_package_is_part_of_the_dry_run(run: Run, debian: Debian) -> None:
    run(debian, "resources: [{package: [bbb]}]")
    text = "resources: [{package: [aaa]}]"
    predicted = run(debian, text, noop=True)["aaa"]
    assert predicted.noop_message == "Would have installed version present, and removed bbb with it"
    assert run(debian, text)["aaa"].notes == ["removed bbb with it"]
    assert not debian.versions("bbb")
    assert states(run(debian, text)) == ["stable"]


def test_a_dependency_that_is_declared_absent_is_not_installed(run: Run, debian: Debian) -> None:
    expect_refusal(run, debian, DEPENDENCY_ABSENT, "app", "package#liba")
    assert not debian.versions("liba")


def test_a_dependency_keeps_its_declared_version(run: Run, debian: Debian) -> None:
    debian.repository["liba"] = ["1.0", "2.0"]
    debian.depends["app"] = []
    run(debian, 'resources: [{package: [{liba: {ensure: "1.0"}}]}]')
    debian.dependencies = lambda key: {"liba": "2.0"} if key == "app" else {}  # type: ignore[method-assign]
    text = 'resources: [{package: [{liba: {ensure: "1.0"}}, app]}]'
    expect_refusal(run, debian, text, "app", "package#liba")
    assert debian.versions("liba") == ["1.0"]


def test_many_new_packages_cost_a_single_simulation(run: Run, debian: Debian) -> None:
    names = [f"tool{number}" for number in range(20)]
    debian.repository |= {name: ["1.0"] for name in names}
    events = run(debian, f"resources: [{{package: [{', '.join(names)}]}}]", noop=True)
    assert {event.state for event in events.values()} == {"would change"}
    assert sum("--simulate" in command for command in debian.looked) == 1


# Removals


@pytest.mark.parametrize("ensure", ["absent", "purged"])
def test_a_removal_never_takes_a_declared_package(run: Run, debian: Debian, ensure: str) -> None:
    run(debian, "resources: [{package: [app]}]")
    text = DEPENDENCY_ABSENT.replace("absent", ensure)
    expect_refusal(run, debian, text, "liba", "package#app")
    assert debian.versions("app")
    assert debian.versions("liba")


def test_the_last_provider_of_a_declared_name_stays(run: Run, debian: Debian) -> None:
    debian.provides = {"aaa": "mail", "other": "mail"}
    run(debian, "resources: [{package: [aaa]}]")
    text = "resources: [{package: [mail, {aaa: {ensure: absent}}]}]"
    expect_refusal(run, debian, text, "aaa", "package#mail")
    assert debian.versions("aaa")


def test_dependents_that_go_with_a_package_are_foretold(run: Run, debian: Debian) -> None:
    run(debian, "resources: [{package: [app]}]")
    text = "resources: [{package: [{liba: {ensure: absent}}]}]"
    message = run(debian, text, noop=True)["liba"].noop_message
    assert message == "Would have uninstalled, and removed app with it"
    assert run(debian, text)["liba"].notes == ["removed app with it"]


def test_a_leftover_that_a_declared_package_needs_stays(
    load: Callable[..., Any], debian: Debian, tmp_path: Path
) -> None:
    facts = {"os": {"family": "Debian"}}
    leftover = load("resources: [{package: [{liba: {ensure: absent}}]}]", facts=facts).declarations[0]

    def apply(text: str, *, noop: bool = False) -> list[Event]:
        manifest = load(text, facts=facts)
        index = len(manifest.declarations)
        catalog = msgspec.structs.replace(manifest, reversals=[leftover], order=[*manifest.order, index])
        pending = PendingRefreshes(tmp_path / "pending.json", "web", noop=True)
        system = simulator.LookingOnly(debian) if noop else debian
        return Engine(catalog, system, lambda url: b"", pending, Settings(noop=noop)).apply()

    debian.packages["liba"] = simulator.Deb("1.0")
    for noop in (True, False, False):
        event = apply("resources: [{package: [app]}]", noop=noop)[1]
        assert event.state == "skipped"
        assert "package#app" in event.skip_reason
    assert debian.versions("liba")
    del debian.packages["app"]
    assert apply("resources: [{package: [other]}]")[1].state == "changed"
    assert not debian.versions("liba")


# Holds, marks and names


@pytest.mark.parametrize("status", ["not-installed", "config-files"])
def test_a_hold_of_a_missing_package_is_respected(run: Run, debian: Debian, status: str) -> None:
    debian.packages["other"] = simulator.Deb("1.0", status, "hold")
    text = "resources: [{package: [other]}]"
    for noop in (True, False):
        event = run(debian, text, noop=noop)["other"]
        assert event.errors == ["is held while it is not installed (apt-mark hold), expected present"]
    released = "resources: [{package: [{other: {held: false}}]}]"
    expected = "Would have installed version present, and released the hold"
    assert run(debian, released, noop=True)["other"].noop_message == expected
    assert run(debian, released)["other"].state == "changed"
    assert debian.packages["other"].want == "install"
    assert debian.versions("other")


def test_a_declared_dependency_is_marked_as_installed_by_request(run: Run, debian: Debian) -> None:
    """Otherwise ``apt autoremove`` removes it, and the next run installs it again."""
    run(debian, "resources: [{package: [app]}]")
    assert debian.automatic == {"liba"}
    text = "resources: [{package: [liba]}]"
    assert run(debian, text, noop=True)["liba"].noop_message == "Would have marked it as installed by request"
    (difference,) = run(debian, text)["liba"].differences
    assert str(difference) == "installed only for other packages → by request"
    assert debian.automatic == set()
    assert states(run(debian, text)) == ["stable"]


def test_apt_never_installs_another_package_than_the_named_one(run: Run, debian: Debian) -> None:
    text = 'resources: [{package: ["other+"]}]'
    for noop in (True, False):
        assert run(debian, text, noop=noop)["other+"].state == "failed"
    assert not debian.versions("other")
    assert states(run(debian, 'resources: [{package: ["g++"]}]')) == ["changed"]


def test_the_architecture_all_is_a_part_of_a_name(run: Run, debian: Debian) -> None:
    debian.architecture["other"] = "all"
    text = 'resources: [{package: ["other:all", "aaa:all"]}]'
    for noop, expected in ((True, "would change"), (False, "changed")):
        assert states(run(debian, text, noop=noop)) == [expected, "failed"]
    assert states(run(debian, text)) == ["stable", "failed"]
    assert not debian.versions("aaa")


def test_a_file_for_another_architecture_is_not_installed(run: Run, debian: Debian, tmp_path: Path) -> None:
    (tmp_path / "other.deb").write_text("other 2.0 i386")
    text = "resources: [{package: [{other: {source: other.deb}}]}]"
    for noop in (True, False):
        assert (
            "is the package other (i386), expected other" in run(debian, text, noop=noop)["other"].errors[0]
        )
    assert debian.changed == []


@pytest.mark.parametrize("source", ["bbb.deb", "https://example.com/bbb.deb"])
def test_a_file_with_a_checksum_is_simulated_too(
    run: Run, debian: Debian, tmp_path: Path, source: str
) -> None:
    content = b"bbb 2.0 amd64"
    (tmp_path / "bbb.deb").write_bytes(content)
    checksum = hashlib.sha256(content).hexdigest()
    package = f"{{bbb: {{source: '{source}', checksum: {checksum}}}}}"
    run(debian, "resources: [{package: [aaa, other]}]")
    together = f"resources: [{{package: [{package}, aaa]}}]"
    for noop in (True, False, False):
        event = run(debian, together, noop=noop, remote=content)["bbb"]
        assert event.state == "failed"
        assert "the package manager would remove aaa, which package#aaa declares present" in event.errors[0]
        assert [problem.code for problem in event.problems] == [ProblemCode.NEEDED_BY_ANOTHER]
    alone = f"resources: [{{package: [{package}]}}]"
    predicted = run(debian, alone, noop=True, remote=content)["bbb"]
    assert predicted.noop_message == "Would have installed version 2.0, and removed aaa with it"
    assert run(debian, alone, remote=content)["bbb"].notes == ["removed aaa with it"]


@pytest.mark.everything
def test_a_dry_run_leaves_no_package_file_behind(
    run: Run, debian: Debian, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "bbb.deb").write_bytes(b"bbb 2.0 amd64")
    checksum = hashlib.sha256(b"bbb 2.0 amd64").hexdigest()
    run(debian, f"resources: [{{package: [{{bbb: {{source: bbb.deb, checksum: {checksum}}}}}]}}]", noop=True)
    gc.collect()
    links = (Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
    assert not [link for link in links if link.is_symlink() and "/memfd:package" in str(link.readlink())]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_lists_that_cannot_be_fetched_are_part_of_the_failure(run: Run, debian: Debian) -> None:
    def fail(arguments: list[str]) -> Any:
        if "update" in arguments:
            return type(apt_get(["apt-get", "update"]))(
                100, None, False, "", "E: The repository 'http://x' is not signed.\n", 0.1
            )
        return apt_get(arguments)

    apt_get, debian.apt_get = debian.apt_get, fail  # type: ignore[method-assign]
    errors = run(debian, 'resources: [{package: [{aaa: {ensure: "9.9"}}, missing]}]')
    assert "version 9.9 is not available (available: 1.0)" in errors["aaa"].errors[0]
    assert "is not signed" in errors["aaa"].errors[0]
    assert "is not signed" in errors["missing"].errors[0]


# dnf


@pytest.fixture
def fedora() -> Fedora:
    """Return a Fedora where ``app`` depends on ``liba``, and ``new`` replaces ``old``."""
    rpm = simulator.Rpm
    machine: Fedora = simulator.Fedora(
        repository=[rpm(name, "1.0-1") for name in ("app", "liba", "new", "old")],
        packages=[rpm(name, "1.0-1") for name in ("app", "liba", "old")],
        depends={"app": ["liba"]},
        obsoletes={"new": ["old"]},
    )
    return machine


@pytest.mark.parametrize(
    ("text", "name", "other"),
    [(DEPENDENCY_ABSENT, "liba", "app"), ("resources: [{package: [new, old]}]", "new", "old")],
)
def test_dnf_never_takes_a_declared_package(
    run: Run, fedora: Fedora, text: str, name: str, other: str
) -> None:
    expect_refusal(run, fedora, text, name, f"package#{other}")
    assert fedora.versions(other)


def test_dnf_predicts_removed_dependents(run: Run, fedora: Fedora) -> None:
    text = "resources: [{package: [{liba: {ensure: absent}}]}]"
    message = run(fedora, text, noop=True)["liba"].noop_message
    assert message == "Would have uninstalled, and removed app with it"
    assert run(fedora, text)["liba"].notes == ["removed app with it"]
    assert not fedora.versions("app")
