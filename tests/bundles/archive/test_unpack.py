"""Unpacking: exactly the packed files, or nothing."""

import gzip
import hashlib
import os
import resource
import signal
import stat
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bundles.archive.pack import BuiltBundle, build_bundle
from bundles.archive.unpack import inspect, unpack
from bundles.errors import SignatureError, StoreError, UnpackError
from bundles.filesystem.trees import remove_tree
from bundles.format.fields import DESCRIPTION
from bundles.format.size_limits import Limits
from foundation.problems import ProblemCode

WriteTree = Callable[[Path, Mapping[str, bytes]], Path]
ReadTree = Callable[[Path], dict[str, tuple[bytes, int]]]
MakeBundle = Callable[..., BuiltBundle]

GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"
BLOCK = 512


def compress(tar: bytes) -> bytes:
    """Return a gzip file that differs from a bundle only in its tar."""
    deflate = zlib.compressobj(level=1, wbits=-15)
    trailer = zlib.crc32(tar).to_bytes(4, "little") + len(tar).to_bytes(4, "little")
    return GZIP_HEADER + deflate.compress(tar) + deflate.flush() + trailer


@contextmanager
def directory_for_example() -> Iterator[Path]:
    """Yield a directory for one example of Hypothesis, and remove it afterwards."""
    path = Path(tempfile.mkdtemp())
    try:
        yield path
    finally:
        remove_tree(path)


# Results


def test_an_unpacked_bundle_is_the_tree_that_was_packed(
    tmp_path: Path, make_bundle: MakeBundle, read_tree: ReadTree
) -> None:
    built = make_bundle({"templates/a.j2": b"Hello", "b": b"", f"{'n' * 200}": b"long name"})
    description = unpack(built.path, tmp_path / "out")
    assert description == built.description
    assert {name: data for name, (data, _) in read_tree(tmp_path / "out").items()} == {
        DESCRIPTION: description.to_bytes(),
        "manifest.yaml": b"resources: []\n",
        "templates/a.j2": b"Hello",
        "b": b"",
        "n" * 200: b"long name",
    }


component = st.text(alphabet="aB.é-", min_size=1, max_size=4).filter(lambda text: text not in (".", ".."))
names = st.lists(component, min_size=1, max_size=4).map("/".join)
contents = st.binary(max_size=2000)


def can_stand_together(names: Iterable[str]) -> bool:
    """Return whether all files and directories differ after case folding. Independent of the tested code."""
    directories = {name[:end] for name in names for end, letter in enumerate(name) if letter == "/"}
    everything = [*names, *directories]
    return len({name.lower() for name in everything}) == len(everything)


@given(st.dictionaries(names, st.tuples(contents, st.booleans()), max_size=8))
def test_unpack_undoes_pack(
    write_tree: WriteTree, read_tree: ReadTree, tree: dict[str, tuple[bytes, bool]]
) -> None:
    assume(can_stand_together(tree))
    tree["manifest.yaml"] = (b"resources: []\n", False)
    with directory_for_example() as directory:
        source = write_tree(directory / "source", {name: data for name, (data, _) in tree.items()})
        for name, (_, run) in tree.items():
            (source / name).chmod(0o755 if run else 0o644)
        built = build_bundle(source, directory / "web.tar.gz", name="web", version="1")
        unpack(built.path, directory / "out")
        result = read_tree(directory / "out")
    del result[DESCRIPTION]
    assert result == {name: (data, 0o555 if run else 0o444) for name, (data, run) in tree.items()}


def test_unpacked_files_are_read_only_under_any_umask(tmp_path: Path, make_bundle: MakeBundle) -> None:
    built = make_bundle({"a/b/c": b"", "z/z": b""})
    before = os.umask(0o077)
    try:
        unpack(built.path, tmp_path / "out")
    finally:
        os.umask(before)
    modes = {
        os.fspath(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "out", *(tmp_path / "out").rglob("*"))
    }
    assert modes == {
        "out": 0o555,
        "out/a": 0o555,
        "out/a/b": 0o555,
        "out/a/b/c": 0o444,
        "out/z": 0o555,
        "out/z/z": 0o444,
        "out/manifest.yaml": 0o444,
        "out/bundle.json": 0o444,
    }


def test_a_read_only_tree_can_be_removed(tmp_path: Path, make_bundle: MakeBundle) -> None:
    unpack(make_bundle({"a/b/c": b"", "a/d": b""}).path, tmp_path / "out")
    remove_tree(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_inspect_agrees_and_writes_nothing(tmp_path: Path, make_bundle: MakeBundle) -> None:
    built = make_bundle({"a": b"1"})
    before = sorted(tmp_path.iterdir())
    assert inspect(built.path) == built.description
    assert sorted(tmp_path.iterdir()) == before


# Rejected archives


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, write_tree: WriteTree) -> BuiltBundle:
    directory = tmp_path_factory.mktemp("built")
    files = {
        "manifest.yaml": b"resources: []\n",
        "bin/run": b"#!/bin/sh\n",
        "zeros": bytes(1500),
        "n" * 120: os.urandom(100),
    }
    source = write_tree(directory / "source", files)
    (source / "bin/run").chmod(0o755)
    return build_bundle(source, directory / "web.tar.gz", name="web", version="1.4.0")


