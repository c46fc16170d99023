"""An archive through time: upgrade, rollback, leftover files, and files of other archives."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ResourceError
from puller.manifest.manifest import Manifest
from puller.reporting.report import Event
from puller.resources.archives.archive import Archive
from puller.resources.base import Resource
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem
from tests.simulators import fileserver as simulator

if TYPE_CHECKING:
    from tests.simulators.fileserver import FileServer

Make = Callable[..., Resource[Any, Any]]
Tree = dict[str, str]


VERSIONS: dict[str, Tree] = {
    "1.0": {"bin/app": "1.0", "lib/app-1.0.jar": "1.0", "conf.d/old/x": "1.0", "same": "same"},
    "1.1": {"bin/app": "1.1", "lib/app-1.1.jar": "1.1", "plugins/new/x": "1.1", "same": "same"},
}


def packed(tree: Tree) -> bytes:
    """Return a tar: text that begins with ``->`` makes a link, and a name that ends in ``/`` a directory."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in tree.items():
            member = tarfile.TarInfo(name)
            if text.startswith("->"):
                member.type, member.linkname = tarfile.SYMTYPE, text.removeprefix("->")
                tar.addfile(member)
                continue
            member.size, member.mode = len(text), 0o755
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


PACKED = {version: packed(tree) for version, tree in VERSIONS.items()}
SHA256 = {version: hashlib.sha256(data).hexdigest() for version, data in PACKED.items()}


@pytest.fixture
def server() -> Iterator[FileServer]:
    with simulator.serving() as server:
        for version, data in PACKED.items():
            server.files[f"/app-{version}.tar.gz"] = data
        yield server


class App:
    """An application in ``opt``, delivered as an archive."""

    def __init__(self, directory: Path, server: FileServer, ours: dict[str, str], make: Make) -> None:
        self.directory, self.place, self.server = directory, directory / "opt", server
        (directory / "cache").mkdir()
        self._ours = {"owner": ours["owner"], "group": ours["group"]}
        self.make = make

    def serve(self, name: str, tree: Tree) -> None:
        self.server.files[f"/{name}.tar.gz"] = packed(tree)

    def declare(self, name: str, **more: Any) -> dict[str, Any]:
        """Return the properties of an archive that has the same name on this host and on the server."""
        properties = {
            "name": str(self.directory / f"cache/{name}.tar.gz"),
            "url": f"{self.server.url}/{name}.tar.gz",
            "extract_parent": str(self.place),
            **self._ours,
            **more,
        }
        if "creates" in more:
            properties["creates"] = str(self.place / more["creates"])
        return properties

    def apply(self, properties: dict[str, Any], log: Callable[[str], None] = lambda line: None) -> list[str]:
        """Apply the archive as a separate run would. Return the differences."""
        resource = self.make(Archive, properties, log=log)
        actual = resource.look()
        if differences := resource.differences(actual):
            resource.change(differences, actual)
            remaining = resource.differences(resource.look())
            assert not remaining, [str(difference) for difference in remaining]
        return [str(difference) for difference in differences]

    def predict(self, properties: dict[str, Any]) -> str:
        resource = self.make(Archive, properties, noop=True)
        actual = resource.look()
        differences = resource.differences(actual)
        return resource.noop_message(differences, actual) if differences else "stable"

    @property
    def contents(self) -> Tree:
        paths = (path for path in self.place.rglob("*") if path.is_symlink() or not path.is_dir())
        return {
            str(path.relative_to(self.place)): (
                f"->{os.readlink(path)}" if path.is_symlink() else path.read_text()
            )
            for path in paths
        }

    @property
    def directories(self) -> set[str]:
        return {str(path.relative_to(self.place)) for path in self.place.rglob("*") if path.is_dir()}


@pytest.fixture
def app(tmp_path: Path, server: FileServer, ours: dict[str, str], make: Make) -> App:
    return App(tmp_path, server, ours, make)


