"""The mark ``attack`` and what the marked tests came to; a plugin.

* ``@pytest.mark.attack("rollback.index", ...)`` says which cases of ``attacks.yaml`` a test proves; a case that is not
  in there is an error, whichever tests are run.
* ``--attack-results=FILE`` writes the marked tests, the cases of each, and how it ended; what was not run is in the
  file, too, without an outcome. `security_table.py` makes the table of ``docs/security.md`` from it.

Workers of pytest-xdist collect, and send what they found when they end; reports of tests come to the process that
started them, which writes the file.
"""

import json
from pathlib import Path
from typing import Any, TypedDict

import pytest
import yaml

ATTACKS = Path(__file__).with_name("attacks.yaml")


class Result(TypedDict):
    """``outcome`` is passed, failed or skipped, and ``None`` for a test that this run left out."""

    cases: list[str]
    outcome: str | None


marked = pytest.StashKey[dict[str, list[str]]]()
"""The cases of each marked test that was collected, by node id, those included that are left out afterwards."""

outcomes = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--attack-results", type=Path, metavar="FILE", help="write what tests of attacks came to"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[marked], config.stash[outcomes] = {}, {}
    config.pluginmanager.register(Outcomes(config.stash[outcomes]))


@pytest.hookimpl(tryfirst=True)  # before others leave out tests
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
    """Notes how each marked test ends: what failed in any of its phases has failed."""

    def __init__(self, tests: dict[str, str]) -> None:
        self._tests = tests

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "attack" in report.keywords and (report.when == "call" or not report.passed):
            self._tests[report.nodeid] = report.outcome


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended; one that crashed sent nothing, but its successor collected the same."""
    node.config.stash[marked].update(getattr(node, "workeroutput", {}).get("attacks", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["attacks"] = config.stash[marked]
    elif file := config.option.attack_results:
        file.write_text(json.dumps(results(config), indent=1, sort_keys=True))


def results(config: pytest.Config) -> dict[str, Result]:
    """What the file says."""
    ended = config.stash[outcomes]
    return {
        test: {"cases": cases, "outcome": ended.get(test)} for test, cases in config.stash[marked].items()
    }
