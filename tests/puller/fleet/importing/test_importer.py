"""Imports store each arrived document once, despite interruptions."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from puller.fleet.store import database, importer
from puller.fleet.store.database import Store
from puller.fleet.store.import_sources import DirectorySource, Found
from puller.fleet.store.importer import Imported, import_documents, refused_files
from tests.simulators.fleet import deliver, importing, names, now, sent

_HOST = "web1.example.com"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "reports").mkdir()
    return tmp_path / "reports"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(str(tmp_path / "fleet.db"), make=True)
    yield opened
    opened.close()


def _import(store: Store, place: Path, *, remove: bool = False) -> Imported:
    source = DirectorySource.open(str(place))
    try:
        return import_documents(store, [source], remove=remove)
    finally:
        source.close()


def _contents(store: Store) -> dict[str, list[Any]]:
    """Return the content of the store, without names of files."""
    with store.reading() as connection:
        tables = [table for table in database.metadata.sorted_tables if table.name != "documents"]
        return {table.name: sorted(map(tuple, connection.execute(select(table)))) for table in tables}


def test_imported_report_is_not_read_again(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(place, [sent(name, now()) for name in names(3)])
    first = _import(store, place)
    assert (first.newest, first.unchanged) == (3, 0)
    deliver(place, [sent(_HOST, now())])
    read: list[str] = []
    original = DirectorySource.read

    def noted(self: DirectorySource, result: Found) -> Any:
        read.append(result.path)
        return original(self, result)

    monkeypatch.setattr(DirectorySource, "read", noted)
    second = _import(store, place)
    assert (second.read, second.unchanged) == (1, 3)
    assert len(read) == 1


def test_invalid_report_is_reported_once_and_counted(store: Store, place: Path) -> None:
    deliver(place, [sent(_HOST, now())])
    (place / _HOST / "bad\x1b.json").write_text("{")
    (place / "no host").mkdir()
    first, second = _import(store, place), _import(store, place)
    assert (first.newest, first.refused, len(first.listed)) == (1, 2, 2)
    assert (second.refused, second.listed) == (2, [])
    assert refused_files(store)[0] == 2
    (place / _HOST / "bad\x1b.json").write_text("[ ]")
    assert [item.path for item in _import(store, place).listed] == [f"{_HOST}/bad\x1b.json"]
    shutil.rmtree(place / "no host")
    (place / _HOST / "bad\x1b.json").unlink()
    assert _import(store, place).refused == 0
    assert refused_files(store)[0] == 0


def test_directory_in_place_of_an_imported_file_is_reported(store: Store, place: Path) -> None:
    (file,) = deliver(place, [sent(_HOST, now())])
    _import(store, place)
    file.unlink()
    file.mkdir()
    assert [item.why for item in _import(store, place).listed] == ["is not a regular file"]
    assert _import(store, place).listed == []
    assert refused_files(store)[0] == 1


def test_hostile_report_does_not_block_others(store: Store, place: Path) -> None:
    hostile = sent("bad.example.com", now(), facts={"a\0": "b\0"}, expires="9999-12-31T23:59:59-23:59")
    hostile.report.bundles[0].events = []
    hostile.bundles[0].channel = "x\0" * 9000
    hostile.bundles[0].enforced_since = "0001-01-01T00:00:00+23:59"
    deliver(place, [hostile, sent(_HOST, now())])
    assert _import(store, place).newest == 2


def test_only_stored_reports_are_removed(store: Store, place: Path) -> None:
    (file,) = deliver(place, [sent(_HOST, now())])
    bad = place / _HOST / "bad.json"
    bad.write_text("{")
    assert _import(store, place, remove=True).removed == 1
    assert not file.exists()
    assert bad.exists()
    assert _import(store, place, remove=True).listed == []


def test_a_file_that_was_replaced_while_it_was_imported_stays(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = now()
    (file,) = deliver(place, [sent(_HOST, at)])
    original = vars(importer)["put"]

    def put_and_replace(*arguments: Any) -> Any:
        file.write_bytes(b"another one")
        return original(*arguments)

    monkeypatch.setattr(importer, "put", put_and_replace)
    _import(store, place, remove=True)
    assert file.read_bytes() == b"another one"


class _Killed(BaseException):
    """An exception that no code catches."""


@pytest.mark.parametrize("remove", [False, True])
@pytest.mark.parametrize("name", ["put", "_Import._record", "DirectorySource.remove", "forget_before"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.representatives(6)
def test_killed_import_loses_and_repeats_nothing(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, remove: bool, after: bool
) -> None:
    at = now() - timedelta(hours=1)
    documents = [
        sent(host, at + timedelta(minutes=turn), changed={"file#/a": str(turn)})
        for turn in range(3)
        for host in names(4)
    ]
    monkeypatch.setattr(importer, "_BATCH", 3)
    deliver(tmp_path / "again", documents)
    text = Store.open(str(tmp_path / "whole.db"), make=True)
    _import(text, tmp_path / "again")
    deliver(place, documents)
    interrupted = Store.open(str(tmp_path / "fleet.db"), make=True)
    owner, _, attribute = name.rpartition(".")
    holder = {"": importer, "_Import": importer._Import, "DirectorySource": DirectorySource}[owner]
    original = getattr(holder, attribute)
    calls: list[object] = []

    def killed(*arguments: Any) -> Any:
        calls.append(None)
        if len(calls) == 2 or name == "forget_before":
            if after:
                original(*arguments)
            raise _Killed
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(holder, attribute, killed)
        if name != "DirectorySource.remove" or remove:
            with pytest.raises(_Killed):
                _import(interrupted, place, remove=remove)
    _import(interrupted, place, remove=remove)
    assert _contents(interrupted) == _contents(text)
    assert bool(list(place.rglob("*.json.gz"))) != remove
    interrupted.close()
    text.close()


@pytest.mark.everything
def test_concurrent_importers_share_a_store(tmp_path: Path, place: Path) -> None:
    at = now() - timedelta(hours=1)
    deliver(
        place,
        [
            sent(host, at + timedelta(minutes=turn), changed={"file#/a": str(turn)})
            for turn in range(3)
            for host in names(60)
        ],
    )
    location = str(tmp_path / "both.db")
    children = [importing(place, location) for _ in range(2)]
    assert [child.wait(60) for child in children] == [0, 0]
    both, alone = Store.open(location), Store.open(str(tmp_path / "alone.db"), make=True)
    _import(alone, place)
    assert _contents(both) == _contents(alone)
    both.close()
    alone.close()


def test_runs_are_kept_for_the_time_that_is_set(store: Store, place: Path) -> None:
    old = datetime.now(UTC) - timedelta(days=100)
    deliver(place, [sent(_HOST, old, changed={"file#/a": "x"}), sent(_HOST, now(), changed={"file#/a": "y"})])
    assert _import(store, place).forgotten == 1
    contents = _contents(store)
    assert (len(contents["runs"]), len(contents["events"]), len(contents["hosts"])) == (1, 1, 1)
