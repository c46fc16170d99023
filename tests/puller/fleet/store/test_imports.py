"""Imports: in any order, repeated, concurrent, and killed."""

import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundation.problems import Problem, ProblemCode
from puller.delivery.report_document import pack
from puller.errors import PullerError, SourceError
from puller.fleet.store import database, import_sources, importer
from puller.fleet.store.database import Store
from puller.fleet.store.import_sources import DirectorySource, Found, Refused
from puller.fleet.store.importer import forget_beyond, forget_hosts, import_documents, refused_files
from puller.fleet.store.queries import Reader
from puller.reporting.report import HoldReason, SentReport
from tests.puller.fleet.conftest import Import, ago, empty, imported, rows
from tests.simulators import fleet

HOST = "web1.example.com"


def test_newest_report_counts_and_late_reports_are_history(
    store: Store, arrive: Import, now: datetime
) -> None:
    assert arrive(fleet.sent(HOST, ago(now, 10))).newest == 1
    late = fleet.sent(HOST, ago(now, 60), failed={"file#/a": "no space"})
    done = arrive(late)
    assert (done.newest, done.late, done.unchanged) == (0, 1, 1)
    reader = Reader(store, now)
    assert reader.hosts[HOST].state == "in-order"
    assert reader.failures == []
    (view,) = reader.details([HOST])
    assert [(run.run, run.outcome) for run in view.runs][1] == (late.report.run, "file#/a: no space")


def test_a_late_report_in_which_nothing_happened_is_not_kept(
    store: Store, arrive: Import, now: datetime
) -> None:
    arrive(fleet.sent(HOST, ago(now, 10)))
    before = rows(store)
    assert arrive(fleet.sent(HOST, ago(now, 60))).known == 1
    assert rows(store) == before


def test_the_same_document_in_another_place_changes_nothing(
    store: Store, arrive: Import, now: datetime, tmp_path: Path
) -> None:
    documents = [fleet.sent(HOST, ago(now, 60), failed={"file#/a": "x"}), fleet.sent(HOST, ago(now, 10))]
    arrive(*documents)
    before = rows(store)
    fleet.deliver(tmp_path / "copy", documents)
    assert imported(store, tmp_path / "copy").known == 2
    assert rows(store) == before


def test_a_clock_that_is_ahead_hides_no_later_report(store: Store, place: Path, now: datetime) -> None:
    wrong = fleet.sent(HOST, now + timedelta(days=400))
    (file,) = fleet.deliver(place, [wrong])
    os.utime(file, (ago(now, 30).timestamp(),) * 2)
    imported(store, place)
    reader = Reader(store, now)
    assert reader.hosts[HOST].heard == ago(now, 30)
    (view,) = reader.details([HOST])
    assert "its clock is 400 days, 0:30:00 ahead" in view.notes[0]
    fleet.deliver(place, [fleet.sent(HOST, ago(now, 5), problems=["broken"], exit_status=14)])
    imported(store, place)
    assert Reader(store, now).hosts[HOST].state == "failed"


def test_who_is_not_heard_of_is_not_in_order(store: Store, arrive: Import, now: datetime) -> None:
    arrive(fleet.sent(HOST, ago(now, 119)))
    assert Reader(store, now).hosts[HOST].state == "in-order"
    later = Reader(store, now + timedelta(minutes=2))
    assert (later.hosts[HOST].state, later.hosts[HOST].why) == ("silent", "it was in sync")
    assert later.states == {"silent": 1, "in-order": 0}


