"""Progress of a download: on a terminal, in the log, and in ``puller status``."""

import io
import os
from pathlib import Path

import pytest

from bundles.progress import Transfer
from puller.reporting.fetching import Fetching, load_fetching
from puller.reporting.run_log import Log
from puller.reporting.sinks import Level
from puller.state import Directories

MB = 1_000_000


class Terminal(io.StringIO):
    """A terminal that records its output."""

    def isatty(self) -> bool:
        return True


class Place:
    """A command that fetches, with a simulated clock."""

    def __init__(self, directory: Path, terminal: io.StringIO) -> None:
        self.now = 50.0
        self.terminal = terminal
        self.lines = io.StringIO()
        self.directories = Directories(directory, directory)
        log = Log(self.lines, level=Level.INFO)
        self.fetching = Fetching(log, self.directories, terminal, lambda: self.now)

    def transfer(self, size: int | None, *, announced: bool = False, what: str = "web 1.5.0") -> Transfer:
        moving = Transfer(what, size, announced=announced, clock=lambda: self.now)
        self.fetching.moved(moving)
        return moving

    def pass_on(self, moving: Transfer, seconds: float, count: int) -> None:
        self.now += seconds
        moving.advance(count)
        self.fetching.moved(moving)

    def told(self) -> list[str]:
        return [line.partition(" ")[2].strip() for line in self.lines.getvalue().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, Terminal())


def test_large_transfer_logs_begin_and_end(place: Place) -> None:
    moving = place.transfer(700 * MB)
    for _ in range(70):
        place.pass_on(moving, 0.5, 10 * MB)
    place.fetching.ended(moving, well=True)
    assert place.told() == [
        "web 1.5.0: fetching 700.0 MB",
        "web 1.5.0: fetched 700.0 MB in 35.0 s, 20.0 MB/s",
    ]


def test_fast_transfer_is_silent_and_slow_transfer_is_logged(place: Place) -> None:
    moving = place.transfer(1000)
    place.pass_on(moving, 1, 1000)
    place.fetching.ended(moving, well=True)
    assert place.told() == []
    assert place.terminal.getvalue() == ""
    moving = place.transfer(1000)
    place.pass_on(moving, 3, 500)
    place.pass_on(moving, 3, 500)
    place.fetching.ended(moving, well=True)
    assert place.told() == ["web 1.5.0: fetching 1.0 kB", "web 1.5.0: fetched 1.0 kB in 6.0 s, 167 bytes/s"]


def test_logged_transfer_is_logged_to_its_end(place: Place) -> None:
    moving = place.transfer(1000, announced=True)
    place.pass_on(moving, 0.1, 1000)
    place.fetching.ended(moving, well=True)
    assert place.told() == ["web 1.5.0: fetched 1.0 kB in 0.1 s, 10.0 kB/s"]


def test_failed_transfer_is_not_logged_as_fetched(place: Place) -> None:
    moving = place.transfer(700 * MB)
    place.pass_on(moving, 0.5, 10 * MB)
    place.fetching.ended(moving, well=False)
    assert place.told() == ["web 1.5.0: fetching 700.0 MB"]
    assert place.terminal.getvalue().endswith("\r\x1b[K")
    assert not place.directories.fetching.exists()


def test_terminal_line_shows_rate_and_time_and_is_erased(place: Place) -> None:
    moving = place.transfer(700 * MB)
    place.pass_on(moving, 10, 300 * MB)
    line = place.terminal.getvalue()
    assert line == "\r\x1b[Kfetching web 1.5.0: 300.0 MB of 700.0 MB, 30.0 MB/s, 14 s left"
    place.fetching.ended(moving, well=True)
    assert place.terminal.getvalue() == f"{line}\r\x1b[K"


def test_a_terminal_is_written_to_five_times_a_second_at_most(place: Place) -> None:
    moving = place.transfer(700 * MB)
    for _ in range(1000):
        place.pass_on(moving, 0.001, MB // 2)
    assert place.terminal.getvalue().count("\r") <= 6


def test_a_pipe_gets_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path, io.StringIO())
    moving = place.transfer(700 * MB)
    place.pass_on(moving, 10, 300 * MB)
    place.fetching.ended(moving, well=True)
    assert place.terminal.getvalue() == ""


def test_a_name_steers_no_terminal(place: Place) -> None:
    moving = place.transfer(700 * MB, what="a\x1b]0;owned\x07.tar.gz")
    place.pass_on(moving, 1, MB)
    assert "\x1b]" not in place.terminal.getvalue()
    assert "\x07" not in place.terminal.getvalue() + place.lines.getvalue()


def test_progress_record_is_private(place: Place) -> None:
    moving = place.transfer(700 * MB)
    place.pass_on(moving, 10, 300 * MB)
    assert place.directories.fetching.stat().st_mode & 0o777 == 0o600
    record = load_fetching(place.directories, os.getpid())
    assert record is not None
    assert str(record) == "fetching web 1.5.0: 300.0 MB of 700.0 MB, 30.0 MB/s, 14 s left"
    assert (record.have, record.size, record.rate) == (300 * MB, 700 * MB, 30 * MB)
    place.fetching.ended(moving, well=True)
    assert load_fetching(place.directories, os.getpid()) is None


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"format":2}', "another process"])
def test_record_of_another_run_is_ignored(place: Place, text: str | None) -> None:
    moving = place.transfer(700 * MB)
    place.pass_on(moving, 10, 300 * MB)
    if text is None:
        place.directories.fetching.unlink()
    elif text != "another process":
        place.directories.fetching.write_text(text)
    process = os.getpid() + (text == "another process")
    assert load_fetching(place.directories, process) is None


def test_where_it_cannot_be_recorded_the_command_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path / "missing", Terminal())
    moving = place.transfer(700 * MB)
    place.pass_on(moving, 10, 300 * MB)
    place.fetching.ended(moving, well=True)
    assert len(place.told()) == 2


@pytest.mark.parametrize(
    ("left", "shown"), [(0.2, "1 s"), (98.9, "99 s"), (100, "2 min"), (3600, "61 min"), (7200, "3 h")]
)
def test_time_left_is_rounded_up(place: Place, left: float, shown: str) -> None:
    moving = place.transfer(int(MB * (1 + left)))
    place.pass_on(moving, 1, MB)
    place.now += 10
    place.fetching.moved(moving)
    record = load_fetching(place.directories, os.getpid())
    assert record is not None
    assert str(record).endswith(f"{shown} left")
