"""Debian's real ``update-alternatives``, and Red Hat's tool as a simulation, with groups in a private directory."""

from pathlib import Path

import msgspec
import pytest

from puller.errors import MutationInNoop
from puller.resources.packages import alternative
from puller.system import commands
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
        assert Path(command.arguments[0]).name == "update-alternatives"
        root, (program, *arguments) = self.root, command.arguments
        places = ["--altdir", f"{root}/etc", "--admindir", f"{root}/groups", "--log", f"{root}/log"]
        return Command([program, *places, *arguments], command.environment)

    def query(self, command: Command) -> Completed:
        return run(self._redirected(command))

    def execute(self, command: Command) -> Completed:
        self.executed += 1
        self.ran.append([*command.arguments[1:]])
        return run(self._redirected(command))


class RedHatGroup(Group):
    """The same machine with a tool that reports as ``alternatives`` of Red Hat does, without the links of a group."""

    def redirect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().redirect(monkeypatch)
        programs = self.root / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "alternatives").touch(mode=0o755)
        (programs / "update-alternatives").symlink_to("alternatives")
        monkeypatch.setattr(commands, "SEARCH_PATH", str(programs))

    def _redirected(self, command: Command) -> Command:
        program, *arguments = command.arguments
        assert Path(program).resolve().name == "alternatives"
        return super()._redirected(Command([str(TOOL), *arguments], command.environment))

    def query(self, command: Command) -> Completed:
        assert command.arguments[1] == "--display"
        words = [str(TOOL), "--query", command.arguments[2]]
        completed = run(super()._redirected(Command(words, command.environment)))
        if completed.exit_code != 0:
            return completed
        name, state = command.arguments[2], alternative.parse_query(completed.stdout)
        lines = [f"{name} - status is {state.mode}.", f" link currently points to {state.path}"]
        links = state.slaves
        for path, candidate in state.candidates.items():
            lines.append(f"{path} - priority {candidate.priority}")
            lines += [f" follower {each}: {candidate.slaves.get(each, '(null)')}" for each in links]
        lines.append(f"Current `best' version is {state.best}.")
        return msgspec.structs.replace(completed, stdout="\n".join(lines) + "\n")


class LookingOnly(NoopSystem):
    """The same machine in noop."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._group = Group(root)

    def query(self, command: Command) -> Completed:
        return self._group.query(command)

    def execute(self, command: Command) -> Completed:
        raise MutationInNoop(f"{command.arguments[0]}: would be executed in noop")