@pytest.mark.parametrize(
    ("given_", "state"),
    [
        ({}, "in-order"),
        ({"failed": {"file#/a": "x"}}, "failed"),
        ({"exit_status": 11, "problems": ["metadata have expired"]}, "failed"),
        ({"exit_status": 99}, "failed"),
        ({"given_up": ("2.0.0", "health check http failed")}, "gave-up"),
        ({"published": "2.0.0", "quarantined": ["2.0.0"]}, "gave-up"),
        ({"published": "2.0.0", "held": "rejected", "held_because": HoldReason.REJECTED}, "held"),
        ({"published": "2.0.0", "pin": "1.0.0"}, "held"),
        ({"published": "2.0.0"}, "held"),
        ({"paused": "disabled"}, "paused"),
        ({"published": "2.0.0", "held": "its wave"}, "waiting"),
        ({"version": ""}, "failed"),
    ],
)
def test_how_a_host_is(
    given_: dict[str, Any], state: str, store: Store, arrive: Import, now: datetime
) -> None:
    arrive(fleet.sent(HOST, ago(now, 5), **given_))
    assert Reader(store, now).hosts[HOST].state == state


def test_a_partial_run_does_not_put_a_failed_host_in_order(
    store: Store, arrive: Import, now: datetime
) -> None:
    arrive(fleet.sent(HOST, ago(now, 9), failed={"file#/a": "x"}))
    partial = fleet.sent(HOST, ago(now, 5))
    partial.report.only = ["file#/b"]
    arrive(partial)
    row = Reader(store, now).hosts[HOST]
    assert (row.state, row.why) == (
        "held",
        "the last run was limited to file#/b, so other resources were not checked",
    )


def test_runs_are_kept_for_a_time(store: Store, arrive: Import, now: datetime) -> None:
    for days in (100, 80, 1):
        arrive(fleet.sent(HOST, now - timedelta(days=days), changed={"file#/a": f"day {days}"}))
    retained = rows(store)
    assert len(retained["runs"]) == len(retained["events"]) == 2
    with store.writing() as connection:
        store.set(connection, "keep", "30")
    assert arrive().forgotten == 1
    assert len(rows(store)["events"]) == 1
    assert list(Reader(store, now).hosts) == [HOST]


@pytest.mark.attack("reports.flood")
def test_oldest_runs_of_a_host_go_beyond_the_bound(store: Store, arrive: Import, now: datetime) -> None:
    for minutes in range(20, 0, -1):
        failed = {"failed": {"file#/a": "x"}} if minutes % 2 else {"changed": {"file#/a": f"{minutes}"}}
        arrive(fleet.sent(HOST, ago(now, minutes), **failed))  # type: ignore[arg-type]  # as simulators take it
    arrive(fleet.sent("other", ago(now, 1), changed={"file#/a": "x"}))
    with store.writing() as connection:
        assert forget_beyond(connection, 5) == 15
    retained = rows(store)
    of_host = [row for row in retained["runs"] if row["host"] == HOST]
    assert len(of_host) == 5
    assert min(row["at"] for row in of_host) >= ago(now, 5).timestamp() - 1
    assert len([row for row in retained["events"] if row["host"] == HOST]) == 5
    assert [row for row in retained["periods"] if row["host"] == HOST and row["ended"] is None]
    assert sum(row["host"] == HOST for row in retained["periods"]) <= 10
    assert len([row for row in retained["runs"] if row["host"] == "other"]) == 1


def test_a_forgotten_host_leaves_nothing(store: Store, arrive: Import, now: datetime) -> None:
    arrive(fleet.sent(HOST, ago(now, 5), failed={"file#/a": "x"}, restless={"file#/b": "y"}))
    with store.writing() as connection:
        assert forget_hosts(connection, [HOST, "unknown"]) == [HOST]
    assert {name for name, found in rows(store).items() if found} == {"settings"}
    Reader(store, now).fleet()


def test_the_same_error_on_several_hosts_is_one(store: Store, arrive: Import, now: datetime) -> None:
    names = [f"web{number}.example.com" for number in range(37)]
    arrive(
        *(
            fleet.sent(
                name,
                ago(now, number),
                failed={"service#web": f"{name}: 10.0.0.{number}:5432 refused (pid {40000 + number})"},
            )
            for number, name in enumerate(names)
        )
    )
    (failure,) = Reader(store, now).failures
    assert (len(failure.hosts), failure.reference) == (37, "service#web")
    assert failure.message == "<host>: 10.0.0.0:5432 refused (pid 40000)", "that of the newest report"
    assert failure.problem.code is ProblemCode.CHANGE_FAILED