def assert_refused(archive: Path, destination: Path) -> str:
    """Check that ``unpack`` and ``inspect`` reject the archive with the same message and leave no files."""
    before = sorted(destination.parent.iterdir())
    with pytest.raises(UnpackError) as unpacking:
        unpack(archive, destination, name="web", version="1.4.0")
    assert sorted(destination.parent.iterdir()) == before
    with pytest.raises(UnpackError) as inspecting:
        inspect(archive)
    assert str(unpacking.value) == str(inspecting.value)
    assert str(unpacking.value).startswith(f"{archive}: ")
    return str(unpacking.value)


@pytest.mark.attack("partial.truncated")
def test_an_archive_cut_off_at_any_block_is_refused(tmp_path: Path, built: BuiltBundle) -> None:
    tar = gzip.decompress(built.path.read_bytes())
    for size in range(0, len(tar), BLOCK):
        (tmp_path / "web.tar.gz").write_bytes(compress(tar[:size]))
        assert "truncated here" in assert_refused(tmp_path / "web.tar.gz", tmp_path / "out")


@pytest.mark.attack("partial.truncated")
def test_a_download_cut_off_at_any_byte_is_refused(tmp_path: Path, built: BuiltBundle) -> None:
    data = built.path.read_bytes()
    for size in range(len(data)):
        (tmp_path / "web.tar.gz").write_bytes(data[:size])
        message = assert_refused(tmp_path / "web.tar.gz", tmp_path / "out")
        assert "truncated here" in message or "is not a bundle" in message


@given(data=st.data())
def test_any_changed_byte_of_the_tar_is_refused(built: BuiltBundle, data: st.DataObject) -> None:
    tar = bytearray(gzip.decompress(built.path.read_bytes()))
    position = data.draw(st.integers(0, len(tar) - 1))
    tar[position] ^= data.draw(st.integers(1, 255))
    with directory_for_example() as directory:
        archive = directory / "web.tar.gz"
        archive.write_bytes(compress(bytes(tar)))
        with pytest.raises(UnpackError):
            unpack(archive, directory / "out", name="web", version="1.4.0")
        assert [path.name for path in directory.iterdir()] == ["web.tar.gz"]


@given(data=st.data())
def test_any_changed_byte_of_the_file_is_refused_by_its_checksum(
    built: BuiltBundle, read_tree: ReadTree, data: st.DataObject
) -> None:
    """Without a checksum, a change can pass only if deflate encodes the same tar in another way."""
    changed = bytearray(built.path.read_bytes())
    position = data.draw(st.integers(0, len(changed) - 1))
    changed[position] ^= data.draw(st.integers(1, 255))
    with directory_for_example() as directory:
        archive = directory / "web.tar.gz"
        archive.write_bytes(changed)
        with pytest.raises(SignatureError):
            unpack(archive, directory / "out", sha256=built.sha256)
        try:
            description = unpack(archive, directory / "out")
        except UnpackError:
            assert [path.name for path in directory.iterdir()] == ["web.tar.gz"]
        else:
            assert description == built.description
            assert gzip.decompress(bytes(changed)) == gzip.decompress(built.path.read_bytes())


def test_a_wrong_checksum_is_refused_before_anything_is_parsed(tmp_path: Path) -> None:
    page = b"<html>captive portal</html>"
    archive = tmp_path / "web.tar.gz"
    archive.write_bytes(page)
    with pytest.raises(SignatureError) as caught:
        unpack(archive, tmp_path / "out", sha256="0" * 64)
    result = hashlib.sha256(page).hexdigest()
    assert str(caught.value) == f"{archive}: sha256 is {result}, expected {'0' * 64} from the signed index"
    assert caught.value.code is ProblemCode.CHECKSUM_MISMATCH


def test_a_web_page_is_not_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "web.tar.gz").write_bytes(b"<html>captive portal</html>")
    message = assert_refused(tmp_path / "web.tar.gz", tmp_path / "out")
    assert "is not a bundle of `puller bundle build`: its first bytes differ" in message


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        pytest.param(
            "db",
            "1.4.0",
            "bundle.json: name: is 'web', expected 'db'",
            marks=pytest.mark.attack("wrong-software.other-name"),
        ),
        pytest.param(
            "web",
            "1.3.9",
            "bundle.json: version: is '1.4.0', expected '1.3.9'",
            marks=pytest.mark.attack("wrong-software.other-version"),
        ),
    ],
)
def test_the_wrong_software_is_refused(
    tmp_path: Path, built: BuiltBundle, name: str, version: str, message: str
) -> None:
    with pytest.raises(UnpackError) as caught:
        unpack(built.path, tmp_path / "out", name=name, version=version)
    assert str(caught.value) == f"{built.path}: {message}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(archive=100), "bytes, at most 100 are allowed"),
        (Limits(description=100), "bundle.json: "),
        (Limits(size=1000), "files: 1624 bytes, at most 1000 are allowed"),
        (Limits(ratio=1, ratio_from=1000), "files: 1624 bytes from "),
    ],
)
def test_oversized_bundle_is_refused_before_writing(
    tmp_path: Path, built: BuiltBundle, monkeypatch: pytest.MonkeyPatch, limits: Limits, message: str
) -> None:
    monkeypatch.setattr(os, "mkdir", lambda *_, **__: pytest.fail("something was written"))
    with pytest.raises(UnpackError) as caught:
        unpack(built.path, tmp_path / "out", limits=limits)
    assert message in str(caught.value)


