"""Files shared by many resources are read once, and read again after they are replaced."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from puller.resources.base import Context
from puller.resources.read_once import ReadOnce


class Readings:
    """A context with a count of changes, and the parsed contents."""

    def __init__(self, *paths: Path) -> None:
        self.changes = 0
        self.parsed: list[Mapping[str, bytes]] = []
        self.look = ReadOnce([str(path) for path in paths], self._parse)

    def _parse(self, contents: Mapping[str, bytes]) -> Mapping[str, bytes]:
        self.parsed.append(contents)
        return contents

    def now(self) -> list[bytes]:
        nothing: Any = None
        context = Context(nothing, nothing, nothing, nothing, {}, nothing, changes=lambda: self.changes)
        return list(self.look.current(context).values())


@pytest.fixture
def passwd(tmp_path: Path) -> Path:
    path = tmp_path / "passwd"
    path.write_bytes(b"root")
    return path


def test_repeated_reads_share_a_reading_without_changes(passwd: Path) -> None:
    readings = Readings(passwd)
    assert [readings.now() for _ in range(1000)] == [[b"root"]] * 1000
    assert len(readings.parsed) == 1


def test_a_change_of_something_else_reads_nothing_again(passwd: Path) -> None:
    readings = Readings(passwd)
    readings.now()
    readings.changes += 1
    assert readings.now() == [b"root"]
    assert len(readings.parsed) == 1


def test_changed_file_is_read_again(passwd: Path) -> None:
    readings = Readings(passwd)
    readings.now()
    passwd.write_bytes(b"root alice")
    readings.changes += 1
    assert readings.now() == [b"root alice"]


def test_missing_file_is_not_among_the_contents(passwd: Path) -> None:
    shadow = passwd.with_name("shadow")
    readings = Readings(passwd, shadow)
    assert readings.now() == [b"root"]
    shadow.write_bytes(b"hash")
    readings.changes += 1
    assert readings.now() == [b"root", b"hash"]


def test_unreadable_file_is_an_error_and_not_absent(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        Readings(tmp_path).now()


def test_an_error_is_no_answer_to_the_next_question(tmp_path: Path) -> None:
    path = tmp_path / "fstab"
    path.mkdir()
    readings = Readings(path)
    with pytest.raises(OSError, match="directory"):
        readings.now()
    path.rmdir()
    path.write_bytes(b"/dev/sda1")
    assert readings.now() == [b"/dev/sda1"]
