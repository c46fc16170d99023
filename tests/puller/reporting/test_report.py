"""Reports, and the status of a run."""

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from puller.reporting.history import (
    Retention,
    load_all_events,
    load_last_report,
    load_status,
    save_report,
    save_status,
)
from puller.reporting.report import (
    BundleReport,
    Event,
    Health,
    HealthResult,
    Report,
    State,
    Summary,
    from_a_word,
)
from puller.state import Directories, set_aside


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    made = Directories(tmp_path / "state", tmp_path / "run")
    made.make()
    return made


def report(run: str = "20261120T160000.000000Z") -> Report:
    events = [
        Event(type="file", name="/a", state=State.STABLE),
        Event(type="file", name="/b", state=State.CHANGED, health_checks=[HealthResult("up", Health.OK, 1)]),
        Event(type="file", name="/c", state=State.SKIPPED, unmet_requirements=["file#/x"]),
    ]
    bundle = BundleReport(name="web", version="1.4.0", summary=Summary.of(events, 0.5), events=events)
    started, finished = "2026-11-20T16:00:00+00:00", "2026-11-20T16:00:01.500+00:00"
    return Report(
        run=run, started=started, finished=finished, host="a", puller="1", exit_status=6, bundles=[bundle]
    )


def save(kept: Report, directories: Directories) -> Path:
    retention = Retention(keep=3, quiet_for=0, eventful_for=0, most=100, most_bytes=10**9)
    return save_report(kept, directories, retention, datetime(2026, 11, 26, tzinfo=UTC))


def test_a_report_comes_back_as_it_was_kept(directories: Directories) -> None:
    save(report(), directories)
    assert load_all_events(directories) == report()


def test_report_with_another_format_is_refused(directories: Directories) -> None:
    save(report(), directories)
    text = directories.last_run.read_text()
    assert text.startswith('{"format":4,"run":')
    directories.last_run.write_text(text.replace('"format":4', '"format":1', 1))
    with pytest.raises(ValueError, match="has format 1, which Puller"):
        load_last_report(directories)


def test_only_the_newest_reports_are_kept(directories: Directories) -> None:
    runs = [f"2026112{day}T000000.000000Z" for day in range(5)]
    for run in runs:
        save(report(run), directories)
    retained = sorted(path.name for path in directories.runs.iterdir() if path != directories.in_order)
    assert retained == [f"{run}-eventful.json" for run in runs[2:]]


def test_files_that_are_no_reports_stay(directories: Directories) -> None:
    others = {"notes.json", "20261120T160000.000000Z.json", "20260231T160000.000000Z-quiet.json"}
    for name in others:
        (directories.runs / name).write_text("{}")
    (directories.runs / "20200101T160000.000000Z-quiet.json").mkdir()
    save(report(), directories)
    assert {path.name for path in directories.runs.iterdir()} > others


def test_reports_are_for_their_owner_only(directories: Directories) -> None:
    path = save(report(), directories)
    assert path.stat().st_mode & 0o777 == 0o600
    assert {found.stat().st_mode & 0o777 for found in directories.in_order.iterdir()} == {0o600}
    assert directories.in_order.stat().st_mode & 0o777 == 0o700


def test_without_a_run_there_is_no_report(tmp_path: Path) -> None:
    assert load_last_report(Directories(tmp_path, tmp_path)) is None


def test_a_damaged_report_is_an_error_and_not_nothing(directories: Directories) -> None:
    directories.last_run.write_text("{")
    with pytest.raises(msgspec.DecodeError):
        load_last_report(directories)


def test_summary_counts_unmet_requirements_as_failures() -> None:
    summary = report().bundles[0].summary
    assert (summary.resources, summary.stable, summary.changed, summary.skipped, summary.unmet) == (
        3,
        1,
        1,
        1,
        1,
    )
    assert summary.exit_status(detailed=False) == 6
    assert str(summary) == "3 resources, 1 stable, 1 changed, 1 skipped, 1 health OK in 0.50 s"


@pytest.mark.parametrize(("detailed", "status"), [(False, 0), (True, 2)])
def test_changes_show_in_the_status_only_when_asked_for(detailed: bool, status: int) -> None:
    assert Summary(resources=1, changed=1).exit_status(detailed=detailed) == status


def test_running_agent_is_recognised(directories: Directories) -> None:
    save_status(directories, "running")
    status = load_status(directories)
    assert status is not None
    assert (status.state, status.process) == ("running", os.getpid())
    text = directories.status.read_text()
    directories.status.write_text(text.replace(str(os.getpid()), "2147483647"))
    assert load_status(directories) is None


def test_files_set_aside_do_not_replace_each_other(tmp_path: Path) -> None:
    for content in ("one", "two", "three"):
        (tmp_path / "a").write_text(content)
        set_aside(tmp_path / "a")
    result = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert result == {"a.unreadable": "one", "a.unreadable-2": "two", "a.unreadable-3": "three"}


def test_end_of_a_long_output_begins_with_a_whole_word() -> None:
    output = "".join(f"word{number} " for number in range(100)).strip()
    reported = str(HealthResult("a", Health.CRITICAL, 1, "CRITICAL", output))
    assert "…word" in reported
    assert from_a_word("abc def", 5) == "def"
    assert from_a_word("abc def", 3) == "def"
    assert from_a_word("a" * 50, 10) == "a" * 10
    assert from_a_word("short", 10) == "short"
