"""The mark ``attack`` and what the marked tests came to; a plugin that ``conftest.py`` registers.

* ``@pytest.mark.attack("rollback.index", ...)`` says which cases of ``attacks.yaml`` a test proves; a case that is not
  in there is an error, whichever tests are run.
* ``--attack-results=FILE`` writes the marked tests, the cases of each, and how it ended; what was not run is in the
  file, too, without an outcome. `security_table.py` makes the table of ``docs/security.md`` from it.
"""

import json
from pathlib import Path
from typing import TypedDict

import pytest
import yaml

ATTACKS = Path(__file__).with_name("attacks.yaml")


class Result(TypedDict):
    """``outcome`` is passed, failed or skipped, and ``None`` for a test that this run left out."""

    cases: list[str]
    outcome: str | None


results = pytest.StashKey[dict[str, Result]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--attack-results", type=Path, metavar="FILE", help="write what tests of attacks came to"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[results] = {}
    config.pluginmanager.register(Outcomes(config.stash[results]))


@pytest.hookimpl(tryfirst=True)  # before others leave out tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = known_cases()
    for item in items:
        if cases := [case for mark in item.iter_markers("attack") for case in mark.args]:
            if unknown := sorted(set(cases) - known):
                raise pytest.UsageError(f"{item.nodeid}: {ATTACKS.name} has no case {', '.join(unknown)}")
            config.stash[results][item.nodeid] = {"cases": sorted(set(cases)), "outcome": None}


def known_cases() -> set[str]:
    sections = yaml.safe_load(ATTACKS.read_text())
    attacks = [attack for section in sections.values() for attack in section]
    return {f"{attack['id']}.{case}" for attack in attacks for case in attack["cases"]}


class Outcomes:
    """Notes how each marked test ends: what failed in any of its phases has failed."""

    def __init__(self, tests: dict[str, Result]) -> None:
        self._tests = tests

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._tests.get(report.nodeid)
        if test and (report.when == "call" or not report.passed):
            test["outcome"] = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    if file := session.config.option.attack_results:
        file.write_text(json.dumps(session.config.stash[results], indent=1, sort_keys=True))
