"""Times in the Go engine: the calendar, layouts by example, and durations."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.templates.gotemplate.clock import (
    UTC_ZONE,
    LocalZone,
    find_zone,
    format_duration,
    parse_duration,
    round_duration,
)
from puller.templates.gotemplate.times import ZERO_TIME, Time, parse_time
from puller.templates.template_errors import FunctionError
from tests.support.rows import each_row

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENTS = st.datetimes(timezones=st.just(UTC)).map(lambda moment: int((moment - EPOCH).total_seconds()))
RFC3339 = "2006-01-02T15:04:05.999999999Z07:00"


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "EST5EDT,M3.2.0,M11.1.0")
        time.tzset()
        yield
    time.tzset()


@given(MOMENTS)
def test_the_calendar_is_that_of_datetime(seconds: int) -> None:
    moment = EPOCH + timedelta(seconds=seconds)
    clock = Time(seconds).clock()
    assert clock[:6] == moment.timetuple()[:6]
    assert clock.weekday == moment.isoweekday() % 7
    assert clock.day_of_year == moment.timetuple().tm_yday


@given(MOMENTS, st.integers(0, 999_999_999), st.sampled_from(["UTC", "Asia/Kolkata", "America/New_York"]))
def test_a_time_that_is_written_reads_back(seconds: int, nanoseconds: int, zone: str) -> None:
    there = find_zone(zone)
    assert there is not None
    written = Time(seconds, nanoseconds, there).format(RFC3339)
    if abs(seconds) < 2**36 and there.at(seconds)[1] % 60 == 0:  # a four-digit year, an offset in minutes
        assert parse_time(RFC3339, written, UTC_ZONE).moment() == Time(seconds, nanoseconds).moment()


@given(MOMENTS.filter(lambda seconds: abs(seconds) < 2**36))
def test_complete_layouts_round_trip(seconds: int) -> None:
    for layout in (
        "Mon Jan _2 15:04:05 2006",
        "Monday, 02-Jan-2006 03:04:05PM",
        "20060102150405",
        "January 2, 2006 at 3:4:5 pm (MST)",
        "2006 002 15.04.05 -0700",
        "2006 __2 150405 -07:00:00",
    ):
        written = Time(seconds).format(layout)
        assert parse_time(layout, written, UTC_ZONE).seconds == seconds


@given(st.integers(-(2**62), 2**62))
def test_a_duration_that_is_written_reads_back(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@each_row(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (245_000_000_000, "4m5s"),
        (18_367_001_000_000, "5h6m7.001s"),
        (-90_000_000_000, "-1m30s"),
    ],
)
def test_durations_are_written_as_go_writes_them(nanoseconds: int, text: str) -> None:
    assert format_duration(nanoseconds) == text
    assert parse_duration(text) == nanoseconds


@each_row("text", ["", "5", "1x", "h", "1h ", "--1h", "1h-1m", ".h", "3000000h"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(FunctionError, match="invalid duration"):
        parse_duration(text)


def test_a_duration_rounds_half_away_from_zero() -> None:
    assert [round_duration(n, 10) for n in (4, 5, -5, -4, 14)] == [0, 10, -10, 0, 10]


@each_row(
    ("layout", "text", "why"),
    [
        ("2006-01-02", "2024-02-30", "day out of range"),
        ("2006-01-02", "2024-13-01", "month out of range"),
        ("2006-01-02", "2024-1-01", "no month at '1-01'"),
        ("2006-01-02", "24-01-01", "no year"),
        ("15:04", "24:00", "hour out of range"),
        ("2006 002", "2023 366", "day of the year out of range"),
        ("2006-01-02 002", "2024-01-02 003", "the day of the year is another day"),
        ("2006-01 002", "2024-01 032", "the day of the year is another day"),
        ("Jan 2", "Foo 2", "no month at 'foo 2'"),
        ("Mon", "Nix", "no day of the week"),
        ("3PM", "3XM", "no half of the day"),
        ("MST", "x", "no zone"),
        ("-0700", "+2500", "offset out of range"),
        ("05.000", "05.12", "no fraction of a second"),
        ("a 2006", "b 2006", "'a' is missing"),
        ("2006 x", "2006x", "no space before 'x'"),
        ("2006", "2006 ", "extra text ' '"),
    ],
)
def test_invalid_time_is_refused(layout: str, text: str, why: str) -> None:
    with pytest.raises(FunctionError) as failed:
        parse_time(layout, text, UTC_ZONE)
    assert why in str(failed.value)


@each_row(
    ("layout", "text", "shown"),
    [
        ("06", "69", "1969-01-01 00:00:00 +0000 UTC"),
        ("06", "68", "2068-01-01 00:00:00 +0000 UTC"),
        ("2006 Jan", "2024 fEB", "2024-02-01 00:00:00 +0000 UTC"),
        ("2006 3pm", "2024 12am", "2024-01-01 00:00:00 +0000 UTC"),
        ("2006 3pm", "2024 12pm", "2024-01-01 12:00:00 +0000 UTC"),
        ("2006 5", "2024 7.25", "2024-01-01 00:00:07.25 +0000 UTC"),
        ("2006 5.00", "2024 7,25", "2024-01-01 00:00:07.25 +0000 UTC"),
        ("2006 -0700", "2024 +0530", "2024-01-01 00:00:00 +0530 +0530"),
        ("2006 -0700 MST", "2024 +0530 IST", "2024-01-01 00:00:00 +0530 IST"),
        ("2006 Z07", "2024 Z", "2024-01-01 00:00:00 +0000 UTC"),
        ("2006 MST", "2024 GMT+3", "2024-01-01 00:00:00 +0300 GMT+3"),
        ("2006  02", "2024 5", None),
        ("2006 2", "2024   5", "2024-01-05 00:00:00 +0000 UTC"),
        ("Monday 2006 002", "Friday 2024 060", "2024-02-29 00:00:00 +0000 UTC"),
    ],
)
def test_times_are_read_as_go_reads_them(layout: str, text: str, shown: str | None) -> None:
    if shown is None:
        with pytest.raises(FunctionError):
            parse_time(layout, text, UTC_ZONE)
    else:
        assert parse_time(layout, text, UTC_ZONE).text() == shown


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2024-07-01 12:00", "2024-07-01 12:00:00 -0400 EDT"),
        ("2024-01-01 12:00", "2024-01-01 12:00:00 -0500 EST"),
        ("2024-03-10 02:30", "2024-03-10 01:30:00 -0500 EST"),
        ("2024-11-03 01:30", "2024-11-03 01:30:00 -0400 EDT"),
    ],
)
def test_the_local_zone_has_its_summer_time(text: str, shown: str) -> None:
    assert parse_time("2006-01-02 15:04", text, LocalZone()).text() == shown


@pytest.mark.parametrize("name", ["No/Such", "../../etc/passwd", "/etc/localtime", "Europe", "é"])
def test_unknown_time_zone_is_not_found(name: str) -> None:
    assert find_zone(name) is None


def test_a_time_that_is_not_set_is_in_the_year_one() -> None:
    assert ZERO_TIME.text() == "0001-01-01 00:00:00 +0000 UTC"


@pytest.mark.parametrize("year", [-1, 0, 10_000, 292_000])
def test_years_beyond_those_of_datetime_are_possible(year: int) -> None:
    seconds = Time(0).clock()  # the epoch
    days = 365 * (year - seconds.year)
    assert Time(days * 86_400, zone=LocalZone()).format("2006") != ""