def test_failures_are_grouped_by_code_and_name(store: Store, arrive: Import, now: datetime) -> None:
    name = "web: exit status"
    failures = [
        Problem(code=ProblemCode.CHANGE_FAILED, message=f"exit status {number}", name=name)
        for number in (1, 2)
    ]
    failures.append(Problem(code=ProblemCode.STOPPED, message="exit status 1", name=name))
    for number, problem in enumerate(failures):
        arrive(fleet.sent(f"web{number}", ago(now, number), failed={"exec#a": problem}))
    first, second = Reader(store, now).failures
    assert (len(first.hosts), len(second.hosts)) == (2, 1)
    assert (first.problem.code, second.problem.code) == ("change-failed", "stopped")
    assert first.example in failures


def test_problems_of_a_run_are_objects_in_the_store(store: Store, arrive: Import, now: datetime) -> None:
    problem = Problem(code=ProblemCode.METADATA_EXPIRED, message="expired", hint="publish again")
    arrive(fleet.sent(HOST, ago(now, 2), problems=[problem], failed={"exec#a": problem}, exit_status=11))
    arrive(fleet.sent(HOST, ago(now, 1)))
    (view,) = Reader(store, now).details([HOST])
    run = next(run for run in view.runs if run.exit_status == 11)
    assert (run.problems, run.events[0].event.problems) == ([problem], [problem])


# Files


