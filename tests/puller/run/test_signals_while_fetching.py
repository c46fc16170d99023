"""SIGTERM and SIGINT at any moment of a download: the run ends immediately, and the next run resumes.

A download waits in foreign code (name resolution, connections, TLS, sockets, locks of the HTTP library). A signal
handler must not raise an exception there, so the run abandons the download.
"""

from __future__ import annotations

import _thread
import gc
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from puller.system.processes import StopRequests
from tests.simulators import authority
from tests.simulators import moodyserver as moody

if TYPE_CHECKING:
    from tests.simulators.moodyserver import MoodyServer
    from tests.support.stories import Host, Outcome, Publisher


NOISE = {"files/noise": random.Random(1).randbytes(700_000)}
STATUS = {signal.SIGTERM: 143, signal.SIGINT: 130}
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
"""The garbage collector closes an abandoned connection."""

READ_TIMEOUT = 20
"""Seconds after which the client itself stops waiting for a silent server."""

USUALLY_AT_MOST = 2.0
"""Maximum seconds in which most runs end, on a machine with twice as many busy processes as processors."""


@pytest.fixture(autouse=True)
def _nothing_left_behind_stays() -> Iterator[None]:
    """Collect abandoned downloads, and wait until their threads end, before the next test."""
    before = _thread._count()
    yield
    waited = time.monotonic() + 30
    gc.collect()
    while _thread._count() > before and time.monotonic() < waited:
        time.sleep(0.05)
        gc.collect()  # the server's thread ends when its connection is closed


@pytest.fixture(params=["http", "https"])
def server(
    request: pytest.FixtureRequest, host: Host, publisher: Publisher, tmp_path: Path
) -> Iterator[MoodyServer]:
    """Yield the server of the host, with a bundle that takes a while to fetch."""
    publisher.publish("1.0.0", files={**publisher.story_files, **NOISE})
    ours = authority.Authority(tmp_path)
    with moody.serving(publisher.served, ours.server() if request.param == "https" else None) as server:
        http = {"retries": 3, "read_timeout": READ_TIMEOUT, "ca_bundle": str(ours.bundle)}
        host.configure(site=server.url, http=http)
        yield server


def forget(host: Host) -> None:
    """Reset the host to the state of a new machine."""
    shutil.rmtree(host.state, ignore_errors=True)
    shutil.rmtree(host.machine, ignore_errors=True)


@contextmanager
def ignored() -> Iterator[list[int]]:
    """Yield a list that collects the signals that arrive while Puller does not listen."""
    noted: list[int] = []
    before = {number: signal.signal(number, lambda got, _: noted.append(got)) for number in STATUS}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Signalled:
    """A run that gets a signal. ``lasted`` has the seconds from the signal to its end."""

    def __init__(self, host: Host, number: signal.Signals, wait: Callable[[], object]) -> None:
        self._sent_at = 0.0
        self._done = threading.Event()
        with ignored() as noted:
            sender = threading.Thread(target=self._send, args=(number, wait))
            sender.start()
            self.outcome: Outcome = host.run()
            ended = time.monotonic()
            self._done.set()
            sender.join()
        self.listened = bool(self._sent_at) and not noted
        self.lasted = ended - self._sent_at if self.listened else 0.0

    def _send(self, number: signal.Signals, wait: Callable[[], object]) -> None:
        while StopRequests.listening is None and not self._done.wait(0.001):
            pass
        wait()
        if not self._done.is_set():
            self._sent_at = time.monotonic()
            os.kill(os.getpid(), number)


def assert_signals_end_runs(host: Host, server: MoodyServer, count: int, seed: int) -> list[float]:
    """Send signals at random moments of runs that fetch, and return the seconds that each run took to end.

    Send at least ``count`` signals, and more until a third of them has stopped a run.
    """
    chance, stopped = random.Random(seed), 0
    lasted: list[float] = []
    server.mood = lambda: chance.choices(["slow", "", "silent"], [20, 5, 1])[0]
    while (round_ := len(lasted)) < count or (stopped < count / 3 and round_ < 20 * count):
        if chance.random() < 0.5:
            forget(host)
        number = chance.choice(list(STATUS))
        delay = chance.random() ** 2 * 0.6
        signalled = Signalled(host, number, partial(threading.Event().wait, delay))
        where = f"seed {seed}, signal {round_} after {delay:.4f} s: {signalled.outcome}"
        if signalled.outcome.status == 0:  # before Puller listened, or after the run was complete
            host.assert_enforces("1.0.0")
        else:
            assert signalled.listened, where
            assert signalled.outcome.status == STATUS[number], where
        assert "Traceback" not in signalled.outcome.output, where
        stopped += signalled.outcome.status != 0
        lasted.append(signalled.lasted)
    server.mood = lambda: ""
    outcome = host.run()
    assert outcome.status == 0, outcome
    host.assert_enforces("1.0.0")
    assert stopped >= count / 3
    return lasted


