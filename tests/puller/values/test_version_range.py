"""Version ranges, as in Python's packaging library."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from puller.version import VersionRange
from tests.support.rows import each_row

VERSIONS = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
CLAUSES = st.tuples(st.sampled_from([">=", "<=", "==", "!=", ">", "<"]), VERSIONS).map("".join)


@given(st.lists(CLAUSES, min_size=1, max_size=3).map(", ".join), VERSIONS)
def test_range_agrees_with_packaging(text: str, version: str) -> None:
    assert (version in VersionRange.parse(text)) == (version in SpecifierSet(text))


@each_row(
    "text",
    [
        *("", "1.2", ">=", ">=1.2,", ",", "~=1.2", "==1.*", ">=1.2 <2", ">=v1", ">=1..2", ">=-1", ">=1.2rc1"),
        *(">=1.2\n>=3", ">=" + "9" * 5000, ">=1" + ".1" * 5000, ">=١", 1.2, 1, True, None, [">=1"], {}),
    ],
)
def test_anything_else_is_refused_in_words(text: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        VersionRange.parse(text)
