"""The crash matrix is told at the end of a run, beside its tests being green: how many points each row has."""

import pytest

_table = pytest.StashKey[list[str]]()


@pytest.fixture
def crash_table(pytestconfig: pytest.Config) -> list[str]:
    """Lines for the end of the run."""
    return pytestconfig.stash.setdefault(_table, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash.get(_table, []):
        terminalreporter.section("crash matrix")
        for line in lines:
            terminalreporter.write_line(line)
