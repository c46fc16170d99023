"""Statements that a publisher may make about a bundle whose channel already has a statement."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from bundles.errors import PublishError
from bundles.format.index import ChannelEntry, History
from bundles.format.release import Release, Rollout, Runs, TrialRule
from bundles.publisher.channels import (
    AT_ONCE,
    RolloutRequest,
    halted,
    published,
    reached_by,
    release_before,
    rolled_back,
    steered,
)
from foundation.times import Duration
from tests.support.rows import each_row

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
OLD, NEW, NEWEST = (Release.of("web", version) for version in ("1.4.0", "1.5.0", "1.6.0"))


def rolling_out(release: Release = NEW, before: Release | None = OLD, **fields: Any) -> Release:
    return replace(release, rollout=Rollout(before=before, **fields))


TENTH = rolling_out(percent=10)
HALTED = rolling_out(percent=10, halted=True)
HALF_WAY = rolling_out(start=NOW - DAY, duration=2 * DAY)
FINISHED = rolling_out(start=NOW - DAY, duration=DAY)


@each_row(
    ("current", "release", "asked", "expected"),
    [
        # For all hosts, with any previous statement.
        (None, NEW, AT_ONCE, NEW),
        (OLD, NEW, AT_ONCE, NEW),
        (NEW, OLD, AT_ONCE, OLD),
        (TENTH, NEWEST, AT_ONCE, NEWEST),
        (HALTED, OLD, AT_ONCE, OLD),
        (OLD, NEW, RolloutRequest(percent=100), NEW),
        # A rollout that replaces a release of all hosts.
        (OLD, NEW, RolloutRequest(percent=10), TENTH),
        (OLD, NEW, RolloutRequest(percent=0), rolling_out(percent=0)),
        (NEW, OLD, RolloutRequest(percent=10), rolling_out(OLD, NEW, percent=10)),
        (OLD, NEW, RolloutRequest(over=DAY), rolling_out(start=NOW, duration=DAY)),
        (OLD, NEW, RolloutRequest(over=DAY, start=NOW + HOUR), rolling_out(start=NOW + HOUR, duration=DAY)),
        (None, NEW, RolloutRequest(percent=10), rolling_out(before=None, percent=10)),
        (FINISHED, NEWEST, RolloutRequest(percent=10), rolling_out(NEWEST, NEW, percent=10)),
        # A rollout that replaces an unfinished rollout: the remaining hosts keep the release before both.
        (TENTH, NEWEST, RolloutRequest(percent=10), rolling_out(NEWEST, OLD, percent=10)),
        (HALTED, NEWEST, RolloutRequest(over=DAY), rolling_out(NEWEST, OLD, start=NOW, duration=DAY)),
        (HALF_WAY, NEWEST, RolloutRequest(percent=10), rolling_out(NEWEST, OLD, percent=10)),
        (
            rolling_out(before=None, percent=10),
            NEWEST,
            RolloutRequest(percent=10),
            rolling_out(NEWEST, None, percent=10),
        ),
        # Repeated statements.
        (NEW, NEW, AT_ONCE, NEW),
        (NEW, NEW, RolloutRequest(percent=10), NEW),
        (TENTH, NEW, RolloutRequest(percent=10), TENTH),
        (TENTH, NEW, RolloutRequest(percent=5), TENTH),
        (HALF_WAY, NEW, RolloutRequest(percent=50), HALF_WAY),
        (HALF_WAY, NEW, RolloutRequest(over=DAY), HALF_WAY),
        (FINISHED, NEW, AT_ONCE, FINISHED),
    ],
)
def test_a_release_is_published(
    current: Release | None, release: Release, asked: RolloutRequest, expected: Release
) -> None:
    assert published(current, release, asked, NOW) == expected


RULE, OTHER = TrialRule(runs=Runs(3)), TrialRule(Duration(60))


def tried(release: Release, rule: TrialRule | None = RULE) -> Release:
    return replace(release, trial=rule)


def test_rule_of_a_trial_stays_with_its_release() -> None:
    tenth = RolloutRequest(percent=10)
    assert published(OLD, tried(NEW), tenth, NOW) == tried(TENTH)
    # A repetition keeps the rule, or states another one.
    assert published(tried(NEW), NEW, AT_ONCE, NOW) == tried(NEW)
    assert published(tried(TENTH), NEW, tenth, NOW) == tried(TENTH)
    assert published(tried(TENTH), tried(NEW, OTHER), tenth, NOW) == tried(TENTH, OTHER)
    # A later release has its own rule, and the release before it keeps its rule.
    later = published(tried(NEW), NEWEST, tenth, NOW)
    assert (later.trial, later.rollout and later.rollout.before) == (None, tried(NEW))
    assert steered(tried(TENTH), RolloutRequest(percent=100), NOW) == tried(NEW)
    assert halted(tried(TENTH), NOW) == tried(HALTED)
    assert release_before(later, history(), "stable") == tried(NEW)
    assert release_before(NEWEST, history(tried(NEW), NEWEST), "stable") == tried(NEW)


def test_rule_of_a_trial_hides_no_running_rollout() -> None:
    with pytest.raises(PublishError, match="is in a rollout at 10 %"):
        published(tried(TENTH), tried(NEW), AT_ONCE, NOW)
    with pytest.raises(PublishError, match="is in a rollout at 10 %"):
        rolled_back(tried(TENTH), NEW, NOW)
    with pytest.raises(PublishError, match="is the release of all hosts that"):
        published(rolling_out(before=tried(OLD), percent=10), OLD, RolloutRequest(percent=10), NOW)
    assert rolled_back(tried(FINISHED), NEW, NOW) == tried(NEW)
    assert rolled_back(tried(FINISHED), OLD, NOW) == OLD


@pytest.mark.parametrize(
    ("current", "release", "asked", "message"),
    [
        (TENTH, NEW, AT_ONCE, "web 1.5.0: is in a rollout at 10 % of the hosts; `puller site rollout`"),
        (TENTH, NEW, RolloutRequest(percent=11), "web 1.5.0: is in a rollout at 10 %"),
        (
            HALTED,
            NEW,
            RolloutRequest(percent=10),
            "web 1.5.0: is halted at 10 %; `puller site rollout --resume` resumes it",
        ),
        (rolling_out(percent=100, halted=True), NEW, AT_ONCE, "web 1.5.0: is halted at 100 %"),
        (
            TENTH,
            OLD,
            RolloutRequest(percent=10),
            "web 1.4.0: is the release of all hosts that web 1.5.0 has not reached",
        ),
    ],
)
def test_publishing_is_no_way_to_steer_a_rollout(
    current: Release, release: Release, asked: RolloutRequest, message: str
) -> None:
    with pytest.raises(PublishError, match=message):
        published(current, release, asked, NOW)


@each_row(
    ("current", "asked", "resume", "expected"),
    [
        (TENTH, RolloutRequest(percent=50), False, rolling_out(percent=50)),
        (TENTH, RolloutRequest(percent=10), False, TENTH),
        (TENTH, RolloutRequest(percent=100), False, NEW),
        (TENTH, AT_ONCE, True, TENTH),
        (HALF_WAY, RolloutRequest(percent=50), False, rolling_out(percent=50)),
        (FINISHED, RolloutRequest(percent=100), False, NEW),
        (FINISHED, RolloutRequest(over=DAY), False, NEW),
        (HALTED, AT_ONCE, True, TENTH),
        (HALTED, RolloutRequest(percent=20), True, rolling_out(percent=20)),
        (HALTED, RolloutRequest(percent=100), True, NEW),
        (rolling_out(percent=100, halted=True), AT_ONCE, True, NEW),
        (rolling_out(percent=0), RolloutRequest(over=DAY), False, rolling_out(start=NOW, duration=DAY)),
        # The rest with its own duration: half of the hosts in a day is a line of two days that began yesterday.
        (
            rolling_out(percent=50),
            RolloutRequest(over=DAY),
            False,
            rolling_out(start=NOW - DAY, duration=2 * DAY),
        ),
        (
            rolling_out(percent=75, halted=True),
            RolloutRequest(over=HOUR),
            True,
            rolling_out(start=NOW - 3 * HOUR, duration=4 * HOUR),
        ),
    ],
)
def test_a_rollout_grows(current: Release, asked: RolloutRequest, resume: bool, expected: Release) -> None:
    assert steered(current, asked, NOW, resume=resume) == expected


@pytest.mark.parametrize(
    ("current", "asked", "message"),
    [
        (
            NEW,
            RolloutRequest(percent=50),
            "web 1.5.0: is already the release of all hosts, so it has no rollout",
        ),
        (HALTED, RolloutRequest(percent=50), "web 1.5.0: is halted at 10 %; --resume resumes it"),
        (HALTED, RolloutRequest(percent=100), "web 1.5.0: is halted at 10 %"),
        (
            TENTH,
            RolloutRequest(percent=9.99),
            "has reached 10 % of the hosts, and a rollout cannot shrink to 9.99 %",
        ),
        (
            HALF_WAY,
            RolloutRequest(percent=49),
            "has reached 50 % of the hosts, and a rollout cannot shrink to 49 %",
        ),
        (
            rolling_out(percent=99.99),
            RolloutRequest(over=DAY),
            "over: 1 day, .* is too long for .* that has already reached 99.99 %",
        ),
    ],
)
def test_a_rollout_that_cannot_grow_says_why(current: Release, asked: RolloutRequest, message: str) -> None:
    with pytest.raises(PublishError, match=message):
        steered(current, asked, NOW)


@each_row(
    ("fields", "message"),
    [
        ({"percent": 0.001}, "percent: is 0.001, expected a number from 0 to 100 with at most two decimals"),
        ({"percent": 100.5}, "percent: is 100.5, expected"),
        ({"percent": -1}, "percent: is -1, expected"),
        ({"percent": float("nan")}, "percent: is nan, expected"),
        ({"over": timedelta(0)}, "duration: is 0, expected from 1 to"),
        ({"over": DAY, "start": NOW.replace(tzinfo=None)}, "start: is .*, expected whole seconds in UTC"),
        ({"percent": 5, "over": DAY}, "rollout: expected a percentage, or a duration with a start"),
        ({"start": NOW}, "rollout: expected a percentage, or a duration with a start"),
        ({"percent": 5, "start": NOW}, "rollout: expected a percentage, or a duration with a start"),
    ],
)
def test_invalid_rollout_requests_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PublishError, match=message):
        RolloutRequest(**fields)


@given(
    some.integers(0, 9_990).map(lambda number: number / 100),
    some.integers(60, 3 * 86_400),
    some.integers(0, 999_999),
)
def test_timed_rollout_resumes_at_its_share_and_ends_on_time(
    percent: float, seconds: int, microsecond: int
) -> None:
    now, over = NOW.replace(microsecond=microsecond), timedelta(seconds=seconds)
    following = steered(rolling_out(percent=percent), RolloutRequest(over=over), now)
    second = timedelta(seconds=1)
    assert reached_by(following, now) >= percent
    assert reached_by(following, now + over - 2 * second) < 100 or seconds * (100 - percent) < 10_000
    assert reached_by(following, now + over + 2 * second) == 100


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (TENTH, HALTED),
        (HALTED, HALTED),
        (HALF_WAY, rolling_out(percent=50, halted=True)),
        (FINISHED, rolling_out(percent=100, halted=True)),
        (rolling_out(before=None, percent=10), rolling_out(before=None, percent=10, halted=True)),
    ],
)
def test_halted_rollout_keeps_its_share(current: Release, expected: Release) -> None:
    assert halted(current, NOW) == expected


def test_release_without_a_rollout_cannot_be_halted() -> None:
    with pytest.raises(
        PublishError, match=r"web 1\.5\.0: is already the release of all hosts, so it has no rollout"
    ):
        halted(NEW, NOW)


def history(*releases: Release | None, channel: str = "stable") -> History:
    statements = (
        ChannelEntry(NOW - DAY + timedelta(hours=hour), channel, item) for hour, item in enumerate(releases)
    )
    return History("web", statements=tuple(statements))


def test_the_rollback_is_the_release_before_the_rollout() -> None:
    assert release_before(HALTED, history(), "stable") == release_before(FINISHED, history(), "stable") == OLD
    for without in (NEW, rolling_out(before=None, percent=10)):
        with pytest.raises(PublishError, match="is the first version of this channel; specify the version"):
            release_before(without, history(without), "stable")


def test_the_rollback_is_the_version_before_the_last_publication() -> None:
    published = (OLD, NEW, NEWEST)
    assert release_before(NEWEST, history(*published), "stable") == NEW
    assert release_before(NEW, history(*published, NEW), "stable") == OLD
    assert release_before(NEW, history(OLD, None, NEW), "stable") == OLD
    assert release_before(NEWEST, history(OLD, rolling_out(percent=5), NEWEST), "stable") == OLD
    assert (
        release_before(NEWEST, history(OLD, rolling_out(start=NOW - 3 * DAY, duration=DAY), NEWEST), "stable")
        == NEW
    )
    with pytest.raises(PublishError):
        release_before(NEW, history(OLD, NEW, channel="canary"), "stable")
