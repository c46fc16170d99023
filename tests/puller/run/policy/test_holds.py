"""Reasons that hold a host, in the same words in runs and ``puller status``."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bundles.format.release import Release, Rollout
from puller.config.configuration import BundleChoice, Configuration
from puller.run.policy.holds import Holds, Pins, Quarantine, disable, held_by_rollout
from puller.state import Directories
from puller.values.maintenance import ClockTime, Window

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
NIGHT = Window(start=ClockTime.parse("22:00"), end=ClockTime.parse("04:00"))
CLOSED = "outside the maintenance windows, the next one opens 2026-11-20 22:00 UTC"


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    return Directories(tmp_path / "state", tmp_path / "run")


def load(directories: Directories, now: datetime = NOON, **settings: Any) -> Holds:
    configuration = Configuration(site="https://a/", bundles=(BundleChoice(name="web"),), **settings)
    return Holds.load(configuration, directories, now, pytest.fail)


PLACE = 24.99
DAY = timedelta(days=1)
HELD_BY_ROLLOUTS: list[tuple[dict[str, Any], str]] = [
    ({"percent": 10}, "reaches this host at 25 %, now 10 %"),
    ({"percent": PLACE}, "reaches this host at 25 %, now 24.99 %"),
    (
        {"start": NOON, "duration": DAY},
        "reaches this host at 25 %, now 0 %, at about 2026-11-20 18:00 UTC",
    ),
    (
        {"start": NOON - DAY / 10, "duration": DAY},
        "reaches this host at 25 %, now 10 %, at about 2026-11-20 15:36 UTC",
    ),
    (
        {"start": NOON, "duration": timedelta(seconds=61)},  # rounded up, so that the host has it by then
        "reaches this host at 25 %, now 0 %, at about 2026-11-20 12:01 UTC",
    ),
    (
        {"percent": 10, "halted": True},
        "was halted by the publisher at 10 %, and this host's place is 24.99 %",
    ),
    (
        {"percent": 80, "halted": True},
        "was halted by the publisher at 80 %, before this host installed it",
    ),
]


@pytest.mark.parametrize(("fields", "text"), HELD_BY_ROLLOUTS)
def test_text_of_a_release_that_a_rollout_holds(fields: dict[str, Any], text: str) -> None:
    release = Release("web", "1.5.0", Rollout(**fields))
    assert held_by_rollout(release, PLACE, NOON) == f"web 1.5.0 {text}"


def test_documented_texts_of_rollouts_are_current() -> None:
    page = (Path(__file__).parents[4] / "docs/rollouts.md").read_text()
    documented = re.findall(r"^    held: (.*)$", page, re.MULTILINE)
    assert {*map(without_numbers, documented)} == {
        without_numbers(f"web 1.5.0 {text}") for _, text in HELD_BY_ROLLOUTS
    }


def without_numbers(text: str) -> str:
    return re.sub(r"[0-9.:-]+(?= (%|UTC|[0-9]))", "N", text)


def test_a_host_that_nothing_holds_says_nothing(directories: Directories) -> None:
    holds = load(directories)
    assert holds.why_not_applying(NOON) == ""
    assert holds.lines(NOON, {}) == []
    assert holds.data(NOON) == {
        "disabled": None,
        "not_applying": None,
        "next_window": None,
        "pins": {},
        "quarantine": [],
    }


def test_closed_window_holds_and_open_window_does_not(directories: Directories) -> None:
    holds = load(directories, windows=(NIGHT,))
    assert holds.why_not_applying(NOON) == CLOSED
    assert holds.data(NOON)["next_window"] == "2026-11-20T22:00:00+00:00"
    evening = NOON + timedelta(hours=11)
    assert holds.why_not_applying(evening) == ""
    assert holds.data(evening)["next_window"] is None


def test_everything_that_holds_is_said_and_disabled_comes_first(directories: Directories) -> None:
    disable(directories, "audit", "ann", NOON, NOON + timedelta(hours=1))
    Pins.load(directories, pytest.fail).set("web", "1.4.0")
    entry = Quarantine.load(directories, pytest.fail).add("web", "1.5.0", "b" * 64, "health check http: 500")
    holds = load(directories, windows=(NIGHT,))
    disabled = "disabled by ann since 2026-11-20 12:00 UTC until 2026-11-20 13:00 UTC: audit"
    assert holds.why_not_applying(NOON) == disabled
    assert holds.lines(NOON, {"web": "1.5.0"}) == [disabled, "web is pinned to 1.4.0", str(entry)]
    data = holds.data(NOON)
    assert data["disabled"] == {
        "reason": "audit",
        "since": "2026-11-20T12:00:00+00:00",
        "until": "2026-11-20T13:00:00+00:00",
        "by": "ann",
    }
    assert data["not_applying"] == disabled
    assert data["pins"] == {"web": "1.4.0"}
    later = NOON + timedelta(hours=2)
    assert load(directories, later, windows=(NIGHT,)).why_not_applying(later) == CLOSED
