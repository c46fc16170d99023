"""The order of versions, and the next version."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from bundles.errors import PublishError
from bundles.format.fields import parse_version
from bundles.publisher.published import next_version, order
from tests.support.rows import each_row

SORTED = [
    *("0.9", "1", "1.4.0~rc1", "1.4.0", "1.4.0-rc1", "1.4.0-rc2", "1.4.1", "1.4.02", "1.4.10", "1.10"),
    *("2026.08.31", "2026.9.1", "2026.11.22.1", "2026.11.22.10"),
    *("beta", "beta.1", "v1.9", "v1.10"),
]
_versions = some.from_regex(re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~_-]{0,30}"), fullmatch=True).filter(
    lambda version: ".." not in version
)


def test_versions_are_in_the_order_of_debian() -> None:
    assert sorted(SORTED, key=order) == SORTED
    assert all(order(older) < order(newer) for older, newer in pairwise(SORTED))


def test_the_order_is_that_of_sort() -> None:
    lines = "\n".join(reversed(SORTED))
    done = subprocess.run(["sort", "-V"], input=lines, text=True, capture_output=True, check=True)
    assert done.stdout.split() == SORTED


@each_row(
    ("published", "following"),
    [
        ([], "1.0.0"),
        (["1.4.0"], "1.4.1"),
        (["1.4.9"], "1.4.10"),
        (["1.4.10", "1.4.9"], "1.4.11"),
        (["2.0.3", "1.4.0"], "2.0.4"),  # another channel is ahead
        (["7"], "8"),
        (["2026.11.22.1"], "2026.11.22.2"),  # the second version of a day, on any day
        (["2026.08"], "2026.09"),
        (["2026.99"], "2026.100"),
        (["1.4."], "1.5"),
        # Versions that were chosen by hand.
        (["1.4.0-rc1"], "1.4.1"),
        (["1.4.0~rc1"], "1.4.1"),
        (["1.4.0+build.7"], "1.4.1"),
        (["v1.4.0", "1.9.0"], "v1.4.1"),
        (["beta"], "beta.1"),
        (["beta.1"], "beta.2"),
        (["release-12-b"], "release-13"),
    ],
)
def test_next_version_increments_the_newest(published: list[str], following: str) -> None:
    assert next_version(published) == following
    assert next_version(reversed(published)) == following


@given(some.lists(_versions, max_size=6))
@example(["1.0", "1.00", "01.0"])
def test_the_next_version_sorts_after_all_and_can_be_published(published: list[str]) -> None:
    following = next_version(published)
    assert parse_version(following) == following
    assert all(order(version) < order(following) for version in published)
    assert next_version(published[::-1]) == following


@pytest.mark.parametrize("newest", ["9" * 64, "z" * 63])
def test_a_version_without_a_successor_is_named(newest: str) -> None:
    with pytest.raises(PublishError, match=f"{newest}: the next version would be too long"):
        next_version([newest])
