"""Schedules of cron: valid schedules, and errors that state the expected values."""

import pytest

from puller.resources.services.cron import WORDS, Schedule
from tests.support.rows import each_row


@each_row(
    "text",
    [
        "* * * * *",
        "0 0 1 1 0",
        "59 23 31 12 7",
        "*/5 * * * *",
        "*/59 */23 */31 */12 */7",
        "0-59 0-23 1-31 1-12 0-7",
        "1-9/2,30,*/20 * * * *",
        "00 05 * * *",
        "0 6 * jan-mar,DEC Mon-Fri",
        "0 6 * * 5-7",
        "0 6 * * fri-7",
        *sorted(WORDS),
    ],
)
def test_valid_schedules_are_accepted(text: str) -> None:
    assert Schedule.parse(text).text == text


def test_blanks_and_tabs_between_fields_are_normalised() -> None:
    assert Schedule.parse("  1\t2  *   * * ").text == "1 2 * * *"


@each_row(
    ("text", "message"),
    [
        ("", "is '', expected five fields, or a word such as @daily"),
        ("* * * *", r"is '\* \* \* \*', expected five fields, or a word such as @daily"),
        ("* * * * * root", "expected five fields"),
        ("@daily 5", "expected five fields"),
        ("@Daily", "is '@Daily', expected one of @annually, @daily, "),
        ("@every_minute", "expected one of @annually"),
        ("60 * * * *", "has '60' as its minute, expected 0 to 59"),
        ("61 * * * *", "has '61' as its minute, expected 0 to 59"),
        ("* 24 * * *", "has '24' as its hour, expected 0 to 23"),
        ("* * 0 * *", "has '0' as its day of month, expected 1 to 31"),
        ("* * 32 * *", "has '32' as its day of month, expected 1 to 31"),
        ("* * * 13 *", "has '13' as its month, expected 1 to 12, or jan to dec"),
        ("* * * 0 *", "has '0' as its month"),
        ("* * * * 8", "has '8' as its day of week, expected 0 to 7, or sun to sat"),
        ("* * * * monday", "has 'monday' as its day of week, expected 0 to 7, or sun to sat"),
        ("* * * mon *", "has 'mon' as its month"),
        ("* jan * * *", "has 'jan' as its hour, expected 0 to 23"),
        ("99999999999999999999 * * * *", "as its minute, expected 0 to 59"),
        ("5-1 * * * *", "has '5-1' as its minute, expected the lower one first$"),
        ("* * * * fri-mon", "has 'fri-mon' as its day of week, expected the lower one first$"),
        ("* * * * sat-sun", "expected the lower one first \\(Sunday is also 7\\)"),
        ("5/15 * * * *", "has '5/15' as its minute, expected a range before the step: 5-59/15"),
        ("*/0 * * * *", r"has '\*/0' as its minute, expected a step of 1 to 59"),
        ("*/60 * * * *", "expected a step of 1 to 59"),
        ("1-5/70 * * * *", "expected a step of 1 to 59"),
        ("*-5 * * * *", r"has '\*-5' as its minute, expected numbers such as"),
        ("1,,2 * * * *", "has '1,,2' as its minute, expected numbers such as"),
        ("1, * * * *", "has '1,' as its minute"),
        ("-5 * * * *", "has '-5' as its minute"),
        ("1- * * * *", "has '1-' as its minute"),
        ("1-2-3 * * * *", "has '1-2-3' as its minute"),
        ("5x * * * *", "has '5x' as its minute"),
        ("* * L * *", "has 'L' as its day of month"),
        ("* * ? * *", r"has '\?' as its day of month"),
        ("~ * * * *", "has '~' as its minute"),
        ("* * * * 5#3", "has '5#3' as its day of week"),
        ("*\u0665 * * * *", "as its minute"),
        ("\u0665 * * * *", "as its minute"),
    ],
)
def test_invalid_schedules_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule.parse(text)


@each_row(
    ("text", "expected"),
    [
        ("0 0 1 * 1", True),
        ("0 0 1,15 * mon-fri", True),
        ("0 0 * * 1", False),
        ("0 0 1 * *", False),
        ("0 0 */2 * 1", False),  # crontab(5): a field that begins with * must match, too.
        ("0 0 1-7 * */2", False),
        ("@weekly", False),
    ],
)
def test_two_days_of_which_either_is_enough_are_noticed(text: str, expected: bool) -> None:
    assert Schedule.parse(text).is_either_day is expected
