"""Rows, headings and summaries of a run on a terminal."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.differences import Action, Difference, acting, added, changed, presence, secret, with_diff
from foundation.problems import Location, Problem, ProblemCode
from puller.reporting.report import BundleReport, Event, Report, State, Summary
from puller.reporting.run_log import Log
from puller.reporting.sinks import Level
from puller.reporting.terminal import Terminal, duration_text, report_lines
from puller.reporting.terminal_rows import Outcome, Rows, cells, outcome_of
from tests.puller.problems import failure

PLAIN = Rows()
WIDE = Rows(width=120)
DIFF = "--- /etc/motd (now)\n+++ /etc/motd (wanted)\n@@ -1 +1 @@\n-old\n+new\n"


class Screen(io.StringIO):
    """A terminal without control sequences."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("CLICOLOR_FORCE", raising=False)


def event(state: State = State.CHANGED, name: str = "/etc/motd", kind: str = "file", **fields: Any) -> Event:
    return Event(type=kind, name=name, state=state, requested_ensure="present", **fields)


MODE = changed("mode", "0600", "0644")


@pytest.mark.parametrize(
    ("differences", "outcome"),
    [
        ([presence("absent", "present"), added("mode", "0644")], Outcome.ADDED),
        ([presence("present", "absent")], Outcome.REMOVED),
        ([presence("stopped", "started")], Outcome.CHANGED),
        ([presence("absent", "file", "/srv/a")], Outcome.CHANGED),
        ([MODE], Outcome.CHANGED),
        ([MODE, acting("command", Action.RESTART, refresh=True)], Outcome.CHANGED),
        ([acting("command", Action.RUN)], Outcome.RUN),
        ([acting("command", Action.RESTART)], Outcome.RESTARTED),
        ([acting("command", Action.RELOAD)], Outcome.RELOADED),
        ([], Outcome.CHANGED),
    ],
)
def test_outcome_of_changed_resource(differences: list[Difference], outcome: Outcome) -> None:
    assert outcome_of(event(differences=differences)) is outcome
    predicted = event(State.WOULD_CHANGE, differences=differences)
    assert outcome_of(predicted, is_dry_run=True) is outcome
    assert outcome_of(predicted) is Outcome.PREDICTED


@pytest.mark.parametrize(
    ("found", "rows"),
    [
        (event(differences=[MODE]), ["  ~ file     /etc/motd                    mode 0600 → 0644"]),
        (
            event(differences=with_diff([changed("content", "1", "2")], DIFF)),
            [
                "  ~ file     /etc/motd                    content",
                "      @@ -1 +1 @@",
                "      -old",
                "      +new",
            ],
        ),
        (
            event(kind="package", name="tree", differences=[presence("absent", "2.1.0")]),
            ["  + package  tree                         2.1.0"],
        ),
        (
            event(differences=[presence("file", "absent")], reversal=True),
            ["  - file     /etc/motd                    removed, leftover"],
        ),
        (
            event(differences=[secret("content")]),
            ["  ~ file     /etc/motd                    content (sensitive)"],
        ),
        (event(State.STABLE), ["  ✓ file     /etc/motd                    in sync"]),
        (
            event(State.STABLE, notes=["is a symlink"]),
            ["  ! file     /etc/motd", "             note: is a symlink"],
        ),
        (
            event(State.WOULD_CHANGE, differences=[MODE], noop=True),
            ["  ! file     /etc/motd", "             mode 0600 → 0644, not changed, because noop is set"],
        ),
        (
            event(State.SKIPPED, unmet_requirements=["service#app"], skip_reason="unmet requirements"),
            ["  - skipped  file#/etc/motd               requires service#app"],
        ),
        (
            event(State.FAILED, problems=[failure("no such user")], differences=[MODE], is_planned=True),
            [
                "  ✗ file     /etc/motd                    no such user (web/manifest.yaml:3)",
                "             planned: mode 0600 → 0644",
            ],
        ),
    ],
)
def test_rows_of_a_resource(found: Event, rows: list[str]) -> None:
    assert PLAIN.resource(found, "web/manifest.yaml:3") == rows


def test_failure_has_every_problem_with_its_hint() -> None:
    first = Problem(code=ProblemCode.CHANGE_FAILED, message="refused", hint="remove the lock")
    place = Location("web/a.j2", 4, 2)
    second = Problem(
        code=ProblemCode.TEMPLATE_FAILS, message="is undefined", location=place, excerpt="{{ x }}\n   ^"
    )
    assert PLAIN.resource(event(State.FAILED, problems=[first, second]), "web/manifest.yaml:3") == [
        "  ✗ file     /etc/motd                    refused (web/manifest.yaml:3)",
        "             hint: remove the lock",
        "             web/a.j2:4: is undefined",
        "             {{ x }}",
        "                ^",
    ]


