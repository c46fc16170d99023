"""Archives of other tools and dialects: the same names, contents and permissions."""

import io
import os
import shutil
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles.errors import FormatError
from puller.resources.archives.extract import Form, read_members
from puller.resources.archives.members import Budget, Kind, Limits, find_kind
from puller.resources.archives.tar import ArchiveSource
from tests.simulators.extraction import extract

Tree = dict[str, bytes]

components = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters="/\\:"), min_size=1, max_size=30
).filter(lambda name: name not in (".", ".."))
trees = st.dictionaries(
    st.lists(components, min_size=1, max_size=4).map("/".join), st.binary(max_size=2000), max_size=6
).filter(lambda tree: not any(f"{other}/" in f"{name}/" for name in tree for other in tree if other != name))
trees = trees.filter(lambda tree: all(len(part.encode()) < 250 for name in tree for part in name.split("/")))


def put(data: bytes, kind: Kind, place: Path) -> None:
    place.mkdir()
    archive = place.parent / "archive"
    archive.write_bytes(data)
    extract(archive, kind, place)


def contents(place: Path) -> Tree:
    files = (path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


def tarred(tree: Tree, dialect: int, mode: str) -> bytes:
    buffer = io.BytesIO()
    writing: Any = mode
    with tarfile.open(fileobj=buffer, mode=writing, format=dialect) as tar:
        for name, data in tree.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@given(tree=trees, dialect=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]), gz=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_tarfile_archives_round_trip(tmp_path: Path, tree: Tree, dialect: int, gz: bool) -> None:
    place = tmp_path / "out"
    put(tarred(tree, dialect, "w:gz" if gz else "w"), Kind.TAR_GZ if gz else Kind.TAR, place)
    assert contents(place) == tree
    shutil.rmtree(place)


@given(tree=trees, method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]), streamed=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_zipfile_archives_round_trip(tmp_path: Path, tree: Tree, method: int, streamed: bool) -> None:
    place = tmp_path / "out"
    buffer: Any = Unseekable() if streamed else io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in tree.items():
            archive.writestr(name, data)
    put(buffer.getvalue(), Kind.ZIP, place)
    assert contents(place) == tree
    shutil.rmtree(place)


class Unseekable(io.BytesIO):
    """A stream like a pipe: sizes and checksums follow the data."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: object) -> int:
        raise io.UnsupportedOperation

    def tell(self) -> int:
        raise io.UnsupportedOperation


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Create a directory like those of released projects: programs, links, a long name, a hard link."""
    root = tmp_path / "release/app-1.4"
    (root / "bin").mkdir(parents=True)
    (root / "lib").mkdir()
    (root / "bin/app").write_text("#!/bin/sh\n")
    (root / "bin/app").chmod(0o755)
    (root / "lib/libapp.so.1").write_bytes(bytes(70_000))
    (root / "lib/libapp.so").symlink_to("libapp.so.1")
    (root / "bin/lib").symlink_to("../lib")
    (root / ("long" * 40)).write_text("long")
    (root / "LICENSE").write_text("free")
    os.link(root / "LICENSE", root / "COPYING")
    os.utime(root / "LICENSE", (1_700_000_000, 1_700_000_000))
    return root


@pytest.mark.parametrize("dialect", ["gnu", "posix", "oldgnu"])
@pytest.mark.parametrize("start", ["app-1.4", "./app-1.4", "."])
def test_tar_archives_round_trip(tmp_path: Path, release: Path, dialect: str, start: str) -> None:
    archive = subprocess.run(
        ["tar", f"--format={dialect}", "-czf", "-", "-C", release.parent, start],
        capture_output=True,
        check=True,
    )
    put(archive.stdout, Kind.TAR_GZ, tmp_path / "out")
    app = tmp_path / "out/app-1.4"
    assert contents(tmp_path / "out") == contents(release.parent)
    assert stat.S_IMODE((app / "bin/app").stat().st_mode) == 0o755
    assert os.readlink(app / "bin/lib") == "../lib"
    assert (app / "COPYING").samefile(app / "LICENSE")
    assert (app / "LICENSE").stat().st_mtime == 1_700_000_000


@pytest.mark.skipif(not shutil.which("zip"), reason="the zip program is not installed")
def test_zip_archives_round_trip(tmp_path: Path, release: Path) -> None:
    subprocess.run(["zip", "-qry", tmp_path / "a.zip", "."], cwd=release.parent, check=True)
    put((tmp_path / "a.zip").read_bytes(), Kind.ZIP, tmp_path / "out")
    app = tmp_path / "out/app-1.4"
    assert contents(tmp_path / "out") == contents(release.parent)
    assert os.readlink(app / "lib/libapp.so") == "libapp.so.1"
    assert stat.S_IMODE((app / "bin/app").stat().st_mode) == 0o755


@pytest.mark.attack("parser.end-blocks")
@pytest.mark.parametrize("kind", [Kind.TAR_GZ, Kind.ZIP])
def test_an_archive_cut_off_anywhere_is_refused(tmp_path: Path, kind: Kind) -> None:
    tree = {"a": os.urandom(700), "d/b": b"b" * 3000}
    data = tarred(tree, tarfile.PAX_FORMAT, "w:gz")
    if kind is Kind.ZIP:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in tree.items():
                archive.writestr(name, content)
        data = buffer.getvalue()
    for length in range(0, len(data), 7):
        with pytest.raises(FormatError):
            put(data[:length], kind, tmp_path / "out")
        assert os.listdir(tmp_path / "out") == []
        (tmp_path / "out").rmdir()


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=9), st.lists(st.integers(0, 12), max_size=9))
def test_source_returns_exactly_the_requested_bytes(pieces: list[bytes], counts: list[int]) -> None:
    data, source, position = b"".join(pieces), ArchiveSource(iter(pieces), Budget(Limits(), 100)), 0
    for number, count in enumerate(counts):
        if position + count > len(data):
            with pytest.raises(FormatError, match="cut off"):
                source.read(count)
            return
        result = source.read(count) if number % 2 else b"".join(source.pieces(count))
        assert result == data[position : position + count]
        position += count
    assert b"".join(source.rest()) == data[position:]


def test_members_are_read_in_bounded_memory(tmp_path: Path) -> None:
    """At most one piece of a large file is in memory."""
    (tmp_path / "a").write_bytes(tarred({"a": bytes(5_000_000), "b": b"b"}, tarfile.PAX_FORMAT, "w:gz"))
    with (tmp_path / "a").open("rb") as stream:
        members = read_members(stream, Form(Kind.TAR_GZ))
        member, pieces = next(members)
        assert member.size == 5_000_000
        assert max(map(len, pieces)) <= 256 * 1024
        member, pieces = next(members)
        assert b"".join(pieces) == b"b"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("app.tar.gz", Kind.TAR_GZ), ("app.tgz", Kind.TAR_GZ), ("app.tar", Kind.TAR), ("app.zip", Kind.ZIP),
        ("APP.TAR.GZ", Kind.TAR_GZ), ("a.zip.tar", Kind.TAR), ("app.gz", None), ("app", None), (".tgz", None),
        ("zip", None), ("app.tar.xz", Kind.TAR_XZ), ("app.txz", Kind.TAR_XZ),
        ("app.tar.bz2", Kind.TAR_BZ2), ("app.tbz2", Kind.TAR_BZ2), ("app.tar.zst", Kind.TAR_ZST),
        ("app.tzst", Kind.TAR_ZST), ("app.7z", None), ("", None),
    ],
)  # fmt: skip
def test_kinds_are_known_by_the_end_of_a_name(name: str, kind: Kind | None) -> None:
    assert find_kind(name) is kind
