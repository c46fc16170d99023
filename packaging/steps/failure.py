"""The error that ends a build, and execution of commands."""

import subprocess
from collections.abc import Mapping
from pathlib import Path


class BuildFailed(Exception):
    """A package cannot be built. The message contains the solution, or the output of a command."""


def run(
    *command: str | Path,
    environment: Mapping[str, str] | None = None,
    timeout: float = 1800,
    show_progress: bool = False,
) -> str:
    """Return the output of a command. Raises ``BuildFailed`` if it fails or takes ``timeout`` seconds.

    With ``show_progress``, the standard error of the command is that of this process, and the message has no copy.
    """
    words = [str(word) for word in command]
    errors = None if show_progress else subprocess.PIPE
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=timeout,
            env=environment, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise BuildFailed(f"{words[0]} is not installed on this machine") from None
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"{' '.join(words)}: not done after {timeout:.0f} s") from None
    if done.returncode:
        output = f"{done.stdout}{done.stderr or ''}"[-8000:]
        raise BuildFailed(f"{' '.join(words)}: exit {done.returncode}\n{output}")
    return done.stdout
