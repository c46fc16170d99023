"""Killed checkouts: the next run finishes them, and never mistakes a user's work for its own leftovers."""

import os
from typing import Any

import pytest

from puller.errors import ResourceError
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem
from tests.puller.resources.checkouts.conftest import Place
from tests.support.git_remotes import Remote, git


class Died(BaseException):
    """Raised where the run is killed."""


def dying(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Raise ``Died`` in the place of change number ``step``."""
    leftovers = [step]

    def counted(method: Any) -> Any:
        def change(self: object, *arguments: Any, **named: Any) -> Any:
            leftovers[0] -= 1
            if leftovers[0] <= 0:
                raise Died
            return method(self, *arguments, **named)

        return change

    for name in ("replace_file", "make_directory", "remove", "remove_tree", "rename", "execute"):
        monkeypatch.setattr(LocalSystem, name, counted(getattr(LocalSystem, name)))


STORIES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "clone": ([], {"revision": "v2"}),
    "shallow clone": ([], {"revision": "v1", "depth": 1}),
    "checkout": ([{"revision": "v1"}], {"revision": "v2"}),
    "fetch": ([{"revision": "v1"}], {"revision": "v3"}),
    "latest": ([{"revision": "v1"}], {"ensure": "latest", "revision": "main"}),
    "absent": ([{"revision": "v1"}], {"ensure": "absent"}),
}


@pytest.mark.everything
@pytest.mark.parametrize("step", range(1, 9))
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.representatives(2)
@pytest.mark.sample(6)
def test_wherever_it_is_killed_the_next_run_finishes_it(
    place: Place, remote: Remote, monkeypatch: pytest.MonkeyPatch, story: str, step: int
) -> None:
    before, desired = STORIES[story]
    for each in before:
        place.apply(url=remote.url, **each)
    remote.commit("three", tag="v3")
    with monkeypatch.context() as patch:
        dying(patch, step)
        try:
            place.apply(url=remote.url, **desired)
        except Died:
            pass
    place.apply(url=remote.url, **desired)
    assert place.apply(url=remote.url, **desired) == []
    if desired.get("ensure") == "absent":
        assert not place.path.exists()
    else:
        assert place.git("status", "--porcelain") == ""
        assert not [name for name in os.listdir(place.path / ".git") if name.endswith(".lock")]


def half_done(place: Place, monkeypatch: pytest.MonkeyPatch, url: str, revision: str) -> None:
    """Simulate a git that KILL ends after it has written some of the files."""

    real = LocalSystem.execute

    def killed(self: LocalSystem, command: Command) -> Completed:
        if "checkout" not in command.arguments:
            return real(self, command)
        (place.path / "file").write_text("tw")
        (place.path / "new").write_text("ne")
        (place.path / ".git/index.lock").write_text("")
        return Completed(None, 9, timed_out=False, stdout="", stderr="", duration=1.0)

    with monkeypatch.context() as patch:
        patch.setattr(LocalSystem, "execute", killed)
        with pytest.raises(ResourceError, match="git checkout: ended by signal SIGKILL"):
            place.apply(url=url, revision=revision)


def test_files_of_a_killed_git_are_no_local_work(
    place: Place, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.commit("new", name="new", tag="v3")
    place.apply(url=remote.url, revision="v1")
    half_done(place, monkeypatch, remote.url, "v3")
    output = place.predict(url=remote.url, revision="v3")
    assert output.startswith("Would have discarded local changes, would have checked out v3")
    place.apply(url=remote.url, revision="v3")
    assert (place.text, (place.path / "new").read_text()) == ("two", "new")
    assert place.apply(url=remote.url, revision="v3") == []


@pytest.mark.everything
def test_after_a_killed_git_a_version_back_is_reached_as_well(
    place: Place, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.commit("new", name="new", tag="v3")
    place.apply(url=remote.url, revision="v1")
    half_done(place, monkeypatch, remote.url, "v3")
    place.apply(url=remote.url, revision="v1")
    assert place.text == "one"
    assert place.apply(url=remote.url, revision="v1") == []
    assert not (place.path / "new").exists()


@pytest.mark.everything
def test_work_by_hand_in_other_files_stays_after_a_killed_git(
    place: Place, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.commit("other", name="other", tag="v3")
    place.apply(url=remote.url, revision="v3")
    git(remote.work, "checkout", "--quiet", "v3")
    remote.commit("four", tag="v4")
    half_done(place, monkeypatch, remote.url, "v4")
    (place.path / "other").write_text("by hand")
    with pytest.raises(ResourceError, match="has local changes in other; force"):
        place.apply(url=remote.url, revision="v4")


def test_lock_of_another_git_is_retried_by_the_next_run(place: Place, remote: Remote) -> None:
    place.apply(url=remote.url, revision="v1")
    (place.path / ".git/index.lock").write_text("")
    with pytest.raises(ResourceError, match=r"index\.lock"):
        place.apply(url=remote.url, revision="v2")
    with pytest.raises(ResourceError, match=r"index\.lock"):
        place.apply(url=remote.url, revision="v2")
    (place.path / ".git/index.lock").unlink()
    assert place.apply(url=remote.url, revision="v2")
