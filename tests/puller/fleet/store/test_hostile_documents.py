"""Hostile documents of a host: they stop no import, inject nothing into queries, and affect no other host."""

import gzip
import json
import os
import random
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puller.fleet.store.database import Store
from puller.fleet.store.importer import refused_files
from puller.fleet.store.queries import Reader
from tests.puller.fleet.conftest import Import, imported
from tests.simulators import fleet

GOOD, BAD = "good.example.com", "bad.example.com"


def document(now: datetime, **facts: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(msgspec.json.encode(fleet.sent(BAD, now, facts=facts)))
    return result


def of_report(now: datetime, **fields: Any) -> bytes:
    whole = document(now)
    return json.dumps({**whole, "report": {**whole["report"], **fields}}).encode()


def objects(*messages: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"code": "change-failed", "message": message, **fields} for message in messages]


def with_text(now: datetime, text: str) -> bytes:
    return json.dumps(document(now, x="@@")).replace('"@@"', text).encode()


def restless(now: datetime, runs: int) -> bytes:
    item = {"bundle": "web", "reference": "file#/x", "runs": runs, "changes": 1}
    return json.dumps({**document(now), "restless": [item]}).encode()


Make = Callable[[datetime], bytes]

REFUSED: dict[str, tuple[Make, str]] = {
    "a code that is a text": (
        lambda now: of_report(now, problems=objects("x", code="<b>")),
        "Invalid enum value",
    ),
    "nothing": (lambda now: b"", "malformed|truncated"),
    "no JSON": (lambda now: b"<html>", "malformed"),
    "no text": (lambda now: b"\xff\xfe{}", "malformed|is not a report"),
    "a list": (lambda now: b"[]", "Expected `object`"),
    "a wrong type": (lambda now: of_report(now, exit_status="0"), "Expected `int`"),
    "a newer format": (
        lambda now: json.dumps({**document(now), "format": 4}).encode(),
        "has format 4, and this version of Puller reads format 3",
    ),
    "an exit status of 70 bits": (lambda now: of_report(now, exit_status=2**70), "an invalid exit status"),
    "an exit status of 40 bits": (lambda now: of_report(now, exit_status=2**40), "an invalid exit status"),
    "a number of 70 bits": (lambda now: restless(now, 2**70), "has an invalid number of runs"),
    "a number of 40 bits": (lambda now: restless(now, 2**40), "has an invalid number of runs"),
    "half a character": (lambda now: with_text(now, '"\\ud800"'), "surrogate"),
    "an endless number": (lambda now: with_text(now, "1e400"), "out of range"),
    "deep facts": (lambda now: with_text(now, "[" * 200 + "]" * 200), "nested more than 100 deep"),
    "facts as deep as can be": (lambda now: with_text(now, "[" * 300_000), "is not a report"),
    "too much": (lambda now: json.dumps(document(now, x="x" * 1_100_000)).encode(), "are read"),
    "too much when compressed": (
        lambda now: json.dumps(document(now, x=random.Random(1).randbytes(400_000).hex())).encode(),
        "compressed bytes",
    ),
    "a bomb": (lambda now: gzip.compress(b" " * 500_000_000, 1)[:200_000], "after decompression"),
    "half of a document": (lambda now: gzip.compress(json.dumps(document(now)).encode())[:-20], "cut off"),
    "more behind it": (lambda now: gzip.compress(json.dumps(document(now)).encode()) + b"x", "behind it"),
    "another host": (
        lambda now: json.dumps({**document(now), "host": GOOD}).encode(),
        "hosts can only send their own reports",
    ),
    "a report of another host": (lambda now: of_report(now, host=GOOD), "contains a report of the host"),
    "a path for a host": (
        lambda now: json.dumps({**document(now), "host": "../good"}).encode(),
        "has the host '../good'",
    ),
    "a long host": (lambda now: json.dumps({**document(now), "host": "a" * 10_000}).encode(), "has the host"),
    "no run": (lambda now: of_report(now, run=""), "invalid identity of the run"),
    "a run with a command of the terminal": (lambda now: of_report(now, run="\x1b[2J"), "invalid identity"),
    "a dry run": (lambda now: of_report(now, noop=True), "dry run"),
    "no time": (lambda now: of_report(now, finished="soon"), "expected a time"),
    "a time of no zone": (
        lambda now: of_report(now, finished="2026-01-01T00:00:00"),
        "expected a time in UTC",
    ),
    "the year one": (
        lambda now: of_report(now, finished="0001-01-01T00:00:00+23:59"),
        "between 2000 and 9000",
    ),
}


