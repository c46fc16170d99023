"""SIGTERM and SIGINT at moments spread over a whole run: fetching, verifying, unpacking, applying, reporting.

The signal comes at the n-th call of a Python function, so that each moment is the same in every test run. Calls in
other threads, which fetch, do not count. test_signals_while_fetching.py tests random moments of fetches.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.stories import Host, Outcome

# Fractions of the calls of a whole run: evenly spread, and denser during applying and reporting.
MOMENTS = [n / 14 for n in range(1, 14)] + [0.8 + n / 40 for n in range(8)]


class Calls:
    """Counts calls of functions in this thread, and sends this process a signal at a given call."""

    def __init__(self, at: int = 0, number: signal.Signals = signal.SIGTERM) -> None:
        self.count = 0
        self.at = at
        self.number = number

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), self.number)

    @contextmanager
    def counted(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)


@contextmanager
def ignored(number: signal.Signals) -> Iterator[list[int]]:
    """Yield a list that collects the signals that arrive while Puller does not listen."""
    noted: list[int] = []
    before = signal.signal(number, lambda *_: noted.append(1))
    try:
        yield noted
    finally:
        signal.signal(number, before)


def forget(host: Host) -> None:
    """Reset the host, so that a run fetches, unpacks and applies everything."""
    shutil.rmtree(host.state, ignore_errors=True)
    shutil.rmtree(host.machine, ignore_errors=True)


def stopped_run(host: Host, position: int, number: signal.Signals) -> tuple[Outcome, bool]:
    """Run after a reset with a signal at call ``position``. Return whether Puller listened at that moment."""
    forget(host)
    calls = Calls(position, number)
    with ignored(number) as noted, calls.counted():
        outcome = host.run()
    return outcome, not noted


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(MOMENTS[::4], id="some moments"),
        pytest.param(MOMENTS, id="all moments", marks=pytest.mark.crash),
    ],
)
@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.attack("signals.sigterm")),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.attack("signals.sigint")),
    ],
)
@pytest.mark.representatives(1)
def test_run_stops_cleanly_at_any_moment(
    settled: Host, number: signal.Signals, status: int, moments: list[float]
) -> None:
    """A plain test run tries every fourth moment."""
    calls = Calls()
    forget(settled)
    with calls.counted():
        assert settled.run().status == 0
    kinds = set()
    for moment in moments:
        outcome, listening = stopped_run(settled, int(moment * calls.count), number)
        where = f"moment {moment}: {outcome}"
        is_done = "4 resources, 0 stable, 3 changed, 1 refreshed" in outcome.output
        # A signal after all changes, during reporting, does not affect the run.
        assert outcome.status == (status if listening else 0) or (is_done and outcome.status == 0), where
        assert is_done or not listening or f"stopped by {number.name}" in outcome.output, where
        assert "Traceback" not in outcome.output, where
        assert not (settled.machine.exists() and list(settled.machine.glob(".*.new"))), where
        kinds.add((int(outcome.status), (settled.machine / "motd").exists()))

        assert settled.run().status == 0, where
        settled.assert_enforces("1.0.0")
        assert (settled.machine / "reloads").read_text() == "1.0.0\n", where
        assert "0 changed" in settled.run().output, where
    assert {(status, False), (status, True)} <= kinds, "before anything was changed, and after"