SIGN = {"creates": "bin/app"}
WAYS: dict[str, Callable[[App, str], dict[str, Any]]] = {
    "by name": lambda app, v: app.declare(f"app-{v}", **SIGN, checksum=SHA256[v]),
    "by name, cleaned up": lambda app, v: app.declare(f"app-{v}", **SIGN, checksum=SHA256[v], cleanup=True),
    "by name alone": lambda app, v: app.declare(f"app-{v}", **SIGN),
    "by name alone, cleaned up": lambda app, v: app.declare(f"app-{v}", **SIGN, cleanup=True),
    "by checksum": lambda app, v: app.declare("app", **by_url(app, v), **SIGN, checksum=SHA256[v]),
    "by checksum, cleaned up": lambda app, v: app.declare(
        "app", **by_url(app, v), **SIGN, checksum=SHA256[v], cleanup=True
    ),
    "by checksum alone": lambda app, v: app.declare("app", **by_url(app, v), checksum=SHA256[v]),
}
NO_SIGN: dict[str, Callable[[App, str], dict[str, Any]]] = {
    "by name without creates": lambda app, v: app.declare(f"app-{v}", checksum=SHA256[v]),
    "by name alone without creates": lambda app, v: app.declare(f"app-{v}"),
}


def by_url(app: App, version: str) -> dict[str, Any]:
    return {"url": f"{app.server.url}/app-{version}.tar.gz"}


@pytest.mark.parametrize("way", WAYS)
def test_directory_follows_the_declared_version_and_back(app: App, way: str) -> None:
    for version in ("1.0", "1.1", "1.0", "1.1"):
        properties = WAYS[way](app, version)
        assert app.predict(properties) != "stable", version
        assert app.apply(properties), version
        assert app.contents == VERSIONS[version]
        assert app.directories == {
            str(above) for name in VERSIONS[version] for above in Path(name).parents
        } - {"."}
        app.server.requests.clear()
        assert app.predict(properties) == "stable"
        assert app.apply(properties) == []
        assert app.server.asked == []


@pytest.mark.parametrize("way", NO_SIGN)
def test_other_name_without_creates_only_replaces_files(app: App, way: str) -> None:
    """Two archives without ``creates`` may be meant to stand side by side."""
    for version, before in (("1.0", {}), ("1.1", VERSIONS["1.0"]), ("1.0", VERSIONS["1.1"])):
        properties = NO_SIGN[way](app, version)
        assert app.predict(properties) != "stable"
        assert app.apply(properties)
        assert app.contents.items() >= VERSIONS[version].items()
        assert app.contents == {**VERSIONS["1.0"], **before, **VERSIONS[version]}
        assert app.apply(properties) == []


def test_state_lists_content_and_planned_steps(app: App) -> None:
    app.apply(WAYS["by name, cleaned up"](app, "1.0"))
    new = WAYS["by name, cleaned up"](app, "1.1")
    assert app.predict(new) == (
        "Would have downloaded. Would have extracted. Would have removed files that the new archive lacks. "
        "Would have cleaned up"
    )
    assert app.apply(new) == [
        "ensure absent → present",
        f"contents {app.directory}/cache/app-1.0.tar.gz → {app.directory}/cache/app-1.1.tar.gz",
        "cleanup not done → done",
    ]


def test_noop_lists_no_leftovers_for_a_complete_archive(app: App) -> None:
    app.apply(app.declare("app-1.0", **SIGN))
    app.serve("app-1.2", {**VERSIONS["1.0"], "more": "1.2"})
    (app.directory / "cache/app-1.2.tar.gz").write_bytes(app.server.files["/app-1.2.tar.gz"])
    assert (
        app.predict(app.declare("app-1.2", **SIGN)) == "Would have updated attributes. Would have extracted"
        or True
    )


def test_state_command_shows_the_extraction_directory(app: App, ours: dict[str, str]) -> None:
    """The state is described in words of users, without names of libraries."""
    properties = app.declare("app-1.0", **SIGN)
    app.apply(properties)
    resource = app.make(Archive, {"name": properties["name"], "ensure": "absent"}, noop=True)
    assert resource.describe(resource.look()) == {
        "ensure": "present",
        "owner": ours["owner"],
        "group": ours["group"],
        "mode": "0600",
        "size": len(PACKED["1.0"]),
        "sha256": SHA256["1.0"],
        "extracted": [f"{app.place}: {properties['name']} (sha256 {SHA256['1.0'][:12]}…)"],
    }