def test_a_file_that_is_removed_meanwhile_is_no_failure(
    store: Store, place: Path, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = fleet.deliver(place, [fleet.sent("a", now), fleet.sent("b", now)])
    listed = DirectorySource.listed

    def then_removed(self: DirectorySource) -> Iterator[Any]:
        results = list(listed(self))
        first.unlink()
        return iter(results)

    monkeypatch.setattr(DirectorySource, "listed", then_removed)
    done = imported(store, place)
    assert (done.newest, done.refused) == (1, 0)


def test_unreadable_report_is_imported_later(
    store: Store, place: Path, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.deliver(place, [fleet.sent(HOST, now)])
    with monkeypatch.context() as broken:
        broken.setattr(import_sources, "_FILE", os.O_RDONLY | os.O_DIRECTORY)
        first = imported(store, place)
        assert (first.refused, [item.why for item in first.listed]) == (
            1,
            ["cannot be read: not a directory"],
        )
        again = imported(store, place)
        assert (again.refused, again.listed) == (1, [])
    assert imported(store, place).newest == 1
    assert refused_files(store)[0] == 0


def test_report_refused_by_an_older_puller_is_read_again(
    store: Store, place: Path, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = fleet.deliver(place, [fleet.sent(HOST, now)])
    with monkeypatch.context() as older:
        older.setattr(importer, "__version__", "0.1")

        def refusing(*_: object) -> None:
            raise ValueError("has format 1, and this version of Puller reads format 0")

        older.setattr(importer, "read_document", refusing)
        assert imported(store, place).refused == 1
        assert len(imported(store, place).listed) == 0
    assert imported(store, place).newest == 1
    assert file.exists()


def test_files_are_removed_when_the_store_has_them(
    store: Store, place: Path, arrive: Import, now: datetime
) -> None:
    arrive(fleet.sent(HOST, ago(now, 10)))
    (place / HOST / "x.json").write_bytes(b"{")
    done = arrive(fleet.sent(HOST, ago(now, 5)), remove=True)
    assert (done.removed, done.newest, done.unchanged, done.refused) == (2, 1, 1, 1)
    assert [file.name for file in (place / HOST).iterdir()] == ["x.json"]


# Several at once


@pytest.mark.everything
def test_two_imports_at_once_into_a_new_store_are_like_one(location: str, place: Path, now: datetime) -> None:
    fleet.deliver(place, fleet.wave(fleet.names(60), now - timedelta(hours=9), 4, breaks="RedHat"))
    both = [fleet.importing(place, location) for _ in range(3)]
    assert [each.wait(60) for each in both] == [0, 0, 0]
    store = Store.open(location)
    together = rows(store)
    with store.reading() as connection:
        count = connection.execute(sqlalchemy.select(sqlalchemy.func.count()).select_from(database.documents))
        assert count.scalar() == len(list(place.rglob("*.json.gz")))
    store.close()
    assert together == _alone(place, location)


def _alone(place: Path, location: str) -> dict[str, list[dict[str, Any]]]:
    store = Store.open(str(place.parent / "alone.db"), make=True)
    imported(store, place)
    result = rows(store)
    store.close()
    return result


@pytest.mark.everything
def test_an_import_that_is_killed_is_gone_on_with(location: str, place: Path, now: datetime) -> None:
    fleet.deliver(place, fleet.wave(fleet.names(150), now - timedelta(hours=9), 4, breaks="RedHat"))
    for seconds in (0.6, 0.8, 1.0, 1.2):
        process = fleet.importing(place, location)
        time.sleep(seconds)
        process.kill()
        process.wait(30)
    assert fleet.importing(place, location).wait(60) == 0
    store = Store.open(location)
    assert rows(store) == _alone(place, location)
    store.close()


def test_combined_reads_are_consistent(location: str, store: Store, arrive: Import, now: datetime) -> None:
    arrive(fleet.sent("a", now))
    other = Store.open(location)
    with other.reading() as connection:
        first = connection.execute(database.hosts.select()).all()
        arrive(fleet.sent("b", now))
        assert connection.execute(database.hosts.select()).all() == first
        assert len(connection.execute(database.standings.select()).all()) == 1
    other.close()
    assert len(Reader(store, now).hosts) == 2


# Stores


def test_a_store_of_a_newer_format_is_refused(store: Store, location: str) -> None:
    with store.writing() as connection:
        store.set(connection, "format", "4")
    with pytest.raises(SourceError, match="is a store of format 4, and this version of Puller reads 3"):
        Store.open(location, make=True)


def test_foreign_database_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database, and long enough to be one" * 50)
    with pytest.raises(SourceError, match="file is not a database"):
        Store.open(str(tmp_path / "text"), make=True)
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE settings (name TEXT, value TEXT)"))
    engine.dispose()
    with pytest.raises(SourceError, match="is another database"):
        Store.open(str(tmp_path / "other.db"), make=True)
    with pytest.raises(SourceError, match="the store is missing"):
        Store.open(str(tmp_path / "none.db"))
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(PullerError, match="cannot be used"):
        Store.open(str(tmp_path / "no" / "directory.db"), make=True)


def test_a_store_may_have_any_name_of_a_file(tmp_path: Path) -> None:
    for name in ("a?b.db", "a%20b.db", "a#b.db"):
        Store.open(str(tmp_path / name), make=True).close()
        assert (tmp_path / name).exists()


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"])
def test_new_store_is_readable_by_its_owner_only(tmp_path: Path, form: str) -> None:
    before = os.umask(0o022)
    try:
        store = Store.open(form.format(tmp_path / "fleet.db"), make=True)
        with store.writing() as connection:
            store.set(connection, "keep", "1")
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"fleet.db": 0o600, "fleet.db-wal": 0o600, "fleet.db-shm": 0o600}
    store.close()


@pytest.mark.everything  # needs psycopg, of the extra check
def test_no_message_shows_the_password_of_a_store() -> None:
    with pytest.raises(SourceError) as caught:
        Store.open("postgresql+psycopg://fleet:very-secret@127.0.0.1:9/fleet")
    assert "very-secret" not in str(caught.value)
    assert "the store cannot be used" in str(caught.value)


# Both databases have the same content for every order, batch size and repetition

NOW = datetime.fromisoformat("2026-11-20T12:00:00+00:00")

WHAT: list[dict[str, Any]] = [
    {},
    {"version": "2.0.0"},
    {"version": "2.0.0", "changed": {"file#/a": "differs"}},
    {"failed": {"service#web": "no start, pid 12345"}},
    {"failed": {"service#web": "no start, pid 54321", "file#/a": "no space"}},
    {"published": "2.0.0", "quarantined": ["2.0.0"], "given_up": ("2.0.0", "not healthy")},
    {"published": "2.0.0", "held": "its wave"},
    {"paused": "disabled"},
    {"restless": {"file#/b": "from a to b"}, "changed": {"file#/b": "from a to b"}},
    {"exit_status": 14, "problems": ["the site is away"]},
]
DOCUMENT = st.tuples(st.sampled_from("abc"), st.integers(0, 11), st.sampled_from(range(len(WHAT))))


def _document(host: str, position: int, what: int) -> SentReport:
    # Two runs of a host may have ended at the same time.
    sent_report = fleet.sent(host, NOW - timedelta(minutes=5 * (position // 2)), **WHAT[what])
    sent_report.report.run = f"{sent_report.report.run}-{position}"
    return sent_report


class _Handed:
    """A source of given documents."""

    name = "handed"

    def __init__(self, documents: list[SentReport]) -> None:
        self._documents = documents

    def listed(self) -> Iterator[Found | Refused]:
        for number, document in enumerate(self._documents):
            yield Found(f"{document.host}/{number}.json.gz", document.host, 1, time.time_ns())

    def read(self, found: Found) -> tuple[bytes, datetime]:
        number = int(found.path.split("/")[1].split(".")[0])
        return pack(self._documents[number]), NOW

    def remove(self, found: Found) -> None: ...

    def close(self) -> None: ...


# Late reports cannot restore the history of a host: these tables depend on the order.
OF_THE_ORDER = ("periods",)


@pytest.mark.everything
@settings(deadline=None, max_examples=settings().max_examples // 2, suppress_health_check=list(HealthCheck))
@given(
    documents=st.lists(DOCUMENT, min_size=1, max_size=14, unique_by=lambda item: item[:2]),
    data=st.data(),
)
@pytest.mark.hypothesis
def test_in_any_order_and_both_databases_the_store_says_the_same(
    documents: list[tuple[str, int, int]], data: st.DataObject, postgresql: str, tmp_path: Path
) -> None:
    whole = [_document(*item) for item in documents]
    shuffled = data.draw(st.permutations([*whole, *whole[:4]]))
    cut = data.draw(st.integers(0, len(shuffled)))
    answers = []
    for location in (f"{tmp_path}/{time.time_ns()}.db", postgresql):
        if location == postgresql:
            empty(postgresql)
        store = Store.open(location, make=True)
        for part in (shuffled[:cut], shuffled[cut:]):
            import_documents(store, [_Handed(part)], now=lambda: NOW)
        reader = Reader(store, NOW)
        answers.append(
            (rows(store), reader.fleet(), list(reader.details(list(reader.hosts))), reader.resources())
        )
        store.close()
    assert answers[0] == answers[1]
    in_order = Store.open(f"{tmp_path}/{time.time_ns()}-in-order.db", make=True)
    for document in sorted(whole, key=lambda item: (item.report.finished, item.report.run)):
        import_documents(in_order, [_Handed([document])], now=lambda: NOW)
    result, desired = rows(in_order, OF_THE_ORDER), answers[0][0]
    in_order.close()
    for name, table in result.items():
        if name == "failing":  # the start of a failure depends on earlier reports
            table = [{**row, "since": 0} for row in table]
            desired["failing"] = [{**row, "since": 0} for row in desired["failing"]]
        assert sorted(table, key=repr) == sorted(desired[name], key=repr), name
