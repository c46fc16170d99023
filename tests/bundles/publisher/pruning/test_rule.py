"""Versions that stay in a site: named, latest, and recently named versions."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from bundles.format.index import Archive, Artifact, Digest, History, Index
from bundles.format.release import Release, Rollout
from bundles.publisher.published import Record
from bundles.publisher.settings import PruningRule, unnamed_since

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
RULE = PruningRule(versions=2, after=30 * DAY)


def artifact(version: str) -> Artifact:
    return Artifact(Archive.of("web", version, Digest(10, "a" * 64)), Digest(5, "b" * 64))


def release(version: str, before: str | None = None) -> Release:
    if before is None:
        return Release("web", version)
    return Release("web", version, Rollout(percent=10, before=Release("web", before)))


def published(*versions: str, channel: str = "stable", record: Record | None = None) -> Record:
    """Publish one version each day."""
    record = record or Record(Index("web"), History("web"))
    begun = len(record.history.versions)
    for day, version in enumerate(versions, begun):
        now = START + day * DAY
        record = record.with_version(version, artifact(version), now)
        record = record.with_statement(channel, release(version), now)
    return record


def outdated(record: Record, day: int, rule: PruningRule = RULE) -> list[str]:
    return [version.version for version in rule.outdated(record, START + day * DAY)]


def test_latest_versions_stay_at_any_age() -> None:
    assert outdated(published("1", "2"), 10_000) == []


def test_old_version_outside_the_latest_is_pruned() -> None:
    record = published("1", "2", "3", "4")
    assert outdated(record, 10_000) == ["1", "2"]
    assert outdated(record, 10_000, PruningRule(versions=1, after=DAY)) == ["1", "2"]


def test_age_counts_from_the_end_in_a_channel() -> None:
    record = published("1", "2", "3", "4")  # 1 was replaced on day 1, 2 on day 2
    assert [outdated(record, day) for day in (30, 31, 32)] == [[], ["1"], ["1", "2"]]
    assert unnamed_since(record) == {"1": START + DAY, "2": START + 2 * DAY, "3": START + 3 * DAY}


def test_unnamed_version_counts_from_its_publication() -> None:
    record = Record(Index("web"), History("web"))
    for day, version in enumerate(("1", "2", "3")):
        record = record.with_version(version, artifact(version), START + day * DAY)
    assert outdated(record, 29) == []
    assert outdated(record, 30) == ["1"]


@pytest.mark.parametrize(
    ("say", "stays"),
    [
        (lambda record: record.with_statement("old", release("1"), START), ["1"]),
        (lambda record: record.with_statement("stable", release("6", "2"), START), ["2"]),
        (
            lambda record: record.with_statement(
                "stable",
                Release("web", "2", Rollout(percent=10, halted=True, before=Release("web", "1"))),
                START,
            ),
            ["1", "2"],
        ),
        (
            lambda record: record.with_statement(
                "stable",
                Release("web", "2", Rollout(start=START, duration=DAY, before=Release("web", "1"))),
                START,
            ),
            ["1", "2"],
        ),
    ],
    ids=["another channel", "before a rollout", "halted", "growing"],
)
def test_versions_of_channels_and_waves_stay(say: Callable[[Record], Record], stays: list[str]) -> None:
    gone = outdated(say(published("1", "2", "3", "4", "5", "6")), 10_000)
    assert [version for version in ("1", "2") if version not in gone] == stays


def test_previous_version_of_a_channel_stays_for_a_rollback() -> None:
    record = published("1").with_statement("slow", release("1"), START)
    record = published("2", "3", "4", "5", channel="fast", record=record)
    record = record.with_statement("slow", release("5"), START + 5 * DAY)
    record = record.with_statement("slow", release("5", "4"), START + 5 * DAY)
    record = record.with_statement("stable", release("4"), START + 5 * DAY)
    assert outdated(record, 10_000) == ["2", "3"]


def test_last_version_of_an_ended_channel_stays() -> None:
    record = published("1", "2", "3", "4").with_statement("stable", None, START + 5 * DAY)
    assert outdated(record, 10_000, PruningRule(versions=1, after=DAY)) == ["1", "2"]


def test_pruned_version_is_recorded_and_not_offered() -> None:
    record = published("1", "2", "3", "4")
    now = START + 10_000 * DAY
    after = RULE.applied(record, now)
    assert set(after.index.releases) == {"3", "4"}
    assert after.history.versions["1"].pruned == now
    assert RULE.applied(after, now + DAY) is after


def test_a_clock_that_was_wrong_keeps_more_and_not_less() -> None:
    record = published("1", "2", "3", "4").with_statement("late", release("1"), START + 20_000 * DAY)
    record = record.with_statement("late", None, START + 20_000 * DAY)
    assert outdated(record, 10_000) == ["2"]