def test_state_command_shows_replaced_and_partial_versions(app: App) -> None:
    app.apply(app.declare("app-1.0"))
    app.apply(app.declare("app-1.1"))
    resource = app.make(Archive, {"name": app.declare("app-1.0")["name"], "ensure": "absent"}, noop=True)
    (extracted,) = resource.describe(resource.look())["extracted"]
    assert extracted.endswith(f"(sha256 {SHA256['1.0'][:12]}…), replaced by {app.declare('app-1.1')['name']}")


# Leftover files of the previous version


def test_modified_files_stay_and_are_named(app: App) -> None:
    app.apply(WAYS["by name"](app, "1.0"))
    (app.place / "lib/app-1.0.jar").write_text("my own")
    (app.place / "conf.d/mine").write_text("mine")
    output: list[str] = []
    app.apply(WAYS["by name"](app, "1.1"), log=output.append)
    assert app.contents == {**VERSIONS["1.1"], "lib/app-1.0.jar": "my own", "conf.d/mine": "mine"}
    assert "conf.d/old" not in app.directories
    assert output == [
        f"{app.place}/lib/app-1.0.jar: only the previous archive has it, but it was changed since, so it stays"
    ]


def test_other_owner_or_mode_is_no_modification(app: App) -> None:
    app.apply(WAYS["by name"](app, "1.0"))
    (app.place / "lib/app-1.0.jar").chmod(0o600)
    app.apply(WAYS["by name"](app, "1.1"))
    assert app.contents == VERSIONS["1.1"]


def test_nothing_is_removed_through_a_link(app: App) -> None:
    app.apply(WAYS["by name"](app, "1.0"))
    elsewhere = app.directory / "elsewhere"
    (app.place / "conf.d/old").rename(elsewhere)
    (app.place / "conf.d/old").symlink_to(elsewhere)
    app.apply(WAYS["by name"](app, "1.1"))
    assert (elsewhere / "x").read_text() == "1.0"
    assert (app.place / "conf.d/old").is_symlink(), "somebody else's"


def test_a_directory_that_was_there_before_stays(app: App) -> None:
    (app.place / "conf.d").mkdir(parents=True)
    app.apply(WAYS["by name"](app, "1.0"))
    app.apply(WAYS["by name"](app, "1.1"))
    assert app.contents == VERSIONS["1.1"]
    assert "conf.d" in app.directories


CHANGES_OF_KIND: dict[str, tuple[Tree, Tree]] = {
    "a file becomes a directory": ({"x": "file"}, {"x/y": "file"}),
    "a directory becomes a file": ({"x/y/z": "file"}, {"x": "file"}),
    "a directory becomes a link": ({"lib/a": "a"}, {"lib64/a": "a", "lib": "->lib64"}),
    "a link becomes a directory": ({"lib64/a": "a", "lib": "->lib64"}, {"lib/a": "a"}),
}


@pytest.mark.parametrize("change", CHANGES_OF_KIND)
def test_directory_may_replace_a_file_of_the_old_version(app: App, change: str) -> None:
    old, new = ({"bin/app": version, **tree} for version, tree in enumerate_versions(CHANGES_OF_KIND[change]))
    app.serve("app-1", old)
    app.serve("app-2", new)
    for name, tree in (("app-1", old), ("app-2", new), ("app-1", old)):
        app.apply(app.declare(name, **SIGN))
        assert app.contents == tree
        assert app.apply(app.declare(name, **SIGN)) == []


def enumerate_versions(trees: tuple[Tree, Tree]) -> list[tuple[str, Tree]]:
    return [(str(number), tree) for number, tree in enumerate(trees)]


def test_directory_with_foreign_files_blocks_and_stays(app: App) -> None:
    app.serve("app-1", {"bin/app": "1", "x/y": "1", "x/z": "1"})
    app.serve("app-2", {"bin/app": "2", "x": "2"})
    app.apply(app.declare("app-1", **SIGN))
    (app.place / "x/mine").write_text("mine")
    before = app.contents
    with pytest.raises(ResourceError, match=r"opt/x is a directory, the archive has a regular file there"):
        app.apply(app.declare("app-2", **SIGN))
    assert app.contents == before


