"""Git remotes on this machine, and checkouts whose processes are counted."""

import os
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
from tests.support.git_remotes import Remote, git


class CountingSystem(LocalSystem):
    """The real system, with a record of the commands it started."""

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
    """A dry run's system with the same record. Every change raises an error."""


class Place:
    """The path of a checkout, and functions that declare and apply it."""

    def __init__(self, path: Path, make: Callable[..., Resource[Any, Any]]) -> None:
        self.path = path
        self._make = make
        self.started: list[str] = []
        self.commands: list[Command] = []
        self.notes: list[str] = []

    def resource(
        self, *, noop: bool = False, of: type[Checkout] = Checkout, **properties: Any
    ) -> Resource[Any, Any]:
        result = self._make(of, {"name": str(self.path), **properties}, noop=noop)
        system = CountingNoopSystem() if noop else CountingSystem()
        self.started, self.commands = system.started, system.commands
        result.context = msgspec.structs.replace(result.context, system=system)
        return result

    def apply(self, **properties: Any) -> list[str]:
        """Apply the checkout and return its differences. ``started`` has the commands before the final check."""
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
        output = resource.noop_message(differences, actual) if differences else ""
        self.notes = list(resource.notes)
        return output

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
    """Return a remote with the commits ``one`` (tag v1) and ``two`` (tag v2) on main."""
    remote = Remote(tmp_path / "remote")
    remote.commit("one", tag="v1")
    remote.commit("two", tag="v2")
    return remote


@pytest.fixture
def place(tmp_path: Path, make: Callable[..., Resource[Any, Any]]) -> Iterator[Place]:
    """Return a checkout, and check after the test that no leftover stands beside it."""
    (tmp_path / "srv").mkdir()
    place = Place(tmp_path / "srv/app", make)
    yield place
    assert set(os.listdir(tmp_path / "srv")) <= {"app"}


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """Return a directory that every user can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="puller-checkout-") as name:
        os.chmod(name, 0o755)
        yield Path(name)
