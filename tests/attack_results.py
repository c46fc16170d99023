"""Pytest plugin: the mark ``attack``, and the results of the marked tests.

* ``@pytest.mark.attack("rollback.index", ...)`` lists the cases of ``attacks.yaml`` that a test proves. An unknown case
  is an error, whichever tests are run.
* ``--attack-results=FILE`` writes each marked test with its cases and outcome. Tests that were not run have no outcome.
  `security_table.py` makes the table of ``docs/security.md`` from this file.

Workers of pytest-xdist collect tests, and send the collected tests when they end. Reports of tests reach the main
process, which writes the file.
"""

import json
from pathlib import Path
from typing import Any, TypedDict

import pytest
import yaml

ATTACKS = Path(__file__).with_name("attacks.yaml")


class Result(TypedDict):
    """Cases and outcome of a test: passed, failed or skipped; ``None`` if this run left the test out."""

    cases: list[str]
    outcome: str | None


marked = pytest.StashKey[dict[str, list[str]]]()
"""The cases of each collected test with the mark, by node id, including tests that are deselected later."""

outcomes = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--attack-results", type=Path, metavar="FILE", help="write what tests of attacks came to"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[marked], config.stash[outcomes] = {}, {}
    config.pluginmanager.register(Outcomes(config.stash[outcomes]))


@pytest.hookimpl(tryfirst=True)  # before other plugins deselect tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = known_cases()
    for item in items:
        if cases := {case for mark in item.iter_markers("attack") for case in mark.args}:
            if unknown := sorted(cases - known):
                raise pytest.UsageError(f"{item.nodeid}: {ATTACKS.name} has no case {', '.join(unknown)}")
            config.stash[marked][item.nodeid] = sorted(cases)


def known_cases() -> set[str]:
    sections = yaml.load(ATTACKS.read_text(), yaml.CSafeLoader)
    attacks = [attack for section in sections.values() for attack in section]
    return {f"{attack['id']}.{case}" for attack in attacks for case in attack["cases"]}


class Outcomes:
    """Record how each marked test ends. A failure in any phase is a failure of the test."""

    def __init__(self, tests: dict[str, str]) -> None:
        self._tests = tests

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "attack" in report.keywords and (report.when == "call" or not report.passed):
            self._tests[report.nodeid] = report.outcome


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    """Read the tests of an ended worker. A crashed worker sends nothing, but its successor collects the same tests."""
    node.config.stash[marked].update(getattr(node, "workeroutput", {}).get("attacks", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["attacks"] = config.stash[marked]
    elif file := config.option.attack_results:
        file.write_text(json.dumps(results(config), indent=1, sort_keys=True))


def results(config: pytest.Config) -> dict[str, Result]:
    """Return the content of the results file."""
    ended = config.stash[outcomes]
    return {
        test: {"cases": cases, "outcome": ended.get(test)} for test, cases in config.stash[marked].items()
    }
