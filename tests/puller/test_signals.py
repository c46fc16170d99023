"""A signal stops at once, or between two resources, and the old handlers come back."""

import os
import signal

import pytest

from puller.exit_status import ExitStatus
from puller.signals import Stopped, StopRequests


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, ExitStatus.TERMINATED), (signal.SIGINT, ExitStatus.INTERRUPTED)],
)
def test_a_signal_stops_what_changes_nothing_at_once(number: signal.Signals, status: ExitStatus) -> None:
    stops = StopRequests()
    with pytest.raises(Stopped, match=f"stopped by {number.name}") as stop, stops.handled():
        os.kill(os.getpid(), number)
    assert stop.value.exit_status is status


def test_while_something_is_changed_a_signal_is_only_noted() -> None:
    stops = StopRequests()
    with stops.handled(), stops.deferred():
        assert stops.reason == ""
        os.kill(os.getpid(), signal.SIGTERM)
        assert stops.reason == "stopped by SIGTERM"
    assert stops.exit_status is ExitStatus.TERMINATED


def test_the_handlers_before_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with StopRequests().handled():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
