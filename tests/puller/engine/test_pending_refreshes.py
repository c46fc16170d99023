"""Pending refreshes survive all failures between a change and its refresh."""

from pathlib import Path

import pytest

from puller.engine.pending_refreshes import PendingRefreshes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "owed.json"


def test_recorded_refresh_reaches_the_next_run(path: Path) -> None:
    PendingRefreshes(path, "web").record(["service#nginx"])
    assert PendingRefreshes(path, "web").before == {"service#nginx"}


def test_cleared_refresh_is_no_longer_pending(path: Path) -> None:
    pending = PendingRefreshes(path, "web")
    pending.record(["service#nginx", "exec#reload"])
    pending.clear(["service#nginx"])
    assert PendingRefreshes(path, "web").before == {"exec#reload"}


def test_pending_refreshes_are_separate_by_bundle(path: Path) -> None:
    PendingRefreshes(path, "web").record(["exec#a"])
    base = PendingRefreshes(path, "base")
    assert base.before == set()
    base.record(["exec#b"])
    assert PendingRefreshes(path, "web").before == {"exec#a"}


def test_refresh_is_recorded_with_the_bundle_of_its_resource(
    path: Path,
) -> None:
    pending = PendingRefreshes(path, "base", owners={"service#nginx": "web"})
    assert pending.record(["service#nginx", "exec#a"]) == {"service#nginx", "exec#a"}
    assert PendingRefreshes(path, "web").before == {"service#nginx"}
    assert PendingRefreshes(path, "base").before == {"exec#a"}
    pending.clear(["service#nginx", "exec#a"])
    assert not PendingRefreshes(path, "base", owners={"service#nginx": "web"}).before


def test_refresh_stays_pending_when_the_bundle_changes(path: Path) -> None:
    PendingRefreshes(path, "gone").record(["service#nginx"])
    PendingRefreshes(path, "waits").record(["exec#a"])
    pending = PendingRefreshes(path, "web", shares=lambda scope: scope != "waits")
    assert pending.before == {"service#nginx"}
    assert pending.record(["service#nginx"]) == set()
    pending.keep_only([])
    assert PendingRefreshes(path, "gone").before == set()
    assert PendingRefreshes(path, "waits").before == {"exec#a"}


def test_a_dry_run_records_nothing(path: Path) -> None:
    PendingRefreshes(path, "web", noop=True).record(["exec#a"])
    assert not path.exists()


def test_pending_refresh_is_not_reported_as_new(path: Path) -> None:
    PendingRefreshes(path, "web").record(["exec#a"])
    assert PendingRefreshes(path, "web").record(["exec#a", "exec#b"]) == {"exec#b"}


def test_subscribers_that_are_gone_are_forgotten(path: Path) -> None:
    pending = PendingRefreshes(path, "web")
    pending.record(["exec#a", "exec#b"])
    pending.keep_only(["exec#b"])
    assert PendingRefreshes(path, "web").before == {"exec#b"}


@pytest.mark.parametrize("damage", [b"", b"garbage", b'{"web": 5}', b'{"web": ["exec#a"'])
def test_a_damaged_file_is_set_aside_and_reported(path: Path, damage: bytes) -> None:
    path.write_bytes(damage)
    pending = PendingRefreshes(path, "web")
    assert pending.before == set()
    assert f"set aside as {path}.unreadable" in pending.notes[0]
    assert path.with_name("owed.json.unreadable").read_bytes() == damage


def test_a_directory_in_its_place_is_set_aside(path: Path) -> None:
    path.mkdir()
    pending = PendingRefreshes(path, "web")
    pending.record(["exec#a"])
    assert PendingRefreshes(path, "web").before == {"exec#a"}


def test_a_dry_run_leaves_a_damaged_file_alone(path: Path) -> None:
    path.write_bytes(b"garbage")
    assert "left as it is" in PendingRefreshes(path, "web", noop=True).notes[0]
    assert path.read_bytes() == b"garbage"
