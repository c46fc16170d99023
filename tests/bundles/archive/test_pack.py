"""Packing: equal files give equal bytes in every environment."""

import gzip
import hashlib
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles.archive.pack import HEADER, BuiltBundle, build_bundle, member_header
from bundles.archive.unpack import inspect
from bundles.errors import PublishError
from bundles.format.description import BundleDescription, FileMode
from bundles.format.fields import DESCRIPTION, MemberPath
from bundles.format.size_limits import Limits
from tests.support.rows import each_row

WriteTree = Callable[[Path, Mapping[str, bytes]], Path]
MakeBundle = Callable[..., BuiltBundle]

MANIFEST = {"manifest.yaml": b"resources: []\n"}
FILES = {
    **MANIFEST,
    "templates/motd.j2": b"Hello\n",
    "bin/check": b"#!/bin/sh\n",
    "a.b": b"",
    "a/b": b"x" * 1000,
    "größe.txt": b"\0\xff",
    f"{'l' * 90}/{'m' * 90}": b"needs the ustar prefix",
    f"long/{'n' * 200}": b"needs a PAX record",
}


def pack(source: Path, output: Path) -> bytes:
    return build_bundle(source, output, name="web", version="1.4.0").path.read_bytes()


def listing(archive: Path) -> list[list[str]]:
    """Return the listing of the system's tar: mode, owner, size, date, time and name of each member."""
    command = ["tar", "tvzf", str(archive), "--full-time", "--utc", "--quoting-style=literal"]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert run.stderr == ""
    return [line.split(maxsplit=5) for line in run.stdout.splitlines()]


def test_two_trees_with_the_same_files_give_the_same_bytes(tmp_path: Path, write_tree: WriteTree) -> None:
    first = write_tree(tmp_path / "one", FILES)
    other = write_tree(tmp_path / "other", dict(reversed(FILES.items())))
    for number, path in enumerate(sorted(other.rglob("*"))):
        os.utime(path, (number, number * 1e9))
        path.chmod(0o700 if path.is_dir() else 0o640)
    assert pack(first, tmp_path / "one.tar.gz") == pack(other, tmp_path / "other.tar.gz")


def test_the_umask_changes_nothing(tmp_path: Path, write_tree: WriteTree) -> None:
    source = write_tree(tmp_path / "source", FILES)
    open_bytes = pack(source, tmp_path / "open.tar.gz")
    before = os.umask(0o077)
    try:
        assert pack(source, tmp_path / "closed.tar.gz") == open_bytes
    finally:
        os.umask(before)
    assert (tmp_path / "closed.tar.gz").stat().st_mode == (tmp_path / "open.tar.gz").stat().st_mode


@pytest.mark.root
def test_the_owner_changes_nothing(tmp_path: Path, write_tree: WriteTree) -> None:
    source = write_tree(tmp_path / "source", FILES)
    ours = pack(source, tmp_path / "ours.tar.gz")
    for path in source.rglob("*"):
        os.chown(path, 12345, 54321)
    assert pack(source, tmp_path / "theirs.tar.gz") == ours


@given(st.permutations(sorted(FILES)))
def test_the_order_on_the_disk_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, write_tree: WriteTree, order: list[str]
) -> None:
    directory = tmp_path_factory.mktemp("order")
    source = write_tree(directory / "source", {name: FILES[name] for name in order})
    tar = gzip.decompress(pack(source, directory / "web.tar.gz"))
    assert hashlib.sha256(tar).hexdigest() == TAR_SHA256


TAR_SHA256 = "f9cf08201143701a00b163bab8e4e045e657e56aa0ca889be55ce6e5636f69ff"
"""SHA-256 of the tar of FILES as web 1.4.0. If it changes, published bundles can no longer be reproduced."""