@pytest.mark.attack("signals.sigterm", "signals.sigint")
@pytest.mark.representatives(1)
def test_a_signal_at_any_moment_of_a_download_ends_the_run(host: Host, server: MoodyServer) -> None:
    """A test with more signals follows, which a plain test run leaves out."""
    assert_signals_end_runs(host, server, 6, seed=int.from_bytes(os.urandom(4)))


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep the machine busy during the block."""
    with ExitStack() as stack:
        for _ in range(processes):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


@pytest.mark.crash
@pytest.mark.attack("signals.sigterm", "signals.sigint")
def test_signals_on_a_busy_machine_end_runs_before_a_timeout(
    host: Host, server: MoodyServer, capsys: pytest.CaptureFixture[str], thorough: bool
) -> None:
    """Half of the signals are during HTTP downloads, the other half during TLS downloads. ``--thorough`` sends 500.

    A run that waited for its server would last until the read timeout. A single run of a busy machine may wait for a
    processor much longer than two seconds, so the median has the limit of two seconds.
    """
    count = 250 if thorough else 40
    with busy(2 * (os.cpu_count() or 1)):
        lasted = sorted(assert_signals_end_runs(host, server, count, seed=int.from_bytes(os.urandom(4))))
    with capsys.disabled():
        print(f"\n{server.url.partition(':')[0]}: median {median(lasted):.3f} s, longest {lasted[-1]:.3f} s")
    assert median(lasted) < USUALLY_AT_MOST
    assert lasted[-1] < READ_TIMEOUT / 2


def test_signal_inside_an_http_lock_leaves_no_lock(
    host: Host, server: MoodyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler's exception between acquiring a lock and entering its block would leave the lock acquired."""
    enter = threading.Condition.__enter__
    sent: list[int] = []

    def enter_and_signal(self: threading.Condition) -> bool:
        taken = enter(self)
        if not sent and sys._getframe(2).f_code.co_name == "_put_conn":  # into a pool of connections
            sent.append(os.getpid())
            os.kill(os.getpid(), signal.SIGTERM)
        return taken

    with monkeypatch.context() as patch, ignored():
        patch.setattr(threading.Condition, "__enter__", enter_and_signal)
        outcome = host.run()
    assert sent
    assert outcome == (143, "ERROR  stopped by SIGTERM\n")
    assert host.run().status == 0


@pytest.mark.parametrize("moment", range(5))
def test_a_signal_while_the_server_is_silent_ends_the_run(
    host: Host, server: MoodyServer, moment: int
) -> None:
    """The server falls silent before and after the TLS handshake, instead of an answer, or within an answer."""
    moods = iter([*["slow"] * moment, "silent"])
    server.mood = lambda: next(moods, "slow")
    signalled = Signalled(host, signal.SIGTERM, lambda: server.fell_silent.wait(60))
    assert signalled.outcome == (143, "ERROR  stopped by SIGTERM\n")
    assert host.run().status == 0


def test_a_signal_while_a_name_is_resolved_ends_the_run(
    host: Host, server: MoodyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, answered = threading.Event(), threading.Event()
    resolve = socket.getaddrinfo

    def slow(*arguments: Any, **options: Any) -> Any:
        requested.set()
        answered.wait(60)
        return resolve(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", slow)
        signalled = Signalled(host, signal.SIGINT, lambda: requested.wait(60))
    assert signalled.outcome == (130, "ERROR  stopped by SIGINT\n")
    assert not answered.is_set()
    answered.set()
    assert host.run().status == 0


def test_a_signal_while_a_connection_is_made_ends_the_run(host: Host, server: MoodyServer) -> None:
    """The queue of the server is full, so it does not answer new connections."""
    requested = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as clients:
        for _ in range(2):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        host.configure(site=f"http://127.0.0.1:{full.getsockname()[1]}")
        before = socket.socket.connect

        def connect(sock: socket.socket, address: Any) -> None:
            requested.set()
            before(sock, address)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket.socket, "connect", connect)
            signalled = Signalled(host, signal.SIGTERM, lambda: requested.wait(60))
    assert signalled.outcome == (143, "ERROR  stopped by SIGTERM\n")


def test_signal_during_a_retry_pause_ends_the_run(host: Host, server: MoodyServer) -> None:
    refused = threading.Event()

    def refuse(handler: Any) -> None:
        handler.send_response(503)
        handler.send_header("Retry-After", "50")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        refused.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moody._Handler, "do_GET", refuse)
        signalled = Signalled(host, signal.SIGTERM, lambda: refused.wait(60))
    assert signalled.outcome == (143, "ERROR  stopped by SIGTERM\n")
