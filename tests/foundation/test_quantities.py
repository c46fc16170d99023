"""Counts and sizes."""

from foundation.quantities import counted, size_text
from tests.support.rows import each_row


@each_row(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (999.7, "1.0 kB"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (12_345_678, "12.3 MB"),
        (5e12, "5.0 TB"),
        (5e18, "5000.0 PB"),
    ],
)
def test_a_size_has_the_largest_decimal_unit(size: float, text: str) -> None:
    assert size_text(size) == text


def test_a_noun_has_a_singular_and_a_plural() -> None:
    assert [counted(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
    assert [counted(number, "is", "are") for number in (1, 2)] == ["1 is", "2 are"]
