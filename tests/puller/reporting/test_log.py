"""Log lines for people."""

import io
from typing import Any

import pytest

from foundation.differences import changed, presence, with_diff
from puller.reporting.report import Event, State
from puller.reporting.run_log import Log, sentence
from puller.reporting.sinks import Level
from tests.puller.problems import failure
from tests.support.rows import each_row

MISSING = [presence("absent", "present")]


def event(state: State, **fields: Any) -> Event:
    return Event(
        type="file", name="/etc/motd", state=state, requested_ensure="present", duration=0.002, **fields
    )


@each_row(
    ("found", "line"),
    [
        (
            event(State.CHANGED, provider="posix"),
            "file#/etc/motd changed ensure=present runtime=2ms provider=posix",
        ),
        (
            event(State.CHANGED, alias="motd", differences=[changed("mode", "0600", "0644")]),
            'file#motd (/etc/motd) changed ensure=present runtime=2ms differences="mode 0600 → 0644"',
        ),
        (
            event(State.WOULD_CHANGE, noop_message="Would have created the file", differences=MISSING),
            'file#/etc/motd would change ensure=present runtime=2ms noop="Would have created the file" '
            'differences="ensure absent → present"',
        ),
        (
            event(State.FAILED, problems=[failure("mode is 0600, expected 0644"), failure("no such user")]),
            'file#/etc/motd failed ensure=present runtime=2ms errors="mode is 0600, expected 0644, no such user"',
        ),
        (
            event(State.SKIPPED, unmet_requirements=["exec#a", "exec#b"], skip_reason="unmet requirements"),
            "file#/etc/motd skipped due to unmet requirements ensure=present runtime=2ms unmet=exec#a unmet=exec#b",
        ),
        (
            event(State.SKIPPED, skip_reason="control: if false is false"),
            "file#/etc/motd skipped (control: if false is false) ensure=present runtime=2ms",
        ),
        (
            event(State.CHANGED, differences=with_diff([changed("content", "1", "2")], "-a\n+b\n")),
            'file#/etc/motd changed ensure=present runtime=2ms differences="content"\n-a\n+b',
        ),
    ],
)
def test_the_line_of_a_resource(found: Event, line: str) -> None:
    assert sentence(found) == line


@each_row(
    ("found", "level"),
    [
        (event(State.FAILED), "ERROR"),
        (event(State.SKIPPED, unmet_requirements=["exec#a"]), "ERROR"),
        (event(State.SKIPPED, skip_reason="exec#a failed, and fail_on_error is set", reached=False), "WARN"),
        (event(State.CHANGED), "NOTICE"),
        (event(State.REFRESHED), "NOTICE"),
        (event(State.WOULD_CHANGE), "NOTICE"),
        (event(State.SKIPPED, skip_reason="control: if false is false"), "INFO"),
        (event(State.STABLE), "INFO"),
    ],
)
def test_the_level_of_a_resource(found: Event, level: str) -> None:
    stream = io.StringIO()
    Log(stream, level=Level.DEBUG).event(found)
    assert stream.getvalue().split()[0] == level


def test_messages_below_the_level_are_hidden() -> None:
    stream = io.StringIO()
    log = Log(stream, level=Level.WARN)
    log.info("stable")
    log.notice("a notice")
    log.warn("a warning")
    log.error("an error\nof two lines")
    assert stream.getvalue() == "WARN   a warning\nERROR  an error\n        of two lines\n"


def test_a_terminal_gets_colours_unless_it_asks_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    coloured, plain = Terminal(), Terminal()
    for name in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    Log(coloured).warn("careful")
    monkeypatch.setenv("NO_COLOR", "1")
    Log(plain).warn("careful")
    assert coloured.getvalue() == "\x1b[33mWARN   \x1b[0mcareful\n"
    assert plain.getvalue() == "WARN   careful\n"


@pytest.mark.attack("commands.terminal")
def test_program_output_moves_no_cursor() -> None:
    stream = io.StringIO()
    Log(stream, colour=False).error("it printed:\n\x1b[2J\x1b]0;x\x07a\rb\x9b1m\r\n\tend \u00fc")
    assert stream.getvalue() == (
        "ERROR  it printed:\n        \\x1b[2J\\x1b]0;x\\x07a\\x0db\\x9b1m\n        \tend \u00fc\n"
    )
