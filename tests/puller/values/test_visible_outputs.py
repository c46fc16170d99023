"""Output contains no characters that control a terminal, are invisible, or reorder text."""

from __future__ import annotations

import io
import json
import threading
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from foundation.differences import Difference, DifferenceKind, added, changed
from foundation.problems import Location
from puller.authoring.cases import results as cases
from puller.authoring.cases.results import Failure, Result
from puller.authoring.lint import finding_formats
from puller.authoring.lint.check import Linted
from puller.authoring.lint.findings import RULES, Finding, Severity
from puller.authoring.preview import preview_formats as preview_text
from puller.authoring.preview.differences import Change, Comparison, Kind
from puller.authoring.preview.groups import Group, Preview
from puller.authoring.preview.preview_formats import as_json, as_markdown
from puller.cli.author import explain
from puller.cli.fleet import exports
from puller.cli.hiera import lookup_sources
from puller.cli.output import print_table, report_error, say, show, warn
from puller.delivery.report_document import pack, unpack
from puller.errors import PullerError
from puller.fleet.pages.environment import as_script_data, make_environment, shares_over_time
from puller.fleet.watching import notify_by_command, notify_by_url
from puller.reporting import monitoring
from puller.reporting.history import Retention, save_report
from puller.reporting.report import (
    BundleReport,
    Event,
    PublishedBundle,
    Report,
    RestlessResource,
    SentReport,
    State,
    Summary,
)
from puller.reporting.run_log import Log
from puller.reporting.sinks import NAMES, entry
from puller.state import Directories
from puller.values.foreign_text import visible, visible_json
from tests.puller.problems import failure

CATEGORIES = ("Cc", "Cf", "Zl", "Zp")
FILLERS = "\u034f\u115f\u1160\u17b4\u180b\u3164\uffa0\U000e0100"
PLANES = (*range(0x20000), *range(0xE0000, 0xE1000))
"""All characters of these categories. The other planes have ideographs, private characters and no characters."""
BAD = {chr(code) for code in PLANES if unicodedata.category(chr(code)) in CATEGORIES}
BAD = BAD - {"\n", "\t"} | {*FILLERS}
HOSTILE = "x".join(["ok", *sorted(BAD), "ok"])


def test_every_character_is_written_out_once() -> None:
    for character in BAD:
        shown = visible(f"a{character}b")
        assert not BAD & {*shown}
        assert shown.encode("ascii").decode("unicode_escape") == f"a{character}b"
        assert json.loads(visible_json(json.dumps(character, ensure_ascii=False))) == character


@pytest.mark.parametrize("kept", ["größer → ✓", "👩 ⚠️", "日本語", "עברית", "a\tb\nc", "a\u00a0b"])
def test_ordinary_text_stays_as_it_is(kept: str) -> None:
    assert visible(kept) == kept


NOW = "2026-11-20T16:00:00+00:00"


def hostile_report() -> Report:
    event = Event(
        type="file",
        name=HOSTILE,
        state=State.FAILED,
        problems=[failure(HOSTILE)],
        differences=[Difference("content", HOSTILE, HOSTILE, DifferenceKind.CHANGED, HOSTILE, HOSTILE)],
    )
    bundle = BundleReport(
        name="web", version="1.0.0", held=HOSTILE, events=[event], summary=Summary.of([event], 1)
    )
    return Report(
        run="20261120T160000.000000Z", started=NOW, finished=NOW, host="a", puller="1", exit_status=4,
        problems=[failure(HOSTILE)], bundles=[bundle],
    )  # fmt: skip


def hostile_sent() -> SentReport:
    restless = RestlessResource(bundle="web", reference=f"file#{HOSTILE}", runs=5, changes=4)
    published = PublishedBundle(name="web", enforced=f"1.0.0{HOSTILE}", enforced_since=NOW)
    return SentReport(
        host="a", sent=NOW, bundles=[published], restless=[restless], report=hostile_report(),
        facts={"os": HOSTILE},
    )  # fmt: skip


def hostile_lint() -> Linted:
    rule = next(rule.name for rule in RULES.values() if rule.severity is Severity.ERROR)
    return Linted(HOSTILE, (Finding.of(rule, Location(HOSTILE, 1, 1), HOSTILE, severity=Severity.ERROR),), 1)


def hostile_preview() -> Preview:
    change = Change(
        reference=f"file#{HOSTILE}", kind=Kind.CHANGED, why=HOSTILE, refresh="restarts", because=(HOSTILE,),
        differences=(
            changed(HOSTILE, HOSTILE, HOSTILE), added("b", HOSTILE),
            Difference("content", "", HOSTILE, DifferenceKind.CHANGED, HOSTILE, f"-{HOSTILE}\n+{HOSTILE}"),
        ),
    )  # fmt: skip
    return Preview(
        total=1, groups=(Group(Comparison((change,)), (HOSTILE,)),), unchanged=(HOSTILE,), notes=(HOSTILE,)
    )


def hostile_result() -> Result:
    failure = Failure(
        where=HOSTILE, message=HOSTILE, expected=HOSTILE, found=HOSTILE, declared=HOSTILE, diff=HOSTILE
    )
    return Result(bundle=HOSTILE, case=HOSTILE, file=HOSTILE, failures=(failure,))


def logged() -> str:
    stream = io.StringIO()
    log = Log(stream)
    log.warn(HOSTILE)
    log.event(hostile_report().bundles[0].events[0])
    return stream.getvalue()