@pytest.mark.parametrize(("make", "why"), REFUSED.values(), ids=REFUSED)
@pytest.mark.representatives(10)
@pytest.mark.sample(20)
def test_invalid_document_is_reported_once_and_blocks_nothing(
    make: Make, why: str, store: Store, place: Path, arrive: Import, now: datetime
) -> None:
    data = make(now)
    (place / BAD).mkdir()
    (place / BAD / "run.json").write_bytes(data)
    done = arrive(fleet.sent(GOOD, now))
    assert (done.newest, done.refused, len(done.listed)) == (1, 1, 1)
    assert done.listed[0].path == f"{BAD}/run.json"

    assert re.search(why, done.listed[0].why), done.listed[0].why
    assert list(Reader(store, now).hosts) == [GOOD]
    again = imported(store, place)
    assert (again.refused, again.listed, again.unchanged) == (1, [], 1)
    assert refused_files(store)[0] == 1
    (place / BAD / "run.json").unlink()
    assert imported(store, place).refused == 0
    assert refused_files(store)[0] == 0


ODD: dict[str, Make] = {
    "NUL": lambda now: with_text(now, '"a\\u0000b"'),
    "NUL in a name": lambda now: json.dumps(document(now, **{"a\0b": 1})).encode(),
    "NUL in what failed": lambda now: of_report(now, exit_status=4, problems=objects("a\0b" * 2000)),
    "NUL in bundles": lambda now: json.dumps(
        {**document(now), "bundles": [{"name": "w\0b", "enforced": "1\0", "published": "1\0"}]}
    ).encode(),
    "long names": lambda now: json.dumps(
        {**document(now), "bundles": [{"name": "𝔘" * 9999, "enforced": "𝔘" * 9999, "held": "x" * 99999}]}
    ).encode(),
    "one bundle twice": lambda now: json.dumps(
        {**document(now), "bundles": [{"name": "w", "enforced": str(n)} for n in range(50)]}
    ).encode(),
    "many failures": lambda now: of_report(
        now, exit_status=4, problems=objects(*(f"x{n}" for n in range(9999)))
    ),
    "many numbers": lambda now: of_report(
        now, exit_status=4, problems=objects(*["1" * 2000 + ".a" * 900 + ".1"] * 100)
    ),
    "a large number": lambda now: with_text(now, "9" * 4000),
    "many facts": lambda now: json.dumps(document(now, **{f"f{n}": n for n in range(30_000)})).encode(),
    "metadata that expire before all calendars": lambda now: json.dumps(
        {**document(now), "metadata_expire": "0001-01-01T00:00:00+23:59"}
    ).encode(),
    "metadata that expire after all calendars": lambda now: json.dumps(
        {**document(now), "metadata_expire": "9999-12-31T23:59:59-23:59"}
    ).encode(),
    "a bundle since before all calendars": lambda now: json.dumps(
        {
            **document(now),
            "bundles": [{"name": "w", "enforced": "1", "enforced_since": "0001-01-01T00:00:00+23:59"}],
        }
    ).encode(),
    "a code of a newer host": lambda now: of_report(
        now, exit_status=4, problems=[{"code": "melted-rack", "message": "x", "heat": 9000}]
    ),
    "many texts of a problem": lambda now: of_report(
        now,
        exit_status=4,
        problems=objects(
            "x",
            suggestions=["a\0"] * 9999,
            location={"file": "\0", "path": ["b\0"] * 9999},
            related=[{"file": "c"}] * 9999,
        ),
    ),
    "HTML and commands": lambda now: of_report(
        now, exit_status=4, problems=objects("<script>alert(1)</script>", "\x1b[2J\x1b]0;x\x07")
    ),
}


