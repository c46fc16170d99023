"""Maintenance windows: their notations, and their opening times in local time."""

import re
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.config.configuration import Configuration, load_configuration, sample
from puller.errors import ConfigurationError
from puller.values.maintenance import ClockTime, Days, Window, Zone, is_open, next_opening, why_closed
from tests.support.rows import each_row
from tests.support.stories import Execute

BERLIN = ZoneInfo("Europe/Berlin")


def load(tmp_path: Path, windows: str) -> Configuration:
    """Return the configuration with these windows, from the reader that runs use."""
    path = tmp_path / "config.yaml"
    path.write_text("site: https://www.example.org/\nbundles: [{name: web}]\n" + textwrap.dedent(windows))
    return load_configuration(path)


def window(days: list[str], start: str = "00:00", end: str = "24:00", zone: str = "UTC") -> Window:
    return Window(
        days=Days.parse(days), start=ClockTime.parse(start), end=ClockTime.parse(end), zone=Zone.parse(zone)
    )


NIGHTS = window(["fri"], "22:00", "04:00")


# --- notations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ('{from: "22:00", to: "04:00"}', 1320, 240),
        ("{from: 22:00, to: 4:00}", 1320, 240),  # YAML 1.1 reads a base 60 number
        ("{from: 22:00, to: 04:00}", 1320, 240),  # text, because of the leading zero
        ("{from: 0:30, to: 24:00}", 30, 1440),
        ("{from: 1:00, to: 0:00}", 60, 0),
        ("{to: 8:00}", 0, 480),
        ("{}", 0, 1440),
    ],
)
def test_times_are_read_quoted_or_not(tmp_path: Path, text: str, start: int, end: int) -> None:
    (result,) = load(tmp_path, f"windows:\n  - {text}\n").windows
    assert (result.start, result.end) == (start, end)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("[mon]", {0}),
        ("[mon-fri]", {0, 1, 2, 3, 4}),
        ("[sat-mon]", {5, 6, 0}),
        ("[Mon, WED, wed]", {0, 2}),
        ("[sun-sun]", {6}),
    ],
)
def test_days_are_names_and_ranges(tmp_path: Path, text: str, days: set[int]) -> None:
    (result,) = load(tmp_path, f"windows: [{{days: {text}}}]\n").windows
    assert result.days == Days(days)


def test_window_defaults_to_every_day_in_utc(tmp_path: Path) -> None:
    (result,) = load(tmp_path, "windows: [{}]\n").windows
    assert result == window(["mon-sun"])
    (result,) = load(tmp_path, "windows: [{zone: Europe/Berlin}]\n").windows
    assert result.zone.rules() == BERLIN


def test_a_window_says_how_it_was_understood() -> None:
    assert str(NIGHTS) == "fri, 22:00 to 04:00 UTC"
    assert (
        str(window(["sat-mon"], "8:00", "24:00", "Europe/Berlin"))
        == "mon sat sun, 08:00 to 24:00 Europe/Berlin"
    )
    assert str(Window()) == "every day, 00:00 to 24:00 UTC"


def test_config_check_prints_the_parsed_windows(tmp_path: Path, execute: Execute) -> None:
    load(tmp_path, "windows: [{days: [fri], from: 22:00, to: 4:00}]\n")
    status, output = execute("config", "check", "--file-only", "--config", str(tmp_path / "config.yaml"))
    assert status == 0
    assert output.endswith("\nwindow: fri, 22:00 to 04:00 UTC\n")


