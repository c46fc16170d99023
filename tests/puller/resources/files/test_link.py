"""The link resource: every current state with every declaration, by the table of its page."""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.engine.engine import Engine, Settings
from puller.engine.pending_refreshes import PendingRefreshes
from puller.errors import ChangedMeanwhile, ManifestError, MutationInNoop, ResourceError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.resources.base import PropertyError, Resource
from puller.resources.files.leftover_files import LeftoverLink
from puller.resources.files.link import Link
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem

Make = Callable[..., Resource[Any, Any]]
Converge = Callable[[Resource[Any, Any]], list[str]]


def make_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o755)  # bind() rejects paths as long as tests use.


def make_full(path: Path) -> None:
    path.mkdir()
    (path / "precious").write_text("x")


FOUND: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "same": lambda path: path.symlink_to("releases/2"),
    "other": lambda path: path.symlink_to("releases/1"),
    "file": lambda path: path.write_text("x"),
    "fifo": lambda path: os.mkfifo(path),
    "socket": make_socket,
    "empty": lambda path: path.mkdir(),
    "full": make_full,
}
REFUSED = "requires force: true"
FULL = "is a directory that is not empty"
NO_LINK = "and only a link is removed"
CREATED, CHANGED = "Would have created the link", "Would have changed the link"
REPLACED, REMOVED = "Would have replaced the file by a link", "Would have removed the link"
DIRECTORY = "Would have replaced the directory by a link"
TABLE = [  # Current state, then the dry run's message (empty if in sync) or error for: present, with force, absent.
    ("nothing", CREATED, CREATED, ""),
    ("same", "", "", REMOVED),
    ("other", CHANGED, CHANGED, REMOVED),
    ("file", REFUSED, REPLACED, NO_LINK),
    ("fifo", REFUSED, REPLACED, NO_LINK),
    ("socket", REFUSED, REPLACED, NO_LINK),
    ("empty", REFUSED, DIRECTORY, NO_LINK),
    ("full", FULL, FULL, NO_LINK),
]
WANTED: list[dict[str, Any]] = [
    {"target": "releases/2"},
    {"target": "releases/2", "force": True},
    {"ensure": "absent", "force": True},
]
EVERY_PAIR = [
    pytest.param(row[0], wanted, row[column], id=f"{row[0]}, expected {wanted}")
    for row in TABLE
    for column, wanted in enumerate(WANTED, start=1)
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Create both releases, and return the path of the link."""
    for release in ("1", "2"):
        (tmp_path / "releases" / release).mkdir(parents=True)
    return tmp_path / "current"


def picture(path: Path) -> tuple[Any, ...]:
    if not os.path.lexists(path):
        return ()
    status = path.lstat()
    return status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, status.st_ctime_ns


@pytest.mark.parametrize(("found", "wanted", "said"), EVERY_PAIR)
def test_every_state_converges_in_a_run_or_is_refused(
    make: Make, converge: Converge, path: Path, found: str, wanted: dict[str, Any], said: str
) -> None:
    FOUND[found](path)
    before = picture(path)
    resource = make(Link, {"name": str(path), **wanted})
    if said in (REFUSED, FULL, NO_LINK):
        with pytest.raises(ResourceError, match=said):
            converge(resource)
        assert picture(path) == before
        return
    assert bool(converge(resource)) is bool(said)
    if wanted.get("ensure") == "absent":
        assert not os.path.lexists(path)
    else:
        assert os.readlink(path) == "releases/2"
    after = picture(path)
    assert converge(make(Link, {"name": str(path), **wanted})) == []
    assert picture(path) == after, "the second run changes nothing"


@pytest.mark.parametrize(("found", "wanted", "said"), EVERY_PAIR)
def test_noop_predicts_the_run_and_changes_nothing(
    make: Make, path: Path, found: str, wanted: dict[str, Any], said: str
) -> None:
    FOUND[found](path)
    before = picture(path)
    resource = make(Link, {"name": str(path), **wanted}, noop=True)
    actual = resource.look()
    differences = resource.differences(actual)
    if said in (REFUSED, FULL, NO_LINK):
        with pytest.raises(ResourceError, match=said):
            resource.noop_message(differences, actual)
    else:
        assert (resource.noop_message(differences, actual) if differences else "") == said
        if differences:
            with pytest.raises(MutationInNoop):
                resource.change(differences, actual)
    assert picture(path) == before


def test_the_text_is_compared_and_kept_as_it_is_written(make: Make, converge: Converge, path: Path) -> None:
    for target in ("releases/../releases/2", "releases/2", f"{path.parent}/releases/2", "./releases//2"):
        assert converge(make(Link, {"name": str(path), "target": target}))
        assert os.readlink(path) == target


def test_matching_link_costs_a_single_lookup(make: Make, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.symlink_to("nowhere")
    resource = make(Link, {"name": str(path), "target": "nowhere"})
    requested: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            requested.append(name)
            return real(*arguments, **named)

        return call

    for name in ("stat", "lstat", "readlink"):
        monkeypatch.setattr(os, name, counted(name))
    resource.context.system.lstat(str(path))  # Parent directories are checked once for all their entries.
    requested.clear()
    assert not resource.differences(resource.look())
    assert requested == ["lstat", "readlink"]


def test_there_is_never_a_moment_without_the_link(
    make: Make, converge: Converge, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.symlink_to("releases/1")
    steps = []
    for name in ("symlink", "rename", "unlink", "chown", "fsync"):
        real = getattr(os, name)

        def step(*arguments: Any, _real: Any = real, **named: Any) -> Any:
            steps.append(os.readlink(path))
            return _real(*arguments, **named)

        monkeypatch.setattr(os, name, step)
    assert converge(make(Link, {"name": str(path), "target": "releases/2", "owner": os.geteuid()}))
    assert set(steps) == {"releases/1", "releases/2"}
    assert sorted(os.listdir(path.parent)) == ["current", "releases"]


@pytest.mark.root
def test_owner_and_group_are_those_of_the_link_itself(make: Make, converge: Converge, path: Path) -> None:
    desired = {"name": str(path), "target": "releases/2", "owner": "1234", "group": 5678}
    assert len(converge(make(Link, desired))) == 1
    assert (path.lstat().st_uid, path.lstat().st_gid) == (1234, 5678)
    before = picture(path.parent / "releases" / "2")
    os.chown(path, 1, 2, follow_symlinks=False)
    inode = path.lstat().st_ino
    resource = make(Link, desired, noop=True)
    assert resource.noop_message(resource.differences(resource.look()), resource.look()) == (
        "Would have updated attributes"
    )
    assert len(converge(make(Link, desired))) == 2
    assert (path.lstat().st_ino, path.lstat().st_uid) == (inode, 1234)
    assert picture(path.parent / "releases" / "2") == before
    del desired["owner"], desired["group"]
    assert converge(make(Link, desired)) == [], "what is not managed is not looked at"


@pytest.mark.attack("managed-links.given")
@pytest.mark.root
def test_a_link_with_other_names_is_made_anew_and_not_given_away(
    make: Make, converge: Converge, path: Path
) -> None:
    other = path.parent / "other"
    other.symlink_to("releases/2")
    os.link(other, path, follow_symlinks=False)
    assert converge(make(Link, {"name": str(path), "target": "releases/2", "owner": "1234"}))
    assert (path.lstat().st_uid, other.lstat().st_uid, other.lstat().st_nlink) == (1234, 0, 1)


def test_an_owner_that_there_is_not_is_refused_in_noop_too(make: Make, path: Path) -> None:
    for noop in (False, True):
        resource = make(Link, {"name": str(path), "target": "x", "owner": "nobody-here"}, noop=noop)
        actual = resource.look()
        act = resource.noop_message if noop else resource.change
        with pytest.raises(ResourceError, match="owner is 'nobody-here', an unknown user"):
            act(resource.differences(actual), actual)
    assert not os.path.lexists(path)


def test_a_missing_parent_is_a_failure_in_noop_too(make: Make, path: Path) -> None:
    for noop in (False, True):
        resource = make(Link, {"name": f"{path}/below/link", "target": "x"}, noop=noop)
        actual = resource.look()
        act = resource.noop_message if noop else resource.change
        with pytest.raises(ResourceError, match=f"directory {path}/below does not exist"):
            act(resource.differences(actual), actual)


@pytest.mark.parametrize("noop", [False, True])
def test_missing_target_is_reported_at_creation(make: Make, path: Path, noop: bool) -> None:
    resource = make(Link, {"name": str(path), "target": "later"}, noop=noop)
    actual = resource.look()
    differences = resource.differences(actual)
    if noop:
        resource.noop_message(differences, actual)
    else:
        resource.change(differences, actual)
    assert list(resource.notes) == [f"its target does not exist: {path.parent}/later"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "relative", "target": "x"}, "name is 'relative', expected an absolute path"),
    ({"name": "/", "target": "x"}, "name is '/', which is not managed"),
    ({"name": "/a/../b", "target": "x"}, "name is '/a/../b', expected an absolute path"),
    ({"name": "/a"}, "target is missing; it is required unless ensure is absent"),
    ({"name": "/a", "target": ""}, "target is missing"),
    ({"name": "/a", "target": "x\0y"}, "expected a path without NUL"),
    ({"name": "/a/b", "target": "b"}, "target is 'b', which is the link itself"),
    ({"name": "/a/b", "target": "../a/./b"}, "which is the link itself"),
    ({"name": "/a/b", "target": "/a/b/"}, "which is the link itself"),
    (
        {"name": "/a", "target": "x", "ensure": "directory"},
        "ensure is 'directory', expected present or absent",
    ),
    ({"name": "/a", "target": "x", "owner": ""}, "owner is empty"),
]


@pytest.mark.attack("data-names.links")
@pytest.mark.parametrize(("properties", "sentence"), WRONG)
def test_impossible_properties_are_refused_at_load(
    make: Make, properties: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(PropertyError, match=sentence.replace("(", r"\(")):
        make(Link, properties)


def test_the_name_alone_is_enough_for_absent(make: Make, converge: Converge, path: Path) -> None:
    path.symlink_to("anywhere")
    assert converge(make(Link, {"name": str(path), "ensure": "absent"}))
    assert not os.path.lexists(path)


def test_a_link_that_was_left_stays_where_it_is_no_link_any_more(
    make: Make, converge: Converge, path: Path
) -> None:
    path.write_text("somebody's")
    leftovers = make(LeftoverLink, {"name": str(path), "ensure": "absent"})
    assert converge(leftovers) == []
    assert list(leftovers.notes) == ["it is no longer a link, so it stays"]
    path.unlink()
    path.symlink_to("x")
    assert converge(make(LeftoverLink, {"name": str(path), "ensure": "absent"}))


@pytest.mark.attack("managed-links.given")
def test_concurrently_created_path_is_not_overwritten(make: Make, path: Path) -> None:
    path.symlink_to("releases/1")
    resource = make(Link, {"name": str(path), "target": "releases/2"})
    actual = resource.look()
    path.unlink()
    path.write_text("theirs")
    with pytest.raises(ChangedMeanwhile):
        resource.change(resource.differences(actual), actual)
    assert path.read_text() == "theirs"


@pytest.mark.attack("managed-links.given")
@pytest.mark.root
def test_path_swapped_for_a_new_link_keeps_its_owner(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may write to the directory replaces the link before its owner is set."""
    precious = path.parent / "precious"
    precious.write_text("x")
    real = os.symlink

    def exchanged(target: str, name: str, *, dir_fd: int) -> None:
        real(target, name, dir_fd=dir_fd)
        os.unlink(name, dir_fd=dir_fd)
        os.link(precious, name, dst_dir_fd=dir_fd)

    monkeypatch.setattr(os, "symlink", exchanged)
    with pytest.raises(ChangedMeanwhile, match="another process replaced it while Puller created it"):
        LocalSystem().make_link(str(path), "x", None, (1234, 1234))
    assert precious.stat().st_uid == 0
    assert sorted(os.listdir(path.parent)) == ["precious", "releases"]


class Died(BaseException):
    """Raised where the run is killed."""


@pytest.mark.parametrize("found", ["nothing", "other", "file", "empty"])
@pytest.mark.parametrize("step", ["symlink", "rename", "fsync", "chown"])
def test_wherever_it_is_killed_the_next_run_converges(
    make: Make, converge: Converge, path: Path, monkeypatch: pytest.MonkeyPatch, found: str, step: str
) -> None:
    FOUND[found](path)
    desired = {"name": str(path), "target": "releases/2", "force": True, "owner": os.geteuid()}

    def die(*arguments: Any, **named: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(os, step, die)
        with pytest.raises(Died):
            converge(make(Link, desired))
    converge(make(Link, desired))
    assert os.readlink(path) == "releases/2"
    assert sorted(os.listdir(path.parent)) == ["current", "releases"]


# In a manifest

PAGE = Path(__file__).parents[4] / "docs/resources/link.md"


def apply(directory: Path, resources: list[Any], *, noop: bool = False) -> dict[str, Any]:
    """Apply resources and return the events by reference, relative to the directory."""
    (directory / "manifest.yaml").write_text(yaml.safe_dump({"resources": resources}))
    manifest = load_manifest(directory / "manifest.yaml", "manifest.yaml", Inputs({}, {}))
    system = NoopSystem() if noop else LocalSystem()
    settings = Settings(noop=noop, state_directory=directory / "state")
    engine = Engine(manifest, system, lambda url: b"", PendingRefreshes(None, "test"), settings)
    return {str(event.reference).replace(f"{directory}/", ""): event for event in engine.apply()}


OURS = {"owner": os.geteuid(), "group": os.getegid(), "mode": "0644"}


def files(directory: Path, *names: str, **properties: Any) -> dict[str, Any]:
    return {"file": [{f"{directory}/{name}": {**OURS, "content": "new\n", **properties}} for name in names]}


def link(directory: Path, target: str, name: str = "current") -> dict[str, Any]:
    return {"link": [{f"{directory}/{name}": {"target": target}}]}


STORIES: dict[str, Callable[[Path], list[Any]]] = {
    "a file below a new link": lambda d: [link(d, "releases/1"), files(d, "current/x", "current/y")],
    "a file below a link that leads elsewhere now": lambda d: [link(d, "releases/2"), files(d, "current/x")],
    "a target that comes before": lambda d: [
        {"file": [{f"{d}/new": {**OURS, "ensure": "directory"}}]},
        link(d, "new"),
        files(d, "current/x"),
    ],
    "a target that comes after": lambda d: [
        link(d, "new"),
        {"file": [{f"{d}/new": {**OURS, "ensure": "directory"}}]},
        files(d, "current/x"),
    ],
    "a link by a link": lambda d: [
        link(d, "releases/1", "one"),
        link(d, "one"),
        files(d, "current/x", "one/y"),
    ],
    "a file below a link to nothing": lambda d: [link(d, "nothing"), files(d, "current/x")],
    "a source through a link": lambda d: [
        files(d, "releases/2/x"),
        link(d, "releases/2"),
        {"file": [{f"{d}/copy": {**OURS, "source": f"{d}/current/x"}}]},
    ],
}


@pytest.mark.parametrize("before", [None, "releases/1"])
@pytest.mark.parametrize("story", STORIES)
def test_noop_follows_planned_links(path: Path, story: str, before: str | None) -> None:
    directory = path.parent
    (directory / "releases/1/x").write_text("new\n")
    (directory / "releases/2/x").write_text("old\n")
    (directory / "copy").write_text("old\n")
    if before:
        path.symlink_to(before)
    predicted = {
        name: event.state for name, event in apply(directory, STORIES[story](directory), noop=True).items()
    }
    done = {name: event.state for name, event in apply(directory, STORIES[story](directory)).items()}
    assert {name: state.replace("would change", "changed") for name, state in predicted.items()} == done


@pytest.mark.root
def test_the_example_of_the_page_converges_and_is_stable(tmp_path: Path) -> None:
    example = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    resources = yaml.safe_load(example.replace("/srv/app", f"{tmp_path}/app"))["resources"]
    (tmp_path / "app").mkdir()
    (tmp_path / "app/previous").symlink_to("releases/1.3.0")
    assert {event.state for event in apply(tmp_path, resources, noop=True).values()} >= {"would change"}
    assert "failed" not in {event.state for event in apply(tmp_path, resources).values()}
    assert os.readlink(tmp_path / "app/current") == "releases/1.4.0"
    assert not os.path.lexists(tmp_path / "app/previous")
    assert {event.state for event in apply(tmp_path, resources).values()} == {"stable"}


def test_equal_declarations_are_a_single_link(tmp_path: Path) -> None:
    assert len(apply(tmp_path, [link(tmp_path, "x"), link(tmp_path, "x")])) == 1
    with pytest.raises(ManifestError, match="target is 'y' here and 'x' there"):
        apply(tmp_path, [link(tmp_path, "x"), link(tmp_path, "y")])


@pytest.mark.attack("managed-links.way")
@pytest.mark.root
def test_link_in_a_user_directory_is_not_owned_by_the_user(
    make: Make, converge: Converge, tmp_path: Path
) -> None:
    home, victim = tmp_path / "home", tmp_path / "victim"
    home.mkdir()
    victim.mkdir()
    (home / "way").symlink_to(victim)
    for path in (home, home / "way"):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    with pytest.raises(ResourceError, match="the link 'way' of user 65534 leads to a directory of user 0"):
        converge(make(Link, {"name": str(home / "way/link"), "target": "x"}))
    assert os.listdir(victim) == []
    assert converge(make(Link, {"name": str(home / "own"), "target": "x", "owner": "65534"}))
    assert stat.S_ISLNK((home / "own").lstat().st_mode)
