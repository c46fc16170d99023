"""Quarantine lasts across runs and damage to other files, until an operator clears it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from puller.run.policy.holds import Quarantine, Quarantined
from puller.state import Directories

GOOD, BAD, WORSE = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    return Directories(tmp_path / "state", tmp_path / "run")


def load(directories: Directories) -> Quarantine:
    return Quarantine.load(directories, pytest.fail)


def test_quarantined_version_is_recognised_by_its_digest(directories: Directories) -> None:
    added = load(directories).add("web", "1.5.0", BAD, "health check http:\n critical")
    assert added.reason == "health check http: critical"
    assert datetime.now(UTC) - datetime.fromisoformat(added.since) < timedelta(minutes=5)
    result = load(directories)
    assert result.find(BAD) == added
    assert result.find(GOOD) is None
    assert result.entries == (added,)
    assert directories.quarantine.stat().st_mode & 0o777 == 0o600


def test_entry_states_version_time_and_reason() -> None:
    entry = Quarantined("web", "1.5.0", BAD, "rolled back by root", "2026-11-20T12:00:00+00:00")
    assert str(entry) == "web 1.5.0 has been quarantined since 2026-11-20 12:00 UTC: rolled back by root"


def test_the_first_reason_stays(directories: Directories) -> None:
    first = load(directories).add("web", "1.5.0", BAD, "first")
    written = directories.quarantine.stat().st_ino
    assert load(directories).add("web", "1.5.0", BAD, "second") == first
    assert directories.quarantine.stat().st_ino == written, "the second run changes nothing"


@pytest.mark.parametrize(
    ("bundle", "version", "left"),
    [
        (None, None, []),
        ("web", None, ["base 1.0"]),
        ("web", "1.5.0", ["web 1.6.0", "base 1.0"]),
        ("web", "1.0", ["web 1.5.0", "web 1.6.0", "base 1.0"]),
        ("db", None, ["web 1.5.0", "web 1.6.0", "base 1.0"]),
    ],
)
def test_clearing_selects_all_a_bundle_or_a_version(
    directories: Directories, bundle: str | None, version: str | None, left: list[str]
) -> None:
    quarantine = load(directories)
    quarantine.add("web", "1.5.0", BAD, "x")
    quarantine.add("web", "1.6.0", WORSE, "x")
    quarantine.add("base", "1.0", GOOD, "x")
    before = quarantine.entries
    cleared = quarantine.clear(bundle, version)
    for found in (quarantine, load(directories)):
        assert [f"{entry.bundle} {entry.version}" for entry in found.entries] == left
    assert {*cleared, *quarantine.entries} == set(before)


def test_a_dry_run_remembers_and_writes_nothing(directories: Directories) -> None:
    quarantine = Quarantine.load(directories, pytest.fail, noop=True)
    added = quarantine.add("web", "1.5.0", BAD, "x")
    assert quarantine.find(BAD) == added
    assert not directories.state.exists()


def one_entry(**changes: object) -> bytes:
    entry = {"bundle": "web", "version": "1", "sha256": BAD, "reason": "x", "since": "2026-11-20T12:00:00Z"}
    return msgspec.json.encode({"format": 1, "bundles": [entry | changes]})


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "emptied": (lambda data: b"", "truncated"),
    "truncated": (lambda data: data[:-3], "truncated"),
    "garbage": (lambda data: b"\0" * 100, "malformed"),
    "another shape": (lambda data: b"[]", "Expected `object`"),
    "a later format": (lambda data: data.replace(b'"format": 1', b'"format": 2'), "has format 2"),
    "a short digest": (lambda data: one_entry(sha256="abc"), "regex"),
    "a time that is none": (lambda data: one_entry(since="then"), "is 'then', expected a time"),
    "an unknown key": (lambda data: one_entry(until="never"), "unknown field `until`"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_set_aside_and_told(
    directories: Directories, damage: Callable[[bytes], bytes], message: str
) -> None:
    load(directories).add("web", "1.5.0", BAD, "x")
    directories.quarantine.write_bytes(damaged := damage(directories.quarantine.read_bytes()))
    notes: list[str] = []
    quarantine = Quarantine.load(directories, notes.append)
    assert quarantine.entries == ()
    assert message in notes[0]
    assert notes[0].endswith("and quarantined versions may be tried again")
    assert directories.quarantine.with_name("quarantine.json.unreadable").read_bytes() == damaged
    added = quarantine.add("web", "1.6.0", WORSE, "x")
    assert load(directories).entries == (added,)