def test_pack_reports_the_written_archive(make_bundle: MakeBundle) -> None:
    built = make_bundle({"a": b"1"})
    data = built.path.read_bytes()
    assert (built.size, built.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert built.description == inspect(built.path)


def test_the_gzip_header_tells_nothing_about_the_machine(make_bundle: MakeBundle) -> None:
    assert make_bundle().path.read_bytes()[:10] == b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"


def test_the_systems_tar_reads_it(tmp_path: Path, write_tree: WriteTree) -> None:
    source = write_tree(tmp_path / "source", FILES)
    (source / "bin/check").chmod(0o700)
    pack(source, tmp_path / "web.tar.gz")

    rows = listing(tmp_path / "web.tar.gz")
    assert [row[5] for row in rows] == [DESCRIPTION, *sorted(FILES)]
    assert {(row[1], row[3], row[4]) for row in rows} == {("0/0", "1970-01-01", "00:00:00")}
    assert {row[5] for row in rows if row[0] == "-rwxr-xr-x"} == {"bin/check"}
    assert {row[0] for row in rows} == {"-rwxr-xr-x", "-rw-r--r--"}


def test_the_systems_tar_extracts_the_same_files(tmp_path: Path, write_tree: WriteTree) -> None:
    source = write_tree(tmp_path / "source", FILES)
    pack(source, tmp_path / "web.tar.gz")
    target = tmp_path / "target"
    target.mkdir()
    subprocess.run(["tar", "xzf", tmp_path / "web.tar.gz", "-C", target], check=True)
    for name, data in FILES.items():
        assert (target / name).read_bytes() == data


def test_a_bundle_lists_its_files_first(tmp_path: Path, write_tree: WriteTree) -> None:
    built = build_bundle(
        write_tree(tmp_path / "source", FILES), tmp_path / "web.tar.gz", name="web", version="1.4.0"
    )
    tar = gzip.decompress(built.path.read_bytes())
    size = int(tar[124:135], 8)
    assert BundleDescription.parse(tar[512 : 512 + size]) == built.description


@each_row(
    ("name", "blocks"),
    [
        ("a" * 100, 1),
        ("a" * 101, 3),
        ("d" * 155 + "/" + "a" * 100, 1),
        ("d" * 156 + "/" + "a" * 99, 3),
        ("d" * 155 + "/" + "a" * 101, 3),
        ("é" * 50, 1),
        ("é" * 51, 3),
        ("/".join(["d" * 203] * 5) + "/end", 4 + 1),
    ],
)
def test_only_a_name_too_long_for_ustar_costs_more_than_a_block(name: str, blocks: int) -> None:
    assert len(member_header(name, 0, FileMode.PLAIN)) == blocks * 512


@each_row("length", range(85, 130))
def test_a_pax_record_states_its_own_length(length: int) -> None:
    header = member_header("n" * length, 0, FileMode.PLAIN)
    if length <= 100:
        assert HEADER.unpack(header)[0].rstrip(b"\0") == b"n" * length
        return
    record = header[512:1024].rstrip(b"\0")
    assert re.fullmatch(rb"(\d+) path=n+\n", record)
    assert int(record.split()[0]) == len(record) == int(header[124:135], 8)


@pytest.mark.parametrize(
    "name",
    [".git/config", ".hg/x", ".svn/x", "a/__pycache__/x.pyc", "a/motd~", "a/.motd.swp", ".git", "sub/.git"],
)
def test_version_control_and_editor_backups_are_left_out(make_bundle: MakeBundle, name: str) -> None:
    assert make_bundle({name: b"x"}, version="1").description.files.keys() == {MemberPath("manifest.yaml")}


@pytest.mark.parametrize("name", [".gitignore", "swp", "a.swp", ".git.d/x", "~a"])
def test_names_that_only_look_like_those_are_kept(make_bundle: MakeBundle, name: str) -> None:
    assert MemberPath(name) in make_bundle({name: b"x"}).description.files


def test_an_empty_directory_is_left_out(tmp_path: Path, write_tree: WriteTree) -> None:
    source = write_tree(tmp_path / "source", FILES)
    bytes_without = pack(source, tmp_path / "without.tar.gz")
    (source / "empty/deeper").mkdir(parents=True)
    assert pack(source, tmp_path / "with.tar.gz") == bytes_without


def test_a_file_with_two_names_is_packed_as_two_files(tmp_path: Path, write_tree: WriteTree) -> None:
    source = write_tree(tmp_path / "source", {**MANIFEST, "one": b"same"})
    os.link(source / "one", source / "two")
    built = build_bundle(source, tmp_path / "web.tar.gz", name="web", version="1")
    assert built.description.files[MemberPath("one")] == built.description.files[MemberPath("two")]


def make_symlink(path: Path) -> None:
    path.symlink_to("manifest.yaml")


def make_link_to_directory(path: Path) -> None:
    path.symlink_to("/etc")


def make_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)  # a socket's path may have 107 bytes
        server.bind(path.name)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (make_symlink, "a symbolic link"),
        (make_link_to_directory, "a symbolic link"),
        (make_dangling_link, "a symbolic link"),
        (os.mkfifo, "a FIFO"),
        (make_socket, "a socket"),
    ],
)
def test_special_files_are_refused_by_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_tree: WriteTree,
    make: Callable[[Path], None],
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write_tree(tmp_path / "source", {**MANIFEST, "conf/a": b""})
    make(source / "conf/odd")
    with pytest.raises(PublishError) as caught:
        pack(source, tmp_path / "web.tar.gz")
    assert str(caught.value) == f"{source}: 'conf/odd': is {what}, expected a regular file or a directory"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "files: 'manifest.yaml' is missing at the top of the bundle, and every bundle requires it"),
        (
            {"x/manifest.yaml": b""},
            "files: 'manifest.yaml' is missing at the top of the bundle, and 'x/manifest.yaml' is",
        ),
        ({**MANIFEST, "bundle.json": b"{}"}, "'bundle.json': the name 'bundle.json' is reserved for"),
        ({**MANIFEST, "a\\b": b""}, r"'a\\b': the name contains a backslash"),
        ({**MANIFEST, "a\nb": b""}, r"'a\nb': the name contains the control character U+000A"),
        ({**MANIFEST, "\udcff": b""}, r"'\udcff': the name is not UTF-8"),
        ({**MANIFEST, "/".join("d" * 33): b""}, "the name is 33 levels deep, at most 32 are allowed"),
        ({**MANIFEST, "README": b"", "readme": b""}, "cannot exist together on every file system"),
    ],
)
def test_a_tree_that_is_no_bundle_is_refused(
    tmp_path: Path, write_tree: WriteTree, files: dict[str, bytes], message: str
) -> None:
    source = write_tree(tmp_path / "source", files)
    with pytest.raises(PublishError) as caught:
        pack(source, tmp_path / "web.tar.gz")
    assert str(caught.value).startswith(f"{source}: ")
    assert message in str(caught.value)
    assert not (tmp_path / "web.tar.gz").exists()


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(size=100_013), "files: 100014 bytes, at most 100013 are allowed"),
        (Limits(description=100), "bundle.json: 386 bytes, at most 100 are allowed"),
        (Limits(archive=100), "at most 100 are allowed"),
        (Limits(ratio=50, ratio_from=1000), "at most 50 times as many are allowed"),
    ],
)
def test_pack_refuses_paths_that_unpack_refuses(
    tmp_path: Path, write_tree: WriteTree, limits: Limits, message: str
) -> None:
    source = write_tree(tmp_path / "source", {**MANIFEST, "a/b/c": bytes(100_000), "d": b""})
    with pytest.raises(PublishError) as caught:
        build_bundle(source, tmp_path / "web.tar.gz", name="web", version="1", limits=limits)
    assert message in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