@pytest.mark.representatives(4)
@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_odd_documents_are_kept_and_read(
    make: Make, store: Store, place: Path, arrive: Import, now: datetime
) -> None:
    (place / BAD).mkdir()
    (place / BAD / "run.json").write_bytes(make(now))
    done = arrive(fleet.sent(GOOD, now))
    assert (done.newest, done.refused) == (2, 0), done.listed
    reader = Reader(store, now)
    reader.fleet()
    assert [view.row.name for view in reader.details([BAD, GOOD])] == [BAD, GOOD]
    assert dict(reader.facts()).keys() == {BAD, GOOD}
    reader.resources()
    for bundle in reader.bundles:
        for version in bundle.versions:
            reader.release(bundle.name, version.version)


def test_nothing_is_reached_through_links_or_opened_that_blocks(
    store: Store, place: Path, arrive: Import, now: datetime, tmp_path: Path
) -> None:
    (secret,) = fleet.deliver(tmp_path / "elsewhere", [fleet.sent(BAD, now)])
    (place / BAD).mkdir()
    (place / BAD / "link.json.gz").symlink_to(secret)
    os.mkfifo(place / BAD / "pipe.json.gz")
    (place / BAD / "directory.json.gz").mkdir()
    (place / BAD / "page.html").write_text("x")
    (place / "linked.example.com").symlink_to(secret.parent)
    (place / "file").write_text("x")
    (place / "name with space").mkdir()
    (place / os.fsdecode(b"\xff\xfe")).mkdir()
    (place / ("<b>" + "x" * 240)).mkdir()
    done = arrive(fleet.sent(GOOD, now))
    assert done.newest == 1
    assert {
        item.path.split("/")[-1]: item.why.split(",")[0] for item in done.listed if "x" * 9 not in item.path
    } == {
        "link.json.gz": "is not a regular file",
        "pipe.json.gz": "is not a regular file",
        "directory.json.gz": "is not a regular file",
        "page.html": "is not the name of a document",
        "linked.example.com": "is not the directory of a host",
        "file": "is not the directory of a host",
        "name with space": "is not the name of a host",
        "\ufffd\ufffd": "is not the name of a host",
    }
    assert done.refused == 9
    assert list(Reader(store, now).hosts) == [GOOD]
    assert secret.exists()


def test_a_file_of_100_mb_is_not_read(store: Store, place: Path, arrive: Import, now: datetime) -> None:
    (place / BAD).mkdir()
    with (place / BAD / "run.json.gz").open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    done = arrive(fleet.sent(GOOD, now))
    assert (done.newest, done.refused) == (1, 1)
    assert "has 104857600 bytes" in done.listed[0].why


def test_few_of_many_refused_files_are_told(place: Path, arrive: Import, now: datetime) -> None:
    (place / BAD).mkdir()
    for number in range(700):
        (place / BAD / f"{number}.json").write_bytes(b"{")
    done = arrive(fleet.sent(GOOD, now))
    assert (done.newest, done.refused, len(done.listed), done.unlisted) == (1, 700, 20, 680)


def test_runs_that_end_together_are_two_runs(store: Store, arrive: Import, now: datetime) -> None:
    at = now - timedelta(minutes=5)
    first, second, third = (
        fleet.sent(BAD, at),
        fleet.sent(BAD, at, problems=["x"], exit_status=14),
        fleet.sent(BAD, at),
    )
    second.report.run = f"{first.report.run}1"
    third.report.run = f"{first.report.run}2"
    states = []
    for item in (first, second, third):
        assert arrive(item).newest == 1
        states.append(Reader(store, now).hosts[BAD].state)
    assert states == ["in-order", "failed", "in-order"]
    (counted,) = Reader(store, now).history.counts.items()
    assert counted == ("in sync", [1, 1])
