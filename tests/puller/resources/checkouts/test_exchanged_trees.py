"""Git never runs where another user could replace the tree by a tree whose configuration names programs."""

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from puller.errors import ResourceError
from puller.resources.checkouts.checkout import LeftoverCheckout
from puller.resources.checkouts.working_tree import staging_of
from tests.puller.resources.checkouts.conftest import Place
from tests.support.git_remotes import Remote, give

pytestmark = [pytest.mark.root, pytest.mark.attack("checkout.exchange")]
NOBODY = 65534
WWW_DATA = 33
REFUSED = re.escape("where others could exchange the tree")


@pytest.fixture
def home(open_to_all: Path, place: Place) -> Path:
    """Create a directory of an ordinary user, and declare the checkout in it."""
    path = open_to_all / "home"
    path.mkdir()
    give(path, NOBODY)
    place.path = path / "app"
    return path


@pytest.fixture
def exchanged(home: Path, open_to_all: Path) -> Iterator[Path]:
    """Return the marker file of a program that runs if git reads the attacker's configuration."""
    marks = open_to_all / "marks"
    marks.mkdir()
    marks.chmod(0o777)
    program = marks / "program"
    program.write_text(f"#!/bin/sh\nid -u >> {marks}/ran\nexit 1\n")
    program.chmod(0o755)
    prepared = home / "prepared/.git"
    prepared.mkdir(parents=True)
    settings = f'[core]\ngitProxy = {program}\n[url "git://example.invalid/"]\ninsteadOf = file:///\n'
    (prepared / "config").write_text(settings)
    give(prepared.parent, NOBODY)
    attacker = os.fork()
    if attacker == 0:
        _exchange(Path(staging_of(str(home / "app"))), home)
    yield marks / "ran"
    os.kill(attacker, signal.SIGKILL)
    os.waitpid(attacker, 0)


def _exchange(staging: Path, home: Path) -> None:
    """Replace each new staging directory by a prepared directory, until this process is killed."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    number = 0
    while True:
        if not os.path.exists(staging / ".git"):
            continue
        try:
            os.rename(staging, home / f"aside-{number}")
            os.rename(home / "prepared", staging)
        except OSError:
            continue
        number += 1


def test_a_tree_exchanged_during_a_clone_runs_nothing(
    place: Place, remote: Remote, home: Path, exchanged: Path
) -> None:
    prepared = home.parent / "copy"
    shutil.copytree(home / "prepared", prepared)
    for _ in range(20):
        with pytest.raises(ResourceError, match=REFUSED):
            place.apply(url=remote.url, revision="v1")
        assert not exchanged.exists()
        assert place.started == []
        if not (home / "prepared").exists():
            shutil.copytree(prepared, home / "prepared")
            give(home / "prepared", NOBODY)


def give_to(uid: int, gid: int, mode: int) -> Callable[[Path], None]:
    """Return a function that changes owner, group and mode of a directory."""

    def change(path: Path) -> None:
        os.chown(path, uid, gid)
        path.chmod(mode)

    return change


@pytest.mark.parametrize(
    ("change", "owner", "is_refused"),
    [
        (give_to(0, 0, 0o755), "root", False),
        (give_to(0, 0, 0o775), "root", False),
        (give_to(0, 0, 0o1777), "root", False),
        (give_to(0, 0, 0o777), "root", True),
        (give_to(0, WWW_DATA, 0o2775), "root", True),
        (give_to(NOBODY, NOBODY, 0o755), "root", True),
        (give_to(NOBODY, NOBODY, 0o755), "nobody", False),
        (give_to(NOBODY, NOBODY, 0o755), "www-data", True),
        (give_to(0, WWW_DATA, 0o2775), "www-data", False),
        (give_to(0, NOBODY, 0o2775), "www-data", True),
        (give_to(0, 0, 0o777), "www-data", True),
    ],
)
@pytest.mark.representatives(1)
def test_git_runs_in_trusted_directories_only(
    place: Place, open_to_all: Path, home: Path, change: Callable[[Path], None], owner: str, is_refused: bool
) -> None:
    theirs = Remote(open_to_all / "remote")
    theirs.commit("one", tag="v1")
    give(theirs.bare, {"root": 0, "nobody": NOBODY, "www-data": WWW_DATA}[owner])
    change(home)
    declared = {"url": theirs.url, "revision": "v1", "owner": owner}
    if not is_refused:
        assert place.predict(**declared).startswith("Would have cloned")
        place.apply(**declared)
        assert place.apply(**declared) == []
        return
    for act in (place.predict, place.apply):
        with pytest.raises(ResourceError, match=REFUSED):
            act(**declared)
        assert place.started == []


@pytest.mark.everything
def test_git_does_not_run_in_a_tree_that_is_exchangeable(place: Place, remote: Remote, home: Path) -> None:
    os.chown(home, 0, 0)
    place.apply(url=remote.url, revision="v1")
    os.chown(home, NOBODY, NOBODY)
    for declared in (
        {"url": remote.url, "revision": "v1"},
        {"url": remote.url, "revision": "v2"},
        {"url": remote.url, "ensure": "latest", "revision": "main"},
        {"ensure": "absent"},
    ):
        for act in (place.predict, place.apply):
            with pytest.raises(ResourceError, match=REFUSED):
                act(**declared)
            assert place.started == []
    place.apply(ensure="absent", force=True)
    assert not place.path.exists()


@pytest.mark.everything
def test_a_tree_that_others_may_write_is_exchangeable(place: Place, remote: Remote, home: Path) -> None:
    os.chown(home, 0, 0)
    place.apply(url=remote.url, revision="v1")
    place.path.chmod(0o777)
    with pytest.raises(ResourceError, match=REFUSED):
        place.apply(url=remote.url, revision="v2")


@pytest.mark.everything
def test_a_leftover_that_is_exchangeable_stays(place: Place, remote: Remote, home: Path) -> None:
    os.chown(home, 0, 0)
    place.apply(url=remote.url, revision="v1")
    os.chown(home, NOBODY, NOBODY)
    leftover = place.resource(of=LeftoverCheckout, ensure="absent")
    assert leftover.differences(leftover.look()) == ()
    assert any("it may contain work" in note for note in leftover.notes)
    assert place.started == []