def test_documented_windows_have_the_documented_meaning(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "holding.md"
    (example,) = re.findall(r"```yaml\n# /etc/puller/config.yaml\n(.*?)```", page.read_text(), re.DOTALL)
    windows = load(tmp_path, example).windows
    assert is_open(windows, datetime(2026, 11, 27, 3, 0, tzinfo=BERLIN)), "Friday"
    assert not is_open(windows, datetime(2026, 11, 23, 3, 0, tzinfo=BERLIN)), "Monday"
    assert why_closed(windows, datetime(2026, 11, 23, 3, 0, tzinfo=BERLIN)) in page.read_text()

    commented = re.search(r"windows: \[\]\n((?:  # .*\n)+)", sample())
    assert commented is not None
    (result,) = load(
        tmp_path, "windows:\n" + re.sub(r"^  # ", "  ", commented[1], flags=re.MULTILINE)
    ).windows
    assert str(result) == "mon tue wed thu sun, 22:00 to 04:00 Europe/Berlin"


TIME = "expected a time such as '22:00'"


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ("{days: [mon], from: 25:00}", f"config.yaml:4: from is 1500, {TIME}"),
        ('{days: [mon], to: "24:01"}', f"config.yaml:4: to is '24:01', {TIME}"),
        ('{days: [mon], to: "4:0"}', f"config.yaml:4: to is '4:0', {TIME}"),
        ('{days: [mon], to: "4:60"}', f"config.yaml:4: to is '4:60', {TIME}"),
        ('{days: [mon], to: "004:00"}', f"config.yaml:4: to is '004:00', {TIME}"),
        ('{days: [mon], to: "-4:00"}', f"config.yaml:4: to is '-4:00', {TIME}"),
        ("{days: [mon], to: true}", f"config.yaml:4: to is True, {TIME}, from 00:00"),
        ("{days: [mon], from: 22:00:00}", f"config.yaml:4: from is 79200, {TIME}"),
        ("{days: [mon], from: 800}", f"config.yaml:4: from is 800, {TIME}"),
        ("{days: [mon], to: 22}", f"config.yaml:4: to is 22, {TIME}"),
        (
            "{days: [mon], from: 4:00, to: 4:00}",
            "config.yaml:4: goes from 04:00 to 04:00 (write 00:00 to 24:00",
        ),
        (
            "{days: [mon], from: 24:00, to: 4:00}",
            "config.yaml:4: goes from 24:00 to 04:00 (write 00:00 to 24:00",
        ),
        ("{days: []}", "config.yaml:4: days is empty, expected at least one day"),
        (
            "{days: mon-fri}",
            "config.yaml:4: days is 'mon-fri', expected a list of days such as [mon-fri, sun]",
        ),
        ("{days: [monday]}", "config.yaml:4: days has 'monday', expected days such as mon, or ranges"),
        ("{days: [mon-]}", "config.yaml:4: days has 'mon-', expected days such as mon, or ranges"),
        ("{days: [mon-wed-fri]}", "config.yaml:4: days has 'mon-wed-fri', expected"),
        ("{days: [1]}", "config.yaml:4: days has 1, expected days"),
        (
            "{zone: Europe/Berln}",
            "'Europe/Berln', an unknown time zone on this machine (did you mean",
        ),
        ("{zone: Europe}", "'Europe', an unknown time zone on this machine"),
        ("{zone: ../etc/passwd}", "an unknown time zone on this machine"),
        ("{zone: /etc/localtime}", "an unknown time zone on this machine"),
        ('{zone: ""}', "zone is '', an unknown time zone on this machine"),
        ("{zone: 2}", "zone is 2, expected the name of a time zone"),
        ("{form: 4:00}", "config.yaml:4: form is not a key of windows (did you mean 'from'?)"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, windows: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(tmp_path, f"windows:\n  - {windows}\n")
    assert message in str(error.value)


# --- opening times --------------------------------------------------------------------------------------------


@each_row(
    ("moment", "opened"),
    [
        ("2026-11-20 21:59:59", False),  # a Friday
        ("2026-11-20 22:00:00", True),
        ("2026-11-20 23:59:59", True),
        ("2026-11-21 00:00:00", True),
        ("2026-11-21 03:59:59", True),
        ("2026-11-21 04:00:00", False),
        ("2026-11-21 22:00:00", False),
        ("2026-11-20 03:00:00", False),  # the night that started on Thursday
    ],
)
def test_window_over_midnight_belongs_to_its_first_day(moment: str, opened: bool) -> None:
    assert is_open([NIGHTS], datetime.fromisoformat(moment).replace(tzinfo=UTC)) is opened


def test_a_window_over_midnight_goes_from_sunday_into_monday() -> None:
    late = window(["sun"], "22:00", "04:00")
    assert is_open([late], datetime(2026, 11, 23, 3, 0, tzinfo=UTC))
    assert not is_open([late], datetime(2026, 11, 22, 3, 0, tzinfo=UTC))


def test_no_windows_means_always() -> None:
    now = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
    assert is_open([], now)
    assert next_opening([], now) == now
    assert why_closed([], now) == ""


def test_any_open_window_is_enough() -> None:
    now = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
    assert not is_open([NIGHTS], now)
    assert is_open([NIGHTS, window(["wed"])], now)
    assert next_opening([NIGHTS, window(["thu"], "08:00")], now) == datetime(2026, 11, 19, 8, 0, tzinfo=UTC)


def test_message_states_the_next_opening_in_utc() -> None:
    berlin = window(["sat"], "23:00", "24:00", "Europe/Berlin")
    now = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
    expected = "outside the maintenance windows, the next one opens 2026-11-21 22:00 UTC"
    assert why_closed([berlin], now) == expected
    assert why_closed([berlin], datetime(2026, 11, 21, 22, 0, tzinfo=UTC)) == ""


# --- clock changes --------------------------------------------------------------------------------------------

SPRING = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)  # 02:00 becomes 03:00 in Berlin
AUTUMN = datetime(2026, 10, 25, 1, 0, tzinfo=UTC)  # 03:00 becomes 02:00
MINUTE = timedelta(minutes=1)


def openings(subject: Window, now: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Return opening and closing times, from a check for each minute."""
    results: list[tuple[datetime, datetime]] = []
    while now < until:
        if is_open([subject], now):
            start = results.pop()[0] if results and results[-1][1] == now else now
            results.append((start, now + MINUTE))
        now += MINUTE
    return results


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [
        ("02:00", "03:00", []),  # skipped by the clock
        ("01:30", "02:30", [("00:30", "01:00")]),
        ("02:30", "03:30", [("01:00", "01:30")]),  # opens when the clock jumps into it
        ("01:00", "04:00", [("00:00", "02:00")]),
    ],
)
def test_skipped_hour_in_spring_is_closed(start: str, end: str, hours: list[tuple[str, str]]) -> None:
    check_day(SPRING, window(["sun"], start, end, "Europe/Berlin"), hours)


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [
        ("02:00", "03:00", [("00:00", "02:00")]),
        ("02:00", "02:30", [("00:00", "00:30"), ("01:00", "01:30")]),  # the clock shows it twice
        (
            "01:00",
            "02:30",
            [("23:00", "00:30"), ("01:00", "01:30")],
        ),  # opens again when the clock is set back
        ("02:30", "03:30", [("00:30", "01:00"), ("01:30", "02:30")]),
    ],
)
def test_repeated_hour_in_autumn_is_open_twice(start: str, end: str, hours: list[tuple[str, str]]) -> None:
    check_day(AUTUMN, window(["sun"], start, end, "Europe/Berlin"), hours)


def check_day(change: datetime, subject: Window, hours: list[tuple[str, str]]) -> None:
    """Check that the window is open in these UTC hours, and that ``next_opening`` returns each of them."""
    result = openings(subject, change - timedelta(hours=3), change + timedelta(hours=6))
    assert [(f"{start:%H:%M}", f"{end:%H:%M}") for start, end in result] == hours
    now = change - timedelta(hours=3)
    for start, end in result:
        assert next_opening([subject], now) == start
        now = end
    following = next_opening([subject], now)
    assert following is not None
    assert change + timedelta(days=5) < following < change + timedelta(days=8)


def test_a_day_that_a_zone_skips_is_waited_for_a_week_longer() -> None:
    """Samoa skipped a Friday at the end of 2011, when it crossed the date line."""
    fridays = window(["fri"], "10:00", "11:00", "Pacific/Apia")
    now = datetime(2011, 12, 28, tzinfo=UTC)
    assert next_opening([fridays], now) == datetime(2012, 1, 6, 10, 0, tzinfo=ZoneInfo("Pacific/Apia"))


# --- laws ---------------------------------------------------------------------------------------------------

half_hours = st.integers(0, 47).map(lambda number: ClockTime(30 * number))
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Casablanca",
]


@st.composite
def any_window(draw: st.DrawFn) -> Window:
    start = draw(half_hours)
    end = draw(half_hours.filter(lambda end: end != start) | st.just(ClockTime(1440)))
    days = draw(st.sets(st.integers(0, 6), min_size=1))
    return Window(days=Days(days), start=start, end=end, zone=Zone(draw(st.sampled_from(ZONES))))


moments = st.datetimes(
    datetime(2009, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC), allow_imaginary=False
)
# Within days of an irregular event.
difficult = st.builds(
    lambda change, minutes: change + timedelta(minutes=minutes),
    st.sampled_from(
        [SPRING, AUTUMN, datetime(2011, 12, 30, 10, 0, tzinfo=UTC), datetime(2018, 11, 4, 3, tzinfo=UTC)]
    ),
    st.integers(-4000, 2000),
)


@given(st.lists(any_window(), min_size=1, max_size=3), moments | difficult)
def test_the_next_opening_is_open_and_nothing_before_it_is(windows: list[Window], now: datetime) -> None:
    opening = next_opening(windows, now)
    assert opening is not None
    assert opening.utcoffset() == timedelta(0)
    assert opening >= now
    assert is_open(windows, opening)
    assert (opening == now) is is_open(windows, now)
    if opening > now:
        assert not is_open(windows, opening - timedelta(seconds=1)), "it opens at that second, not before"
    step = timedelta(minutes=15)
    between = now
    while between < opening:
        assert not is_open(windows, between)
        between += step


@given(any_window(), moments | difficult)
def test_window_depends_on_the_moment_alone(subject: Window, now: datetime) -> None:
    assert is_open([subject], now) is is_open([subject], now.astimezone(ZoneInfo("Asia/Kathmandu")))
