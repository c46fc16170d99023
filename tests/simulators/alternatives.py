"""Debian's real ``update-alternatives``, and Red Hat's tool as a simulation, with groups in a private directory."""

from pathlib import Path

import pytest

from puller.errors import MutationInNoop
from puller.resources.packages import alternative
from puller.system.commands import Command, Completed, run
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem

TOOL = Path("/usr/bin/update-alternatives")


class Group(LocalSystem):
    """A machine whose groups are below ``root``. ``ran`` are the commands that changed them."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.ran: list[list[str]] = []

    def redirect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Redirect the directories of the type."""
        for name in ("etc", "groups"):
            (self.root / name).mkdir(exist_ok=True)
        monkeypatch.setattr(alternative, "DIRECTORY", str(self.root / "etc"))
        monkeypatch.setattr(alternative, "GROUPS", (str(self.root / "groups"),))

    def tool(self, *arguments: str) -> Completed:
        """Run the tool, as an administrator."""
        return run(self._redirected(Command([str(TOOL), *arguments], {"LC_ALL": "C.UTF-8"})))

    def _redirected(self, command: Command) -> Command:
        assert command.arguments[0].endswith("update-alternatives")
        root, (program, *arguments) = self.root, command.arguments
        places = ["--altdir", f"{root}/etc", "--admindir", f"{root}/groups", "--log", f"{root}/log"]
        return Command([program, *places, *arguments], command.environment)

    def query(self, command: Command) -> Completed:
        return run(self._redirected(command))

    def execute(self, command: Command) -> Completed:
        self.executed += 1
        self.ran.append([*command.arguments[1:]])
        return run(self._redirected(command))


class LookingOnly(NoopSystem):
    """The same machine in noop."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._group = Group(root)

    def query(self, command: Command) -> Completed:
        return self._group.query(command)

    def execute(self, command: Command) -> Completed:
        raise MutationInNoop(f"{command.arguments[0]}: would be executed in noop")
