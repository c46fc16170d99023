"""Paths in bundles: every command and property resolves them by the same rules."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puller.bundle_paths import BundleFiles, BundlePathError, FileTree


def put(path: Path, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def files_of(tmp_path: Path, *, packed: bool = False) -> BundleFiles:
    """Create a bundle ``web`` with the libraries ``common`` and ``base``. ``common`` uses ``base``."""
    root = tmp_path / "web"
    libraries = root / "libraries" if packed else tmp_path / "libraries"
    for name in ("manifest.yaml", "roles/web.yaml", "files/motd"):
        put(root / name)
    for name in ("common/roles/vhost.yaml", "common/files/motd", "base/base.yaml"):
        put(libraries / name)
    trees = {
        "common": FileTree(str(libraries / "common"), "common", frozenset({"base"})),
        "base": FileTree(str(libraries / "base"), "base"),
    }
    return BundleFiles(str(root), FileTree(str(root), "", frozenset({"common"})), trees)


MEANS = [
    # location of the path, the path, and the file that it refers to
    ("", "files/motd", "bundle:files/motd"),
    ("", "./roles/../files/motd", "bundle:files/motd"),
    ("", "bundle:files/motd", "bundle:files/motd"),
    ("", "common:files/motd", "common:files/motd"),
    ("", "common:roles/../files/motd", "common:files/motd"),
    ("roles", "web.yaml", "bundle:roles/web.yaml"),
    ("roles", "../files/motd", "bundle:files/motd"),
    ("roles", "bundle:files/motd", "bundle:files/motd"),
    ("common:roles", "vhost.yaml", "common:roles/vhost.yaml"),
    ("common:roles", "../files/motd", "common:files/motd"),
    ("common:roles", "base:base.yaml", "base:base.yaml"),
]
REFUSED = [
    ("", "../other", "../other is outside of the bundle"),
    ("", "bundle:../other", "bundle:../other is outside of the bundle"),
    ("", "bundle:/etc/passwd", "bundle:/etc/passwd is outside of the bundle"),
    ("", "/etc/passwd", "/etc/passwd is outside of the bundle"),
    ("", "common:../base/base.yaml", "common:../base/base.yaml is outside of the library common"),
    (
        "",
        "comon:files/motd",
        "comon:files/motd: the bundle names no library 'comon' (did you mean 'common'?), and there is no such file",
    ),
    ("", "base:base.yaml", "base:base.yaml: the bundle names no library 'base' (known: bundle, common)"),
    ("roles", "../../other", "../../other is outside of the bundle"),
    ("common:roles", "../../../web/files/motd", "is outside of the library common"),
    ("common:roles", "common:files/motd", "the library common names no library 'common'"),
    (
        "common:roles",
        "bundle:files/motd",
        "bundle:files/motd: the library common cannot name files of the bundle that uses it; "
        "hand over what it needs as data",
    ),
    ("common:roles", "../../base/base.yaml", "../../base/base.yaml is outside of the library common"),
    ("", "files/\0", "'files/\\x00' is no path"),
]


def seen_from(files: BundleFiles, place: str) -> BundleFiles:
    library, _, inner = place.rpartition(":")
    return files.at(os.path.join(files.libraries[library].root if library else files.directory, inner))


@pytest.mark.parametrize("packed", [False, True], ids=["the author's tree", "packed"])
@pytest.mark.parametrize(("place", "path", "meant"), MEANS)
def test_path_means_a_single_file(tmp_path: Path, place: str, path: str, meant: str, packed: bool) -> None:
    files = seen_from(files_of(tmp_path, packed=packed), place)
    result = files.find(path)
    assert files.full_name(result) == meant
    assert os.path.isfile(result)
    assert files.name_of(path) == meant.removeprefix("bundle:")


@pytest.mark.attack("paths.out")
@pytest.mark.parametrize("packed", [False, True], ids=["the author's tree", "packed"])
@pytest.mark.parametrize(("place", "path", "message"), REFUSED)
def test_a_path_that_leads_out_is_refused(
    tmp_path: Path, place: str, path: str, message: str, packed: bool
) -> None:
    files = seen_from(files_of(tmp_path, packed=packed), place)
    with pytest.raises(BundlePathError) as caught:
        files.find(path)
    assert message in str(caught.value)


@pytest.mark.attack("paths.link")
def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    put(tmp_path / "secret")
    (tmp_path / "web/out").symlink_to("../secret")
    (tmp_path / "web/up").symlink_to("..")
    (tmp_path / "libraries/common/out").symlink_to("../base/base.yaml")
    for path in ("out", "up/secret", "bundle:up/secret"):
        with pytest.raises(BundlePathError, match="is outside of the bundle"):
            files.find(path)
    with pytest.raises(BundlePathError, match="is outside of the library common"):
        files.find("common:out")


def test_a_bundle_behind_a_link_is_itself(tmp_path: Path) -> None:
    put(tmp_path / "web/motd")
    (tmp_path / "current").symlink_to("web")
    assert BundleFiles.of(tmp_path / "current").find("motd") == str(tmp_path / "web/motd")


def test_a_packed_library_is_named_by_its_name_alone(tmp_path: Path) -> None:
    """Any other path to the library would only work in the packed bundle."""
    with pytest.raises(BundlePathError) as caught:
        files_of(tmp_path, packed=True).find("libraries/common/files/motd")
    sentence = "libraries/common/files/motd is in the library common: write common:files/motd"
    assert str(caught.value) == sentence


def test_name_with_a_colon_may_be_a_file(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    for name in ("app:main.conf", "files/a:b", "UPPER:x", "8080:x"):
        put(tmp_path / "web" / name)
        assert files.find(name) == str(tmp_path / "web" / name)
    assert files.find("not/there:either") == str(tmp_path / "web/not/there:either")
    put(tmp_path / "web/common:x")
    assert files.find("common:x") == str(tmp_path / "libraries/common/x")
    assert files.find("./common:x") == str(tmp_path / "web/common:x")


def test_paths_of_no_bundle_lead_anywhere(tmp_path: Path) -> None:
    files = BundleFiles.anywhere(tmp_path)
    assert files.find("../x") == str(tmp_path.parent / "x")
    assert files.find("/etc/x") == "/etc/x"
    assert files.find("bundle:x") == str(tmp_path / "x")
    assert (files.name_of("x/../y"), files.name_of("../y")) == ("y", "../y")
    assert files.at(str(tmp_path.parent)).name_of("z") == "../z"
    assert (files.shown(str(tmp_path / "y")), files.shown("/etc/x")) == ("y", "/etc/x")


SEGMENTS = st.lists(st.sampled_from(["..", ".", "", "roles", "up", "a b", "libraries"]), max_size=8)
PREFIXES = st.sampled_from(["", "/", "bundle:", "common:", "base:", "x:"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(PREFIXES, SEGMENTS, st.sampled_from(["", "roles", "common:", "common:roles"]), st.booleans())
def test_written_path_stays_in_its_tree(
    tmp_path: Path, prefix: str, segments: list[str], place: str, packed: bool
) -> None:
    files = seen_from(files_of(tmp_path, packed=packed), place)
    up = Path(files.tree.root, "up")
    if not up.is_symlink():
        up.symlink_to("../..")
    try:
        result = files.find(prefix + "/".join(segments))
    except BundlePathError:
        return
    library = prefix.removesuffix(":")
    tree = files.libraries[library] if library in files.tree.libraries else files.tree
    assert result == tree.root or result.startswith(f"{tree.root}/")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(["..", ".", "", "dir", "in", "out", "file", "dangling", "none"]), max_size=5))
def test_a_path_that_is_found_is_the_real_one(tmp_path: Path, segments: list[str]) -> None:
    tree = tmp_path / "tree"
    if not tree.exists():
        put(tree / "dir/dir/file")
        (tree / "dir/in").symlink_to("dir")
        (tree / "dir/out").symlink_to("../../tree/dir")
        (tree / "dir/dir/dangling").symlink_to("nowhere")
    path = "/".join(["dir", *segments])
    try:
        assert BundleFiles.of(tree).find(path) == os.path.realpath(tree / path)
    except BundlePathError:
        assert not Path(os.path.realpath(tree / path)).is_relative_to(tree)
