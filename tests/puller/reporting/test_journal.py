"""Journal entries: a test socket parses them like journald."""

import array
import fcntl
import os
import re
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.differences import Difference, DifferenceKind
from foundation.problems import ProblemCode
from puller.exit_status import ExitStatus
from puller.reporting.report import Event, State
from puller.reporting.run_log import Log, RunProblems
from puller.reporting.sinks import NAMES, Level, MessageId, framed
from tests.puller.problems import failure

PAGE = Path(__file__).parents[3] / "docs/monitoring.md"
ALL_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def parsed(data: bytes) -> list[tuple[str, bytes]]:
    """Return the fields of an entry in journald's format: ``NAME=value``, or a name, a length and a value."""
    fields = []
    while data:
        line, _, data = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", data[:8])
            value, end, data = data[8 : 8 + length], data[8 + length : 9 + length], data[9 + length :]
            assert (len(value), end) == (length, b"\n")
        fields.append((name.decode(), value))
    return fields


class Journald:
    """Receives entries, and has the stream that is connected to the journal."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "socket"
        self.lines = directory / "stdout"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.stream = self.lines.open("w+")
        status = os.fstat(self.stream.fileno())
        self.name = f"{status.st_dev}:{status.st_ino}"

    def listen(self) -> None:
        self.socket.bind(str(self.path))

    def log(self, level: Level = Level.INFO) -> Log:
        return Log(self.stream, level=level, journal=str(self.path))

    def entries(self) -> list[dict[str, str]]:
        """Return all received entries. A file descriptor must be sealed, as journald requires."""
        results = []
        while select.select([self.socket], [], [], 0)[0]:
            data, ancillary, _, _ = self.socket.recvmsg(4 * 1024 * 1024, socket.CMSG_SPACE(4))
            for _, _, rights in ancillary:
                (descriptor,) = array.array("i", rights)
                assert fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) == ALL_SEALS
                data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                os.close(descriptor)
            fields = parsed(data)
            assert len(dict(fields)) == len(fields), "each field once"
            results.append({name: value.decode() for name, value in fields})
        return results

    def close(self) -> None:
        self.socket.close()
        self.stream.close()


@pytest.fixture
def journald(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journald]:
    monkeypatch.chdir(tmp_path)
    there = Journald(Path())  # relative, because a socket's path is limited to 107 bytes
    monkeypatch.setenv("JOURNAL_STREAM", there.name)
    there.listen()
    yield there
    there.close()


def failed(**fields: Any) -> Event:
    return Event(type="file", name="/etc/motd", state=State.FAILED, **fields)


def test_a_failed_resource_is_found_by_its_fields(journald: Journald) -> None:
    log = journald.log()
    log.belong_to("20261120T160000.000000Z")
    log.event(failed(problems=[failure("no such user")]), "web")
    (entry,) = journald.entries()
    assert entry == {
        "MESSAGE": 'file#/etc/motd failed ensure= runtime=0ms errors="no such user"',
        "PRIORITY": "3",
        "SYSLOG_IDENTIFIER": "puller",
        "MESSAGE_ID": MessageId.RESOURCE_FAILED,
        "PULLER_RUN": "20261120T160000.000000Z",
        "PULLER_BUNDLE": "web",
        "PULLER_RESOURCE": "file#/etc/motd",
        "PULLER_STATE": "failed",
        "PULLER_CODE": ProblemCode.CHANGE_FAILED,
    }
    assert journald.lines.read_text() == "", "one sink in the place of another"


def test_entries_below_the_level_are_dropped(journald: Journald) -> None:
    log = journald.log(Level.NOTICE)
    log.info("stable")
    log.event(Event(type="file", name="/a", state=State.STABLE))
    log.notice("changed")
    assert [entry["MESSAGE"] for entry in journald.entries()] == ["changed"]


def test_a_problem_and_the_end_of_a_run_have_their_exit_status(journald: Journald) -> None:
    problems = RunProblems(journald.log(), [], [])
    problems.error(failure("the site is away"), ExitStatus.FETCH_FAILED)
    problems.warn("a mirror is slow")
    problems.log.at_once("stopping")
    problems.log.ended(problems.exit_status)
    entries = journald.entries()
    assert [entry["MESSAGE_ID"] for entry in entries] == [
        MessageId.PROBLEM,
        MessageId.WARNING,
        MessageId.WARNING,
        MessageId.RUN_ENDED,
    ]
    assert [entry.get("PULLER_EXIT") for entry in entries] == ["14", None, None, "14"]
    codes = [ProblemCode.CHANGE_FAILED, ProblemCode.RUN_WARNING, None, None]
    assert [entry.get("PULLER_CODE") for entry in entries] == codes
    assert [entry["PRIORITY"] for entry in entries] == ["3", "4", "4", "5"]


HOSTILE = "x\nPULLER_STATE=stable\nMESSAGE_ID=0\n\nPRIORITY=7\n"


@pytest.mark.parametrize("field", ["name", "problems", "differences"])
def test_nothing_in_a_value_makes_a_field(journald: Journald, field: str) -> None:
    event = msgspec_replaced(failed(), field, HOSTILE)
    journald.log().event(event, HOSTILE)
    (entry,) = journald.entries()
    assert (entry["PULLER_STATE"], entry["PRIORITY"]) == ("failed", "3")
    assert entry["MESSAGE_ID"] == MessageId.RESOURCE_FAILED
    assert entry["PULLER_BUNDLE"] == HOSTILE
    assert "PULLER_STATE=stable" in entry["MESSAGE"]


def msgspec_replaced(event: Event, field: str, value: str) -> Event:
    hostile = {
        "problems": [failure(value)],
        "differences": [Difference("content", "", value, DifferenceKind.CHANGED, diff=value)],
    }
    setattr(event, field, hostile.get(field, value))
    return event


@given(st.dictionaries(st.sampled_from([*NAMES.values()]), st.text()))
def test_framed_values_round_trip(fields: dict[str, str]) -> None:
    read = {name: value.decode() for name, value in parsed(framed(fields))}
    assert read == {name: value.encode(errors="backslashreplace").decode() for name, value in fields.items()}


def test_invalid_names_and_control_characters_are_escaped(journald: Journald) -> None:
    event = Event(type="file", name="/\udcff\x1b[2J", state=State.FAILED)
    journald.log().event(event)
    (entry,) = journald.entries()
    assert entry["PULLER_RESOURCE"] == "file#/\\udcff\\x1b[2J"


def test_an_entry_that_no_datagram_holds_comes_as_a_sealed_file(journald: Journald) -> None:
    diff = "".join(f"+line {number}\n" for number in range(100_000))
    difference = Difference("content", "", "", DifferenceKind.CHANGED, diff=diff)
    journald.log().event(failed(differences=[difference]))
    (entry,) = journald.entries()
    assert entry["MESSAGE"].endswith("+line 99999")
    assert entry["PULLER_STATE"] == "failed"
    assert journald.lines.read_text() == ""


def test_a_field_of_any_length_ends_somewhere(journald: Journald) -> None:
    journald.log().event(Event(type="file", name="/" + "a" * 10**6, state=State.FAILED))
    (entry,) = journald.entries()
    assert len(entry["PULLER_RESOURCE"]) == 64 * 1024


def test_without_the_socket_entries_are_lines_with_priority(
    journald: Journald, capsys: pytest.CaptureFixture[str]
) -> None:
    journald.path.unlink()
    log = journald.log()
    log.error("first\nsecond")
    log.info("third")
    log.at_once("fourth")
    assert journald.lines.read_text() == "<3>first\n<3>second\n<6>third\n<4>fourth\n"
    output = capsys.readouterr().err
    assert output == (
        "puller: the journal rejects entries with fields (No such file or directory), so they are written as lines\n"
    )


def test_blocked_journal_delays_and_loses_nothing(
    journald: Journald, capsys: pytest.CaptureFixture[str]
) -> None:
    log, sentences = journald.log(), [f"entry {number}" for number in range(2000)]
    for sentence in sentences:
        log.notice(sentence)
    as_lines = re.findall(r"<5>(.*)\n", journald.lines.read_text())
    received = [entry["MESSAGE"] for entry in journald.entries()]
    assert as_lines
    assert received
    assert sorted(received + as_lines) == sorted(sentences)
    assert capsys.readouterr().err.count("rejects entries") == 1
    log.notice("there again")
    assert [entry["MESSAGE"] for entry in journald.entries()] == ["there again"]


def test_a_journal_that_is_restarted_gets_the_rest(journald: Journald) -> None:
    log = journald.log()
    log.notice("before")
    journald.entries()
    journald.socket.close()
    journald.path.unlink()
    log.notice("meanwhile")
    journald.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    journald.listen()
    log.notice("after")
    assert [entry["MESSAGE"] for entry in journald.entries()] == ["after"]
    assert journald.lines.read_text() == "<5>meanwhile\n"


def test_a_stream_that_is_not_the_journals_gets_lines(
    journald: Journald, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that systemd started may redirect its output."""
    monkeypatch.setenv("JOURNAL_STREAM", "1:1")
    log = journald.log()
    log.notice("a notice")
    log.ended(0)
    assert journald.lines.read_text() == "NOTICE a notice\n"
    assert journald.entries() == []


def test_the_page_has_every_message_id_and_every_field() -> None:
    rows = re.findall(r"^\| `([0-9a-f]{32})` \| ([\w ]+) \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [(kind.value, kind.name.lower().replace("_", " ")) for kind in MessageId]
    assert len({kind.value for kind in MessageId}) == len(MessageId.__members__)
    named = re.findall(r"^\| `((?:PULLER_|MESSAGE_)\w+)` \| (?!kind)", PAGE.read_text(), re.MULTILINE)
    assert named == [*NAMES.values()]
    requested = re.findall(r"^    journalctl (\w+)=(\S*)", PAGE.read_text(), re.MULTILINE)
    searched = {*NAMES.values()} - {"MESSAGE_ID", "PULLER_DIFFERENCES"}  # the JSON is not for searches
    assert {name for name, _ in requested} == searched
    assert {value for name, value in requested if name == "PULLER_STATE"} <= {*State}