# Local errors


def test_existing_files_stay(tmp_path: Path, built: BuiltBundle) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(StoreError) as caught:
        unpack(built.path, tmp_path / "out")
    assert str(caught.value) == f"{tmp_path / 'out'}: already exists"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("destination", ["nowhere/out", "file/out"])
def test_a_destination_that_cannot_be_is_an_error(
    tmp_path: Path, built: BuiltBundle, destination: str
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError) as caught:
        unpack(built.path, tmp_path / destination)
    assert str(caught.value).startswith(f"{built.path}: cannot be unpacked into {tmp_path / destination}: ")


def test_an_archive_that_is_missing_is_an_error(tmp_path: Path) -> None:
    for read in (inspect, lambda archive: unpack(archive, tmp_path / "out")):
        with pytest.raises(StoreError, match=r"web\.tar\.gz: No such file or directory"):
            read(tmp_path / "web.tar.gz")


def test_a_fifo_in_the_place_of_an_archive_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "web.tar.gz")
    with pytest.raises(StoreError, match="is a FIFO, expected a regular file"):
        inspect(tmp_path / "web.tar.gz")


def test_a_directory_in_the_place_of_an_archive_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a directory, expected a regular file"):
        inspect(tmp_path)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, make_bundle: MakeBundle) -> None:
    """The kernel rejects writes beyond the limit, as on a full disk."""
    built = make_bundle({"a/large": os.urandom(200_000)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StoreError) as caught:
            unpack(built.path, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert str(caught.value) == f"{built.path}: cannot be unpacked into {tmp_path / 'out'}: File too large"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sources", "web-1.4.0.tar.gz"]


@pytest.mark.parametrize("interrupted", ["rename", "fchmod", "mkdir"])
def test_an_interrupt_leaves_nothing(
    tmp_path: Path, make_bundle: MakeBundle, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    built = make_bundle({"a/b": b""})
    real = getattr(os, interrupted)
    calls: list[object] = []

    def interrupt(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        if len(calls) == (1 if interrupted == "rename" else 2):
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(os, interrupted, interrupt)
    with pytest.raises(KeyboardInterrupt):
        unpack(built.path, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sources", "web-1.4.0.tar.gz"]


@pytest.mark.attack("disk.full")
@pytest.mark.root
def test_full_disk_is_noticed_before_writing(
    tmp_path: Path, make_bundle: MakeBundle, small_disk: Path
) -> None:
    built = make_bundle({"large": os.urandom(2_000_000)})
    with pytest.raises(StoreError) as caught:
        unpack(built.path, small_disk / "out")
    assert str(caught.value).startswith(f"{small_disk / 'out'}: requires 2.0 MB and a reserve of ")
    assert str(caught.value).endswith(f" are free on {small_disk}")
    assert list(small_disk.iterdir()) == []


@pytest.mark.attack("disk.inodes")
@pytest.mark.root
def test_missing_inodes_are_noticed_before_writing(
    tmp_path: Path, make_bundle: MakeBundle, small_disk: Path
) -> None:
    built = make_bundle({f"f{number}": b"" for number in range(100)})
    with pytest.raises(StoreError, match=r"requires 103 inodes, but \d+ are free on "):
        unpack(built.path, small_disk / "out")
    assert list(small_disk.iterdir()) == []


@pytest.mark.attack("disk.full")
@pytest.mark.root
def test_a_disk_that_fills_up_meanwhile_leaves_nothing(
    tmp_path: Path, make_bundle: MakeBundle, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = make_bundle({"a/large": os.urandom(2_000_000)})
    roomy = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: roomy)
    with pytest.raises(StoreError, match="No space left on device"):
        unpack(built.path, small_disk / "out")
    assert list(small_disk.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of 1 MiB with 64 inodes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=64", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def test_all_files_are_synced_before_the_final_rename(
    tmp_path: Path, make_bundle: MakeBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = make_bundle({"a/b": b"1"})
    seen: list[str] = []

    def sync(descriptor: int) -> None:
        directory = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        seen.append("sync")
        assert (directory / "a/b").read_bytes() == b"1"
        assert not (tmp_path / "out").exists()

    def rename(source: Path, target: Path) -> None:
        seen.append("rename")
        real_rename(source, target)

    real_rename = os.rename
    monkeypatch.setattr("bundles.archive.unpack.sync_filesystem", sync)
    monkeypatch.setattr(
        "bundles.archive.unpack.sync_directory", lambda path: seen.append(f"sync {path.name}")
    )
    monkeypatch.setattr(os, "rename", rename)
    unpack(built.path, tmp_path / "out")
    assert seen == ["sync", "rename", f"sync {tmp_path.name}"]
