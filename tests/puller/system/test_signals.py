"""Signals raise nothing. They are recorded, code that checks for them stops, and the old handlers are restored."""

import io
import os
import signal
import subprocess
import sys
import time

import pytest

from puller.errors import StoppedCommand, StoppedDownload
from puller.exit_status import ExitStatus
from puller.reporting.run_log import Log
from puller.system import processes
from puller.system.commands import Command, run
from puller.system.processes import Stopped, StopRequests


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, ExitStatus.TERMINATED), (signal.SIGINT, ExitStatus.INTERRUPTED)],
)
def test_signal_stops_waiting_steps_at_checkpoints(number: signal.Signals, status: ExitStatus) -> None:
    stops = StopRequests()
    with stops.handled():
        stops.check()
        os.kill(os.getpid(), number)
        with pytest.raises(Stopped, match=f"stopped by {number.name}") as stop:
            stops.check()
    assert stop.value.exit_status is stops.exit_status is status


def test_while_something_is_changed_a_signal_is_only_noted() -> None:
    stops = StopRequests()
    with stops.handled(), stops.deferred():
        assert stops.reason == ""
        os.kill(os.getpid(), signal.SIGTERM)
        stops.check()
        assert stops.reason == "stopped by SIGTERM"
    assert stops.exit_status is ExitStatus.TERMINATED


def test_first_signal_ends_downloads_and_second_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output: list[str] = []
    stops = StopRequests(output.append)
    with stops.handled(), stops.deferred():
        stops.attend("exec#build")
        processes.check_download()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(StoppedDownload, match=r"^stopped by SIGINT$"):
            processes.check_download()
        assert run(Command(["true"])).exit_code == 0
        os.kill(os.getpid(), signal.SIGINT)
        assert run(Command(["true"])).exit_code == 0, "of one moment, as timeout(1) sends them"
        monkeypatch.setattr(processes, "_ONE_MOMENT", 0.0)
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(StoppedCommand, match="stopped by SIGINT, and by a second signal"):
            run(Command(["sleep", "60"]))
    assert output == [
        "stopped by SIGINT: finishing exec#build. A second signal ends its commands",
        "stopped by SIGINT, and by a second signal: ending the commands of exec#build",
    ]


def test_a_signal_ends_a_command_that_only_looks() -> None:
    with StopRequests().handled(), pytest.raises(Stopped):
        run(Command(["sh", "-c", f"kill -TERM {os.getpid()}; sleep 60"]))


SILENT = """\
import signal, time
from puller.system import processes
processes._ONE_MOMENT = 0.0
with processes.StopRequests().handled():
    print("listening", flush=True)
    while True:
        time.sleep(60)
"""


def test_a_second_signal_ends_a_process_that_does_not_ask() -> None:
    with subprocess.Popen([sys.executable, "-c", SILENT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


def test_the_handlers_before_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with StopRequests().handled():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert StopRequests.listening is None


def test_signal_handler_needs_no_lock_and_no_memory() -> None:
    """The stream may hold half a line, or its reader may be blocked."""
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as read, open(writer, "w", encoding="utf-8") as stream:
        stream.write("half a line")
        Log(stream).at_once("stopped by SIGINT")
        assert read.read(100) == b"WARN   stopped by SIGINT\n"
        os.set_blocking(writer, False)
        while True:
            try:
                os.write(writer, bytes(4096))
            except BlockingIOError:
                break
        os.set_blocking(writer, True)
        Log(stream).at_once("stopped by SIGINT")
        read.read(1_000_000)
    Log(io.StringIO()).at_once("into memory, nobody has to be told at once")
