"""A directory with arbitrary content from untrusted users."""

import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from puller.errors import SourceError
from puller.fleet.host_document import MOST_BYTES
from puller.fleet.store.import_sources import DirectorySource, Found, Gone, Refused

_HOST = "web1.example.com"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "reports" / _HOST).mkdir(parents=True)
    return tmp_path / "reports"


@pytest.fixture
def source(place: Path) -> Iterator[DirectorySource]:
    opened = DirectorySource.open(str(place))
    yield opened
    opened.close()


def _refused(source: DirectorySource) -> dict[str, str]:
    listed = list(source.listed())
    assert not [item for item in listed if isinstance(item, Found)]
    return {item.path: item.why for item in listed if isinstance(item, Refused)}


def _found(source: DirectorySource) -> Found:
    (result,) = source.listed()
    assert isinstance(result, Found)
    return result


def test_special_file_is_refused_and_never_opened(source: DirectorySource, place: Path) -> None:
    (place / "outside.json").write_text("{}")
    (place / _HOST / "link.json").symlink_to(place / "outside.json")
    (place / _HOST / "dangling.json").symlink_to("nowhere")
    os.mkfifo(place / _HOST / "fifo.json.gz")
    (place / _HOST / "directory.json").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(place / _HOST)  # names of sockets are short
        try:
            server.bind("socket.json")
        finally:
            os.chdir(here)
        refused = _refused(source)
    assert refused.pop("outside.json") == "is not the directory of a host"
    assert set(refused.values()) == {"is not a regular file"}
    assert len(refused) == 5


@pytest.mark.root
def test_a_device_is_refused(source: DirectorySource, place: Path) -> None:
    os.mknod(place / _HOST / "device.json", 0o020666, os.makedev(1, 5))
    assert _refused(source) == {f"{_HOST}/device.json": "is not a regular file"}


def test_host_directory_through_a_link_is_ignored(source: DirectorySource, place: Path) -> None:
    (place / _HOST / "a.json").write_text("{}")
    (place / "web2.example.com").symlink_to(place / _HOST)
    results = list(source.listed())
    assert Refused("web2.example.com", "is not the directory of a host") in results
    assert len(results) == 2


def test_impossible_host_names_are_refused(source: DirectorySource, place: Path) -> None:
    names = [b"a b", b"x\n\x1b[31m", b"\xff\xfe", b"a" * 254]
    for name in names:
        (Path(os.fsdecode(os.fsencode(place) + b"/" + name))).mkdir()
    assert set(_refused(source)) == {os.fsdecode(name) for name in names}


def test_other_file_names_are_refused_and_hidden_skipped(source: DirectorySource, place: Path) -> None:
    for name in (".a.json.gz", ".hidden", "README", "a.json.gz.tmp"):
        (place / _HOST / name).write_text("{}")
    (place / ".trash").mkdir()
    assert set(_refused(source)) == {f"{_HOST}/README", f"{_HOST}/a.json.gz.tmp"}


def test_replaced_file_is_not_followed_and_does_not_block(source: DirectorySource, place: Path) -> None:
    file = place / _HOST / "a.json"
    file.write_text("{}")
    result = _found(source)
    file.unlink()
    with pytest.raises(Gone):
        source.read(result)
    file.symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match="cannot be read"):
        source.read(result)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ValueError, match="is not a regular file"):
        source.read(result)
    file.unlink()
    file.mkdir()
    with pytest.raises(ValueError, match=r"is not a regular file|cannot be read"):
        source.read(result)


def test_a_directory_that_became_a_link_is_not_followed(source: DirectorySource, place: Path) -> None:
    (place / _HOST / "a.json").write_text("{}")
    result = _found(source)
    (place / _HOST).rename(place.parent / "elsewhere")
    (place / _HOST).symlink_to(place.parent / "elsewhere")
    with pytest.raises(ValueError, match="cannot be read"):
        source.read(result)
    source.remove(result)
    assert (place.parent / "elsewhere" / "a.json").exists()


def test_large_and_grown_files_are_not_read(source: DirectorySource, place: Path) -> None:
    file = place / _HOST / "a.json"
    file.write_text("{}")
    small = _found(source)
    with file.open("r+b") as opened:
        opened.truncate(100 * 1024 * 1024)
    with pytest.raises(ValueError, match=f"has more than {MOST_BYTES} bytes"):
        source.read(small)
    with pytest.raises(ValueError, match="has 104857600 bytes"):
        source.read(_found(source))


def test_only_the_file_that_was_listed_is_removed(source: DirectorySource, place: Path) -> None:
    file = place / _HOST / "a.json"
    file.write_text("{}")
    result = _found(source)
    file.write_text("[]")
    os.utime(file, ns=(0, result.stamp + 1))
    source.remove(result)
    assert file.read_text() == "[]"
    source.remove(_found(source))
    assert not file.exists()
    source.remove(result)


def test_future_file_time_becomes_the_present(source: DirectorySource, place: Path) -> None:
    file = place / _HOST / "a.json"
    file.write_text("{}")
    os.utime(file, (4e9, 4e9))
    data, arrived = source.read(_found(source))
    assert data == b"{}"
    assert arrived <= datetime.now(UTC)
    try:
        os.utime(file, (2**40, 2**40))
    except OverflowError:
        return
    assert 0 <= _found(source).stamp < 2**63
    assert source.read(_found(source))[1] <= datetime.now(UTC)


def test_invalid_directory_is_named(tmp_path: Path) -> None:
    for name in ("absent", "file"):
        (tmp_path / "file").write_text("")
        with pytest.raises(SourceError, match=name):
            DirectorySource.open(str(tmp_path / name))