@pytest.mark.parametrize(("name", "version"), [("Web", "1"), ("../web", "1"), ("web", "1/2"), ("web", "")])
def test_a_name_or_version_that_cannot_be_is_refused(
    tmp_path: Path, write_tree: WriteTree, name: str, version: str
) -> None:
    source = write_tree(tmp_path / "source", MANIFEST)
    with pytest.raises(PublishError, match="expected"):
        build_bundle(source, tmp_path / "web.tar.gz", name=name, version=version)


def grow(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"more")


def shrink(path: Path) -> None:
    path.write_bytes(b"")


def rewrite(path: Path) -> None:
    path.write_bytes(b"12346")


def make_executable(path: Path) -> None:
    path.chmod(0o755)


@pytest.mark.parametrize("change", [grow, shrink, rewrite, make_executable])
def test_a_file_that_changes_while_it_is_packed_is_an_error(
    tmp_path: Path, write_tree: WriteTree, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    source = write_tree(tmp_path / "source", {**MANIFEST, "log": b"12345"})
    (tmp_path / "web.tar.gz").write_bytes(b"before")
    change_after_description(monkeypatch, lambda: change(source / "log"))
    with pytest.raises(PublishError) as caught:
        pack(source, tmp_path / "web.tar.gz")
    assert str(caught.value).startswith(
        f"{source / 'log'}: changed while it was packed, from 5 bytes, sha256 5994"
    )
    assert (tmp_path / "web.tar.gz").read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "web.tar.gz"]