def test_symbols_are_ascii_where_the_locale_is_not_utf8() -> None:
    rows = Rows(is_utf8=False)
    states = (State.FAILED, State.STABLE, State.SKIPPED, State.CHANGED)
    lines = [line for state in states for line in rows.resource(event(state, differences=[MODE]))]
    lines += rows.resource(event(differences=[acting("command", Action.RUN)]))
    assert all(line.isascii() for line in lines)
    assert [line[2] for line in lines if line[2] != " "] == ["x", "=", "-", "~", "@"]


def test_long_name_is_whole_and_its_details_are_below() -> None:
    name = "/opt/" + "a-long-directory/" * 6 + "settings.conf"
    first, second = PLAIN.resource(event(name=name, differences=[MODE]))
    assert first == f"  ~ file     {name}"
    assert second == "             mode 0600 → 0644"


def test_wide_terminal_has_wider_columns() -> None:
    name = "/etc/application/settings/main.conf"
    assert len(PLAIN.resource(event(name=name, differences=[MODE]))) == 2
    assert WIDE.resource(event(name=name, differences=[MODE])) == [
        f"  ~ file     {name}      mode 0600 → 0644"
    ]


@pytest.mark.attack("commands.terminal")
@pytest.mark.attack("shown.controls")
@given(st.text(min_size=1), st.text(), st.integers(40, 120))
def test_rows_have_no_control_characters(name: str, value: str, width: int) -> None:
    rows = Rows(width=width)
    result = event(name=name, differences=[changed("mode", value, name)], notes=[value])
    failed = event(State.FAILED, name=name, problems=[failure(value or "x")])
    for line in [*rows.resource(result), *rows.resource(failed), *rows.line(Level.ERROR, value)]:
        assert not {*line} & {chr(code) for code in (*range(9), *range(10, 32), *range(127, 160))}


@given(st.lists(st.text("ab", min_size=1, max_size=20), min_size=1))
def test_sentences_fit_the_terminal(words: list[str]) -> None:
    lines = PLAIN.line(Level.WARN, " ".join(words))
    assert all(cells(line) <= 80 for line in lines)
    assert " ".join(line.lstrip(" !") for line in lines) == " ".join(words)


def test_wide_characters_take_two_columns() -> None:
    assert (cells("ab"), cells("日本"), cells("e\u0301")) == (2, 4, 1)


# The whole output


def terminal(*, is_dry_run: bool = False) -> tuple[Log, Screen]:
    screen = Screen()
    return Log(screen, terminal=Terminal(screen, is_dry_run=is_dry_run)), screen


def report(*events: Event, name: str = "web", **fields: Any) -> BundleReport:
    summary = Summary.of(events, 0.1)
    return BundleReport(
        name=name, version="1.5.0", outcome="applied", events=list(events), summary=summary, **fields
    )


def lines_of(screen: Screen) -> list[str]:
    return [" ".join(line.split()) for line in screen.getvalue().splitlines()]


STABLE = [event(State.STABLE, f"/{number}") for number in range(3)]


def test_run_without_changes_prints_one_line() -> None:
    log, screen = terminal()
    log.begin("web", "1.5.0", before="1.5.0", remark="signatures good")
    for found in STABLE:
        log.event(found, "web")
    log.ended(0, [report(*STABLE)])
    assert lines_of(screen) == ["web 1.5.0: in sync, 3 resources · 0.1 s exit 0"]


def test_new_version_without_changes_shows_both_versions() -> None:
    log, screen = terminal()
    log.begin("web", "1.5.0", before="1.4.0")
    log.ended(0, [report(*STABLE)])
    assert lines_of(screen) == ["web 1.4.0 → 1.5.0: in sync, 3 resources · 0.1 s exit 0"]


def test_heading_precedes_rows_of_each_bundle() -> None:
    log, screen = terminal()
    first, other = event(name="/a", differences=[MODE]), event(name="/b", differences=[MODE])
    for name in ("web", "db"):
        log.begin(name, "1.5.0")
    for found, name in ((first, "web"), (first, "web"), (other, "db"), (first, "web")):
        log.event(found, name)
    row = ["~ file /a mode 0600 → 0644"]
    assert lines_of(screen) == [
        "web 1.5.0",
        *row,
        *row,
        "db 1.5.0",
        "~ file /b mode 0600 → 0644",
        "web 1.5.0",
        *row,
    ]