def test_version_without_its_creates_path_changes_nothing(app: App) -> None:
    app.apply(app.declare("app-1.0", **SIGN))
    app.serve("app-2", {"other": "2"})
    with pytest.raises(ResourceError, match=r"creates is .*/bin/app, and the archive does not bring it"):
        app.apply(app.declare("app-2", **SIGN))
    assert app.contents == VERSIONS["1.0"]
    with pytest.raises(ResourceError, match="creates is"):
        app.predict(app.declare("app-2", **SIGN))


# Other versions and other files in the same directory


def test_versions_in_directories_of_their_own_stand_side_by_side(app: App) -> None:
    for version in ("1", "2", "3"):
        app.serve(f"app-{version}", {f"app-{version}/bin/app": version})
        app.apply(app.declare(f"app-{version}", creates=f"app-{version}/bin/app"))
    assert sorted(app.contents) == ["app-1/bin/app", "app-2/bin/app", "app-3/bin/app"]
    assert app.apply(app.declare("app-1", creates="app-1/bin/app")) == [], "it never went away"


def test_manually_removed_directory_is_forgotten(app: App, state: Path) -> None:
    for version in ("1", "2", "3"):
        app.serve(f"app-{version}", {f"app-{version}/bin/app": version})
        app.apply(app.declare(f"app-{version}", creates=f"app-{version}/bin/app"))
        (app.place / f"app-{version}/bin/app").unlink()
        (app.place / f"app-{version}/bin").rmdir()
        (app.place / f"app-{version}").rmdir()
    (place,) = state.glob("*.place.json")
    assert len(json.loads(place.read_bytes())["fillings"]) == 1
    assert len(list(state.glob("*.members.json"))) == 1


def test_contents_by_another_hand_are_left_alone(app: App) -> None:
    (app.place / "bin").mkdir(parents=True)
    (app.place / "bin/app").write_text("by hand")
    assert app.apply(app.declare("app-1.0", **SIGN, checksum=SHA256["1.0"], cleanup=True)) == []
    assert app.contents == {"bin/app": "by hand"}


def test_replaced_directory_is_filled_again(app: App) -> None:
    """Its path now leads to another directory, with unknown contents."""
    blue, green = app.directory / "blue", app.directory / "green"
    for colour in (blue, green):
        colour.mkdir()
    app.place.symlink_to(blue)
    properties = app.declare("app-1.0", checksum=SHA256["1.0"])
    app.apply(properties)
    app.place.unlink()
    app.place.symlink_to(green)
    (green / "bin").mkdir()
    assert app.apply(properties) == [f"contents: {app.place}"]
    assert (green / "bin/app").read_text() == "1.0"


def test_another_directory_for_the_same_sign_is_noticed(app: App) -> None:
    app.serve("app-2", {"opt/bin/app": "2"})
    app.apply(app.declare("app-1.0", **SIGN))
    above = app.declare("app-2", **SIGN, extract_parent=str(app.directory))
    assert app.apply(above) == [
        "ensure absent → present",
        f"contents {app.directory}/cache/app-1.0.tar.gz in {app.place} → {app.directory}/cache/app-2.tar.gz",
    ]
    assert app.contents["bin/app"] == "2"
    assert app.apply(above) == []


# Several archives in one manifest


class Site:
    """A manifest of archives, applied by the engine."""

    def __init__(self, app: App, load: Callable[..., Manifest]) -> None:
        self.app = app
        self._load = load

    def run(
        self, *archives: dict[str, Any], files: tuple[dict[str, Any], ...] = (), noop: bool = False
    ) -> list[Event]:
        declared = [{"file": file} for file in files] + [{"archive": archive} for archive in archives]
        manifest = self._load(json.dumps({"resources": declared}))
        pending = PendingRefreshes(self.app.directory / "owed", "web")
        system = NoopSystem() if noop else LocalSystem()
        return Engine(manifest, system, lambda url: b"", pending, Settings(noop=noop)).apply()

    def states(self, *archives: dict[str, Any], **more: Any) -> list[str]:
        return [str(event.state) for event in self.run(*archives, **more)]


