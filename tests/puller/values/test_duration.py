"""Durations and references are parsed once."""

import pytest

from puller.values.duration import Duration
from puller.values.reference import Reference


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("2d", 172800),
        ("1w", 604800),
        ("7", 7),
        (7, 7),
        (0.2, 0.2),
    ],
)
def test_durations(value: object, seconds: float) -> None:
    assert Duration.parse(value) == seconds


@pytest.mark.parametrize("value", ["", "s", "5 m", "5x", "-5s", -1, True, None, "1h 30m", "5m!", 1e12])
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="wanted a duration such as '30s' or '5m'"):
        Duration.parse(value)


@pytest.mark.parametrize("text", ["file#/etc/motd", "exec#echo # a"])
def test_references(text: str) -> None:
    assert Reference.parse(text) == text


@pytest.mark.parametrize("text", ["", "file", "#a", "file#", 5, None])
def test_what_is_no_reference_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="wanted a reference such as 'file#/etc/motd'"):
        Reference.parse(text)
