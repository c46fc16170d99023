"""Reasons that hold a host, in the same words in runs and ``puller status``."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from puller.config.configuration import BundleChoice, Configuration
from puller.run.policy.holds import Holds, Pins, Quarantine, disable
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
