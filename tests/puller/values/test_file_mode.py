"""Permission bits are parsed once and compared as numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.values.file_mode import FileMode

MASKS = st.text("01234567x", min_size=3, max_size=3)


@pytest.mark.parametrize("text", ["0644", "644", "0o644", "0O644", "00644"])
def test_all_spellings_of_a_mode_are_the_same_mode(text: str) -> None:
    assert FileMode.parse(text) == FileMode(0o644)
    assert str(FileMode.parse(text)) == "0644"


@pytest.mark.parametrize(
    "text", ["", "0888", "1777", "4755", "rw-r--r--", "x0", "xxxx", "0x644", "-644", " 644"]
)
def test_anything_else_is_refused_with_what_is_wanted(text: str) -> None:
    with pytest.raises(
        ValueError, match="wanted octal digits such as '0644', at most 0777, or a mask such as 'x00'"
    ):
        FileMode.parse(text)


@pytest.mark.parametrize("number", [420, 644, True, None])
def test_a_number_is_refused_because_yaml_may_have_changed_it(number: object) -> None:
    with pytest.raises(ValueError, match="quote it"):
        FileMode.parse(number)


@pytest.mark.parametrize(
    ("mask", "actual", "wanted"),
    [
        ("x00", 0o644, 0o600),
        ("7xx", 0o644, 0o744),
        ("7x0", 0o644, 0o740),
        ("xxx", 0, 0),
        ("640", 0o777, 0o640),
    ],
)
def test_a_mask_leaves_the_x_digits_as_they_are(mask: str, actual: int, wanted: int) -> None:
    assert FileMode.parse(mask).over(actual) == wanted


def test_masks_that_align_merge() -> None:
    assert str(FileMode.parse("7xx").merged(FileMode.parse("xx0"))) == "7x0"


def test_masks_that_want_different_digits_do_not_merge() -> None:
    with pytest.raises(ValueError, match="77x and x55 want different permissions"):
        FileMode.parse("77x").merged(FileMode.parse("x55"))


@pytest.mark.parametrize(
    ("mode", "directory"), [("0644", "0755"), ("0600", "0700"), ("0640", "0750"), ("0222", "0222")]
)
def test_a_directory_can_be_searched_by_whoever_can_read_it(mode: str, directory: str) -> None:
    assert str(FileMode.parse(mode).searchable()) == directory


@given(MASKS, st.integers(0, 0o777))
def test_what_a_mask_gives_is_not_changed_by_it_again(mask: str, actual: int) -> None:
    mode = FileMode.parse(mask)
    assert mode.over(mode.over(actual)) == mode.over(actual)


@given(MASKS, MASKS, st.integers(0, 0o777))
def test_a_merged_mask_does_what_both_do(first: str, second: str, actual: int) -> None:
    one, other = FileMode.parse(first), FileMode.parse(second)
    try:
        merged = one.merged(other)
    except ValueError:
        assert one.over(other.over(actual)) != other.over(one.over(actual))
        return
    assert merged.over(actual) == one.over(other.over(actual)) == other.over(one.over(actual))


@given(MASKS)
def test_a_mode_reads_back_as_it_is_printed(text: str) -> None:
    assert FileMode.parse(str(FileMode.parse(text))) == FileMode.parse(text)
