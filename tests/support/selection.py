"""A plugin that selects the tests of a run and reports the tests that it leaves out.

* A plain run covers each behaviour once and needs only Python and the extra ``test``. It leaves out tests with a mark
  of `LEFT_OUT`: matrices and slow cases (``everything``), checks of texts and sources, and tests that need nginx, a
  booted Debian, the extra ``check``, other tools, or clones of the repository. It also leaves out tests that need root
  if it runs as an ordinary user. Installed tools make no difference, so that the same tests run everywhere.
* The mark ``representatives(count)`` keeps that many variants of a parametrised test in a plain run, evenly spread.
  The other variants count as marked with ``everything``.
* Without that mark, a plain run takes one variant of a test that uses a fixture of `STORY_FIXTURES`.
* Generated cases have few examples in a plain run.
* A test with the mark ``everything`` and the fixture ``sweep`` has only its variant for each step, which includes the
  variant for each tenth step.
* ``--left-out`` runs exactly the tests that a plain run leaves out, and the generated cases with many examples.
  ``--everything`` runs both. With ``-m`` the expression alone decides.
* ``--no-skips`` fails the run if a test is skipped: ``.ci/run`` installs the tools of all tests.
* The left-out tests are ordered for the workers (`tests/support/ordering.py`).
* ``--thorough`` takes hours. It runs long stories and matrices completely, of which other runs try samples, and the
  tests with the mark ``thorough``. Of the variants that a plain run leaves out, the mark ``sample(count)`` keeps that
  many in other runs, evenly spread.

The workers of pytest-xdist send their counts to the process that started them.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.ordering import ordered

# In the order in which a test with several marks is counted. Each is a marker in pyproject.toml. The numbers are limits
# in seconds for tests that exceed the limit of pyproject.toml, at least three times their duration.
LEFT_OUT = {
    "clones": 3600,
    "booted": 1800,
    "packages": 1800,
    "nginx": 1800,
    "strace": 600,
    "crash": 1800,
    "facter": 300,
    "eyaml": 300,
    "softhsm": 300,
    "promtool": 300,
    "object_store": 300,
    "postgresql": 600,
    "nftables": 300,
    "chromium": 600,
    "node": 300,
    "sops": 300,
    "shells": 300,
    "sources": 300,
    "everything": 600,
}

STORY_FIXTURES = frozenset({"host", "namespace", "new_site", "publisher", "remote"})
"""Fixtures that publish bundles, run ``puller``, mount or use git: each variant takes a fifth to half of a second."""

# Other processes make the duration of an example meaningless. Tests of hostile input use multiples of these numbers.
settings.register_profile(
    "plain", max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("plain"), max_examples=50)
settings.load_profile("plain")

left_out = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--left-out", action="store_true", help="run only the tests that a plain run leaves out")
    parser.addoption("--everything", action="store_true", help="run all tests, with many generated cases")
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails the run")
    parser.addoption("--thorough", action="store_true", help="run long stories and crash matrices completely")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[left_out] = Counter()
    if (config.option.left_out or config.option.everything) and not config.option.hypothesis_profile:
        settings.load_profile("thorough")


@pytest.hookimpl(trylast=True)  # after Hypothesis marks its tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reasons = {item: find_mark(item) for item in items}
    for item in find_surplus([item for item in items if not reasons[item]], most_variants):
        reasons[item] = "everything"
    for item, mark in reasons.items():
        if mark in LEFT_OUT and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LEFT_OUT[mark]))
    if config.option.markexpr:
        return
    redundant = {item for item in items if is_redundant(item)}
    if not config.option.thorough:
        redundant |= {item for item in items if item.get_closest_marker("thorough")}
        redundant |= find_surplus([item for item in items if reasons[item]], sample_size)
    selected = [
        item for item in items if item not in redundant and is_selected(item, reasons[item], config.option)
    ]
    deselected = set(items) - set(selected)
    if not config.option.left_out:
        config.stash[left_out].update(reasons[item] or "" for item in deselected - redundant)
    config.hook.pytest_deselected(items=[item for item in items if item in deselected])
    if workers := config.option.left_out and os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
        selected = ordered(selected, int(workers))
    items[:] = selected


def is_selected(item: pytest.Item, mark: str | None, options: Any) -> bool:
    if options.everything:
        return mark != "root"
    if options.left_out:
        return bool(mark) or bool(item.get_closest_marker("hypothesis"))
    return not mark


def is_redundant(item: pytest.Item) -> bool:
    """Return whether another variant, which runs at the same time, tries the same steps and more.

    All variants of tests of attacks run, because the table of attacks requires their results.
    """
    callspec = getattr(item, "callspec", None)
    stride = callspec.params.get("sweep", 1) if callspec else 1
    is_attack = item.get_closest_marker("attack")
    return bool(stride != 1 and item.get_closest_marker("everything") and not is_attack)


def find_mark(item: pytest.Item) -> str | None:
    """Return the first mark for which a plain run leaves this test out."""
    marks = ("root", *LEFT_OUT) if os.geteuid() != 0 else (*LEFT_OUT,)
    names = {mark.name for mark in item.iter_markers()}
    return next((mark for mark in marks if mark in names), None)


def find_surplus(items: list[pytest.Item], most: Callable[[pytest.Item], int]) -> set[pytest.Item]:
    """Return the variants that do not represent their test. ``most`` returns how many variants do, or 0 for all."""
    variants: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if most(item):
            variants[item.nodeid.partition("[")[0]].append(item)
    return {item for group in variants.values() for item in group} - {
        item for group in variants.values() for item in spread(group, most(group[0]))
    }


def most_variants(item: pytest.Item) -> int:
    """Return the number of variants that a plain run takes of a test, or 0 for all."""
    if mark := item.get_closest_marker("representatives"):
        return int(mark.args[0])
    return 0 if STORY_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())) else 1


def sample_size(item: pytest.Item) -> int:
    """Return the number of left-out variants that runs without ``--thorough`` take of a test, or 0 for all."""
    mark = item.get_closest_marker("sample")
    return int(mark.args[0]) if mark else 0


def spread(variants: list[pytest.Item], count: int) -> Iterator[pytest.Item]:
    """Return ``count`` representatives of one test, evenly spread, the first and the last included."""
    count = min(count, len(variants))
    for number in range(count):
        yield variants[number * (len(variants) - 1) // max(1, count - 1)]


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    """Keep the counts of an ended worker. All workers leave out the same tests."""
    if sent := getattr(node, "workeroutput", {}).get("left_out"):
        node.config.stash[left_out] = Counter(sent)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in told_lines(terminalreporter):
        terminalreporter.write_line(line)
    if counts := config.stash[left_out]:
        each = ", ".join(f"{count} {mark}" for mark, count in counts.most_common())
        how = "pytest --left-out; .ci/run does that too, and installs the tools"
        terminalreporter.write_line(f"Left out: {counts.total()} tests, {each} (run them with: {how})")


def told_lines(terminalreporter: pytest.TerminalReporter) -> Iterator[str]:
    """Return the lines that tests printed with the fixture ``tell``."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                yield from (str(line) for name, line in report.user_properties if name == "told")


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        counts = config.stash[left_out]
        config.workeroutput["left_out"] = dict(counts)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if config.option.no_skips and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
