"""Resources that change in every run, found by real runs in the host's reports."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from puller.reporting.history import load_report
from puller.reporting.report import Report

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

RESTLESS = """\
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0644"}
      - "{{ facts.machine }}": {ensure: directory, mode: "0755"}
      - "{{ facts.machine }}/motd": {content: "version VERSION\\n"}
      - "{{ facts.machine }}/stamp": {content: "at {{ facts.tick }}\\n"}
  - exec:
      - every-run: {command: "true"}
      - never-done: {command: "true", onlyif: "true"}
      - reload:
          command: "true"
          refreshonly: true
          subscribe: ["file#{{ facts.machine }}/stamp"]
"""


class Machine:
    """A host with a fact that differs in each run."""

    def __init__(self, host: "Host") -> None:
        self.host = host
        self.motd = host.machine / "motd"
        self.known = host.state / "restless.json"
        self._ticks = 0

    def run(self, *options: str) -> str:
        self._ticks += 1
        path = self.host.machine.parent / "facts.d/tick.json"
        path.write_text(json.dumps({"tick": self._ticks}))
        outcome = self.host.run(*options)
        assert outcome.status == 0, outcome.output
        return outcome.output

    def fought_over(self, *options: str) -> str:
        """Run after another tool has replaced the file."""
        self.motd.write_text("of another tool\n")
        return self.run(*options)

    def restless(self) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = self.host.status()["restless"]
        return results

    def names(self) -> set[str]:
        return {os.path.basename(item["reference"]) for item in self.restless()}


@pytest.fixture
def machine(settled: "Host") -> Machine:
    """Return a host without restless resources."""
    return Machine(settled)


def test_contested_resource_is_restless_after_three_runs(machine: Machine) -> None:
    printed = [machine.fought_over() for _ in range(5)]
    assert ["is restless" in output for output in printed] == [False, False, True, False, False]
    sentence = f"file#{machine.motd} is restless: changed in 3 of the last 3 runs of web: content: "
    assert f"WARN   {sentence}" in printed[2]

    (item,) = machine.restless()
    assert (item["bundle"], item["reference"]) == ("web", f"file#{machine.motd}")
    assert (item["changes"], item["runs"]) == (5, 5)
    assert len(item["differences"]) == 1, "the same each time"
    assert (
        sentence.replace("in 3 of the last 3", "in 5 of the last 5") in machine.host.puller("status").output
    )
    status, output = machine.host.puller("status", "--check")
    assert (status, output.startswith("PULLER WARNING - file#")) == (1, True)


@pytest.mark.everything
def test_many_at_once_are_told_in_few_lines(machine: Machine, publisher: "Publisher") -> None:
    stamps = "".join(
        f"      - '{{{{ facts.machine }}}}/stamp-{n}': {{content: 'at {{{{ facts.tick }}}}'}}\n"
        for n in range(25)
    )
    publisher.publish("2.0.0", RESTLESS.partition("  - exec")[0] + stamps)
    output = [machine.run() for _ in range(4)][-1]
    assert output.count(" is restless: ") == 20
    assert "and 6 more restless resources" in output
    printed = machine.host.puller("status").output
    assert (printed.count(" is restless: "), printed.count("and 6 more restless resources")) == (20, 1)
    assert len(machine.restless()) == 26
    assert machine.host.puller("status", "--check").output.count(" is restless: ") == 3


def test_it_is_forgotten_when_the_other_tool_is_gone(machine: Machine) -> None:
    for _ in range(3):
        machine.fought_over()
    for _ in range(3):
        machine.run()
    assert machine.names() == {"motd"}
    machine.run()
    assert machine.restless() == []
    assert not machine.known.exists()
    assert machine.host.puller("status", "--check").status == 0


def test_unstable_template_and_useless_guard_are_restless(machine: Machine, publisher: "Publisher") -> None:
    """Subscribers of a restless resource are not restless, and neither is a command without a guard."""
    publisher.publish("2.0.0", RESTLESS)
    for _ in range(4):
        machine.run()
    assert machine.names() == {"stamp", "exec#never-done"}
    stamp = next(item for item in machine.restless() if "stamp" in item["reference"])
    assert (stamp["changes"], stamp["runs"]) == (3, 3)
    assert len(stamp["differences"]) == 3, "what it changed from and to, each time"


@pytest.mark.everything
def test_a_release_in_every_run_leaves_nothing_restless(machine: Machine, publisher: "Publisher") -> None:
    for version in ("2.0.0", "3.0.0", "4.0.0", "5.0.0", "6.0.0"):
        publisher.publish(version)
        machine.run()
    assert machine.restless() == []


def test_dry_and_partial_runs_do_not_count(machine: Machine) -> None:
    for _ in range(2):
        machine.fought_over()
    for _ in range(3):
        machine.fought_over("--noop")
        machine.fought_over("--only", f"file#{machine.motd}")
    assert machine.restless() == []
    machine.fought_over()
    assert machine.names() == {"motd"}


def test_a_pause_ends_nothing(machine: Machine) -> None:
    for _ in range(3):
        machine.fought_over()
    assert machine.host.puller("disable", "--reason", "looking").status == 0
    for _ in range(6):
        assert machine.host.run().status == 20
    assert machine.names() == {"motd"}


def test_a_run_that_changes_nothing_reads_no_report(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def load(path: Path) -> Report:
        read.append(path)
        return load_report(path)

    monkeypatch.setattr("puller.reporting.restless.load_report", load)
    machine.run()
    assert read == []
    machine.fought_over()
    assert [path.name.partition("-")[2] for path in read] == ["quiet.json", "eventful.json"]


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.everything
@pytest.mark.parametrize("harm", [lambda path: path.write_text("{"), directory])
def test_a_damaged_record_is_told_and_found_anew(machine: Machine, harm: Callable[[Path], object]) -> None:
    for _ in range(3):
        machine.fought_over()
    harm(machine.known)
    assert machine.host.puller("status", "--check").status == 1
    output = machine.fought_over()
    assert "the detection of restless resources starts again" in output
    assert "is restless" in output
    assert machine.names() == {"motd"}


def test_damaged_reports_say_nothing_and_end_nothing(machine: Machine) -> None:
    for _ in range(2):
        machine.fought_over()
    for path in (machine.host.state / "runs").glob("*.json"):
        path.write_text("{")
    machine.fought_over()
    assert machine.restless() == []