def test_dry_run_counts_the_changes_and_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["puller", "run", "--noop", "--only", "file#/a b", "-n"])
    log, screen = terminal(is_dry_run=True)
    result = event(State.WOULD_CHANGE, differences=[MODE], noop=True)
    log.begin("web", "1.5.0", before="1.4.0")
    log.event(result, "web")
    log.ended(0, [report(result, *STABLE)])
    assert lines_of(screen) == [
        "web 1.4.0 → 1.5.0, dry run: nothing is changed",
        "~ file /etc/motd mode 0600 → 0644",
        "would change 1 of 4. To apply: puller run --only 'file#/a b' · 0.1 s exit 0",
    ]


def test_dry_run_of_two_bundles_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["puller", "run", "--noop"])
    log, screen = terminal(is_dry_run=True)
    result = event(State.WOULD_CHANGE, differences=[MODE], noop=True)
    for name in ("web", "db"):
        log.begin(name, "1.5.0", before="1.5.0")
    log.event(result, "web")
    log.ended(0, [report(result), report(*STABLE, name="db")])
    assert lines_of(screen)[2:] == [
        "web 1.5.0: would change 1 of 1",
        "db 1.5.0, dry run: in sync, 3 resources · 0.1 s exit 0",
        "To apply: puller run",
    ]


def test_summary_counts_each_outcome() -> None:
    log, screen = terminal()
    events = [
        event(differences=[presence("absent", "file")]),
        event(differences=[MODE]),
        event(State.REFRESHED, differences=[acting("command", Action.RUN)]),
        event(State.FAILED, problems=[failure("x")]),
        event(State.SKIPPED, unmet_requirements=["a#b"]),
        *STABLE,
    ]
    log.ended(6, [report(*events, held="web 1.6.0 is quarantined")])
    assert lines_of(screen) == [
        "held: web 1.6.0 is quarantined",
        "web 1.5.0: 1 added, 1 changed, 1 run, 1 failed, 1 skipped, 3 unchanged",
        "· 0.1 s exit 6",
    ]


def test_resources_that_were_not_reached_share_a_row() -> None:
    log, screen = terminal()
    for number in range(100):
        result = event(State.SKIPPED, f"/{number}", skip_reason="stopped by SIGTERM", reached=False)
        log.event(result, "web")
    log.warn("after")
    assert lines_of(screen) == ["- skipped 100 resources not reached: stopped by SIGTERM", "! after"]


def test_quiet_run_prints_only_failures() -> None:
    screen = Screen()
    log = Log(screen, level=Level.ERROR, terminal=Terminal(screen, is_quiet=True))
    log.begin("web", "1.5.0")
    log.event(event(differences=[MODE]), "web")
    log.ended(0, [report(*STABLE)])
    assert screen.getvalue() == ""


def test_problems_have_location_code_and_hint() -> None:
    log, screen = terminal()
    place = Location("web/manifest.yaml", 14)
    problem = Problem(
        code=ProblemCode.INVALID_COMMAND, message="is wrong", location=place, hint="write '0644'"
    )
    log.problems(Level.ERROR, [problem], "unused")
    log.problems(Level.ERROR, [problem, problem], "unused", "web-1.5.0 is rejected")
    assert screen.getvalue() == (
        "  ✗ web/manifest.yaml:14: is wrong [invalid-command]\n    hint: write '0644'\n"
        "  ✗ web-1.5.0 is rejected:\n"
        + "    web/manifest.yaml:14: is wrong [invalid-command]\n    hint: write '0644'\n"
        * 2
    )


def test_status_line_is_erased_before_other_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    log, screen = terminal()
    log.expect(2)
    attended: list[str] = []
    attend = log.attending(attended.append)
    attend("package#nginx")
    attend("package#tree")
    log.warn("after")
    log.warn("later")
    assert attended == ["package#nginx", "package#tree"]
    assert screen.getvalue() == (
        "\r\x1b[K[1/2] package#nginx\r\x1b[K[2/2] package#tree\r\x1b[K  ! after\n  ! later\n"
    )


def test_stored_report_is_shown_like_its_run() -> None:
    result = event(differences=[MODE])
    stored = Report(
        run="r", started="", finished="", host="", puller="", exit_status=0, bundles=[report(result, *STABLE)]
    )
    assert report_lines(stored, PLAIN) == [
        "web 1.5.0",
        "  ~ file     /etc/motd                    mode 0600 → 0644",
        "web 1.5.0: 1 changed, 3 unchanged",
    ]


def test_long_summary_leaves_room_for_the_exit_status() -> None:
    for length in range(1, 90):
        log, screen = terminal()
        log.ended(7, [report(*STABLE, name="w" + " w" * length)])
        lines = screen.getvalue().splitlines()
        assert all(cells(line) <= 80 for line in lines)
        assert lines[-1].endswith("  exit 7")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.01, "0.1 s"), (0.4, "0.4 s"), (61.02, "61.1 s"), (185, "3 min 5 s")]
)
def test_durations_are_rounded_up(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
