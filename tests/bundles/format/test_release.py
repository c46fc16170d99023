"""Rollouts: laws for all fleets, and their arithmetic."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bundles.errors import FormatError
from bundles.format.release import LONGEST_ROLLOUT, Release, Rollout, place, place_in_wave, shown_percent
from tests.support.rows import each_row

FLEET = [f"host{number}.example.com" for number in range(10_000)]
START = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)

hosts = some.text(max_size=80)
hundredths = some.integers(0, 10_000).map(lambda number: number / 100)
durations = some.integers(1, LONGEST_ROLLOUT // timedelta(seconds=1)).map(
    lambda number: timedelta(seconds=number)
)
moments = some.datetimes(timezones=some.just(UTC))
starts = some.datetimes(datetime(2000, 1, 1), datetime(2999, 12, 31)).map(
    lambda at: at.replace(microsecond=0, tzinfo=UTC)
)


def taken(percent: float, version: str = "1.5.0") -> set[str]:
    rollout = Rollout(percent=percent)
    return {host for host in FLEET if rollout.takes(place(host, "web", version), START)}


# --- places -------------------------------------------------------------------------------------------------

# Fixed forever: hosts with different versions of Puller must compute the same places.
VECTORS = [
    ("web1.example.com", "web", "1.5.0", 34.85),
    ("web1.example.com", "web", "1.5.1", 72.94),
    ("web1.example.com", "db", "1.5.0", 88.86),
    ("", "web", "1.5.0", 7.42),
    ("bücher.example", "web", "1.5.0", 17.85),
    ("a host of two\nlines", "web", "1.5.0", 87.89),
]


@pytest.mark.parametrize(("host", "bundle", "version", "expected"), VECTORS)
def test_a_place_is_the_same_for_ever(host: str, bundle: str, version: str, expected: float) -> None:
    assert place(host, bundle, version) == expected


@pytest.mark.everything
def test_a_place_is_the_same_in_another_process() -> None:
    program = "import sys; from bundles.format.release import place; print(place(*sys.argv[1:]))"
    for host, bundle, version, expected in VECTORS:
        command = [sys.executable, "-c", program, host, bundle, version]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert float(output) == expected


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="needs sha256sum")
@pytest.mark.parametrize(("host", "bundle", "version", "expected"), VECTORS)
def test_the_shell_command_of_the_documents_gives_the_same(
    host: str, bundle: str, version: str, expected: float
) -> None:
    page = (Path(__file__).parents[3] / "docs/rollouts.md").read_text()
    script = next(line for line in page.splitlines() if "sha256sum" in line)
    assert " web 1.5.0 web1.example.com " in script
    script = script.replace("web 1.5.0 web1.example.com", '"$1" "$2" "$3"')
    command = ["sh", "-c", script, "sh", bundle, version, host]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(output) / 100 == expected


def test_a_host_name_that_is_not_utf_8_has_a_place_too() -> None:
    assert 0 <= place(b"\xff".decode(errors="surrogateescape"), "web", "1.5.0") < 100


def test_releases_of_a_wave_order_hosts_equally() -> None:
    app = Release("app", "1.5.0", Rollout(percent=10, wave="shop-7"))
    conf = Release("app-conf", "2026.11", Rollout(percent=10, wave="shop-7"))
    taken_by = [
        {host for host in FLEET if release.chosen_for(host, START, current=False).release}
        for release in (app, conf)
    ]
    assert taken_by[0] == taken_by[1]
    assert 0.09 < len(taken_by[0]) / len(FLEET) < 0.11


def test_the_place_in_a_wave_is_the_same_for_ever() -> None:
    assert place_in_wave("web1.example.com", "shop-7") == 85.64


def test_another_wave_has_another_order() -> None:
    places = [(place_in_wave(host, "shop-7"), place_in_wave(host, "shop-8")) for host in FLEET]
    both = sum(first < 10 and second < 10 for first, second in places)
    assert both < 0.02 * len(FLEET)


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="needs sha256sum")
def test_the_page_computes_the_place_in_a_wave_as_hosts_do() -> None:
    page = (Path(__file__).parents[3] / "docs/rollouts.md").read_text()
    script = next(line for line in page.splitlines() if "sha256sum" in line and "wave" in line)
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert int(printed) == round(place_in_wave("web1.example.com", "shop-7") * 100)
    assert f"prints {printed.strip()}." in page


@given(hosts)
def test_a_place_is_a_whole_hundredth_below_a_hundred(host: str) -> None:
    result = place(host, "web", "1.5.0")
    assert 0 <= result < 100
    assert round(result * 100) / 100 == result


# --- rollouts over a fleet -------------------------------------------------------------------------------------


@each_row("version", ["1.5.0", "1.5.1", "2026-11-20", "0"])
@each_row("percent", [1, 5, 10, 25, 50, 90, 99])
def test_a_rollout_takes_its_part_of_ten_thousand_hosts(percent: float, version: str) -> None:
    """The standard deviation is at most 0.5 %. These fleets and versions are fixed."""
    assert len(taken(percent, version)) / 100 == pytest.approx(percent, abs=1)


def test_rollout_limits_are_zero_and_all_hosts() -> None:
    assert taken(0) == set()
    assert taken(100) == set(FLEET)


def test_every_tenth_of_the_fleet_has_its_tenth_of_the_places() -> None:
    counts = [0] * 10
    for host in FLEET:
        counts[int(place(host, "web", "1.5.0")) // 10] += 1
    assert all(900 < count < 1100 for count in counts), counts


@given(some.lists(hundredths, min_size=2))
def test_a_rollout_that_grows_gives_up_no_host(steps: list[float]) -> None:
    places = [place(host, "web", "1.5.0") for host in FLEET[:200]]
    reached: set[float] = set()
    for percent in sorted(steps):
        before, reached = reached, {at for at in places if Rollout(percent=percent).takes(at, START)}
        assert before <= reached


@pytest.mark.parametrize("other", ["1.5.1", "1.6.0", "1.5.0-1"])
def test_releases_choose_their_hosts_independently(other: str) -> None:
    """Two independent tenths share 1 % of the hosts. If the same hosts were always first, they would share 10 %."""
    assert len(taken(10) & taken(10, other)) / 100 == pytest.approx(1, abs=0.3)


def test_the_places_of_two_releases_do_not_correlate() -> None:
    pairs = [(place(host, "web", "1.5.0"), place(host, "web", "1.5.1")) for host in FLEET]
    assert abs(correlation(pairs)) < 0.03
    assert correlation([(item, item) for item, _ in pairs]) == pytest.approx(1)


def correlation(pairs: list[tuple[float, float]]) -> float:
    means = [sum(column) / len(pairs) for column in zip(*pairs, strict=True)]
    apart = [(item - means[0], other - means[1]) for item, other in pairs]
    spread = sum(item * item for item, _ in apart) * sum(other * other for _, other in apart)
    return float(sum(item * other for item, other in apart) / spread**0.5)


# --- growth over time ---------------------------------------------------------------------------------------


@each_row(
    ("hours", "reached"),
    [(-1e6, 0), (-1, 0), (0, 0), (6, 25), (8, 33.33), (12, 50), (24, 100), (25, 100), (1e7, 100)],
)
def test_timed_rollout_grows_evenly_from_zero_to_all(hours: float, reached: float) -> None:
    rollout = Rollout(start=START, duration=DAY)
    assert rollout.reached(START + timedelta(hours=hours)) == reached


@given(starts, durations, moments, moments)
def test_time_never_takes_a_host_back(
    start: datetime, duration: timedelta, one: datetime, other: datetime
) -> None:
    rollout = Rollout(start=start, duration=duration)
    earlier, later = sorted((one, other))
    assert 0 <= rollout.reached(earlier) <= rollout.reached(later) <= 100


@given(hundredths.filter(lambda at: at < 100), some.integers(60, 10**7))
def test_rollout_takes_a_host_at_the_predicted_time(at: float, seconds: int) -> None:
    rollout = Rollout(start=START, duration=timedelta(seconds=seconds))
    moment = rollout.reaches(at)
    assert moment is not None
    assert rollout.takes(at, moment)
    assert not rollout.takes(at, moment - timedelta(seconds=1))


def test_at_either_end_of_time_a_rollout_can_still_be_asked() -> None:
    rollout = Rollout(start=START, duration=LONGEST_ROLLOUT)
    assert rollout.reached(datetime.max.replace(tzinfo=UTC)) == 100
    assert rollout.reached(datetime.min.replace(tzinfo=UTC)) == 0


@given(hundredths, some.booleans())
def test_a_halted_rollout_takes_nobody(percent: float, timely: bool) -> None:
    now = START if timely else START + 1000 * DAY
    assert not Rollout(percent=percent, halted=True).takes(0, now)
    assert Rollout(percent=percent, halted=True).reached(now) == percent


# --- invalid rollouts ------------------------------------------------------------------------------------------


@each_row(
    ("fields", "message"),
    [
        ({}, "percent: expected either 'percent', or both 'start' and 'duration'"),
        ({"percent": 5, "start": START, "duration": DAY}, "percent: expected either 'percent'"),
        (
            {"percent": 100.01},
            "percent: is 100.01, expected a number from 0 to 100 with at most two decimals",
        ),
        ({"percent": -0.01}, "percent: is -0.01, expected a number from 0 to 100"),
        ({"percent": 0.001}, "percent: is 0.001, expected a number from 0 to 100 with at most two decimals"),
        ({"percent": float("nan")}, "percent: is nan, expected a number from 0 to 100"),
        (
            {"start": START.replace(tzinfo=None), "duration": DAY},
            "start: is .*, expected whole seconds in UTC",
        ),
        (
            {"start": START.astimezone(timezone(timedelta(hours=1))), "duration": DAY},
            "start: is .*, expected whole seconds in UTC",
        ),
        (
            {"start": START + timedelta(microseconds=1), "duration": DAY},
            "start: is .*, expected whole seconds",
        ),
        (
            {"start": START.replace(year=9999), "duration": DAY},
            "start: is 9999-.*, expected .* from year 2000 to 2999",
        ),
        (
            {"start": START, "duration": 0 * DAY},
            "duration: is 0, expected from 1 to 3155760000 whole seconds",
        ),
        ({"start": START, "duration": timedelta(seconds=1.5)}, "duration: is 1.5, expected"),
        ({"start": START, "duration": LONGEST_ROLLOUT + DAY}, "duration: is 3.155"),
        (
            {"start": START, "duration": DAY, "halted": True},
            "halted: is true, and 'percent' with the reached",
        ),
    ],
)
def test_invalid_rollouts_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Rollout(**fields)


def test_a_rollout_starts_from_a_release_for_all_hosts() -> None:
    inner = Release("web", "1.4.0", Rollout(percent=1))
    with pytest.raises(FormatError, match="before: has a rollout of its own"):
        Rollout(percent=10, before=inner)


@pytest.mark.parametrize(
    ("percent", "text"),
    [(0, "0 %"), (10, "10 %"), (12.5, "12.5 %"), (99.99, "99.99 %"), (33.339999, "33.34 %")],
)
def test_percentages_are_written_for_people(percent: float, text: str) -> None:
    assert shown_percent(percent) == text
