"""Plans in recorded output of real package managers, and unknown output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.errors import ResourceError
from puller.resources.packages import apt, dnf
from puller.resources.packages.apt import Apt
from puller.resources.packages.dnf import Dnf
from puller.resources.packages.manager import Manager, Plan, Record, RequestedPackage
from tests.simulators import packages as simulator
from tests.support.rows import each_row

FILE = Path(__file__).parents[3] / "cases/packages/simulations.yaml"
CASES: list[dict[str, Any]] = yaml.load(FILE.read_text(), yaml.CSafeLoader)

cases = pytest.mark.parametrize("case", CASES, ids=[case["command"][:60] for case in CASES])


def parse(case: dict[str, Any], text: str) -> Plan:
    if case["command"].startswith("apt-get"):
        return apt.parse_simulation(text, "amd64")
    return dnf.parse_simulation(text)


@cases
def test_recorded_output_has_this_plan(case: dict[str, Any]) -> None:
    installs = tuple(Record(*record) for record in case["installs"])
    assert parse(case, case["output"]) == Plan(installs, tuple(case["removals"]))


@cases
def test_cut_output_is_an_error_or_has_the_whole_plan(case: dict[str, Any]) -> None:
    text = case["output"]
    whole = parse(case, text)
    for length in range(len(text)):
        try:
            assert parse(case, text[:length]) == whole
        except ResourceError as error:
            assert "is not understood" in str(error)


@cases
def test_output_without_its_numbers_is_an_error(case: dict[str, Any]) -> None:
    if not case["installs"] and not case["removals"]:
        case = CASES[0]
    text = case["output"]
    without = "".join(
        line for line in text.splitlines(keepends=True) if "ackage" not in line or line.startswith("Pack")
    ).replace(" to remove ", " ")
    if "Reinstalling" not in text:  # dnf 4 does not count these packages.
        with pytest.raises(ResourceError, match="is not understood"):
            parse(case, without)


GERMAN = """\
Abhängigkeiten sind aufgelöst.
================================================================================
 Paket           Architektur        Version            Paketquelle        Größe
================================================================================
Entfernen:
 app             noarch             2.0-1              @local               6

Transaktionszusammenfassung
================================================================================
Entfernen  1 Paket
"""
TABLE = """\
================================================================================
 Package         Architecture       Version            Repository          Size
================================================================================
{rows}

Transaction Summary
================================================================================
{summary}
"""


@each_row(
    "text",
    [
        "",
        "Complete!\n",
        GERMAN,
        TABLE.format(rows="Replacing the following:\n app  noarch  2.0-1  local  6 k", summary=""),
        TABLE.format(rows=" app  noarch  2.0-1  local  6 k", summary="Install  1 Package"),
        TABLE.format(rows="Installing:\n app  noarch  2.0-1  local", summary="Install  1 Package"),
        TABLE.format(rows="Installing:\n app  noarch  2.0  local  6 k", summary="Install  1 Package"),
        TABLE.format(rows="Installing:\n \x1b[1mapp\n  noarch  2.0-1  local  6 k", summary="Install  2 Packages"),
        TABLE.format(rows="Removing:\n app  noarch  2.0-1  local  6 k", summary="Remove  2 Packages"),
        TABLE.format(rows="Removing:\n app  noarch  2.0-1  local  6 k", summary="Install  1 Package"),
    ],
)  # fmt: skip
def test_output_of_dnf_that_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(ResourceError, match="output of dnf --assumeno is not understood"):
        dnf.parse_simulation(text)


SUMMARY = "0 upgraded, 1 newly installed, 1 to remove and 0 not upgraded.\n"


@each_row(
    "text",
    [
        "",
        "Remv app [1.0]\nInst tool (1.0 localhost [all])\n",
        SUMMARY,
        f"{SUMMARY}Inst tool (1.0 localhost [all])\n",
        f"{SUMMARY}Remv app [1.0]\n",
        f"{SUMMARY}Remv app [1.0]\nInst tool 1.0\n",
        f"{SUMMARY}{SUMMARY}Remv app [1.0]\nInst tool (1.0 localhost [all])\n",
        "Summary:\n  Upgrading: 0, Installing: 0, Removing: 0, Not Upgrading: 0\n",
        "0 aktualisiert, 0 neu installiert, 1 zu entfernen und 0 nicht aktualisiert.\nRemv app [1.0]\n",
    ],
)
def test_output_of_apt_that_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(ResourceError, match="output of apt-get --simulate is not understood"):
        apt.parse_simulation(text, "amd64")


def test_apt_may_remove_a_package_for_a_moment() -> None:
    """apt does so to resolve a loop of conflicts, and its summary does not count it."""
    summary = "2 upgraded, 0 newly installed, 0 to remove and 0 not upgraded.\n"
    lines = "Remv a [1]\nInst b [1] (2 x [all])\nInst a [1] (2 x [all]) []\nConf b (2 x [all])\n"
    plan = apt.parse_simulation(summary + lines, "amd64")
    assert plan == Plan((Record("b", "2", "all"), Record("a", "2", "all")), ())


MODULES = """\
Installing:
 tool                noarch   1:0.9-1   local   5.9 k
 a-name-that-is-longer-than-its-column
                     noarch   1.0-1     local   5.9 k
Installing group/module packages:
 nodejs              x86_64   1:18.1-1  local   5.9 k
Enabling module streams:
 nodejs                       18
Installing Groups:
 Minimal Install
Skipping packages with conflicts:
(add '--best --allowerasing' to command line to force their upgrade):
 bbb                 noarch   1.0-1     local   5.9 k
Skipping packages with broken dependencies or part of a group:
 ccc                 noarch   1.0-1     local   5.9 k
"""


def test_sections_that_are_no_packages_are_left_out() -> None:
    text = TABLE.format(rows=MODULES, summary="Install  3 Packages\nSkip  2 Packages")
    names = [record.name for record in dnf.parse_simulation(text).installs]
    assert names == ["tool", "a-name-that-is-longer-than-its-column", "nodejs"]


def test_a_change_without_a_plan_is_not_made(
    job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    debian = simulator.Debian(repository={"tool": ["1.0"]})
    fedora = simulator.Fedora(repository=[simulator.Rpm("tool", "1.0-1")])
    monkeypatch.setattr(debian, "listed", lambda *_: "Inst tool (1.0 localhost [amd64])\n")
    monkeypatch.setattr(fedora, "table", lambda *_: GERMAN)
    machines: list[tuple[Any, Manager]] = [(debian, Apt()), (fedora, Dnf())]
    for machine, manager in machines:
        with pytest.raises(ResourceError, match=r"is not understood|dnf install tool: exit code 1"):
            manager.install(job(machine), [RequestedPackage("tool")], downgrades=False)
        assert machine.changed == []
