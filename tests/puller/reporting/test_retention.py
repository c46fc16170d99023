"""Which reports are kept, and how long."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.exit_status import ExitStatus
from puller.reporting.history import Kept, Retention, find_kept, identity, is_eventful, outdated
from puller.reporting.report import BundleReport, Report, Summary
from tests.puller.problems import failure
from tests.support.rows import each_row

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DAY = 86400.0
RETENTION = Retention(keep=2, quiet_for=2 * DAY, eventful_for=90 * DAY, most=10, most_bytes=1000)


def kept(days: float, *, eventful: bool = False, size: int = 10) -> Kept:
    return Kept(identity(NOW - timedelta(days=days)), eventful, size)


def ages(gone: object) -> list[float]:
    assert isinstance(gone, list)
    return [(NOW - item.began).total_seconds() / DAY for item in gone]


def forgotten(*reports: Kept, retention: Retention = RETENTION) -> list[float]:
    return ages(list(outdated(reports, retention, NOW)))


def test_quiet_runs_expire_in_days_and_eventful_in_months() -> None:
    quiet = [kept(days) for days in (0, 1, 1.9, 2.1, 5)]
    eventful = [kept(days, eventful=True) for days in (3, 89, 91)]
    assert sorted(forgotten(*quiet, *eventful)) == [2.1, 5, 91]


def test_newest_reports_are_kept_at_any_age() -> None:
    assert forgotten(kept(400), kept(500), kept(600)) == [600]


def test_over_the_count_quiet_reports_go_first() -> None:
    retention = Retention(keep=1, quiet_for=9 * DAY, eventful_for=90 * DAY, most=3, most_bytes=1000)
    reports = [kept(0), kept(1), kept(2), kept(3, eventful=True), kept(4, eventful=True)]
    assert forgotten(*reports, retention=retention) == [2, 1]


def test_over_the_size_old_reports_go_and_the_newest_stays() -> None:
    reports = [kept(0, size=5000), kept(1, eventful=True), kept(2, eventful=True)]
    assert forgotten(*reports) == [2, 1]


def test_a_clock_that_was_wrong_once_leaves_the_newest_reports() -> None:
    reports = [kept(days, eventful=True) for days in range(5)]
    later = NOW + timedelta(days=4000)
    assert ages(list(outdated(reports, RETENTION, later))) == [4, 3, 2]


@given(
    st.lists(
        st.builds(kept, st.floats(-10, 200), eventful=st.booleans(), size=st.integers(1, 500)), max_size=30
    ),
    st.builds(
        Retention,
        keep=st.integers(1, 5),
        quiet_for=st.floats(0, 10 * DAY),
        eventful_for=st.floats(0, 100 * DAY),
        most=st.integers(5, 20),
        most_bytes=st.integers(1, 5000),
    ),
)
def test_the_bounds_hold_and_the_newest_stays(reports: list[Kept], retention: Retention) -> None:
    reports = list(set(reports))
    gone = set(outdated(reports, retention, NOW))
    remaining = sorted(set(reports) - gone)
    assert not reports or remaining[-1:] == sorted(reports)[-1:]
    assert len(remaining) <= retention.most
    assert sum(item.size for item in remaining[:-1]) <= retention.most_bytes


def run(status: ExitStatus = ExitStatus.OK, problems: tuple[str, ...] = (), **bundle: object) -> Report:
    bundle_report = BundleReport(name="web", **bundle)  # type: ignore[arg-type]
    return Report(
        run="", started="", finished="", host="", puller="", exit_status=status,
        problems=[*map(failure, problems)], bundles=[bundle_report],
    )  # fmt: skip


@each_row(
    ("report", "eventful"),
    [
        (run(summary=Summary(resources=9, stable=8, skipped=1)), False),
        (run(ExitStatus.HELD), False),
        (run(summary=Summary(resources=9, changed=1)), True),
        (run(summary=Summary(resources=9, refreshed=1)), True),
        (run(ExitStatus.FAILED, summary=Summary(resources=9, failed=1)), True),
        (run(summary=Summary(resources=9, skipped=1, unmet=1)), True),
        (run(problems=("facts.d/x: is broken",)), True),
        (run(ExitStatus.FETCH_FAILED), True),
        (run(ExitStatus.REJECTED), True),
        (run(ExitStatus.TERMINATED), True),
        (run(given_up=BundleReport(name="web", version="2.0.0")), True),
        (run(not_undone=["package#nginx was upgraded"]), True),
    ],
)
def test_run_with_changes_or_failures_is_eventful(report: Report, eventful: bool) -> None:
    assert is_eventful(report) is eventful


@pytest.mark.parametrize(
    "name", ["a.json", "20261122T120000.000000Z.json", "20261322T120000.000000Z-quiet.json"]
)
def test_a_file_of_another_name_is_no_report(name: str) -> None:
    assert find_kept(name, 1) is None


def test_the_name_of_a_report_is_read_as_it_was_written() -> None:
    for item in (kept(1), kept(2, eventful=True)):
        assert find_kept(item.name, 10) == item