def test_growing_file_is_not_read_forever(
    tmp_path: Path, write_tree: WriteTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_tree(tmp_path / "source", {**MANIFEST, "log": b"12345"})
    pieces_read: list[bytes] = []

    def growing(stream: BinaryIO) -> Iterator[bytes]:
        while piece := stream.read(5):
            pieces_read.append(piece)
            if os.readlink(f"/proc/self/fd/{stream.fileno()}").endswith("log"):
                grow(source / "log")
            assert len(pieces_read) < 1000
            yield piece

    change_after_description(
        monkeypatch, lambda: monkeypatch.setattr("bundles.archive.pack.pieces_of", growing)
    )
    with pytest.raises(PublishError, match="log: changed while it was packed"):
        pack(source, tmp_path / "web.tar.gz")


def test_a_file_that_vanishes_while_it_is_packed_is_an_error(
    tmp_path: Path, write_tree: WriteTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_tree(tmp_path / "source", {**MANIFEST, "log": b"12345"})
    change_after_description(monkeypatch, (source / "log").unlink)
    with pytest.raises(PublishError, match="log: No such file or directory"):
        pack(source, tmp_path / "web.tar.gz")


def test_file_replaced_by_a_link_while_packing_is_an_error(
    tmp_path: Path, write_tree: WriteTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_tree(tmp_path / "source", {**MANIFEST, "log": b"12345", "other": b"12345"})

    def swap() -> None:
        (source / "log").unlink()
        (source / "log").symlink_to("other")

    change_after_description(monkeypatch, swap)
    with pytest.raises(PublishError, match="log: Too many levels of symbolic links"):
        pack(source, tmp_path / "web.tar.gz")


def change_after_description(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Run ``change`` between the two readings of a tree, as another process could."""
    original = BundleDescription.to_bytes
    changes = [change]

    def to_bytes(self: BundleDescription) -> bytes:
        if changes:
            changes.pop()()
        return original(self)

    monkeypatch.setattr(BundleDescription, "to_bytes", to_bytes)


def test_archive_below_its_own_source_is_refused(tmp_path: Path, write_tree: WriteTree) -> None:
    source = write_tree(tmp_path / "source", MANIFEST)
    (tmp_path / "alias").symlink_to("source")
    for output in (source / "web.tar.gz", tmp_path / "alias/web.tar.gz"):
        with pytest.raises(PublishError, match="the directory to pack"):
            pack(source, output)


@pytest.mark.parametrize(
    ("source", "output", "message"),
    [
        ("nowhere", "web.tar.gz", "nowhere: cannot be read: "),
        ("manifest.yaml", "web.tar.gz", "manifest.yaml: cannot be read: "),
        (".", "../nowhere/web.tar.gz", "web.tar.gz: cannot be written: "),
        (".", "../directory", "directory: cannot be written: "),
    ],
)
def test_a_problem_with_the_disk_names_the_place(
    tmp_path: Path, write_tree: WriteTree, source: str, output: str, message: str
) -> None:
    tree = write_tree(tmp_path / "source", MANIFEST)
    (tmp_path / "directory").mkdir()
    with pytest.raises(PublishError) as caught:
        pack(tree / source, tree / output)
    assert message in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "source"]


# -- libraries ------------------------------------------------------------------------------------

LIBRARY = {"files/motd": b"Hello\n", "bin/check": b"#!/bin/sh\n", ".git/x": b"", "x~": b""}


@pytest.fixture
def library(tmp_path: Path, write_tree: WriteTree) -> Path:
    """Return a library next to the bundle."""
    return write_tree(tmp_path / "common", LIBRARY)


def pack_with(source: Path, output: Path, *libraries: Path) -> BuiltBundle:
    roots = {f"libraries/{library.name}": library for library in libraries}
    return build_bundle(source, output, name="web", version="1", libraries=roots)


def test_a_library_is_packed_as_if_it_lay_in_the_bundle(
    tmp_path: Path, write_tree: WriteTree, library: Path
) -> None:
    source = write_tree(tmp_path / "source", FILES)
    inside = write_tree(
        tmp_path / "inside", FILES | {f"libraries/common/{path}": data for path, data in LIBRARY.items()}
    )
    built = pack_with(source, tmp_path / "one.tar.gz", library)
    whole = pack_with(inside, tmp_path / "other.tar.gz")
    assert built.path.read_bytes() == whole.path.read_bytes()
    assert inspect(built.path) == built.description
    results = [path.text for path in built.description.files if path.text.startswith("libraries/")]
    assert results == ["libraries/common/bin/check", "libraries/common/files/motd"]


def test_the_digest_of_a_library_says_whether_it_is_the_same(
    tmp_path: Path, write_tree: WriteTree, library: Path
) -> None:
    source = write_tree(tmp_path / "source", FILES)
    other = write_tree(tmp_path / "other", {"libraries.txt": b"x"})

    def digests() -> dict[str, str]:
        return pack_with(source, tmp_path / "web.tar.gz", library, other).description.libraries()

    first = digests()
    assert list(first) == ["common", "other"]
    (source / "manifest.yaml").write_bytes(b"resources: [ ]\n")
    assert digests() == first
    changed: list[Callable[[], object]] = [
        lambda: (library / "files/motd").write_bytes(b"hello\n"),
        lambda: (library / "files/motd").chmod(0o755),
        lambda: (library / "files/motd").rename(library / "files/issue"),
        lambda: (library / "files/issue").unlink(),
    ]
    seen = [first["common"]]
    for change in changed:
        change()
        seen.append(digests()["common"])
        assert digests()["other"] == first["other"]
    assert len(set(seen)) == len(seen)


def test_a_description_without_libraries_names_none(tmp_path: Path, write_tree: WriteTree) -> None:
    source = write_tree(tmp_path / "source", {**FILES, "libraries/README": b"none yet"})
    assert build_bundle(source, tmp_path / "a.tar.gz", name="web", version="1").description.libraries() == {}


@pytest.mark.parametrize("path", ["files/link", "link"])
def test_errors_in_a_library_name_its_path(
    tmp_path: Path, write_tree: WriteTree, library: Path, path: str
) -> None:
    source = write_tree(tmp_path / "source", FILES)
    (library / path).symlink_to("motd")
    message = f"'{library / path}': is a symbolic link, expected a regular file or a directory"
    with pytest.raises(PublishError, match=re.escape(message)):
        pack_with(source, tmp_path / "web.tar.gz", library)


@pytest.mark.parametrize("own", ["libraries/common/own", "libraries/common", "libraries"])
def test_a_library_that_meets_a_file_of_the_bundle_is_refused(
    tmp_path: Path, write_tree: WriteTree, library: Path, own: str
) -> None:
    source = write_tree(tmp_path / "source", {**FILES, own: b"x"})
    with pytest.raises(PublishError, match=r"'libraries(/common)?'"):
        pack_with(source, tmp_path / "web.tar.gz", library)
    assert not (tmp_path / "web.tar.gz").exists()


def test_an_archive_within_a_library_is_refused(tmp_path: Path, write_tree: WriteTree, library: Path) -> None:
    source = write_tree(tmp_path / "source", FILES)
    with pytest.raises(PublishError, match=r"is inside '.*/common', the directory to pack"):
        pack_with(source, library / "web.tar.gz", library)


@pytest.mark.attack("paths.huge")
def test_a_huge_tree_is_refused_before_it_is_read(
    tmp_path: Path, write_tree: WriteTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its files has 1 TiB, which takes too long to read."""
    monkeypatch.setattr("bundles.archive.pack.MOST_ENTRIES", 500)
    huge = tmp_path / "huge"
    huge.mkdir()
    for number in range(501):
        os.close(os.open(huge / str(number), os.O_CREAT))
    (huge / "0").chmod(0)
    os.truncate(huge / "1", 1 << 40)
    with pytest.raises(PublishError, match=r"huge': more than 500 files"):
        pack_with(write_tree(tmp_path / "source", FILES), tmp_path / "web.tar.gz", huge)
