"""The store: the same answers whatever the order that documents came in, and whatever the database."""

import json
import multiprocessing
import os
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from puller.delivery.document import pack
from puller.errors import SourceError
from puller.fleet.document import Document, read_document
from puller.fleet.store import schema
from puller.fleet.store.database import Store
from puller.fleet.store.reading import Reader
from puller.fleet.store.retention import forget_before, forget_hosts
from puller.fleet.store.series import Period, counted
from puller.fleet.store.writing import put, seconds
from puller.reporting.sent_report import SentReport
from tests.simulators.fleet import names, sent, wave

_AT = datetime(2026, 5, 4, 3, 0, tzinfo=UTC)
_HOST = "web1.example.com"


def _document(sent_report: SentReport) -> Document:
    return read_document(
        pack(sent_report), sent_report.host, datetime.fromisoformat(sent_report.report.finished)
    )


def _put(store: Store, documents: Sequence[SentReport]) -> tuple[int, int, int]:
    with store.writing() as connection:
        done = put(connection, [_document(one) for one in documents])
    return done.newest, done.late, done.known


def _rows(store: Store, table: str, *but: str) -> list[Any]:
    found = schema.metadata.tables[table]
    columns = [column for column in found.columns if column.name not in but]
    with store.reading() as connection:
        return sorted((tuple(row) for row in connection.execute(select(*columns))), key=repr)


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    opened = Store.open(location, make=True)
    yield opened
    opened.close()


# Any order


_KINDS: list[dict[str, Any]] = [
    {},
    {"changed": {"file#/a": "content differs"}},
    {"failed": {"service#web": "it is dead"}},
    {"failed": {"service#web": "it is dead", "file#/b": "no"}},
    {"restless": {"file#/a": "1 is 2"}},
    {"published": "1.5.0", "held": "not reached"},
    {"published": "1.5.0", "quarantined": ["1.5.0"]},
]
_sequences = st.lists(
    st.tuples(st.sampled_from(names(3)), st.integers(0, 12), st.sampled_from(_KINDS)), min_size=1, max_size=14
)


def _documents(drawn: Sequence[tuple[str, int, dict[str, Any]]]) -> list[SentReport]:
    unique = {(host, minute): kind for host, minute, kind in drawn}
    return [
        sent(host, _AT + timedelta(minutes=minute), **kind)
        for (host, minute), kind in sorted(unique.items(), key=repr)
    ]


