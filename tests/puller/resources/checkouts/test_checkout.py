"""The checkout resource with real repositories: the table of its page, rejected and ignored states."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puller.errors import ResourceError
from puller.resources.base import PropertyError
from puller.system import commands
from tests.puller.resources.checkouts.conftest import Place
from tests.support.git_remotes import Remote, git, give


def picture(directory: Path) -> dict[Path, tuple[int, ...]]:
    """Return the inode and the times of all paths in a tree."""
    status = {path: path.lstat() for path in directory.rglob("*")}
    return {path: (item.st_ino, item.st_mtime_ns, item.st_ctime_ns) for path, item in status.items()}


def test_nothing_becomes_a_clone_at_its_revision(place: Place, remote: Remote) -> None:
    output = f"Would have cloned {remote.url} at v1"
    assert place.predict(url=remote.url, revision="v1") == output
    assert place.started == []
    place.path.mkdir()
    assert place.predict(url=remote.url, revision="v1") == output
    assert place.apply(url=remote.url, revision="v1") == ["ensure absent → present"]
    assert place.started == ["clone", "checkout"]
    assert place.text == "one"
    assert place.git("branch", "--show-current") == ""
    assert place.git("for-each-ref", "refs/heads") == ""
    assert place.apply(url=remote.url, revision="v1") == []
    assert place.started == ["status"]


@pytest.mark.everything
@pytest.mark.parametrize("revision", ["", "main", "v1", "v2", "COMMIT", "SHORT"])
@pytest.mark.parametrize("depth", [None, 1])
@pytest.mark.representatives(1)
@pytest.mark.sample(4)
def test_matching_revision_costs_a_status_query(
    place: Place, remote: Remote, revision: str, depth: int | None
) -> None:
    commit = remote.commit("three")
    revision = {"COMMIT": commit, "SHORT": commit[:8]}.get(revision, revision)
    desired: dict[str, Any] = {"url": remote.url, "revision": revision, "depth": depth}
    assert place.apply(**desired)
    assert place.text == {"v1": "one", "v2": "two"}.get(revision, "three")
    before = picture(place.path)
    assert place.apply(**desired) == []
    assert place.predict(**desired) == ""
    assert place.started == ["status"]
    assert picture(place.path) == before
    assert (place.path / ".git/shallow").exists() is bool(depth)


@pytest.mark.everything
def test_missing_revision_means_the_head_of_the_remote(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url)
    assert place.started == ["clone", "checkout"]
    remote.commit("three")
    assert place.apply(url=remote.url) == []
    assert place.text == "two"
    place.git("checkout", "--quiet", "v1")
    assert place.apply(url=remote.url) == [], "present says nothing of which one"


@pytest.mark.everything
def test_known_revision_is_checked_out_offline(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url, revision="v1")
    old = place.head
    remote.bare.rename(remote.bare.with_suffix(".away"))
    new = place.git("rev-parse", "v2^{commit}")
    output = f"Would have checked out v2 ({old[:12]}..{new[:12]})"
    assert place.predict(url=remote.url, revision="v2") == output
    assert place.apply(url=remote.url, revision="v2")
    assert place.started == ["status", "checkout"]
    assert place.text == "two"


@pytest.mark.parametrize("kind", ["branch", "tag", "commit"])
def test_a_revision_that_is_not_known_is_fetched(place: Place, remote: Remote, kind: str) -> None:
    place.apply(url=remote.url, revision="v1")
    commit = remote.commit("three", branch="new", tag="v3")
    revision = {"branch": "new", "tag": "v3", "commit": commit}[kind]
    assert place.predict(url=remote.url, revision=revision).startswith(f"Would have checked out {revision} ")
    assert place.predict(url=remote.url, revision=revision).endswith(f"from {remote.url}")
    place.apply(url=remote.url, revision=revision)
    assert [item for item in place.started if item != "rev-parse"] == ["status", "fetch", "checkout"]
    assert (place.text, place.head) == ("three", commit)
    assert place.apply(url=remote.url, revision=revision) == []
    assert place.started == ["status"]


@pytest.mark.parametrize("revision", ["", "main"])
def test_latest_follows_a_rewritten_branch(place: Place, remote: Remote, revision: str) -> None:
    desired = {"url": remote.url, "revision": revision, "ensure": "latest"}
    place.apply(**desired)
    assert place.apply(**desired) == []
    assert place.started == ["status", "ls-remote"]
    old = place.head
    git(remote.work, "reset", "--quiet", "--hard", "v1")
    new = remote.commit("other")
    assert place.predict(**desired) == f"Would have updated from {old[:12]} to {new[:12]}"
    place.apply(**desired)
    assert place.started == ["status", "ls-remote", "fetch", "checkout"]
    assert place.text == "other"
    assert place.apply(**desired) == []
    assert place.apply(url=remote.url, revision=revision) == []


@pytest.mark.everything
def test_moved_tag_is_followed_with_latest_only(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url, revision="v2")
    remote.commit("three", tag="v2")
    assert place.apply(url=remote.url, revision="v2") == []
    assert place.text == "two"
    place.apply(url=remote.url, revision="v2", ensure="latest")
    assert place.text == "three"
    assert place.apply(url=remote.url, revision="v2") == []
    assert place.apply(url=remote.url, revision="v2", ensure="latest") == []


@pytest.mark.everything
@pytest.mark.parametrize("ensure", ["present", "latest"])
def test_of_a_tag_and_a_branch_it_is_the_tag_which_is_told(place: Place, remote: Remote, ensure: str) -> None:
    remote.commit("three", branch="v1")
    place.apply(url=remote.url, revision="main")
    place.apply(url=remote.url, revision="v1", ensure=ensure)
    assert place.text == "one"
    assert place.notes == ["v1 is a tag and a branch, and Puller uses the tag"]


@pytest.mark.everything
def test_another_url_is_set_and_asked(place: Place, remote: Remote, tmp_path: Path) -> None:
    place.apply(url=remote.url, revision="v1")
    moved = tmp_path / "moved.git"
    remote.bare.rename(moved)
    assert place.predict(url=str(moved), revision="v1") == "Would have changed the url"
    assert place.apply(url=str(moved), revision="v1") == [f"url {remote.url} → {moved}"]
    assert place.started == ["status", "remote"]
    assert place.git("remote", "get-url", "origin") == str(moved)
    assert place.apply(url=str(moved), revision="v1") == []


@pytest.mark.everything
def test_a_repository_of_no_remote_gets_one(place: Place, remote: Remote) -> None:
    place.path.mkdir()
    place.git("init", "--quiet")
    place.apply(url=remote.url, revision="v2")
    assert place.text == "two"


def test_local_changes_are_discarded_with_force_only(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url, revision="v1")
    (place.path / "file").write_text("by hand")
    (place.path / "untracked").write_text("stays")
    for revision in ("v1", "v2"):
        for act in (place.predict, place.apply):
            with pytest.raises(ResourceError, match=f"{place.path} has local changes in file; force: true"):
                act(url=remote.url, revision=revision)
    assert place.text == "by hand"
    output = place.predict(url=remote.url, revision="v2", force=True)
    assert output.startswith("Would have discarded local changes, would have checked out v2 (")
    place.apply(url=remote.url, revision="v2", force=True)
    assert (place.text, (place.path / "untracked").read_text()) == ("two", "stays")
    (place.path / "file").unlink()
    assert place.predict(url=remote.url, revision="v2", force=True) == "Would have discarded local changes"
    place.apply(url=remote.url, revision="v2", force=True)
    assert place.text == "two"


def test_a_commit_by_hand_is_given_up_with_force_alone(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url, revision="v1")
    (place.path / "file").write_text("by hand")
    place.git("commit", "--quiet", "--all", "--message", "by hand")
    own = place.head
    for wanted in ({"revision": "v2", "url": remote.url}, {"ensure": "absent"}):
        for act in (place.predict, place.apply):
            with pytest.raises(
                ResourceError, match=f"has the commit {own[:12]}, which no branch of the remote has"
            ):
                act(**wanted)
    assert place.head == own
    place.apply(url=remote.url, revision="v2", force=True)
    assert place.text == "two"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.representatives(1)
def test_an_untracked_file_in_the_way_is_refused_by_its_name(
    place: Place, remote: Remote, force: bool, ignored: bool
) -> None:
    place.apply(url=remote.url, revision="v1")
    remote.commit("x", name="new", tag="v3")
    (place.path / "new").write_text("mine")
    if ignored:
        (place.path / ".git/info").mkdir(exist_ok=True)
        (place.path / ".git/info/exclude").write_text("new\n")
    with pytest.raises(ResourceError, match="new"):
        place.apply(url=remote.url, revision="v3", force=force)
    assert ((place.path / "new").read_text(), place.text) == ("mine", "one")


@pytest.mark.everything
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("ensure", ["present", "latest", "absent"])
@pytest.mark.parametrize("found", ["file", "full", "link", "gitfile"])
@pytest.mark.representatives(1)
@pytest.mark.sample(6)
def test_other_directory_is_refused_even_with_force(
    place: Place, remote: Remote, found: str, ensure: str, force: bool
) -> None:
    if found == "file":
        place.path.write_text("precious")
    elif found == "link":
        place.path.symlink_to(remote.work)
    else:
        place.path.mkdir()
        (place.path / ("precious" if found == "full" else ".git")).write_text("gitdir: /elsewhere")
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match=r"remove it first|is not a directory"):
            act(url=remote.url, ensure=ensure, force=force)
    assert os.path.lexists(place.path)


def test_absent_takes_a_clean_tree_away(place: Place, remote: Remote) -> None:
    assert place.apply(ensure="absent") == []
    place.apply(url=remote.url, revision="v1")
    (place.path / "untracked").write_text("goes")
    assert place.predict(ensure="absent") == "Would have removed the checkout"
    assert place.apply(ensure="absent")
    assert not place.path.exists()
    assert place.apply(ensure="absent") == []
    assert place.started == []


@pytest.mark.everything
def test_absent_takes_a_changed_tree_away_with_force_alone(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url, revision="v1")
    (place.path / "file").write_text("by hand")
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match="has local changes in file"):
            act(ensure="absent")
    place.apply(ensure="absent", force=True)
    assert not place.path.exists()


@pytest.mark.everything
def test_deleted_remote_branch_is_no_local_work(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url, revision="main")
    git(remote.work, "reset", "--quiet", "--hard", "v1")
    git(remote.bare, "tag", "--delete", "v2")
    remote.commit("other")
    place.git("fetch", "--quiet", "--prune", "--prune-tags", "--force")
    assert place.predict(ensure="absent") == "Would have removed the checkout"


REFUSED_REVISIONS = ["nothing-of-this-name", "0123456789", "0" * 40]


@pytest.mark.parametrize("revision", REFUSED_REVISIONS)
@pytest.mark.parametrize("ensure", ["present", "latest"])
@pytest.mark.representatives(1)
def test_unknown_revision_is_a_failure_and_changes_nothing(
    place: Place, remote: Remote, revision: str, ensure: str
) -> None:
    with pytest.raises(ResourceError, match=f"{remote.url} has no|couldn't find remote ref {revision}"):
        place.apply(url=remote.url, revision=revision, ensure=ensure)
    assert not place.path.exists()
    place.apply(url=remote.url, revision="v1")
    with pytest.raises(ResourceError, match=f"{remote.url} has no|couldn't find remote ref {revision}"):
        place.apply(url=remote.url, revision=revision, ensure=ensure)
    assert place.apply(url=remote.url, revision="v1") == []


def test_an_empty_remote_is_a_failure(place: Place, tmp_path: Path) -> None:
    empty = Remote(tmp_path / "empty")
    with pytest.raises(ResourceError, match="find remote ref HEAD"):
        place.apply(url=empty.url)
    assert not place.path.exists()


def test_a_remote_that_is_away_is_told_in_noop_and_fails_the_run(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url)
    remote.bare.rename(remote.bare.with_suffix(".away"))
    assert place.predict(url=remote.url, ensure="latest") == ""
    assert "whether it is the latest is not known: git ls-remote: exit code 128" in place.notes[0]
    with pytest.raises(ResourceError, match="git ls-remote: exit code 128; it printed:"):
        place.apply(url=remote.url, ensure="latest")
    assert place.apply(url=remote.url) == []


@pytest.mark.everything
def test_unavailable_single_commit_fetches_all_history_once(place: Place, remote: Remote) -> None:
    commit = git(remote.work, "rev-parse", "v1^{commit}")
    for key in ("allowTipSHA1InWant", "allowReachableSHA1InWant", "allowAnySHA1InWant"):
        git(remote.bare, "config", f"uploadpack.{key}", "false")
    git(remote.bare, "config", "uploadpack.hideRefs", "refs/x")
    place.apply(url=remote.url, revision=commit[:10], depth=1)
    assert place.text == "one"
    assert place.notes == ["the commit alone could not be fetched, so all history was"]
    assert place.apply(url=remote.url, revision=commit[:10], depth=1) == []
    assert place.started == ["status"]


@pytest.mark.everything
@pytest.mark.usefixtures("remote")
def test_a_missing_parent_is_a_failure_in_noop_too(place: Place, remote: Remote) -> None:
    place.path = place.path / "below" / "app"
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match=r"directory .* does not exist"):
            act(url=remote.url)


def test_missing_git_is_reported(place: Place, remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (False, True):
        if there:
            place.apply(url=remote.url)
        with monkeypatch.context() as patch:
            patch.setattr("puller.resources.checkouts.git.SEARCH_PATH", "/nonexistent")
            patch.setattr(commands, "SEARCH_PATH", "/nonexistent")
            for act in (place.predict, place.apply):
                with pytest.raises(ResourceError, match="git is not installed; it is in the package git"):
                    act(url=remote.url, revision="v1")


@pytest.mark.everything
@pytest.mark.parametrize("is_cloned", [False, True])
def test_noop_believes_in_a_git_that_comes_before(
    place: Place, remote: Remote, monkeypatch: pytest.MonkeyPatch, is_cloned: bool
) -> None:
    if is_cloned:
        place.apply(url=remote.url)
    monkeypatch.setattr("puller.resources.checkouts.git.SEARCH_PATH", "/nonexistent")
    resource = place.resource(url=remote.url, noop=True)
    resource.context = msgspec.structs.replace(resource.context, uncertain=lambda path, apart_from="": True)
    actual = resource.look()
    differences = resource.differences(actual)
    output = resource.noop_message(differences, actual) if differences else ""
    assert output == ("" if is_cloned else f"Would have cloned {remote.url}")
    assert place.started == []


NOBODY = 65534


@pytest.mark.root
def test_git_runs_as_the_owner_and_all_is_theirs(place: Place, open_to_all: Path) -> None:
    place.path = open_to_all / "app"
    theirs = Remote(open_to_all / "remote")
    theirs.commit("one")
    give(theirs.bare)
    desired = {"url": theirs.url, "owner": "nobody", "group": NOBODY}
    place.apply(**desired)
    assert {path.lstat().st_uid for path in (place.path, *place.path.rglob("*"))} == {NOBODY}
    assert {command.identity and command.identity.uid for command in place.commands} == {NOBODY}
    assert place.apply(**desired) == []
    assert place.apply(url=theirs.url) == [], "unmanaged, it stays whose it is"
    assert {command.identity and command.identity.uid for command in place.commands} == {NOBODY}
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match="owner nobody → root; a repository is not given away"):
            act(url=theirs.url, owner="root")
    place.apply(ensure="absent")
    assert os.listdir(open_to_all) == ["remote"]


@pytest.mark.everything
@pytest.mark.root
def test_an_empty_directory_keeps_its_owner_and_mode(place: Place, open_to_all: Path) -> None:
    place.path = open_to_all / "app"
    place.path.mkdir(mode=0o750)
    give(place.path)
    theirs = Remote(open_to_all / "remote")
    theirs.commit("one")
    give(theirs.bare)
    place.apply(url=theirs.url)
    status = place.path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (NOBODY, NOBODY, 0o750)


@pytest.mark.everything
def test_an_owner_that_there_is_not_is_a_failure_in_noop_too(place: Place, remote: Remote) -> None:
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match="an unknown user"):
            act(url=remote.url, owner="nobody-here")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "url is missing; it is required unless ensure is absent"),
    ({"url": "https://h/x", "ensure": "there"}, "ensure is 'there', expected one of present, latest, absent"),
    ({"url": "https://h/x", "revision": "-f"}, "revision is '-f', expected a branch, tag or commit"),
    ({"url": "https://h/x", "revision": "a b"}, "expected a branch, tag or commit"),
    ({"url": "https://h/x", "revision": "a..b"}, "expected a branch, tag or commit"),
    ({"url": "https://h/x", "revision": "a:b"}, "expected a branch, tag or commit"),
    ({"url": "https://h/x", "revision": "+a"}, "expected a branch, tag or commit"),
    ({"url": "https://h/x", "revision": "v1^{commit}"}, "expected a branch, tag or commit"),
    ({"url": "https://h/x", "revision": "a\nb"}, "expected a branch, tag or commit"),
    ({"url": "https://h/x", "depth": 0}, "depth is 0, expected at least 1"),
    ({"url": "https://h/x", "owner": ""}, "owner is empty"),
    ({"url": "https://h/x", "name": "relative"}, "name is 'relative', expected an absolute path"),
    ({"url": "https://h/x", "name": "/"}, "name is '/', which is not managed"),
]


@pytest.mark.parametrize(("properties", "sentence"), WRONG)
def test_impossible_properties_are_refused_at_load(
    place: Place, properties: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(PropertyError, match=sentence.replace("(", r"\(").replace("+", r"\+")):
        place.resource(**{"name": "/srv/app", **properties})
