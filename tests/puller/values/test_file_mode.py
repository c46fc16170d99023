"""File modes are parsed once and compared as numbers."""

import re
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puller.values.file_mode import FileMode
from tests.support.rows import each_row

MASKS = st.text("01234567x", min_size=3, max_size=3)


@pytest.mark.parametrize("text", ["0644", "644", "0o644", "0O644", "0o0644"])
def test_all_spellings_of_a_mode_are_the_same_mode(text: str) -> None:
    assert FileMode.parse(text) == FileMode(0o644)
    assert str(FileMode.parse(text)) == "0644"


@pytest.mark.parametrize(
    ("text", "bits", "printed"),
    [
        ("2775", 0o2775, "2775"),
        ("0o1777", 0o1777, "1777"),
        ("4755", 0o4755, "4755"),
        ("00755", 0o755, "00755"),
    ],
)
def test_four_digits_or_a_fifth_that_is_0_say_all_bits(text: str, bits: int, printed: str) -> None:
    assert FileMode.parse(text) == FileMode(bits, is_exact=True)
    assert str(FileMode.parse(text)) == printed


@pytest.mark.parametrize("text", ["7", "44", "0"])
def test_digits_that_are_left_out_are_0(text: str) -> None:
    assert FileMode.parse(text).over(stat.S_IFREG | 0o7777) == int(text, 8)


WRONG = [
    "", "0888", "rw-r--r--", "x0", "xxxx", "0x644", "-644", " 644", "17777", "2x75",
    "u", "+x", "u+", "u-", "u=g", "u+g", "u=rw,", ",u=rw", "u=rw go=r", "u+rwz", "U+r", "u+r,,g+r", "u+x\n",
]  # fmt: skip


@each_row("text", WRONG)
def test_invalid_mode_is_refused_with_the_expected_form(text: str) -> None:
    expected = "octal digits such as '0644' or '2775', a mask such as 'x00', or changes such as 'u=rwX,go-w'"
    with pytest.raises(ValueError, match=re.escape(f"is {text!r}, expected {expected}")):
        FileMode.parse(text)


@each_row("text", WRONG[:-1])
def test_the_schema_has_the_same_idea_of_a_mode(text: str) -> None:
    assert re.search(FileMode.PATTERN, text) is None
    for right in ("0644", "2775", "x00", "u+rwX,go-w,a-s,o=", "u=rw+x"):
        assert re.search(FileMode.PATTERN, right)


@pytest.mark.parametrize("number", [420, 644, True, None])
def test_a_number_is_refused_because_yaml_may_have_changed_it(number: object) -> None:
    with pytest.raises(ValueError, match="expected text"):
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


@each_row(
    ("mode", "file", "directory"),
    [
        ("0755", 0o755, 0o7755),
        ("755", 0o755, 0o7755),
        ("x55", 0o755, 0o7755),
        ("00755", 0o755, 0o755),
        ("2755", 0o2755, 0o2755),
        ("go-w", 0o7755, 0o7755),
        ("a-s", 0o1777, 0o1777),
        ("u=rwx", 0o3777, 0o7777),
        ("o=", 0o6770, 0o6770),
    ],
)
def test_unnamed_special_bits_stay_on_a_directory(mode: str, file: int, directory: int) -> None:
    assert oct(FileMode.parse(mode).over(stat.S_IFREG | 0o7777)) == oct(file)
    assert oct(FileMode.parse(mode).over(stat.S_IFDIR | 0o7777)) == oct(directory)


CHANGES = [
    "u+rwX,go-w", "a-s", "g+s", "u+s", "o=", "og-rwx", "u=rw,g=r,o=", "a+X", "u=rwX,go=rX", "a+t", "o+t", "u+t", "g=s",
    "u=rw+x", "u+x,go+X", "u-x,a+X", "a=,u+X", "ug=rw,o-t", "a-x+X", "u+X,o+x",
]  # fmt: skip


@pytest.mark.representatives(10)
@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("kind", [stat.S_IFREG, stat.S_IFDIR])
def test_symbolic_changes_equal_chmod(changes: str, kind: int, tmp_path: Path) -> None:
    """Repeat each change until it changes nothing, because otherwise the next run would be out of sync."""
    path = tmp_path / "path"
    path.mkdir() if kind == stat.S_IFDIR else path.touch()
    for before in (0o644, 0o755, 0o600, 0o7777, 0, 0o4711, 0o2070, 0o1666):
        path.chmod(before)
        last = -1
        while last != (last := path.lstat().st_mode):
            subprocess.run(["/bin/chmod", "--", changes, path], check=True)
        assert oct(FileMode.parse(changes).over(kind | before)) == oct(stat.S_IMODE(last)), oct(before)


@given(
    st.from_regex(
        FileMode.PATTERN[1:-1].replace("$", "").replace("^", ""),
        fullmatch=True,
        alphabet="ugoa+-=rwxXst,01234567",
    )
)
def test_a_mode_is_stable_once_it_is_reached(text: str) -> None:
    mode = FileMode.parse(text)
    for kind in (stat.S_IFREG, stat.S_IFDIR):
        for before in (0, 0o644, 0o755, 0o7777, 0o1070):
            once = mode.over(kind | before)
            assert mode.over(kind | once) == once


@pytest.mark.parametrize(
    ("mode", "is_set_id"),
    [("4755", True), ("2755", True), ("u+s", True), ("a-s", False), ("1777", False), ("0755", False)],
)
def test_mode_knows_set_id_bits(mode: str, *, is_set_id: bool) -> None:
    assert FileMode.parse(mode).gives_set_id == is_set_id


@pytest.mark.parametrize(
    ("mode", "file", "directory"),
    [
        ("0644", True, False),
        ("00755", True, True),
        ("2775", True, True),
        ("x00", False, False),
        ("a=r", False, False),
    ],
)
def test_mode_knows_dependence_on_the_old_mode(mode: str, *, file: bool, directory: bool) -> None:
    assert FileMode.parse(mode).is_independent(directory=False) == file
    assert FileMode.parse(mode).is_independent(directory=True) == directory


def test_two_modes_merge_or_contradict() -> None:
    assert str(FileMode.parse("go-w").merged(FileMode.parse("go-w"))) == "go-w"
    for item, other in (("go-w", "0755"), ("2755", "0755"), ("go-w", "o-w"), ("00755", "0755")):
        with pytest.raises(ValueError, match=f"{item} and {other} require different permissions"):
            FileMode.parse(item).merged(FileMode.parse(other))


def test_masks_that_align_merge() -> None:
    assert str(FileMode.parse("7xx").merged(FileMode.parse("xx0"))) == "7x0"


def test_masks_that_want_different_digits_do_not_merge() -> None:
    with pytest.raises(ValueError, match="77x and x55 require different permissions"):
        FileMode.parse("77x").merged(FileMode.parse("x55"))


@pytest.mark.parametrize(
    ("mode", "directory"), [("0644", "0755"), ("0600", "0700"), ("0640", "0750"), ("0222", "0222")]
)
def test_readable_directory_is_searchable(mode: str, directory: str) -> None:
    assert str(FileMode.parse(mode).searchable()) == directory


@given(MASKS, st.integers(0, 0o777))
def test_masked_mode_is_stable_under_its_mask(mask: str, actual: int) -> None:
    mode = FileMode.parse(mask)
    assert mode.over(mode.over(actual)) == mode.over(actual)


@given(MASKS, MASKS, st.integers(0, 0o777))
def test_merged_mask_satisfies_both(first: str, second: str, actual: int) -> None:
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
