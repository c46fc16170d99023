"""Progress of a preview: only on a terminal."""

import io
import sys

import pytest

from puller.authoring.preview.groups import Machine
from puller.cli.author import preview

MACHINES = [Machine("a", {}), Machine("b", {})]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_machines_are_counted_on_a_terminal_and_the_line_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(preview, "_SECONDS", 0)
    with preview.watched_on_a_terminal(MACHINES) as machines:
        assert list(machines) == MACHINES
    assert terminal.getvalue() == "\r\x1b[Kmachine 1\r\x1b[Kmachine 2\r\x1b[K"


def test_progress_is_silent_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(preview, "_SECONDS", 0)
    with preview.watched_on_a_terminal(MACHINES) as machines:
        assert list(machines) == MACHINES
    assert written.getvalue() == ""
