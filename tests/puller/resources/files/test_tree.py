"""Directories with managed contents: trees of files, attributes of contents, and purging."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hiera.expressions.expressions import Scope
from puller.bundle_paths import BundleFiles
from puller.errors import ChangedMeanwhile, ResourceError
from puller.manifest.problems import decode
from puller.resources.accounts.user import User
from puller.resources.base import Context, Part, PropertyError, Resource
from puller.resources.files.file_or_tree import FileOrTree
from puller.resources.files.leftover_files import LeftoverFile
from puller.resources.scaffolds.scaffold import Scaffold
from puller.resources.services.service import Service
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from puller.system.protocol import System

as_root = pytest.mark.root
SOMEBODY = 65534


class Done:
    """The result of one application: its differences, and the dry run's message."""

    def __init__(self, differences: list[str], noop: str) -> None:
        self.differences, self.noop = differences, noop


def changed(resource: Resource[Any, Any]) -> None:
    actual = resource.look()
    resource.change(resource.differences(actual), actual)


class Bench:
    """A source, a target directory, and the other resources of the run."""

    def __init__(self, root: Path, ours: dict[str, str]) -> None:
        self.source, self.target, self.state = root / "source", root / "target", root / "state"
        self.source.mkdir()
        self.ours = ours
        self.others: list[Part] = []
        self.system: System = LocalSystem()
        self.declared: Callable[[], list[Part]] = self.declared_here

    def declared_here(self) -> list[Part]:
        return [
            Part("file#tree", FileOrTree, FileOrTree.properties_type(name=str(self.target))),
            *self.others,
        ]

    def wanted(self, **more: Any) -> dict[str, Any]:
        tree = {"ensure": "directory", "source": str(self.source), "recurse": True, **self.ours}
        return {"name": str(self.target), **tree, **more}

    def resource(
        self, given: dict[str, Any], *, noop: bool = False, uncertain: bool = False
    ) -> Resource[Any, Any]:
        properties: Any = decode(
            FileOrTree, {name: value for name, value in given.items() if value is not None}
        )
        for error in FileOrTree.problems(properties):
            raise error
        return FileOrTree(properties, self.context(noop=noop, uncertain=uncertain))

    def context(self, *, noop: bool = False, uncertain: bool = False) -> Context:
        files = BundleFiles.anywhere(self.source.parent)
        return Context(
            NoopSystem() if noop else self.system,
            files,
            Scope({}, {}),
            lambda url: b"",
            {},
            lambda type_name: [
                other.properties.name for other in self.others if other.type.type_name == type_name
            ],
            resources=self.declared,
            state_directory=self.state,
            noop=noop,
            uncertain=lambda path, apart_from="": uncertain,
        )

    def declare(self, type_: Any, name: str, **properties: Any) -> None:
        declared = decode(type_, {"name": f"{self.target}/{name}", **properties})
        self.others.append(Part(f"{type_.type_name}#{name}", type_, declared))

    def apply(self, **more: Any) -> Done:
        """Apply after a dry run, and check that a second run changes nothing."""
        desired = self.wanted(**more)
        before = picture(self.target)
        noop = self.foretold(desired)
        assert picture(self.target) == before
        resource = self.resource(desired)
        actual = resource.look()
        differences = resource.differences(actual)
        assert bool(differences) == bool(noop)
        if differences:
            resource.change(differences, actual)
        second = self.resource(desired)
        assert [str(difference) for difference in second.differences(second.look())] == []
        return Done([str(difference) for difference in differences], noop)

    def foretold(self, desired: dict[str, Any]) -> str:
        resource = self.resource(desired, noop=True)
        actual = resource.look()
        differences = resource.differences(actual)
        return resource.noop_message(differences, actual) if differences else ""

    def refused(self, **more: Any) -> str:
        """Return the error that the run and its dry run raise without changing anything."""
        before = picture(self.target)
        resource = self.resource(self.wanted(**more))
        with pytest.raises(ResourceError) as failure:
            changed(resource)
        with pytest.raises(ResourceError) as foretold:
            self.foretold(self.wanted(**more))
        assert str(failure.value) == str(foretold.value)
        assert picture(self.target) == before
        return str(failure.value).replace(f"{self.target.parent}/", "")

    def forget(self) -> list[str]:
        """Remove the directory as a leftover, and return the differences."""
        properties = LeftoverFile.properties_type(name=str(self.target), ensure="absent")
        noop = LeftoverFile(properties, self.context(noop=True))
        result = noop.look()
        predicted = noop.differences(result)
        if predicted:
            assert noop.noop_message(predicted, result)
        leftovers = LeftoverFile(properties, self.context())
        actual = leftovers.look()
        if differences := leftovers.differences(actual):
            leftovers.change(differences, actual)
        assert not leftovers.differences(leftovers.look())
        return [str(difference) for difference in differences]


