"""Sizes, speeds and percentages in Facter's notation, with values from Facter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.quantities import bytes_text, hertz_text, megabytes, percent_text
from tests.support.rows import each_row


@each_row(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.00 KiB"),
        (1152, "1.13 KiB"),
        (4096, "4.00 KiB"),
        (361058304, "344.33 MiB"),
        (1048571, "1.00 MiB"),
        (25276510208, "23.54 GiB"),
        (274877906944, "256.00 GiB"),
        (1024**5, "1.00 PiB"),
        (5000 * 1024**6, "5000.00 EiB"),
    ],
)
def test_bytes_are_written_as_facter_writes_them(size: int, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("speed", "text"),
    [(2596 * 10**6, "2.60 GHz"), (800 * 10**6, "800.00 MHz"), (999999999, "1.00 GHz"), (5, "5.00 Hz")],
)
def test_speeds_are_written_as_facter_writes_them(speed: int, text: str) -> None:
    assert hertz_text(speed) == text


@pytest.mark.parametrize(
    ("used", "total", "text"),
    [(0, 5, "0%"), (5, 5, "100%"), (0, 0, "100%"), (23377969152, 108944293888, "21.46%")],
)
def test_percentages_are_written_as_facter_writes_them(used: int, total: int, text: str) -> None:
    assert percent_text(used, total) == text


def test_megabytes_are_counted_by_1024() -> None:
    assert megabytes(25276510208) == 24105.55859375


@given(st.integers(min_value=1024, max_value=1024**6))
def test_size_stays_below_1024_of_its_unit(size: int) -> None:
    number, unit = bytes_text(size).split()
    power = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(unit) + 1

    assert 1 <= float(number) < 1024
    assert abs(float(number) * 1024**power - size) <= 0.006 * 1024**power
