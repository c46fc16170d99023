"""Work on all processors: ordered, bounded, and with its errors."""

import threading
from collections.abc import Iterator

import pytest

from bundles.archive.pack import side_by_side


def test_results_come_in_the_order_of_the_items() -> None:
    last = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            assert last.wait(10)  # wait for a later item
        last.set()
        return -number

    assert list(side_by_side(work, range(100))) == [-number for number in range(100)]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_items_are_worked_on_as_many_are(count: int) -> None:
    assert list(side_by_side(str, range(count))) == [str(number) for number in range(count)]


def test_single_item_needs_no_thread() -> None:
    assert list(side_by_side(lambda _: threading.current_thread(), [1])) == [threading.current_thread()]


def test_no_more_than_a_few_items_are_taken_ahead() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(100_000):
            taken += 1
            yield number

    results = side_by_side(str, items())
    assert next(results) == "0"
    assert taken < 5000
    results.close()  # type: ignore[attr-defined]
    assert taken < 5000


def test_worker_error_is_raised_in_order_and_leaves_no_thread() -> None:
    before = threading.active_count()
    results = side_by_side(lambda number: 1 // number, [2, 1, 0, 3])
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert threading.active_count() == before


def test_an_error_of_the_items_is_raised_and_leaves_no_thread() -> None:
    def items() -> Iterator[int]:
        yield from (1, 2, 3)
        raise OSError("gone")

    before = threading.active_count()
    with pytest.raises(OSError, match="gone"):
        list(side_by_side(str, items()))
    assert threading.active_count() == before
