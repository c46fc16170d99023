"""Progress of large transfers."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles import progress
from bundles.progress import Transfer, transfer, watched_by


class Clock:
    """Seconds that pass only on request."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Recording:
    """Records all calls."""

    def __init__(self) -> None:
        self.have: list[int] = []
        self.ends: list[tuple[str, bool]] = []

    def moved(self, transfer: Transfer) -> None:
        self.have.append(transfer.have)

    def ended(self, transfer: Transfer, *, well: bool) -> None:
        self.ends.append((transfer.what, well))


def test_rate_and_time_left_ignore_resumed_bytes() -> None:
    clock = Clock()
    moving = Transfer("web 1.5.0", clock=clock)
    assert (moving.rate, moving.left, moving.size) == (None, None, None)
    moving.begin_file("a", 600, 1000)
    assert (moving.have, moving.passed, moving.rate) == (600, 0, None)
    clock.now += 2
    moving.note("a", 800)
    assert (moving.have, moving.passed, moving.rate, moving.left) == (800, 200, 100.0, 2.0)


def test_several_files_add_up_to_a_size_that_was_told_before() -> None:
    moving = Transfer("web 1.5.0", 300)
    for name in "abc":
        moving.begin_file(name, 0, 100)
        moving.note(name, 40)
        moving.note(name, 100)
    assert (moving.have, moving.size) == (300, 300)


def test_expected_and_received_bytes_add_up() -> None:
    moving = Transfer("web 1.5.0")
    moving.begin_file("a", 0, 100)
    moving.note("a", 100)
    moving.expect(300)
    moving.begin_file("b", 0, 300)
    moving.note("b", 50)
    assert (moving.have, moving.size) == (150, 400)


def test_the_size_of_several_files_is_not_known_by_that_of_one() -> None:
    moving = Transfer("web 1.5.0")
    moving.begin_file("a", 0, 100)
    assert moving.size == 100
    moving.begin_file("b", 0, 100)
    assert str((moving.size, moving.left)) == "(None, None)"


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(0, 1000))
def test_a_file_that_begins_anew_is_not_counted_twice(notes: list[int], held: int) -> None:
    moving = Transfer("web 1.5.0")
    for note in notes:
        moving.begin_file("a", held, 2000)
        moving.note("a", held + note)
    assert moving.have == held + notes[-1]
    assert moving.passed == sum(notes)


def test_progress_without_a_watcher_is_silent() -> None:
    watcher = Recording()
    progress.begin_file("a", 0, 1)
    progress.note("a", 1)
    progress.advance(1)
    with transfer("web 1.5.0"):
        progress.note("a", 1)
    with watched_by(watcher):
        progress.note("a", 1)
    assert watcher.have == []


def test_watcher_receives_progress_and_the_end() -> None:
    watcher = Recording()
    with watched_by(watcher):
        with transfer("web 1.5.0"):
            progress.begin_file("a", 0, 2)
            progress.note("a", 1)
            progress.note("a", 2)
        with pytest.raises(ValueError, match="broken"), transfer("app 1.0.0"):
            raise ValueError("broken")
    assert watcher.have == [0, 1, 2, 0]
    assert watcher.ends == [("web 1.5.0", True), ("app 1.0.0", False)]


@pytest.mark.parametrize("note", [lambda: progress.note("b", 5), lambda: progress.advance(5)])
def test_nested_transfer_has_its_own_progress(note: Callable[[], None]) -> None:
    with transfer("web 1.5.0") as outer:
        progress.note("a", 3)
        with transfer("motd") as inner:
            note()
        assert (outer.have, inner.have) == (3, 5)