def field_of_journal() -> str:
    framed = entry(3, "", {"resource": HOSTILE})
    return framed.split(f"{NAMES['resource']}\n".encode())[1][8:].decode().removesuffix("\n")


def explained() -> str:
    source = {
        "source": HOSTILE, "name": HOSTILE, "found": True, "value": HOSTILE, "from": [HOSTILE],
        "hierarchy": [HOSTILE], "lines": [HOSTILE],
    }  # fmt: skip
    key = {"bundle": HOSTILE, "manifest": HOSTILE, "key": HOSTILE, "sources": [source], **source}
    resource = {
        "resource": HOSTILE, "bundle": HOSTILE, "declared": HOSTILE, "item": HOSTILE, "applied": [HOSTILE],
        "properties": {HOSTILE: HOSTILE}, "uses": [{"name": HOSTILE, "value": HOSTILE, "from": [HOSTILE]}],
        "on_record": [HOSTILE], "requires": [HOSTILE],
        "last_run": {"state": "failed", "finished": NOW, "version": HOSTILE, "held": HOSTILE, "why": [HOSTILE]},
    }  # fmt: skip
    lines = [*explain.key_lines(key), *explain.resource_lines(resource)]
    for code in ("0", "1", "2", "31", "32", "33"):
        lines = [line.replace(f"\x1b[{code}m", "") for line in lines]
    return "".join(lines)


def printed(action: Callable[[], object]) -> str:
    import contextlib

    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        action()
    return stream.getvalue()


def chart() -> str:
    times = [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2)]
    return shares_over_time(HOSTILE, times, {HOSTILE[:40]: [1, 2], "others": [1, 1]})


OUTPUTS: dict[str, Callable[[], str]] = {
    "say": lambda: printed(lambda: say(HOSTILE)),
    "say on stderr": lambda: printed(lambda: say(HOSTILE, err=True)),
    "warn": lambda: printed(lambda: warn(HOSTILE)),
    "table": lambda: printed(lambda: print_table((HOSTILE,), [(HOSTILE,)])),
    "json": lambda: printed(lambda: show({HOSTILE: HOSTILE}, "json")),
    "yaml": lambda: printed(lambda: show({HOSTILE: HOSTILE}, "yaml")),
    "error": lambda: printed(lambda: report_error(PullerError(HOSTILE))),
    "log": logged,
    "journal": field_of_journal,
    "lint text": lambda: "\n".join(finding_formats.text_lines(hostile_lint())),
    "lint github": lambda: "\n".join(finding_formats.github_lines(hostile_lint())),
    "lint junit": lambda: finding_formats.as_junit(hostile_lint()),
    "lint sarif": lambda: finding_formats.as_sarif(hostile_lint()),
    "lint json": lambda: finding_formats.as_json(hostile_lint()),
    "preview text": lambda: preview_text.as_text(hostile_preview()),
    "preview markdown": lambda: as_markdown(hostile_preview()),
    "preview json": lambda: as_json(hostile_preview()),
    "test text": lambda: "\n".join(cases.text_lines(hostile_result())),
    "test junit": lambda: cases.as_junit([hostile_result()], 1),
    "test json": lambda: cases.as_json([hostile_result()], 1),
    "metrics": lambda: monitoring.metrics_text(hostile_sent()),
    "sent report": lambda: unpack(pack(hostile_sent())).decode(),
    "explain": explained,
    "hiera": lambda: lookup_sources._coloured(HOSTILE),
    "exports json": lambda: exports._json({HOSTILE: HOSTILE}),
    "exports yaml": lambda: exports._yaml({HOSTILE: HOSTILE}),
    "page": lambda: make_environment().from_string("{{ a }}<i title='{{ a|short }}'>").render(a=HOSTILE),
    "data of a page": lambda: str(as_script_data([HOSTILE])),
    "chart": chart,
}


@pytest.mark.attack("shown.controls")
@pytest.mark.parametrize("output", OUTPUTS)
def test_output_has_no_invisible_character(output: str) -> None:
    shown = OUTPUTS[output]()
    assert "ok" in shown
    assert sorted(BAD & {*shown}) == []


@pytest.mark.attack("shown.controls")
def test_kept_report_has_no_invisible_character(tmp_path: Path) -> None:
    directories = Directories(tmp_path / "state", tmp_path / "run")
    directories.make()
    retention = Retention(10, 1, 1, 10, 10**9)
    shown = save_report(hostile_report(), directories, retention, datetime.now(UTC)).read_text()
    assert sorted(BAD & {*shown}) == []
    assert json.loads(shown)["problems"][0]["message"] == HOSTILE


@pytest.mark.attack("shown.told")
def test_tell_command_gets_a_visible_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sentence = f"first\nSubject: {HOSTILE}\0"
    assert notify_by_command(["sh", "-c", f'printf %s "$1" > {out}', "sh"], sentence) == ""
    shown = out.read_text()
    assert "ok" in shown
    assert sorted((BAD | {"\n", "\t"}) & {*shown}) == []


@pytest.mark.attack("shown.told")
def test_tell_url_gets_visible_texts() -> None:
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert (
            notify_by_url(f"http://127.0.0.1:{server.server_port}/", {"text": HOSTILE, "reasons": [HOSTILE]})
            == ""
        )
        thread.join()
    reported = json.loads(bodies[0])
    assert not BAD & {*reported["text"]} | BAD & {*reported["reasons"][0]}


def test_escaped_documents_say_the_same() -> None:
    value = {"a": HOSTILE}
    assert yaml.safe_load(exports._yaml(value)) == value
    assert json.loads(exports._json(value)) == value