@settings(max_examples=40, deadline=None)
@given(_sequences, st.randoms(use_true_random=False))
def test_any_order_in_any_batches_with_duplicates_gives_the_same_hosts(
    drawn: list[tuple[str, int, dict[str, Any]]], dice: Any
) -> None:
    documents = _documents(drawn)
    mixed = [*documents, *dice.sample(documents, len(documents) // 2)]
    dice.shuffle(mixed)
    in_order = sorted(documents, key=lambda one: one.report.finished)
    whole, batched, random_ones = (Store.open("sqlite:///:memory:", make=True) for _ in range(3))
    _put(whole, documents)
    for store, sequence in ((batched, in_order), (random_ones, mixed)):
        at = 0
        while at < len(sequence):
            size = dice.randint(1, 5)
            _put(store, sequence[at : at + size])
            at += size
    for table in ("hosts", "standings", "restless", "runs", "events"):
        assert _rows(random_ones, table) == _rows(whole, table), table
    assert _rows(random_ones, "failing", "since") == _rows(whole, "failing", "since")
    for table in schema.metadata.tables:  # in order: since when and until when, too
        assert _rows(batched, table) == _rows(whole, table), table
    for store in (whole, batched, random_ones):
        store.close()


def test_late_and_repeated_documents_are_counted_as_such(store: Store) -> None:
    newest = sent(_HOST, _AT, changed={"file#/a": "x"})
    late = sent(_HOST, _AT - timedelta(hours=1), failed={"file#/a": "no"})
    nothing = sent(_HOST, _AT - timedelta(hours=2))
    assert _put(store, [newest]) == (1, 0, 0)
    assert _put(store, [newest, late, late, nothing]) == (0, 1, 3)
    assert _put(store, [late]) == (0, 0, 1)
    assert [row[:2] for row in _rows(store, "hosts")] == [(_HOST, newest.report.run)]
    assert len(_rows(store, "runs")) == 2


def test_a_failure_is_since_it_began_and_anew_after_it_was_gone(store: Store) -> None:
    def failure(minute: int) -> SentReport:
        return sent(
            _HOST, _AT + timedelta(minutes=minute), failed={"service#web": f"pid {minute + 70000} died"}
        )

    def since() -> list[float]:
        return [
            row[0]
            for row in _rows(store, "failing", "host", "key", "bundle", "reference", "message", "example")
        ]

    _put(store, [failure(0)])
    _put(store, [failure(5), failure(10)])
    assert since() == [_AT.timestamp()]
    _put(store, [sent(_HOST, _AT + timedelta(minutes=15)), failure(20)])
    assert since() == [(_AT + timedelta(minutes=20)).timestamp()]


# Answers


def _answers(store: Store, now: datetime) -> str:
    reader = Reader(store, now)
    bundles = [reader.release(one.name, row.version) for one in reader.bundles for row in one.versions]
    return repr(
        (
            reader.fleet(),
            reader.hosts,
            list(reader.details(list(reader.hosts))),
            list(reader.facts()),
            bundles,
            reader.resources(),
            reader.recent("service#web"),
        )
    )


@pytest.mark.postgresql
def test_postgresql_and_sqlite_answer_the_same(new_database: str, tmp_path: Path) -> None:
    documents = list(wave(names(40), _AT, 6, breaks="RedHat"))
    documents.append(
        sent(_HOST, _AT, facts={"a\0": "\0"}, restless={"file#/\0": "\0"}, failed={"file#/\0": "\0"})
    )
    answers = []
    for location in (new_database, str(tmp_path / "fleet.db")):
        store = Store.open(location, make=True)
        for start in range(0, len(documents), 100):
            _put(store, documents[start : start + 100])
        answers.append(_answers(store, _AT + timedelta(hours=8)))
        store.close()
    assert answers[0] == answers[1]
    assert "1.5.0" in answers[0]


def test_a_host_that_is_not_heard_of_is_silent_whatever_it_was(store: Store) -> None:
    _put(store, [sent(_HOST, _AT)])
    assert Reader(store, _AT + timedelta(hours=2)).hosts[_HOST].state == "in-order"
    silent = Reader(store, _AT + timedelta(hours=2, seconds=1)).hosts[_HOST]
    assert (silent.state, silent.why) == ("silent", "it was in order")


def test_a_host_whose_metadata_have_expired_is_not_in_order(store: Store) -> None:
    _put(store, [sent(_HOST, _AT, expires=(_AT + timedelta(minutes=10)).isoformat())])
    assert Reader(store, _AT + timedelta(minutes=9)).hosts[_HOST].state == "in-order"
    expired = Reader(store, _AT + timedelta(minutes=10)).hosts[_HOST]
    assert (expired.state, expired.why) == ("failed", "the site's metadata on it have expired")


def test_times_at_the_ends_of_the_calendar_hide_no_other_host(store: Store) -> None:
    for number, text in enumerate(("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "nonsense")):
        assert seconds(text) is None
        _put(store, [sent(f"web{number}", _AT, expires=text)])
    reader = Reader(store, _AT)
    assert reader.fleet().hosts == len(list(reader.details(list(reader.hosts)))) == 3


def test_a_look_is_of_one_moment_while_another_writes(store: Store, location: str) -> None:
    _put(store, [sent(_HOST, _AT)])
    other = Store.open(location)
    with store.reading() as connection:
        before = connection.execute(select(schema.hosts.c.host)).all()
        _put(other, [sent("web2", _AT)])
        assert connection.execute(select(schema.hosts.c.host)).all() == before
        assert len(connection.execute(select(schema.standings)).all()) == 1
    other.close()


# What is kept


def test_hosts_that_are_forgotten_leave_nothing_and_come_again(store: Store) -> None:
    _put(store, [sent(host, _AT, failed={"file#/a": "no"}, restless={"file#/b": "x"}) for host in names(2)])
    with store.writing() as connection:
        assert forget_hosts(connection, ["unknown", names(2)[0]]) == [names(2)[0]]
    for table in ("hosts", "standings", "failing", "restless", "runs", "events", "periods"):
        assert {row[0] for row in _rows(store, table)} == {names(2)[1]}, table
    assert _put(store, [sent(names(2)[0], _AT)]) == (1, 0, 0)


def test_what_has_ended_before_is_forgotten_and_what_holds_is_not(store: Store) -> None:
    for hours in (0, 1, 2):
        _put(store, [sent(_HOST, _AT + timedelta(hours=hours), f"1.{hours}.0", changed={"file#/a": "x"})])
    with store.writing() as connection:
        assert forget_before(connection, _AT + timedelta(days=1)) == 3
    assert not _rows(store, "runs") + _rows(store, "events")
    assert [row[1:] for row in _rows(store, "periods", "began", "condition")] == [
        ("", None, ""),
        ("web", None, "1.2.0"),
    ]
    assert Reader(store, _AT + timedelta(hours=2)).hosts[_HOST].bundles == {"web": "1.2.0"}


def test_periods_follow_each_other_without_a_gap(store: Store) -> None:
    for hours, version in ((0, "1.0.0"), (1, "1.0.0"), (2, "1.5.0")):
        _put(store, [sent(_HOST, _AT + timedelta(hours=hours), version)])
    begin = _AT.timestamp()
    rows = [row[1:5] for row in _rows(store, "periods") if row[1] == "web"]
    assert rows == [("web", begin, begin + 7200, "1.0.0"), ("web", begin + 7200, None, "1.5.0")]
    (bundle,) = Reader(store, _AT + timedelta(hours=2, minutes=1)).bundles
    assert [row.version for row in bundle.versions] == ["1.5.0"]
    assert bundle.history.counts == {"1.0.0": [1, 0, 0], "1.5.0": [0, 1, 1]}


def test_a_series_counts_what_held_at_each_of_its_times() -> None:
    periods = [Period("a", 0, 10), Period("a", 5, None), Period("b", 10, None), Period("late", 99, None)]
    series = counted(periods, 2, 20, ["b", "a"])
    assert [time.timestamp() for time in series.times] == [2, 5, 10, 20]
    assert series.counts == {"b": [0, 0, 1, 1], "a": [1, 2, 1, 1]}
    many = counted([Period("a", at, at + 50.0) for at in range(1000)], 0, 1000)
    assert len(many.times) == 120
    assert max(many.counts["a"]) <= 51
    assert not counted([], 0, 1).times


# What is no store


def test_what_is_no_store_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, whatever the name says" * 100)
    with pytest.raises(SourceError, match="text: the store cannot be used: file is not a database"):
        Store.open(str(tmp_path / "text"), make=True)
    with pytest.raises(SourceError, match="there is no store; `puller fleet import` makes one"):
        Store.open(str(tmp_path / "absent"))
    assert not (tmp_path / "absent").exists()
    with pytest.raises(SourceError, match="cannot be used: unable to open"):
        Store.open(str(tmp_path / "no" / "directory"), make=True)


def test_a_store_of_another_format_is_refused(store: Store, location: str) -> None:
    with store.writing() as connection:
        connection.execute(schema.settings.update().values(value="2"))
    with pytest.raises(SourceError, match="is a store of format 2, and this version of Puller knows 1"):
        Store.open(location, make=True)


def test_making_a_store_that_is_broken_off_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = str(tmp_path / "fleet.db")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "FORMAT", object())
        patch.setattr(schema.settings, "insert", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Store.open(location, make=True)
    assert not sqlite3.connect(location).execute("SELECT * FROM sqlite_master").fetchall()
    Store.open(location, make=True).close()


def _fill(location: str, number: int) -> None:
    store = Store.open(location, make=True)
    for turn in range(5):
        _put(store, [sent(host, _AT + timedelta(minutes=turn), f"1.{turn}.{number}") for host in names(20)])
    os._exit(0)


def test_processes_that_make_and_fill_a_store_at_once(location: str) -> None:
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=_fill, args=(location, number)) for number in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(100)
    assert [child.exitcode for child in children] == [0, 0, 0]
    store = Store.open(location)
    assert len(_rows(store, "hosts")) == len(_rows(store, "standings")) == 20
    assert all(json.loads(row[-1]) == [] for row in _rows(store, "standings"))
    store.close()
