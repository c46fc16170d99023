"""Debian's real ``dpkg-divert``, with a database in a private directory."""

from pathlib import Path

from puller.errors import MutationInNoop
from puller.system.commands import Command, Completed, run
from puller.system.local import LocalSystem
from puller.system.noop import NoopSystem

TOOL = Path("/usr/bin/dpkg-divert")


def redirected(command: Command, database: Path) -> Command:
    """Return the command with a private database."""
    program, *arguments = command.arguments
    assert program.endswith("dpkg-divert")
    return Command([program, "--admindir", str(database), *arguments], command.environment)


class Diverting(LocalSystem):
    """A machine with a database in ``database``. ``ran`` are the commands that changed it."""

    def __init__(self, database: Path) -> None:
        super().__init__()
        self.database = database
        self.ran: list[list[str]] = []

    def query(self, command: Command) -> Completed:
        return run(redirected(command, self.database))

    def execute(self, command: Command) -> Completed:
        self.executed += 1
        self.ran.append([*command.arguments[1:]])
        return run(redirected(command, self.database))

    def tool(self, *arguments: str) -> Completed:
        """Run the tool, as an administrator or a package."""
        return run(redirected(Command([str(TOOL), *arguments], {"LC_ALL": "C.UTF-8"}), self.database))


class DivertingInNoop(NoopSystem):
    """The same machine in noop."""

    def __init__(self, database: Path) -> None:
        super().__init__()
        self.database = database

    def query(self, command: Command) -> Completed:
        return run(redirected(command, self.database))

    def execute(self, command: Command) -> Completed:
        raise MutationInNoop(f"{command.arguments[0]}: would be executed in noop")
