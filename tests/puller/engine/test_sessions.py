"""Sessions: ordered without clocks, unreadable for other users, and limited to their own files."""

import os
import stat
import threading
from pathlib import Path

import pytest

from puller.engine.ensure import Session, change_since, latest
from puller.errors import UsageError
from puller.reporting.report import Event, State
from puller.values.common_properties import Reference

FILE = Reference.parse("file#/a")


def event(name: str, state: State = State.STABLE, alias: str = "") -> Event:
    return Event(type="file", name=name, state=state, alias=alias)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session.create(tmp_path / "session")


def test_events_of_a_second_keep_their_order(session: Session) -> None:
    """The reference orders events by identifiers that are random within a second, so its latest event may be any."""
    names = [f"/{number}" for number in range(30)]
    for name in names:
        session.record(event(name))
    assert [recorded.event.name for recorded in session.events()] == names
    assert [recorded.sequence for recorded in session.events()] == list(range(1, 31))


def test_concurrent_events_get_distinct_numbers(session: Session) -> None:
    def record(writer: int) -> None:
        for number in range(10):
            session.record(event(f"/{writer}/{number}"))

    writers = [threading.Thread(target=record, args=(writer,)) for writer in range(4)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    recorded = session.events()
    assert [item.sequence for item in recorded] == list(range(1, 41))
    for writer in range(4):
        own = [item.event.name for item in recorded if item.event.name.startswith(f"/{writer}/")]
        assert own == [f"/{writer}/{number}" for number in range(10)]


def test_latest_event_is_found_by_name_and_alias(session: Session) -> None:
    session.record(event("/a", State.CHANGED, alias="first"))
    session.record(event("/b", State.FAILED))
    session.record(event("/a", State.STABLE, alias="first"))
    events = session.events()
    result = latest(events, FILE)
    assert result is not None
    assert (result.sequence, result.event.state) == (3, State.STABLE)
    assert latest(events, Reference.parse("file#first")) == result
    assert latest(events, Reference.parse("exec#/a")) is None
    change = change_since(events, FILE, 0)
    assert change is not None
    assert change.sequence == 1
    assert change_since(events, FILE, 1) is None


def test_session_directory_is_private(tmp_path: Path) -> None:
    """The reference never creates the directory, so it cannot record, and its files are world-readable."""
    session = Session.create(tmp_path / "deep" / "session")
    session.record(event("/a"))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in session.directory.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(session.directory.stat().st_mode) == 0o700


def test_a_temporary_session_is_its_owners_alone() -> None:
    session = Session.create()
    assert stat.S_IMODE(session.directory.stat().st_mode) == 0o700
    session.remove()
    assert not session.directory.exists()


def test_removal_keeps_foreign_files(session: Session) -> None:
    session.record(event("/a"))
    (session.directory / "notes.txt").write_text("mine")
    session.remove()
    assert [path.name for path in session.directory.iterdir()] == ["notes.txt"]


def test_nonempty_directory_does_not_become_a_session(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match="is not empty, and a session requires an empty directory"):
        Session.create(tmp_path)


def test_directory_without_a_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a session; create one with: puller session new"):
        Session.open(tmp_path)
    (tmp_path / "session.json").write_text("{}")
    with pytest.raises(UsageError, match="is not a session"):
        Session.open(tmp_path)


@pytest.mark.root
def test_session_of_another_user_is_refused(session: Session) -> None:
    """The events decide which commands run, so their owner could run commands as root."""
    os.chown(session.directory, 65534, 65534)
    with pytest.raises(UsageError, match="belongs to another user"):
        Session.open(session.directory)


def test_an_event_that_is_not_understood_is_named(session: Session) -> None:
    session.record(event("/a"))
    (session.directory / "00000002.event").write_text("{")
    with pytest.raises(UsageError, match=r"00000002\.event: is not an event of a session"):
        session.events()