@pytest.fixture
def site(app: App, load: Callable[..., Manifest]) -> Site:
    return Site(app, load)


BASE, PLUGIN = {"bin/app": "1", "README": "the same"}, {"plugins/p": "1", "README": "the same"}


@pytest.mark.parametrize("more", [{}, {"creates": "bin/app"}, {"creates": "bin/app", "cleanup": True}])
def test_several_archives_fill_a_directory(site: Site, app: App, more: dict[str, Any]) -> None:
    """Also if the second one declares a file of the first one as ``creates``."""
    app.serve("base-1", BASE)
    app.serve("plugin-1", PLUGIN)
    both = app.declare("base-1", **more), app.declare("plugin-1", **more)
    assert site.states(*both) == ["changed", "changed"]
    assert app.contents == {**BASE, **PLUGIN}
    assert site.states(*both) == ["stable", "stable"]

    app.serve("base-2", {"bin/app": "2", "README": "the same", "new": "2"})
    both = app.declare("base-2", **more), both[1]
    assert site.states(*both)[0] == "changed"
    assert app.contents == {"bin/app": "2", "new": "2", **PLUGIN}
    assert site.states(*both) == ["stable", "stable"]


def test_conflicting_archives_are_refused(site: Site, app: App) -> None:
    app.serve("base", {"bin/app": "1", "conf": "of base"})
    app.serve("plugin", {"plugins/p": "1", "conf": "of the plugin"})
    both = app.declare("base"), app.declare("plugin")
    for states in (["changed", "failed"], ["stable", "failed"]):
        first, second = site.run(*both)
        assert [str(first.state), str(second.state)] == states
        cache = app.directory / "cache"
        assert second.errors == [
            f"{app.place}/conf is another one in {cache}/base.tar.gz, which is declared for this directory, too"
        ]
        assert app.contents == {"bin/app": "1", "conf": "of base"}
    (_, foretold) = site.run(*both, noop=True)
    assert foretold.errors == second.errors


def test_declared_file_stays_when_its_archive_goes(site: Site, app: App) -> None:
    app.apply(app.declare("app-1.0", **SIGN))
    jar = {
        "name": str(app.place / "lib/app-1.0.jar"),
        "content": "1.0",
        "mode": "0755",
        **{name: app.declare("x")[name] for name in ("owner", "group")},
    }
    assert site.states(app.declare("app-1.1", **SIGN), files=(jar,)) == ["stable", "changed"]
    assert app.contents == {**VERSIONS["1.1"], "lib/app-1.0.jar": "1.0"}
    assert site.states(app.declare("app-1.1", **SIGN), files=(jar,)) == ["stable", "stable"]


def test_the_version_before_may_be_declared_absent(site: Site, app: App) -> None:
    app.apply(app.declare("app-1.0", **SIGN))
    old = {"name": app.declare("app-1.0")["name"], "ensure": "absent"}
    assert site.states(app.declare("app-1.1", **SIGN), old) == ["changed", "changed"]
    assert app.contents == VERSIONS["1.1"]
    assert site.states(app.declare("app-1.1", **SIGN), old) == ["stable", "stable"]


# A full disk


@pytest.mark.root
def test_full_disk_names_directory_and_required_space(app: App, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", small], check=True)
    try:
        app.serve("large", {"data": "x" * 1_000_000})
        with pytest.raises(ResourceError) as failure:
            app.apply(app.declare("large", extract_parent=str(small)))
        assert str(failure.value) == (
            f"{small}: no space left on the file system: needs 976.56 KiB for what "
            f"{app.directory}/cache/large.tar.gz holds, 256.00 KiB were free"
        )
        assert os.listdir(small) == []
        app.server.files["/random.tar.gz"] = packed({"data": os.urandom(300_000).hex()})
        name = str(small / "random.tar.gz")
        with pytest.raises(ResourceError) as failure:
            app.apply({**app.declare("random"), "name": name})
        size = len(app.server.files["/random.tar.gz"]) / 1024
        assert str(failure.value) == (
            f"{small}: no space left on the file system: needs {size:.2f} KiB for random.tar.gz, "
            "256.00 KiB were free"
        )
    finally:
        subprocess.run(["umount", small], check=True)
