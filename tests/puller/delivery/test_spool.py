"""Documents in the spool: their order of delivery and removal, and damage."""

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bundles.deadline import Deadline, DeadlineError
from bundles.filesystem.atomic import open_directory
from puller.delivery.delivery import Spool, forget_others
from puller.delivery.report_document import LARGEST, pack
from tests.puller.delivery.test_document import sent

URL = "https://fleet.example.com/reports/"


def run_of(number: int) -> str:
    return f"20261123T08{number:04}.000000Z"


DATA = pack(sent([]))


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", URL, 5, 1_000_000)


def put(spool: Spool, *numbers: int, failed: bool = False, data: bytes = DATA) -> list[int]:
    return [spool.put(run_of(number), data, print, failed=failed) for number in numbers]


def order(spool: Spool) -> list[int]:
    """Return the documents in the order of delivery."""
    tried: list[str] = []
    while item := spool.next(tried):
        tried.append(item.run)
    return [int(run[11:15]) for run in tried]


def test_newest_report_goes_first_then_failed_then_others(spool: Spool) -> None:
    put(spool, 1, 4, 5)
    put(spool, 2, 3, failed=True)
    assert order(spool) == [5, 3, 2, 4, 1]


def test_report_added_while_sending_goes_next(spool: Spool) -> None:
    put(spool, 1, 2, failed=True)
    put(spool, 3)
    put(spool, 4)
    result = spool.next([run_of(3), run_of(2)])
    assert result is not None
    assert result.run == run_of(4)
    assert spool.next([run_of(number) for number in (1, 2, 3, 4)]) is None


def test_beyond_the_bound_the_oldest_without_a_failure_go_first(spool: Spool) -> None:
    put(spool, 1, 2, failed=True)
    assert put(spool, 3, 4, 5) == [0, 0, 0]
    assert put(spool, 6, 7, 8) == [1, 1, 1]
    assert order(spool) == [8, 2, 1, 7, 6]
    put(spool, 9, 10, 11, failed=True)
    assert put(spool, 12) == [1]
    assert sorted(order(spool)) == [2, 9, 10, 11, 12]


def test_byte_limit_always_keeps_the_newest(tmp_path: Path) -> None:
    spool = Spool(tmp_path, URL, 100, len(DATA) * 3)
    put(spool, 1, 2, 3, 4)
    assert sorted(order(spool)) == [2, 3, 4]
    small = Spool(tmp_path, URL, 100, 1)
    put(small, 5)
    assert order(small) == [5]


def test_run_has_a_single_document(spool: Spool) -> None:
    put(spool, 1, 1)
    assert order(spool) == [1]


def test_it_is_for_root_alone_and_named_by_a_hash(spool: Spool) -> None:
    put(spool, 1)
    (file,) = spool.path.iterdir()
    assert [oct(path.stat().st_mode & 0o777) for path in (file, spool.path, spool.path.parent)] == [
        "0o600",
        "0o700",
        "0o700",
    ]
    assert len(spool.path.name) == 16
    assert "example" not in str(spool.path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def grow(path: Path) -> None:
    path.write_bytes(bytes(LARGEST + 1))


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [cut, link, grow, make_fifo, make_directory])
def test_damaged_reports_are_set_aside_and_reported(
    spool: Spool, said: list[str], damage: Callable[[Path], None]
) -> None:
    put(spool, 1)
    (item,) = spool.waiting()
    damage(spool.path / item.name)
    assert spool.read(item, said.append) is None
    assert len(said) == 1
    assert f"{item.name}: " in said[0]
    assert "set aside as" in said[0]
    assert spool.waiting() == []


def test_report_sent_by_another_run_is_no_problem(spool: Spool, said: list[str]) -> None:
    put(spool, 1)
    (item,) = spool.waiting()
    spool.remove(item)
    spool.remove(item)
    assert spool.read(item, said.append) is None
    assert said == []


def test_files_of_others_are_left_alone(spool: Spool) -> None:
    put(spool, 1)
    (spool.path / "notes.txt").write_text("mine")
    assert order(spool) == [1]


def test_a_file_in_the_place_of_a_directory_is_set_aside(spool: Spool, said: list[str]) -> None:
    spool.path.parent.write_text("in the way")
    spool.put(run_of(1), DATA, said.append, failed=False)
    assert order(spool) == [1]
    assert len(said) == 1


def test_single_process_sends_and_others_wait_briefly(spool: Spool) -> None:
    put(spool, 1)
    with open_directory(spool.path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DeadlineError), spool.sending(Deadline(0.3)):
            pytest.fail("it is locked")
        threading.Timer(0.2, fcntl.flock, (other, fcntl.LOCK_UN)).start()
        with spool.sending(Deadline(10)):
            pass


def test_the_spool_of_a_destination_that_has_gone_is_removed(
    spool: Spool, said: list[str], tmp_path: Path
) -> None:
    put(spool, 1, 2)
    retained = Spool(tmp_path / "spool", "https://other.example.com/", 5, 1000)
    put(retained, 1)
    (spool.path.parent / "of somebody else").mkdir()
    forget_others(spool.path.parent, {retained.path}, said.append)
    assert not spool.path.exists()
    assert order(retained) == [1]
    assert (spool.path.parent / "of somebody else").exists()
    assert said == ["2 reports were removed: the destination is no longer configured"]
