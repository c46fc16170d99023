"""The table of ``docs/security.md`` contains every attack and every test that is marked with a case of it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hiera.parsing import load_yaml
from tests import security_table

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs/security.md"


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the currently marked tests of each case, including deselected ones. Collects again if necessary."""
    config = request.config
    if [Path(argument).resolve() for argument in config.args] == [TESTS] and not config.option.ignore:
        plugin: Any = config.pluginmanager.get_plugin("tests.attack_results")
        return security_table.merge([plugin.results(config)])
    file = tmp_path_factory.mktemp("attacks") / "collected.json"
    done = run_pytest(TESTS.parent, "--collect-only", f"--attack-results={file}")
    assert done.returncode == 0, done.stdout[-5000:]
    return security_table.merge([json.loads(file.read_text())])


def test_every_case_has_a_test(cases: Any) -> None:
    desired = [case.id for case in security_table.all_cases()]
    assert [case for case in desired if not cases.get(case)] == []
    assert len(desired) == len(set(desired)) > 150


def test_the_page_has_the_cases_and_tests_of_now(cases: Any) -> None:
    """If this fails, run the tests as `security_table.py` describes, and write the table again."""
    page = PAGE.read_text()
    made = security_table.with_table(page, security_table.table(cases))
    assert security_table.without_counts(page) == security_table.without_counts(made)


def test_writing_the_table_leaves_the_rest_of_the_page() -> None:
    page = PAGE.read_text()
    shown = security_table.between_marks(page)
    other = security_table.with_table(page, "another\n")
    assert other == page.replace(shown, "\nanother\n")
    assert security_table.with_table(other, shown.removeprefix("\n")) == page


def test_no_case_is_there_twice() -> None:
    load_yaml(
        (TESTS / "attacks.yaml").read_text(), "attacks.yaml"
    )  # which rejects duplicate keys, unlike the table's loader
    attacks = {case.id.partition(".")[0]: case.attack for case in security_table.all_cases()}
    assert len(set(attacks.values())) == len(attacks)


def test_a_case_that_nothing_proves_is_a_problem() -> None:
    case, *remainder = (case.id for case in security_table.all_cases())
    others: dict[str, security_table.Outcomes] = {each: {"test": "passed"} for each in remainder}
    assert next(security_table.problems(others)).startswith(f"{case}: no test passed that proves it")
    proved: dict[str, security_table.Outcomes] = others | {case: {"test": "passed"}}
    assert list(security_table.problems(proved)) == []
    assert list(security_table.problems(proved | {case: {"test": "passed", "other": "failed"}})) == [
        f"{case}: other: failed"
    ]
    assert list(security_table.problems(proved | {case: {"test": "passed", "other": None}})) == [
        f"{case}: other: was not run"
    ]


def test_tests_left_out_of_a_run_come_from_the_other() -> None:
    plain = {"a": {"cases": ["x"], "outcome": "passed"}, "b": {"cases": ["x"], "outcome": None}}
    remainder = {"a": {"cases": ["x"], "outcome": None}, "b": {"cases": ["x"], "outcome": "failed"}}
    for runs in ([plain, remainder], [remainder, plain]):
        assert security_table.merge(runs) == {"x": {"a": "passed", "b": "failed"}}


def test_a_case_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    shutil.copy(TESTS / "attacks.yaml", tmp_path)
    shutil.copy(TESTS / "attack_results.py", tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = attack\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.attack('rollback.indx')\ndef test_it(): ...\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_it.py::test_it: attacks.yaml has no case rollback.indx" in done.stderr


def run_pytest(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
