"""All waits are bounded and end when a check raises. Nothing is raised into the waiting code."""

import _thread
import threading
import time

import pytest

from bundles.deadline import Deadline, DeadlineError, aside


class AskedToStop(BaseException):
    """Raised by a check."""


def test_work_aside_gives_its_answer_or_raises_its_error() -> None:
    assert aside(lambda: threading.get_ident(), Deadline(60)) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        aside(lambda: 1 / 0, Deadline(60))
    with pytest.raises(SystemExit):
        aside(lambda: _thread.exit(), Deadline(60))


def test_work_is_left_behind_at_the_deadline_and_notices_it() -> None:
    deadline, begun, go_on, noticed = Deadline(0.2), threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(60)
        try:
            deadline.verify()
        except DeadlineError:
            noticed.set()

    with pytest.raises(DeadlineError):
        aside(work, deadline)
    assert begun.is_set()
    go_on.set()
    assert noticed.wait(60)


def test_abandoned_work_meets_an_expired_deadline() -> None:
    requested: list[int] = []

    def check() -> None:
        requested.append(1)
        if len(requested) > 2:
            raise AskedToStop

    never, deadline = threading.Event(), Deadline(60, check)
    with pytest.raises(AskedToStop):
        aside(never.wait, deadline)
    assert deadline.is_over
    never.set()


def test_a_pause_ends_when_the_check_raises() -> None:
    requested: list[int] = []

    def check() -> None:
        requested.append(1)
        if len(requested) > 2:
            raise AskedToStop

    with pytest.raises(AskedToStop):
        Deadline(3600, check).pause(3600)
    with pytest.raises(DeadlineError):
        Deadline(0.01).pause(3600)


def test_inner_deadline_ends_with_the_outer() -> None:
    whole = Deadline(100)
    assert whole.within(10).seconds == 10
    assert 99 < whole.within(1000).seconds <= 100
    whole.cut()
    assert whole.within(10).is_over


def test_tasks_share_the_remaining_time_equally() -> None:
    whole = Deadline(90)
    with whole.share(3):
        assert 29 < whole.left <= 30
    with whole.share(2):
        assert 44 < whole.left <= 45
    assert 89 < whole.left <= 90
    whole = Deadline(0.05)
    with whole.share(1):
        time.sleep(whole.left)
        assert whole.is_over
    assert Deadline(float("inf")).at_most(5) == 5


def test_thread_start_failure_is_a_local_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    with pytest.raises(OSError, match="a thread cannot be started"):
        aside(lambda: 1, Deadline(1))
