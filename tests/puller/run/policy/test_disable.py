"""``puller disable`` lasts until its end, even if its file is damaged."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from foundation.times import parse_until
from puller.run.policy.holds import Disabled, disable, enable, find_disabled
from puller.state import Directories
from tests.support.rows import each_row

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
FOUR_HOURS = timedelta(hours=4)


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    return Directories(tmp_path / "state", tmp_path / "run")


def test_runs_are_enabled_by_default(directories: Directories) -> None:
    assert find_disabled(directories, NOON) is None
    assert enable(directories, NOON) is None
    assert not directories.state.exists()


def test_a_hold_lasts_until_it_is_ended(directories: Directories) -> None:
    hold = disable(directories, "the database\n is restored", "root", NOON)
    assert str(hold) == "disabled by root since 2026-11-20 12:00 UTC: the database is restored"
    assert find_disabled(directories, NOON + timedelta(days=3650)) == hold
    assert enable(directories, NOON) == hold
    assert find_disabled(directories, NOON) is None
    assert enable(directories, NOON) is None


def test_hold_with_an_end_lasts_exactly_until_then(directories: Directories) -> None:
    hold = disable(directories, "audit", "ann", NOON, NOON + FOUR_HOURS)
    assert str(hold) == "disabled by ann since 2026-11-20 12:00 UTC until 2026-11-20 16:00 UTC: audit"
    assert find_disabled(directories, NOON + FOUR_HOURS - timedelta(seconds=1)) == hold
    assert find_disabled(directories, NOON + FOUR_HOURS) is None
    assert enable(directories, NOON + FOUR_HOURS) is None, "it was not in force any more"
    assert not directories.disabled.exists()


def test_a_clock_that_was_ahead_for_a_while_does_not_end_a_hold(directories: Directories) -> None:
    hold = disable(directories, "audit", "ann", NOON, NOON + FOUR_HOURS)
    assert find_disabled(directories, NOON + timedelta(days=50 * 365)) is None
    assert find_disabled(directories, NOON) == hold


def test_disabling_again_replaces_reason_and_end(directories: Directories) -> None:
    disable(directories, "audit", "ann", NOON, NOON + FOUR_HOURS)
    hold = disable(directories, "flood", "bob", NOON)
    assert find_disabled(directories, NOON + FOUR_HOURS) == hold
    assert hold.reason == "flood"


VALID = b'{"format": 1, "reason": "x", "since": "2026-11-20T12:00:00Z", "until": "", "by": "root"}'


def write_for_all(path: Path) -> None:
    path.write_bytes(VALID)
    path.chmod(0o666)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "emptied": (lambda path: path.write_bytes(b""), "truncated"),
    "truncated": (lambda path: path.write_bytes(VALID[:-9]), "truncated"),
    "garbage": (lambda path: path.write_bytes(b"\0\xff"), "malformed"),
    "of a later format": (
        lambda path: path.write_bytes(VALID.replace(b"1,", b"2,", 1)),
        "has format 2",
    ),
    "with a key that is not known": (
        lambda path: path.write_bytes(VALID[:-1] + b', "u": 1}'),
        "unknown field `u`",
    ),
    "with a time that is none": (
        lambda path: path.write_bytes(VALID.replace(b"2026-11", b"2026-13")),
        "2026-13",
    ),
    "with an end that is none": (
        lambda path: path.write_bytes(VALID.replace(b'until": "', b'until": "soon')),
        "is 'soon'",
    ),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), "is a symbolic link"),
    "a directory": (lambda path: (path / "x").mkdir(parents=True), "is not a regular file"),
    "a FIFO": (os.mkfifo, "is not a regular file"),
    "written by others": (write_for_all, "its mode is 0666"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_hold_that_cannot_be_read_is_in_force_until_enabled(
    directories: Directories, damage: Callable[[Path], object], message: str
) -> None:
    directories.make()
    damage(directories.disabled)
    before = os.lstat(directories.disabled)
    for _ in range(2):
        hold = find_disabled(directories, NOON)
        assert hold is not None
        assert hold.reason.startswith(f"{directories.disabled}: ")
        assert message in hold.reason
        assert "so this host is held until `puller enable` removes the file" in hold.reason
        assert str(hold) == f"disabled: {hold.reason}"
        assert os.lstat(directories.disabled).st_ino == before.st_ino, "it is left where it is"
    assert enable(directories, NOON) == hold
    assert find_disabled(directories, NOON) is None


@pytest.mark.parametrize("damage", [damage for damage, _ in DAMAGE.values()], ids=DAMAGE)
def test_damage_does_not_keep_anybody_from_disabling(
    directories: Directories, damage: Callable[[Path], object]
) -> None:
    directories.make()
    damage(directories.disabled)
    hold = disable(directories, "audit", "ann", NOON)
    assert find_disabled(directories, NOON) == hold


def test_a_disk_that_cannot_be_read_holds_too(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"")
    hold = find_disabled(Directories(tmp_path / "state", tmp_path), NOON)
    assert isinstance(hold, Disabled)
    assert "not a directory" in hold.reason


@each_row(
    ("text", "until"),
    [
        ("4h", "2026-11-20 16:00"),
        ("2d", "2026-11-22 12:00"),
        ("1h30m", "2026-11-20 13:30"),
        ("2026-11-21T06:00", "2026-11-21 06:00"),
        ("2026-11-21 06:00", "2026-11-21 06:00"),
        ("2026-11-21T06:00Z", "2026-11-21 06:00"),
        ("2026-11-21T06:00+02:00", "2026-11-21 04:00"),
        ("2026-11-21", "2026-11-21 00:00"),
    ],
)
def test_an_end_is_a_time_or_a_duration(text: str, until: str) -> None:
    assert parse_until(text, NOON) == datetime.fromisoformat(until).replace(tzinfo=UTC)


@each_row(
    ("text", "message"),
    [
        (
            "2026-11-20T11:59",
            "is 2026-11-20 11:59 UTC, which is not after the current time 2026-11-20 12:00 UTC",
        ),
        (
            "2026-11-20T12:30+01:00",
            "is 2026-11-20 11:30 UTC, which is not after the current time 2026-11-20 12:00 UTC",
        ),
        ("0s", "is 2026-11-20 12:00 UTC, which is not after the current time 2026-11-20 12:00 UTC"),
        (
            "soon",
            "is 'soon', expected a time such as '2026-11-21T06:00', '18:00' or 'tomorrow 08:00' (UTC), or a duration",
        ),
        ("4", "is '4', expected a time"),
        ("-4h", "is '-4h', expected a time"),
        ("9999999y", "is '9999999y', expected a time"),
        ("9999-12-31T23:00-05:00", "expected a time"),
        ("", "is '', expected a time"),
    ],
)
def test_past_or_invalid_end_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  the message is looked at
        parse_until(text, NOON)
    assert message in str(error.value)
