"""Times as users write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from foundation.times import parse_since, parse_until
from tests.support.rows import each_row

NOW = datetime(2026, 11, 25, 12, 30, tzinfo=UTC)
"""A Wednesday."""

UNTIL = {
    "4h": "2026-11-25T16:30",
    "2d": "2026-11-27T12:30",
    "2026-12-01T08:00": "2026-12-01T08:00",
    "2026-12-01T08:00+01:00": "2026-12-01T07:00",
    "2026-12-01T08:00Z": "2026-12-01T08:00",
    "18:00": "2026-11-25T18:00",
    "08:00": "2026-11-26T08:00",
    "12:30": "2026-11-26T12:30",
    "today 18:00": "2026-11-25T18:00",
    "tomorrow": "2026-11-26T00:00",
    "Tomorrow 08:15": "2026-11-26T08:15",
    "friday": "2026-11-27T00:00",
    "monday 07:00": "2026-11-30T07:00",
    "wednesday": "2026-12-02T00:00",
    "wednesday 18:00": "2026-11-25T18:00",
}
SINCE = {
    "4h": "2026-11-25T08:30",
    "2026-11-01": "2026-11-01T00:00",
    "08:00": "2026-11-25T08:00",
    "18:00": "2026-11-24T18:00",
    "today": "2026-11-25T00:00",
    "yesterday": "2026-11-24T00:00",
    "yesterday 09:00": "2026-11-24T09:00",
    "monday": "2026-11-23T00:00",
    "friday": "2026-11-20T00:00",
    "wednesday": "2026-11-25T00:00",
    "wednesday 18:00": "2026-11-18T18:00",
}
INVALID = ["", "soon", "25:00", "8:00pm", "tomorrow noon", "tomorrow 8", "90", "4", "friday-monday", "morgen"]


@each_row("text", UNTIL)
def test_an_end_is_the_next_time_of_its_text(text: str) -> None:
    assert f"{parse_until(text, NOW):%Y-%m-%dT%H:%M}" == UNTIL[text]


@each_row("text", SINCE)
def test_a_beginning_is_the_last_time_of_its_text(text: str) -> None:
    assert f"{parse_since(text, NOW):%Y-%m-%dT%H:%M}" == SINCE[text]


@each_row("text", INVALID)
def test_other_texts_are_refused(text: str) -> None:
    for parse in (parse_until, parse_since):
        with pytest.raises(ValueError, match="expected a time such as"):
            parse(text, NOW)


@pytest.mark.parametrize("text", ["yesterday", "today", "today 12:30", "2026-11-25T12:30"])
def test_an_end_in_the_past_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="after the current time 2026-11-25 12:30 UTC"):
        parse_until(text, NOW)


@pytest.mark.parametrize("text", ["tomorrow", "today 18:00", "2026-11-26T00:00"])
def test_a_beginning_in_the_future_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="after the current time 2026-11-25 12:30 UTC"):
        parse_since(text, NOW)
