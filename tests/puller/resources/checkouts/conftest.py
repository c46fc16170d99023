"""Remotes of git on this machine, and checkouts of them whose processes are counted."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puller.resources.base import Resource
from puller.resources.checkouts.checkout import Checkout
from puller.system.commands import Command, Completed
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    **{
        f"GIT_{who}_{what}": "test@example.com"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    },
}


def git(directory: Path, *arguments: str) -> str:
    """What somebody does by hand; as the owner of the directory."""
    owner, is_root = directory.stat(), os.geteuid() == 0
    ended = subprocess.run(
        ["git", *arguments],
        cwd=directory,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        user=owner.st_uid if is_root else None,
        group=owner.st_gid if is_root else None,
        extra_groups=[] if is_root else None,
    )
    return ended.stdout.strip()


def give(directory: Path, owner: int = 65534) -> None:
    """Give a tree away."""
    for path in (directory, *directory.rglob("*")):
        os.chown(path, owner, owner, follow_symlinks=False)


class Remote:
    """A bare repository, and the tree in which its commits are made."""

    def __init__(self, directory: Path) -> None:
        self.work, self.bare = directory / "work", directory / "remote.git"
        for path in (self.work, self.bare):
            path.mkdir(parents=True)
        git(self.work, "init", "--quiet", "--initial-branch=main")
        git(self.bare, "init", "--quiet", "--bare", "--initial-branch=main")
        git(self.work, "remote", "add", "origin", str(self.bare))

    @property
    def url(self) -> str:
        return f"file://{self.bare}"

    def commit(self, text: str, *, branch: str = "main", tag: str = "", name: str = "file") -> str:
        """A commit of a file with this text, pushed; gives its id. An annotated tag, if one is named."""
        (self.work / name).write_text(text)
        git(self.work, "add", "--all")
        git(self.work, "commit", "--quiet", "--message", text)
        if tag:
            git(self.work, "tag", "--force", "--annotate", "--message", tag, tag)
        git(self.work, "push", "--quiet", "--force", "--tags", "origin", f"HEAD:refs/heads/{branch}")
        return git(self.work, "rev-parse", "HEAD")


class CountingSystem(LocalSystem):
    """The machine, which tells what was started on it."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[str] = []
        self.commands: list[Command] = []

    def _note(self, command: Command) -> None:
        words = [*command.arguments]
        while "-c" in words:
            del words[words.index("-c") : words.index("-c") + 2]
        self.started.append(words[1])
        self.commands.append(command)

    def query(self, command: Command) -> Completed:
        self._note(command)
        return super().query(command)

    def execute(self, command: Command) -> Completed:
        self._note(command)
        return super().execute(command)


class CountingNoopSystem(NoopSystem, CountingSystem):
    """The same, on which every change raises."""


class Place:
    """The tree ``path``, and how it is declared."""

    def __init__(self, path: Path, make: Callable[..., Resource[Any, Any]]) -> None:
        self.path = path
        self._make = make
        self.started: list[str] = []
        self.commands: list[Command] = []
        self.notes: list[str] = []

    def resource(
        self, *, noop: bool = False, of: type[Checkout] = Checkout, **properties: Any
    ) -> Resource[Any, Any]:
        found = self._make(of, {"name": str(self.path), **properties}, noop=noop)
        system = CountingNoopSystem() if noop else CountingSystem()
        self.started, self.commands = system.started, system.commands
        found.context = msgspec.structs.replace(found.context, system=system)
        return found

    def apply(self, **properties: Any) -> list[str]:
        """Look, change, look again; gives what differed. ``started`` is all until the second look."""
        resource = self.resource(**properties)
        actual = resource.look()
        differences = resource.differences(actual)
        if differences:
            resource.change(differences, actual)
            self.notes = list(resource.notes)
            self.started = [*self.started]
            assert not resource.differences(resource.look())
        return [str(difference) for difference in differences]

    def predict(self, **properties: Any) -> str:
        resource = self.resource(noop=True, **properties)
        actual = resource.look()
        differences = resource.differences(actual)
        said = resource.noop_message(differences, actual) if differences else ""
        self.notes = list(resource.notes)
        return said

    def git(self, *arguments: str) -> str:
        return git(self.path, *arguments)

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    @property
    def text(self) -> str:
        return (self.path / "file").read_text()


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    """With the commits ``one`` (tag v1) and ``two`` (tag v2) on main."""
    found = Remote(tmp_path / "remote")
    found.commit("one", tag="v1")
    found.commit("two", tag="v2")
    return found


@pytest.fixture
def place(tmp_path: Path, make: Callable[..., Resource[Any, Any]]) -> Iterator[Place]:
    """Where nothing is left beside the tree when a test has ended."""
    (tmp_path / "srv").mkdir()
    found = Place(tmp_path / "srv/app", make)
    yield found
    assert set(os.listdir(tmp_path / "srv")) <= {"app"}


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that every user can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="puller-checkout-") as name:
        os.chmod(name, 0o755)
        yield Path(name)
