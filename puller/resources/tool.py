"""A program of the system that a type runs to read and change the machine.

* It is found in the fixed search path, runs without a shell, and prints English, because types read its output.
* A failure is an error with the command, its outcome and its output.
* All users of the machine can read arguments. Pass a secret by ``text``, its standard input.
"""

import os

import msgspec

from puller.errors import ResourceError, reason
from puller.system import commands
from puller.system.commands import Command, Completed
from puller.system.identity import Identity
from puller.system.protocol import System

_LOCALE = {"LC_ALL": "C.UTF-8"}


class Tool(msgspec.Struct, frozen=True):
    """A program by its name. ``timeout`` is in seconds, ``identity`` the user to run as."""

    name: str
    timeout: float = 60.0
    identity: Identity | None = None

    def find(self) -> str | None:
        """Return the path of the program. ``None`` if it is not installed."""
        paths = (f"{directory}/{self.name}" for directory in commands.SEARCH_PATH.split(":"))
        return next((path for path in paths if os.access(path, os.X_OK)), None)

    def query(self, system: System, *arguments: str, text: str = "") -> str:
        """Return the output of a call that changes nothing. Raises ``ResourceError``."""
        completed = self._run(system, arguments, text, changes=False)
        self.require_success(completed, arguments)
        return completed.stdout

    def execute(self, system: System, *arguments: str, text: str = "") -> None:
        """Make a call that may change the machine. Raises ``ResourceError``."""
        self.require_success(self.attempt(system, *arguments, text=text), arguments)

    def attempt(self, system: System, *arguments: str, text: str = "") -> Completed:
        """Make a call that may change the machine, and return its result. Raises ``ResourceError``."""
        return self._run(system, arguments, text, changes=True)

    def _run(self, system: System, arguments: tuple[str, ...], text: str, *, changes: bool) -> Completed:
        program = self.find() or self.name
        command = Command(
            [program, *arguments],
            _LOCALE,
            timeout=self.timeout,
            input=text.encode(),
            identity=self.identity,
        )
        try:
            return system.execute(command) if changes else system.query(command)
        except OSError as error:
            raise ResourceError(f"{program} cannot be started: {reason(error)}") from error

    def require_success(self, completed: Completed, arguments: tuple[str, ...]) -> None:
        """Raise ``ResourceError`` if a call failed."""
        if completed.exit_code != 0:
            command = " ".join([self.find() or self.name, *arguments])
            raise ResourceError(f"{command}: {completed.outcome}: {completed.tail()}")
