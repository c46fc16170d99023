"""One piece of work for a package manager: for whom, how long, and the commands that it takes."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from puller.errors import ResourceError, reason
from puller.system.commands import Command, Completed
from puller.system.protocol import System

_QUERY_TIMEOUT = 300.0  # seconds; dnf may have to fetch metadata first
_OUTPUT_LIMIT = 64 * 1024 * 1024  # bytes; an answer must be whole, a line for each package of a large machine
_TAIL = 10  # lines of what a failed command printed


class Job(msgspec.Struct, frozen=True):
    """The work of a package manager for one resource. Methods raise ``ResourceError``."""

    system: System
    declared: Callable[[], Sequence[str]]
    """All packages of the manifest, to ask about them together."""
    log: Callable[[str], None]
    noop: bool
    timeout: float
    """Seconds that a change may take."""
    lock_timeout: float
    """Seconds to wait for another package manager."""

    def query(
        self, *arguments: str, environment: Mapping[str, str] | None = None, text: str = ""
    ) -> Completed:
        """Run a command that only looks; ``text`` is its standard input, which may be secret."""
        command = Command(
            arguments,
            environment or {},
            timeout=_QUERY_TIMEOUT,
            output_limit=_OUTPUT_LIMIT,
            input=text.encode(),
        )
        return _started(self.system.query, command)

    def execute(
        self, *arguments: str, environment: Mapping[str, str] | None = None, waits: float = 0, text: str = ""
    ) -> Completed:
        """Run a command that changes something, and may wait for so many seconds before."""
        limit = self.timeout + waits
        command = Command(arguments, environment or {}, timeout=limit, input=text.encode())
        return _started(self.system.execute, command)


def output(what: str, completed: Completed, accepted: Sequence[int] = (0,)) -> str:
    """The stdout of a command; raises ``ResourceError`` when it did not end with an accepted code."""
    if completed.exit_code not in accepted:
        raise failure(what, completed)
    return completed.stdout


def failure(what: str, completed: Completed, lines: int = _TAIL) -> ResourceError:
    """Return the error of a failed command, with the last ``lines`` of stderr, or of stdout if stderr is empty."""
    printed = completed.stderr.strip() or completed.stdout.strip()
    tail = "\n".join(printed.splitlines()[-lines:])
    return ResourceError(f"{what}: {completed.outcome}" + (f"; it printed:\n{tail}" if tail else ""))


def _started(run: Callable[[Command], Completed], command: Command) -> Completed:
    try:
        return run(command)
    except OSError as error:
        raise ResourceError(f"{command.arguments[0]} cannot be started: {reason(error)}") from error