def picture(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return mode, content and owner of all files by path."""
    result = {}
    for path in [root, *sorted(root.rglob("*"))] if os.path.lexists(root) else []:
        is_file = path.is_file() and not path.is_symlink()
        detail = os.readlink(path) if path.is_symlink() else path.read_text() if is_file else ""
        result[str(path.relative_to(root))] = (f"{path.lstat().st_mode:o}", detail, path.lstat().st_uid)
    return result


def files_in(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()
    }


def modes_in(root: Path) -> dict[str, str]:
    paths = [root, *sorted(root.rglob("*"))]
    return {str(path.relative_to(root)): f"{stat.S_IMODE(path.lstat().st_mode):04o}" for path in paths}


def put(root: Path, *paths: str) -> None:
    """Create files that contain their own path. A trailing slash makes a directory."""
    for path in paths:
        place = root / path
        if path.endswith("/"):
            place.mkdir(parents=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"{path}\n")


@pytest.fixture
def bench(tmp_path: Path, ours: dict[str, str]) -> Bench:
    return Bench(tmp_path, ours)


# A tree of the bundle


def test_directory_becomes_equal_to_its_source(bench: Bench) -> None:
    put(bench.source, "a.conf", "d/b.conf", "d/e/c.conf", "empty/")
    done = bench.apply()
    assert files_in(bench.target) == files_in(bench.source)
    assert modes_in(bench.target) == {
        ".": "0755", "a.conf": "0644", "d": "0755", "d/b.conf": "0644",
        "d/e": "0755", "d/e/c.conf": "0644", "empty": "0755",
    }  # fmt: skip
    assert done.noop == "Would have changed 6 files, removed 0"
    assert next(map(str, done.differences)) == "ensure absent → directory"
    assert "d/b.conf added" in [*map(str, done.differences)]
    assert "empty added" in [*map(str, done.differences)]


def test_only_differing_files_are_written(bench: Bench) -> None:
    put(bench.source, "same", "content", "size", "mode")
    bench.apply()
    before = {path.name: path.stat().st_ino for path in bench.target.iterdir()}
    (bench.target / "content").write_text("CONTENT\n")
    (bench.target / "size").write_text("larger than it was\n")
    (bench.target / "mode").chmod(0o600)
    put(bench.target, "somebody's")
    done = bench.apply()
    assert done.noop == "Would have changed 3 files, removed 0"
    assert [*map(str, done.differences)][1:] == ["mode mode 0600 → 0644", "size content: 19 bytes → 5 bytes"]
    assert next(map(str, done.differences)).startswith("content content: ")
    after = {path.name: path.stat().st_ino for path in bench.target.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"content", "size"}
    assert files_in(bench.target) == {**files_in(bench.source), "somebody's": "somebody's\n"}


@pytest.mark.parametrize(
    ("mode", "modes"),
    [
        ("0640", {".": "0750", "d": "0750", "d/run": "0640", "plain": "0640"}),
        ("u=rwX,go=rX", {".": "0755", "d": "0755", "d/run": "0755", "plain": "0644"}),
        ("2775", {".": "2775", "d": "2775", "d/run": "2775", "plain": "2775"}),
        ("xx0", {".": "0750", "d": "0750", "d/run": "0750", "plain": "0640"}),
    ],
)
def test_mode_of_a_tree_keeps_programs_where_it_is_open(
    mode: str, modes: dict[str, str], bench: Bench
) -> None:
    put(bench.source, "plain", "d/run")
    (bench.source / "d/run").chmod(0o755)
    bench.apply(mode=mode)
    assert modes_in(bench.target) == modes


@as_root
def test_the_owner_is_for_the_tree(bench: Bench) -> None:
    put(bench.source, "a", "d/b")
    bench.apply(owner=str(SOMEBODY), group=str(SOMEBODY))
    assert {path.lstat().st_uid for path in [bench.target, *bench.target.rglob("*")]} == {SOMEBODY}
    os.chown(bench.target / "d", 0, 0)
    assert len(bench.apply(owner=str(SOMEBODY), group=str(SOMEBODY)).differences) == 2


@pytest.mark.parametrize(
    "make", [lambda path: path.symlink_to("/etc/passwd"), os.mkfifo], ids=["link", "fifo"]
)
def test_source_with_special_files_is_refused(make: Callable[[Path], None], bench: Bench) -> None:
    put(bench.source, "d/a")
    make(bench.source / "d" / "other")
    assert "d/other is " in bench.refused()
    assert not bench.target.exists()


@pytest.mark.parametrize("source", ["file", "missing", "link"])
def test_a_source_that_is_no_directory_is_refused(source: str, bench: Bench) -> None:
    put(bench.source.parent, "file")
    (bench.source.parent / "link").symlink_to("file")
    assert "is not a directory" in bench.refused(source=str(bench.source.parent / source))


def test_a_source_that_holds_its_target_is_refused(bench: Bench) -> None:
    bench.target = bench.source / "target"
    assert "hold one another" in bench.refused()


def test_any_valid_file_name_is_accepted(bench: Bench) -> None:
    for name in ("-rf", "new\nline", "blank and 'quote'", "ümläut", ".hidden"):
        put(bench.source, name)
    done = bench.apply()
    assert sorted(os.listdir(os.fsencode(bench.target))) == sorted(os.listdir(os.fsencode(bench.source)))
    assert "'new\\nline' added" in [*map(str, done.differences)]
    odd = os.fsencode(bench.target) + b"/\xff"
    os.close(os.open(odd, os.O_CREAT))
    assert bench.apply().differences == []
    assert bench.refused(purge=True) == r"'target/\udcff': its name is not UTF-8, so it is not removed"
    os.close(os.open(os.fsencode(bench.source) + b"/\xff", os.O_CREAT))
    assert r"the name of '\udcff' is not UTF-8" in bench.refused()


def test_long_list_of_differences_is_shortened(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puller.resources.files.file_tree._MOST_TOLD", 3)
    put(bench.source, *(f"file{number}" for number in range(10)))
    assert str(bench.apply().differences[-1]) == "files: 7 more"


def test_a_source_that_an_earlier_resource_brings_is_foretold(bench: Bench) -> None:
    desired = bench.wanted(source=str(bench.source / "later"))
    resource = bench.resource(desired, noop=True, uncertain=True)
    actual = resource.look()
    message = resource.noop_message(resource.differences(actual), actual)
    assert message == "Would have copied a source that is not there yet"
    assert resource.reach() == str(bench.target)


# Obstacles


def test_file_replaces_a_link_and_keeps_its_target(bench: Bench, tmp_path: Path) -> None:
    put(bench.source, "a", "d/b")
    (tmp_path / "outside").mkdir()
    put(tmp_path / "outside", "precious")
    bench.target.mkdir()
    (bench.target / "a").symlink_to(tmp_path / "outside/precious")
    bench.apply()
    assert files_in(bench.target) == files_in(bench.source)
    assert files_in(tmp_path / "outside") == {"precious": "precious\n"}


@pytest.mark.parametrize("way", ["a directory", "a link to a directory", "a file"])
def test_directories_with_data_are_replaced_by_force_only(way: str, bench: Bench, tmp_path: Path) -> None:
    put(bench.source, "a", "d/b")
    (tmp_path / "outside").mkdir()
    put(tmp_path / "outside", "b")
    before = picture(tmp_path / "outside")
    bench.target.mkdir()
    if way == "a directory":
        put(bench.target, "a/theirs")
    elif way == "a file":
        put(bench.target, "d")
    else:
        (bench.target / "d").symlink_to(tmp_path / "outside")
    output = bench.refused()
    assert output.startswith("target: a is a directory" if way == "a directory" else "target: d is ")
    assert output.endswith("replacing it requires force: true")
    bench.apply(force=True)
    assert files_in(bench.target) == files_in(bench.source)
    assert picture(tmp_path / "outside") == before


@pytest.mark.attack("trees.exchange")
def test_a_link_in_the_place_of_the_directory_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    put(bench.source, "a")
    (tmp_path / "outside").mkdir()
    bench.target.symlink_to(tmp_path / "outside")
    assert "replacing it by a directory requires force" in bench.refused(purge=True)
    assert os.listdir(tmp_path / "outside") == []


@pytest.mark.attack("trees.exchange")
def test_directory_swapped_for_a_link_leads_nothing_outside(bench: Bench, tmp_path: Path) -> None:
    put(bench.source, "d/a", "d/b")
    bench.apply()
    (tmp_path / "outside").mkdir()
    put(tmp_path / "outside", "a", "b")
    before = picture(tmp_path / "outside")
    put(bench.target, "d/extra")
    (bench.target / "d/a").write_text("other\n")
    resource = bench.resource(bench.wanted(purge=True))
    actual = resource.look()
    differences = resource.differences(actual)
    (bench.target / "d").rename(tmp_path / "moved")
    (bench.target / "d").symlink_to(tmp_path / "outside")
    with pytest.raises((OSError, ChangedMeanwhile)):
        resource.change(differences, actual)
    assert picture(tmp_path / "outside") == before


@pytest.mark.attack("trees.hard-link")
def test_a_file_with_other_names_is_written_anew(bench: Bench, tmp_path: Path) -> None:
    put(bench.source, "a")
    bench.target.mkdir()
    put(tmp_path, "precious")
    (bench.target / "a").hardlink_to(tmp_path / "precious")
    bench.apply()
    assert (tmp_path / "precious").read_text() == "precious\n"
    assert (bench.target / "a").read_text() == "a\n"


# Purging


def test_purge_removes_extra_files_and_links_themselves(bench: Bench, tmp_path: Path) -> None:
    put(bench.source, "a", "d/b", "empty/")
    bench.apply()
    put(bench.target, "extra", "d/extra", "more/deep/file", "more/void/", "empty/not")
    (tmp_path / "outside").mkdir()
    put(tmp_path / "outside", "precious")
    (bench.target / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(bench.target / "fifo")
    done = bench.apply(purge=True)
    assert done.noop == "Would have changed 0 files, removed 9"
    assert "more/deep/file removed" in [*map(str, done.differences)]
    assert files_in(bench.target) == files_in(bench.source)
    assert sorted(os.listdir(bench.target)) == ["a", "d", "empty"]
    assert files_in(tmp_path / "outside") == {"precious": "precious\n"}


def test_resource_declared_below_is_kept(bench: Bench) -> None:
    put(bench.source, "a", "d/mine")
    bench.apply()
    put(bench.target, "d/local.conf", "d/extra", "held/deep/local.conf", "held/extra", "data/theirs", "s/x")
    bench.declare(FileOrTree, "a", content="theirs", **bench.ours)
    bench.declare(FileOrTree, "d/local.conf", **bench.ours)
    bench.declare(FileOrTree, "held/deep/local.conf", ensure="absent")
    bench.declare(FileOrTree, "data", ensure="directory", **bench.ours)
    bench.declare(Scaffold, "s", source="x")
    (bench.target / "a").write_text("theirs")
    (bench.target / "a").chmod(0o600)
    bench.apply(purge=True)
    assert files_in(bench.target) == {
        "a": "theirs", "d/mine": "d/mine\n", "d/local.conf": "d/local.conf\n",
        "held/deep/local.conf": "held/deep/local.conf\n", "data/theirs": "data/theirs\n", "s/x": "s/x\n",
    }  # fmt: skip
    assert modes_in(bench.target)["a"] == "0600"


def test_resource_declared_by_another_path_is_kept(bench: Bench, tmp_path: Path) -> None:
    bench.target.mkdir()
    put(bench.target, "a", "b")
    (tmp_path / "way").symlink_to("target")
    bench.declare(FileOrTree, "a", **bench.ours)
    bench.others = [
        Part("file#x", FileOrTree, FileOrTree.properties_type(name=f"{tmp_path}/way/a")),
    ]
    bench.apply(purge=True)
    assert files_in(bench.target) == {"a": "a\n"}


def test_directory_without_a_source_is_purged(bench: Bench) -> None:
    put(bench.target, "site-a.conf", "site-b.conf", "old.conf", "d/old.conf")
    for name in ("site-a.conf", "site-b.conf"):
        bench.declare(FileOrTree, name, **bench.ours)
    done = bench.apply(source=None, purge=True, recurse=None)
    assert done.noop == "Would have changed 0 files, removed 3"
    assert sorted(os.listdir(bench.target)) == ["site-a.conf", "site-b.conf"]


@pytest.mark.parametrize("name", ["nginx", "nginx.service"])
def test_links_of_an_enabled_service_survive_a_purge(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("puller.resources.services.unit_links.DIRECTORY", str(bench.target))
    unit = "/usr/lib/systemd/system/nginx.service"
    retained = ["multi-user.target.wants/nginx.service", "x.target.requires/nginx.service", "web.service"]
    gone = ["multi-user.target.wants/other.service", "b.target.wants/nginx.timer", "other.service"]
    for link in (*retained, *gone):
        path = bench.target / link
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(unit if link in retained else "/usr/lib/systemd/system/other.service")
    (bench.target / "nginx.service").symlink_to("/dev/null")
    bench.others.append(Part(f"service#{name}", Service, decode(Service, {"name": name, "enable": True})))
    bench.apply(source=None, purge=True, recurse=None)
    leftovers = {os.path.relpath(path, bench.target) for path in bench.target.rglob("*") if path.is_symlink()}
    assert leftovers == {*retained, "nginx.service"}
    assert not (bench.target / "b.target.wants").exists()


def test_authorized_keys_survive_a_purge(bench: Bench) -> None:
    home, ssh = bench.target.parent / "home", bench.target.parent / "home/.ssh"
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f app"
    bench.target = ssh
    for keys, kept in ([key], ["authorized_keys"]), ([], []):
        put(ssh, "authorized_keys", "id_of_somebody")
        user = decode(User, {"name": "app", "home": str(home), "authorized_keys": keys})
        bench.others = [Part("user#app", User, user)]
        bench.apply(source=None, purge=True, recurse=None)
        assert os.listdir(ssh) == kept


def test_unknown_declarations_block_the_purge(bench: Bench) -> None:
    put(bench.target, "a")

    def unknown() -> list[Part]:
        raise ResourceError(
            "manifest.yaml:3: file#x may declare further resources that depend on unknown values"
        )

    bench.declared = unknown
    assert "may declare further resources that depend on unknown values" in bench.refused(
        purge=True, source=None
    )


@pytest.mark.parametrize("state", ["target/puller", "target"])
def test_files_of_puller_are_never_purged(state: str, bench: Bench, tmp_path: Path) -> None:
    put(bench.source, "a")
    bench.target.mkdir()
    bench.state = tmp_path / "target/puller"
    put(bench.target, "puller/state.json", "extra")
    bench.apply(purge=True)
    assert "puller/state.json" in files_in(bench.target)
    assert "extra" not in files_in(bench.target)


@pytest.fixture
def mounted(bench: Bench) -> Iterator[Path]:
    """Mount another file system below the directory, and return the mount point."""
    point = bench.target / "other" / "mnt"
    point.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", point], check=True)
    try:
        put(point, "precious")
        yield point
    finally:
        subprocess.run(["umount", point], check=True)


@as_root
def test_a_mount_point_stays_with_all_that_is_in_it(bench: Bench, mounted: Path) -> None:
    put(bench.source, "a")
    put(bench.target, "other/extra", "extra")
    bench.apply(purge=True)
    assert files_in(bench.target) == {"a": "a\n", "other/mnt/precious": "precious\n"}
    (mounted / "precious").chmod(0o600)
    bench.apply(source=None)
    assert modes_in(mounted)["precious"] == "0600"


@as_root
def test_a_mount_point_in_the_way_is_not_replaced(bench: Bench, mounted: Path) -> None:
    put(bench.source, "other")
    output = bench.refused(force=True)
    assert output == "target/other cannot be replaced: " + f"{mounted} is mounted below it".replace(
        f"{bench.target.parent}/", ""
    )


def test_force_does_not_remove_declared_resources(bench: Bench) -> None:
    put(bench.source, "a")
    put(bench.target, "a/theirs")
    bench.declare(FileOrTree, "a/theirs", **bench.ours)
    assert bench.refused(force=True) == "target/a is in the way, and another resource is declared below it"


# Only attributes


def test_attributes_apply_below_without_a_source(bench: Bench, tmp_path: Path) -> None:
    put(bench.target, "a", "d/run", "d/b")
    (bench.target / "d/run").chmod(0o777)
    (bench.target / "d/b").chmod(0o666)
    put(tmp_path, "outside")
    (tmp_path / "outside").chmod(0o666)
    (bench.target / "d/link").symlink_to(tmp_path / "outside")
    done = bench.apply(source=None, mode="go-w")
    assert [*map(str, done.differences)] == ["d/b mode 0666 → 0644", "d/run mode 0777 → 0755"]
    assert done.noop == "Would have changed 2 files, removed 0"
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o666


def test_attributes_below_may_be_partial(bench: Bench) -> None:
    desired = {"source": None, "create": False, "mode": "go-w", "owner": None, "group": None}
    assert bench.apply(**desired).differences == []
    assert not bench.target.exists()
    put(bench.target, "a")
    (bench.target / "a").chmod(0o666)
    bench.apply(**desired)
    assert modes_in(bench.target)["a"] == "0644"


@pytest.mark.attack("trees.hard-link")
def test_file_with_several_links_changes_no_owner(bench: Bench, tmp_path: Path) -> None:
    put(tmp_path, "precious")
    bench.target.mkdir()
    (bench.target / "a").hardlink_to(tmp_path / "precious")
    (bench.target / "a").chmod(0o600)
    assert "target/a: has 2 names (hard links)" in bench.refused(source=None)


# Versions


def test_tree_follows_versions_forth_and_back(bench: Bench) -> None:
    put(bench.source, "a", "d/b")
    bench.apply(purge=True)
    first = picture(bench.target)
    put(bench.source, "c", "e/f")
    (bench.source / "d/b").write_text("second\n")
    (bench.source / "a").unlink()
    bench.apply(purge=True)
    assert files_in(bench.target) == files_in(bench.source)
    put(bench.source, "a", "d/b")
    for path in ("c", "e/f"):
        (bench.source / path).unlink()
    (bench.source / "e").rmdir()
    bench.apply(purge=True)
    assert picture(bench.target) == first


def test_removed_absent_removes_own_unchanged_files(
    bench: Bench,
) -> None:
    put(bench.target, "before")
    put(bench.source, "before", "made", "changed", "d/made", "d/kept", "gone/made")
    bench.apply(removed="absent")
    put(bench.target, "theirs")
    (bench.target / "changed").write_text("by hand\n")
    for path in ("before", "made", "changed", "d/made", "gone/made"):
        (bench.source / path).unlink()
    (bench.source / "gone").rmdir()
    assert bench.apply().differences == []
    done = bench.apply(removed="absent")
    assert done.noop == "Would have changed 0 files, removed 4"
    assert sorted(files_in(bench.target)) == ["before", "changed", "d/kept", "theirs"]
    assert not (bench.target / "gone").exists()


@pytest.mark.parametrize("was_there", [True, False])
def test_leaving_tree_removes_all_files_it_made(was_there: bool, bench: Bench) -> None:
    put(bench.source, "a", "d/b", "d/e/c", "empty/")
    if was_there:
        put(bench.target, "theirs", "d/theirs")
    bench.apply()
    (bench.target / "a").write_text("by hand\n")
    assert bench.forget()
    remaining = {"a": "by hand\n", "theirs": "theirs\n", "d/theirs": "d/theirs\n"}
    assert files_in(bench.target) == (remaining if was_there else {"a": "by hand\n"})
    assert not (bench.target / "empty").exists()
    (bench.target / "a").unlink()
    bench.forget()
    assert bench.target.exists() is was_there


def test_existing_empty_directory_stays_when_the_tree_goes(bench: Bench) -> None:
    put(bench.source, "a", "d/b")
    bench.target.mkdir()
    bench.apply()
    assert bench.forget()
    assert os.listdir(bench.target) == []


def test_former_tree_directory_goes_only_when_empty(bench: Bench) -> None:
    bench.apply(source=None, recurse=None)
    put(bench.target, "theirs")
    assert bench.forget() == []
    (bench.target / "theirs").unlink()
    assert bench.forget() == ["ensure directory → absent"]
    assert not bench.target.exists()


def test_all_changes_are_recorded_before_they_happen(bench: Bench) -> None:
    put(bench.source, "a", "d/b", "way")
    put(bench.target, "a", "extra/x", "way/deep/y")
    (bench.target / "a").chmod(0o600)
    resource = bench.resource(bench.wanted(purge=True, force=True))
    reported = {
        path.removeprefix(f"{bench.target}/") for path in resource.changed_paths(resource.look()) or ()
    }
    assert {"a", "d", "d/b", "way", "way/deep", "way/deep/y", "extra", "extra/x"} <= reported
    assert any(path.startswith(str(bench.state)) for path in reported)


# Killed at any step


class Killed(BaseException):
    """Raised where the process is killed."""


CHANGES = ("replace_file", "make_directory", "set_attributes", "remove", "remove_tree")


class Failing(LocalSystem):
    """The real system, killed before change number ``left``."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def __getattribute__(self, name: str) -> Any:
        if name in CHANGES:
            self.left -= 1
            if self.left < 0:
                raise Killed
        return super().__getattribute__(name)


def test_kill_at_any_step_converges_and_keeps_records(bench: Bench, tmp_path: Path) -> None:
    put(bench.source, "a", "b", "d/c", "way")
    for step in range(1000):
        put(bench.target, "b", "extra/x", "way/y")
        (bench.target / "b").chmod(0o600)
        bench.system = Failing(step)
        resource = bench.resource(bench.wanted(purge=True, force=True))
        actual = resource.look()
        try:
            resource.change(resource.differences(actual), actual)
        except Killed:
            pass
        else:
            break
        bench.system = LocalSystem()
        bench.apply(purge=True, force=True)
        assert files_in(bench.target) == files_in(bench.source)
        bench.forget()
        assert sorted(files_in(bench.target)) == ["b"]
        subprocess.run(["rm", "-r", bench.target], check=True)
    assert step > 6


# At load


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"recurse": None}, "source has no effect with ensure: directory"),
        ({"ensure": "present"}, "recurse is only for ensure: directory"),
        (
            {"ensure": "absent", "purge": True, "recurse": None, "source": None},
            "purge is only for ensure: directory",
        ),
        ({"source": "https://example.com/x"}, "source is a URL, expected a directory of the bundle"),
        ({"create": False}, "source has no effect with create: false"),
        ({"content": "x", "source": None}, "content has no effect with ensure: directory"),
        ({"validate": "true {}"}, "validate is only for a file whose content is managed"),
        ({"name": "/etc", "purge": True}, "purge is not done of /etc: all of the system is in there"),
        ({"owner": None}, "owner is missing"),
    ],
)
def test_impossible_properties_are_refused_at_load(
    given: dict[str, Any], sentence: str, bench: Bench
) -> None:
    with pytest.raises(PropertyError) as error:
        bench.resource(bench.wanted(**given))
    assert sentence in str(error.value)


def test_noop_counts_obstacles(tmp_path: Path, execute: Any) -> None:
    source, target, manifest = tmp_path / "tree", tmp_path / "target", tmp_path / "manifest.yaml"
    (source / "x").mkdir(parents=True)
    (source / "x" / "y").write_text("1")
    ids = f"owner: '{os.geteuid()}', group: '{os.getegid()}'"
    tree = f"ensure: directory, source: tree, recurse: true, force: true, {ids}, mode: 'u=rwX,go=rX'"
    manifest.write_text(f"resources: [{{file: [{{{target}: {{{tree}}}}}]}}]\n")

    def apply(*options: str) -> str:
        return str(execute("apply", str(manifest), "--state-directory", str(tmp_path / "state"), *options)[1])

    apply()
    shutil.rmtree(source / "x")
    (source / "x").write_text("2")
    assert "Would have changed 1 file, removed 0" in apply("--noop")
    assert "x a directory → a file" in apply()
    assert (target / "x").read_text() == "2"
    assert "1 stable" in apply()
