"""Commands in a pseudo-terminal, and the text that is then on its screen."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_LINES = 50
_STARTED = """\
import sys
from puller import state
state.DEFAULT_CONFIGURATION = sys.argv.pop(1) or state.DEFAULT_CONFIGURATION
from puller.cli import main
main()
"""
_ERASE = "\r\x1b[K"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Screen(NamedTuple):
    """The end of a command in a terminal."""

    status: int
    output: str
    """All output, with control sequences."""

    @property
    def text(self) -> str:
        """The text that remains on the screen, with colours."""
        lines = self.output.replace("\r\n", "\n").split("\n")
        return "\n".join(line.rpartition(_ERASE)[2] for line in lines)

    @property
    def plain(self) -> str:
        """The text that remains on the screen, without colours."""
        return _COLOUR.sub("", self.text)


def run_in_terminal(
    *arguments: str,
    columns: int = 80,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    configuration: Path | None = None,
) -> Screen:
    """Run ``puller`` with a terminal as its input and outputs. ``configuration`` replaces the default file."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, columns, 0, 0))
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TERM": "xterm", "LANG": "C.UTF-8"}
    with subprocess.Popen(
        [sys.executable, "-c", _STARTED, str(configuration or ""), *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=variables | dict(environment or {}),
        cwd=cwd,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        output = b""
        try:
            while piece := os.read(ours, 65536):
                output += piece
        except OSError:  # the command has closed the terminal
            pass
        status = process.wait()
    os.close(ours)
    return Screen(status, output.decode())
