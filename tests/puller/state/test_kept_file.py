"""Code between runs: what was kept is found, and nothing that is damaged or that others could have written is run."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puller.state import kept_file
from puller.state.kept_file import KeptFile

MAKER = b"m" * 32


def code(value: object) -> CodeType:
    return compile(f"value = {value!r}", "<test>", "exec")


def digest(name: str) -> bytes:
    return name.encode().ljust(32, b".")


def keep(path: Path, maker: bytes = MAKER, /, **values: object) -> None:
    """A run that asks for all of these, and keeps what is new."""
    opened = KeptFile(path, maker)
    for name, value in values.items():
        if opened.find(digest(name)) is None:
            opened.keep(digest(name), code(value))
    opened.save()
    opened.close()


def found(path: Path, *names: str, maker: bytes = MAKER) -> dict[str, object]:
    """What the next run finds, by name."""
    opened = KeptFile(path, maker)
    values: dict[str, object] = {}
    for name in names:
        if (kept := opened.find(digest(name))) is not None:
            assert isinstance(kept, CodeType)
            exec(kept, made := {})  # type: ignore[var-annotated]
            values[name] = made["value"]
    opened.close()
    return values


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "templates"


def test_what_was_kept_is_found_by_the_next_run(path: Path) -> None:
    assert found(path, "a") == {}
    keep(path, a=1, b="two")
    assert found(path, "a", "b", "c") == {"a": 1, "b": "two"}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == [path.name]


def test_a_run_that_makes_nothing_new_writes_nothing(path: Path) -> None:
    keep(path, a=1)
    before = path.stat()
    keep(path, a=1)
    assert path.stat() == before


def test_code_of_another_maker_is_none(path: Path) -> None:
    keep(path, a=1)
    assert found(path, "a", maker=b"n" * 32) == {}
    keep(path, b"n" * 32, b=2)
    assert found(path, "a", "b", maker=b"n" * 32) == {"b": 2}


def test_code_that_is_not_used_stays_for_a_while(path: Path) -> None:
    keep(path, old=1)
    for number in range(8):
        keep(path, **{f"n{number}": number})
        assert found(path, "old") == {"old": 1}
    keep(path, last=1)
    assert found(path, "old", "last") == {"last": 1}


def test_the_file_does_not_outgrow_its_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_file, "LARGEST", 4096)
    for number in range(50):
        keep(path, used=1, **{f"n{number}": "x" * 1000})
    assert path.stat().st_size < 6000
    assert found(path, "used", "n49", "n0") == {"used": 1, "n49": "x" * 1000}


def test_what_has_no_place_is_not_written_again_and_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_file, "LARGEST", 4096)
    many = {f"n{number}": "x" * 1000 for number in range(10)}
    keep(path, **many)
    before = path.stat()
    keep(path, **many)
    assert path.stat() == before


def put(path: Path, make: Callable[[], object]) -> None:
    """Something else in the place of a file."""
    path.unlink()
    make()


def link(path: Path) -> None:
    """A link to what was there."""
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


WRONG: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: os.truncate(path, 200),
    "garbage": lambda path: path.write_bytes(os.urandom(5000)),
    "written by others": lambda path: path.chmod(0o620),
    "read by others": lambda path: path.chmod(0o604),
    "in a directory of others": lambda path: path.parent.chmod(0o770),
    "behind a link": link,
    "in a directory behind a link": lambda path: link(path.parent),
    "a directory": lambda path: put(path, path.mkdir),
    "a FIFO": lambda path: put(path, lambda: os.mkfifo(path, 0o600)),
    "gone": lambda path: put(path, path.parent.rmdir),
}


@pytest.mark.parametrize("spoil", WRONG.values(), ids=WRONG)
def test_what_is_not_ours_and_sound_is_never_run(path: Path, spoil: Callable[[Path], object]) -> None:
    keep(path, a=1)
    spoil(path)
    assert found(path, "a") == {}


@pytest.mark.root
@pytest.mark.parametrize("place", ["file", "directory"])
def test_what_belongs_to_somebody_else_is_never_run(path: Path, place: str) -> None:
    keep(path, a=1)
    os.chown(path if place == "file" else path.parent, 65534, 65534)
    assert found(path, "a") == {}


def test_nothing_is_written_into_a_directory_that_is_open_to_others(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o777)
    keep(path, a=1)
    assert os.listdir(path.parent) == []


def test_damaged_code_is_made_and_kept_again(path: Path) -> None:
    keep(path, a=1, b=2)
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x40
    path.write_bytes(data)
    assert found(path, "a", "b") == {"a": 1}
    keep(path, a=1, b=2)
    assert found(path, "a", "b") == {"a": 1, "b": 2}


def test_damaged_code_that_nobody_asked_for_stays_none(path: Path) -> None:
    keep(path, a=1, b=2)
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x40
    path.write_bytes(data)
    keep(path, c=3)
    assert found(path, "a", "b", "c") == {"a": 1, "c": 3}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_flipped_bit_gives_the_code_that_was_kept_or_none(path: Path, data: st.DataObject) -> None:
    path.unlink(missing_ok=True)
    keep(path, a=1, b="two")
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    assert found(path, "a", "b").items() <= {"a": 1, "b": "two"}.items()
