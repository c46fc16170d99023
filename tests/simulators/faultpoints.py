"""``puller`` with one fault at one step: killed there, or with disk errors from there on.

``Launcher`` starts a process that imports all modules once and forks for each command line, which is ten times faster
than starting an interpreter. Each fork counts its calls that change the disk with ``faultpoints.c``. The count starts
at 0 after Python's own start.

This file is also the program of that process. Its only effect on the commands is that system programs (``systemctl``)
are searched in a directory of the test first.
"""

import contextlib
import ctypes
import enum
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

_SOURCE = Path(__file__).with_suffix(".c")


class Mode(enum.IntEnum):
    """The effect at the step. The values match ``enum mode`` in faultpoints.c."""

    RECORD = 0
    BEFORE = 1
    AFTER = 2
    TORN = 3
    ONCE = 4
    FULL = 5
    BROKEN = 6


class Fault(NamedTuple):
    """A fault at the call numbered ``at``, from 1. ``error`` is the errno of calls that fail."""

    mode: Mode = Mode.RECORD
    at: int = 0
    error: int = 0


class Call(NamedTuple):
    """A call that changes the disk. ``room`` is true if a full disk rejects it."""

    name: str
    room: bool
    path: str


class Ended(NamedTuple):
    """The result of a command: exit status or negative signal, output, and counted calls."""

    status: int
    output: str
    calls: list[Call]


def build(directory: Path) -> Path:
    """Compile faultpoints.c into ``directory``."""
    library = directory / "faultpoints.so"
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", library, _SOURCE, "-ldl"], check=True)
    return library


def read_log(path: Path) -> list[Call]:
    """Return the calls that faultpoints.c has recorded."""
    lines = [line.split("\t", 2) for line in path.read_text(errors="replace").splitlines()]
    return [Call(name, need == "room", place) for name, need, place in lines]


class Launcher:
    """Starts ``puller``. ``directory`` is for its own files, and ``programs`` is first in the search path."""

    def __init__(self, library: Path, directory: Path, programs: Path) -> None:
        self._log = directory / "calls"
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(directory), str(programs)],
            env={**os.environ, "LD_PRELOAD": str(library)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, fault: Fault | None = None) -> Ended:
        """Run a command line of ``puller`` in its own process. Return after all its processes have ended."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([arguments, fault or Fault()]), file=self._process.stdin, flush=True)
        status, output = json.loads(self._process.stdout.readline())
        return Ended(status, output, read_log(self._log))

    def execute(self, *arguments: str) -> tuple[int, str]:
        """Return status and output, as ``Host`` of the tests expects."""
        ended = self.run(*arguments)
        return ended.status, ended.output

    def close(self) -> None:
        """End the process."""
        with self._process:
            assert self._process.stdin
            self._process.stdin.close()


# --- the process --------------------------------------------------------------------------------------------


def serve(directory: Path, programs: str) -> None:
    """Read command lines from standard input until it ends."""
    _adopt_orphans()
    from puller.system import commands

    commands.SEARCH_PATH = f"{programs}:{commands.SEARCH_PATH}"
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        arguments, fault = json.loads(line)
        answer = _outcome(arguments, Fault(*fault), directory)
        _import_all((directory / "modules").read_text().split())
        print(json.dumps(answer), file=answers, flush=True)


def _adopt_orphans() -> None:
    """Adopt the children of killed processes, so that this process can wait for them."""
    set_child_subreaper = 36  # prctl(2)
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def _outcome(arguments: Sequence[str], fault: Fault, directory: Path) -> tuple[int, str]:
    with _emptied(directory / "output") as output, _emptied(directory / "calls") as log:
        (directory / "modules").touch()
        child = os.fork()
        if child == 0:
            _become(arguments, fault, output, log, directory / "modules")
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
    return status, (directory / "output").read_text(errors="replace")


@contextlib.contextmanager
def _emptied(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _become(arguments: Sequence[str], fault: Fault, output: int, log: int, modules: Path) -> None:
    """Run the command and exit in any case, so that no code of the caller continues in this process."""
    status = 70
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = _status_of(arguments, fault, log)
        modules.write_text("\n".join(sys.modules))
    finally:
        os._exit(status)


def _status_of(arguments: Sequence[str], fault: Fault, log: int) -> int:
    from puller.cli import main

    shim: Any = ctypes.CDLL(None)
    shim.faultpoints_arm(int(fault.mode), ctypes.c_long(fault.at), fault.error, log)
    try:
        main(arguments)
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        return int(ended.code or 0)
    finally:
        shim.faultpoints_disarm()
    raise AssertionError("main() has returned")


def _import_all(names: Sequence[str]) -> None:
    """Import the modules of one command, so that later commands share them."""
    for name in names:
        if name not in sys.modules and name.split(".")[0] not in ("__main__", "pytest"):
            with contextlib.suppress(ImportError):
                import_module(name)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    serve(Path(sys.argv[1]), sys.argv[2])
