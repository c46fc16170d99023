"""The series of a chart: the versions that have their own series."""

from puller.fleet.pages.environment import MOST_SERIES, OTHERS, few_series


def test_newest_version_is_drawn_among_many_old_ones() -> None:
    old = {f"1.{number}.0": [100 - number, 0] for number in range(20)}
    drawn = few_series({**old, "2.0.0": [0, 99], "2.1.0": [0, 1]})
    assert {"2.0.0", "2.1.0"} <= drawn.keys()
    assert len(drawn) == MOST_SERIES + 1
    assert drawn[OTHERS] == [sum(100 - number for number in range(5, 20)), 0]


def test_newest_version_is_drawn_beside_many_current_ones() -> None:
    current = {f"1.{number}.0": [50, 50] for number in range(9)}
    assert "2.0.0" in few_series({**current, "2.0.0": [0, 1]})


def test_version_before_a_rollback_is_drawn() -> None:
    old = {f"1.{number}.0": [100, 0] for number in range(9)}
    drawn = few_series({"0.9.0": [1, 90], **old, "2.0.0": [10, 0]})
    assert "0.9.0" in drawn


def test_counts_stay_complete_with_a_version_named_others() -> None:
    series = {OTHERS: [1, 1], **{f"1.{number}": [2, 2] for number in range(9)}}
    assert [sum(counts) for counts in zip(*few_series(series).values(), strict=True)] == [19, 19]
