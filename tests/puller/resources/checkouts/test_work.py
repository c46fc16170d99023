"""A user's work in a checkout is never removed without ``force``."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from puller.errors import ResourceError
from puller.resources.checkouts.checkout import LeftoverCheckout
from puller.resources.checkouts.repository import Repository
from puller.resources.checkouts.working_tree import WorkKind, find_work
from puller.system.local import LocalSystem
from tests.puller.resources.checkouts.conftest import Place
from tests.support.git_remotes import Remote, git

Make = Callable[[Place, Remote], None]


def stash(place: Place, remote: Remote) -> None:
    (place.path / "file").write_text("mine")
    place.git("stash", "--quiet")


def commit_under_tag(place: Place, remote: Remote) -> None:
    place.git("commit", "--quiet", "--allow-empty", "--message", "mine")
    place.git("tag", "own")
    place.git("checkout", "--quiet", "v1")


def commit_under_annotated_tag(place: Place, remote: Remote) -> None:
    place.git("commit", "--quiet", "--allow-empty", "--message", "mine")
    place.git("tag", "--annotate", "--message", "own", "own")
    place.git("reflog", "expire", "--expire=all", "--all")
    place.git("pack-refs", "--all")
    place.git("checkout", "--quiet", "v1")


def commit_on_branch(place: Place, remote: Remote) -> None:
    place.git("checkout", "--quiet", "-b", "own")
    place.git("commit", "--quiet", "--allow-empty", "--message", "mine")
    place.git("checkout", "--quiet", "v1")


def commit_under_other_ref(place: Place, remote: Remote) -> None:
    place.git("commit", "--quiet", "--allow-empty", "--message", "mine")
    place.git("update-ref", "refs/wip/x", "HEAD")
    place.git("reflog", "expire", "--expire=all", "--all")
    place.git("checkout", "--quiet", "v1")


def commit_in_reflog(place: Place, remote: Remote) -> None:
    place.git("commit", "--quiet", "--allow-empty", "--message", "mine")
    place.git("checkout", "--quiet", "v1")


def note(place: Place, remote: Remote) -> None:
    place.git("notes", "add", "--message", "mine", "HEAD")


def replacement(place: Place, remote: Remote) -> None:
    tree = place.git("rev-parse", "HEAD^{tree}")
    other = place.git("commit-tree", "-m", "other", tree)
    place.git("replace", "HEAD", other)


def linked_worktree(place: Place, remote: Remote) -> None:
    place.git("worktree", "add", "--quiet", "--detach", str(place.path.parent.parent / "elsewhere"))


def merge_in_progress(place: Place, remote: Remote) -> None:
    place.git("merge", "--quiet", "--no-commit", "--no-ff", "v2")
    place.git("checkout", "HEAD", "file")


def rebase_in_progress(place: Place, remote: Remote) -> None:
    with pytest.raises(Exception, match="rebase"):
        place.git("rebase", "--quiet", "--exec", "false", "--force-rebase", "--root")
    place.git("checkout", "--quiet", "v1")
    place.git("reflog", "expire", "--expire=all", "--all")


def bisect(place: Place, remote: Remote) -> None:
    place.git("bisect", "start", "v2", "v1")


def assume_unchanged(place: Place, remote: Remote) -> None:
    place.git("update-index", "--assume-unchanged", "file")
    (place.path / "file").write_text("mine")


def skip_worktree(place: Place, remote: Remote) -> None:
    place.git("update-index", "--skip-worktree", "file")
    (place.path / "file").unlink()
    (place.path / "file").symlink_to("mine")


def repository_inside(place: Place, remote: Remote) -> None:
    (place.path / "vendor/lib").mkdir(parents=True)
    git(place.path / "vendor/lib", "init", "--quiet")


def ignored_bare_repository(place: Place, remote: Remote) -> None:
    (place.path / ".git/info").mkdir(exist_ok=True)
    (place.path / ".git/info/exclude").write_text("vendor\n")
    (place.path / "vendor/lib").mkdir(parents=True)
    git(place.path / "vendor/lib", "init", "--quiet", "--bare")


WORKS: dict[Make, WorkKind] = {
    stash: WorkKind.STASH,
    commit_under_tag: WorkKind.COMMIT,
    commit_under_annotated_tag: WorkKind.COMMIT,
    commit_on_branch: WorkKind.COMMIT,
    commit_under_other_ref: WorkKind.COMMIT,
    commit_in_reflog: WorkKind.COMMIT,
    note: WorkKind.COMMIT,
    replacement: WorkKind.COMMIT,
    linked_worktree: WorkKind.WORKTREE,
    merge_in_progress: WorkKind.OPERATION,
    rebase_in_progress: WorkKind.OPERATION,
    bisect: WorkKind.OPERATION,
    assume_unchanged: WorkKind.MARKED,
    skip_worktree: WorkKind.MARKED,
    repository_inside: WorkKind.UNKNOWN_FILES,
    ignored_bare_repository: WorkKind.UNKNOWN_FILES,
}


def assert_kept(place: Place) -> None:
    """Check that neither a declaration nor a leftover removes the tree."""
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match="force: true gives it up"):
            act(ensure="absent")
    assert place.apply(ensure="absent", of=LeftoverCheckout) == []
    assert place.predict(ensure="absent", of=LeftoverCheckout) == ""
    assert place.path.is_dir()


def kind_of_work(place: Place) -> WorkKind | None:
    resource = place.resource(ensure="absent")
    status, system = place.path.lstat(), LocalSystem()
    repository = Repository(str(place.path), status, system)
    work = find_work(repository, resource._git(str(place.path), 0, 0), system, keeps_other_files=False)  # type: ignore[attr-defined]
    return work.kind if work else None


@pytest.mark.parametrize("make_work", WORKS, ids=lambda work: work.__name__)
@pytest.mark.representatives(1)
@pytest.mark.sample(6)
def test_work_keeps_a_tree_that_goes(place: Place, remote: Remote, make_work: Make) -> None:
    place.apply(url=remote.url, revision="v1")
    make_work(place, remote)
    assert_kept(place)
    if os.geteuid() == 0:
        assert kind_of_work(place) is WORKS[make_work]
    place.apply(ensure="absent", force=True)
    assert not place.path.exists()


@pytest.fixture
def with_submodule(place: Place, remote: Remote, tmp_path: Path) -> Path:
    """Create a checkout with nested submodules filled by hand, and return the path of the inner one."""
    allowed = ("-c", "protocol.file.allow=always")
    inner, outer = Remote(tmp_path / "inner"), Remote(tmp_path / "outer")
    inner.commit("inner")
    outer.commit("outer")
    git(outer.work, *allowed, "submodule", "--quiet", "add", "--name", "a/b", inner.url, "in")
    outer.commit("with inner")
    git(remote.work, *allowed, "submodule", "--quiet", "add", outer.url, "out")
    remote.commit("with outer", tag="v3")
    place.apply(url=remote.url, revision="v3")
    place.git(*allowed, "submodule", "--quiet", "update", "--init", "--recursive")
    return place.path / "out/in"


def in_changed_file(place: Place, inner: Path) -> None:
    (inner / "file").write_text("mine")


def in_commit(place: Place, inner: Path) -> None:
    git(inner, "commit", "--quiet", "--allow-empty", "--message", "mine")
    git(inner, "checkout", "--quiet", "HEAD~1")


def in_stash(place: Place, inner: Path) -> None:
    (inner / "file").write_text("mine")
    git(inner, "stash", "--quiet")


def in_unused_module(place: Place, inner: Path) -> None:
    git(inner, "branch", "own", git(inner, "commit-tree", "-m", "mine", "HEAD^{tree}"))
    place.git("submodule", "--quiet", "deinit", "--all", "--force")


def in_removed_submodule(place: Place, inner: Path) -> None:
    in_unused_module(place, inner)
    place.git("checkout", "--quiet", "v1")
    (place.path / "out").rmdir() if (place.path / "out").exists() else None


IN_SUBMODULE = (in_changed_file, in_commit, in_stash, in_unused_module, in_removed_submodule)


@pytest.mark.everything
@pytest.mark.parametrize("make_work", IN_SUBMODULE, ids=lambda work: work.__name__)
@pytest.mark.representatives(2)
@pytest.mark.sample(2)
def test_work_in_a_submodule_keeps_the_tree(
    place: Place, with_submodule: Path, make_work: Callable[[Place, Path], None]
) -> None:
    make_work(place, with_submodule)
    assert_kept(place)


@pytest.mark.everything
def test_a_submodule_without_work_goes_with_its_tree(place: Place, with_submodule: Path) -> None:
    assert place.predict(ensure="absent") == "Would have removed the checkout"
    assert place.apply(ensure="absent", of=LeftoverCheckout)
    assert not place.path.exists()


@pytest.mark.everything
def test_files_in_an_unfilled_submodule_keep_a_leftover(place: Place, with_submodule: Path) -> None:
    place.git("submodule", "--quiet", "deinit", "--all", "--force")
    (place.path / "out").mkdir(exist_ok=True)
    (place.path / "out/precious").write_text("mine")
    assert_kept(place)


@pytest.mark.everything
def test_tags_of_the_remote_are_not_work(place: Place, remote: Remote) -> None:
    remote.commit("beside", branch="gone", tag="v3")
    git(remote.bare, "branch", "--delete", "--force", "gone")
    git(remote.work, "reset", "--quiet", "--hard", "v2")
    place.apply(url=remote.url, revision="v1")
    remote.commit("later", branch="gone", tag="v4")
    git(remote.bare, "branch", "--delete", "--force", "gone")
    for revision in ("v4", "v2"):
        place.apply(url=remote.url, revision=revision)
    assert place.predict(ensure="absent") == "Would have removed the checkout"
    assert place.apply(ensure="absent", of=LeftoverCheckout)


@pytest.mark.everything
def test_former_commits_of_the_remote_are_not_work(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url, revision="main", ensure="latest")
    git(remote.work, "reset", "--quiet", "--hard", "v1")
    git(remote.bare, "tag", "--delete", "v2")
    remote.commit("other")
    place.apply(url=remote.url, revision="main", ensure="latest")
    place.git("tag", "--delete", "v2")
    assert place.predict(ensure="absent") == "Would have removed the checkout"


@pytest.mark.parametrize("setting", ["core.worktree=/tmp", "core.bare=true"])
def test_a_tree_that_git_looks_for_elsewhere_is_refused(place: Place, remote: Remote, setting: str) -> None:
    place.apply(url=remote.url, revision="v1")
    (place.path / "file").write_text("mine")
    place.git("config", *setting.split("="))
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match=setting.partition("=")[0]):
            act(ensure="absent")
    assert place.path.is_dir()


def test_a_merge_in_progress_keeps_the_revision(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url, revision="v1")
    merge_in_progress(place, remote)
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match="has an unfinished merge"):
            act(url=remote.url, revision="v2")
    place.apply(url=remote.url, revision="v2", force=True)
    assert place.text == "two"
