"""Processes of this machine, and the signals that stop Puller.

SIGTERM and SIGINT: they stop Puller immediately, or after the current resource if a change is in progress.

* A handler only records the signal and never raises, because it may interrupt code between taking a lock and the block
  that releases it. Code that waits, iterates or is about to change something calls ``check``.
* During a change, the current resource is completed. Only downloads are aborted, because the next run resumes them, and
  commands after a second signal.
* Inherited signal settings are reset first.

Processes of this machine: all that a command has started, and the holder of a file lock.

* The processes of a command include those in other sessions and those without their parents.
* Puller adopts orphans in place of process 1 (``prctl(2)``, PR_SET_CHILD_SUBREAPER). Their session distinguishes them
  from Puller's own children: each command begins a session, and its descendants cannot join Puller's session.
* The processes of a command are its descendants, and the descendants of orphans that are younger than the command.
* Ended orphans are reaped while commands run. Otherwise a script that waits for its daemon to end would see a zombie.
* Without PR_SET_CHILD_SUBREAPER, only the descendants and the process group of a command are known.
* The holder of a lock of fcntl(2) is found without taking the lock, so other programs never wait for Puller.
"""

from __future__ import annotations

import _thread  # not ``threading``, which takes longer to import than most commands to run
import contextlib
import fcntl
import functools
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import ClassVar, NamedTuple, Self

from puller.errors import StoppedCommand, StoppedDownload
from puller.exit_status import ExitStatus

_STATUS = {signal.SIGTERM: ExitStatus.TERMINATED, signal.SIGINT: ExitStatus.INTERRUPTED}
_ONE_MOMENT = 0.5  # seconds; timeout(1) sends its signal to the process and to its group


def reset_inherited() -> None:
    """Reset signal settings of the parent process, as daemon(7) advises.

    If SIGCHLD is ignored, the kernel reaps child processes, and each seems to end with exit code 0. If signals are
    blocked, stop requests and timeouts of regular expressions are lost. Other ignored signals are intentional, as with
    nohup.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class Stopped(BaseException):
    """A request to stop this process by a signal.

    Error handlers do not catch it, because it is not an ``Exception``.
    """

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"stopped by {number.name}")
        self.exit_status = _STATUS[number]


class StopRequests:
    """Records signals, and answers whether to stop."""

    listening: ClassVar[StopRequests | None] = None
    """The current listener of this process, for code without access to it, such as commands."""

    def __init__(self, tell: Callable[[str], None] = lambda sentence: None) -> None:
        """``tell`` prints a sentence for users, also from a signal handler."""
        self.received: signal.Signals | None = None
        self._at_work: object = ""
        self._tell = tell
        self._received_at = 0.0
        self._insists = False
        self._deferring = False

    @property
    def reason(self) -> str:
        """The reason to stop before the next resource, empty to continue."""
        return f"stopped by {self.received.name}" if self.received else ""

    @property
    def exit_status(self) -> ExitStatus:
        """The exit status of a stopped run, ``OK`` without a stop request."""
        return _STATUS[self.received] if self.received else ExitStatus.OK

    def check(self) -> None:
        """Raise ``Stopped`` after a signal, unless a change is in progress."""
        if self.received and not self._deferring:
            raise Stopped(self.received)

    def check_download(self) -> None:
        """Check like ``check``, for a download. Raises ``StoppedDownload`` during a change."""
        self.check()
        if self.received:
            raise StoppedDownload(self.reason)

    def check_command(self) -> None:
        """Check like ``check``, for a command. Raises ``StoppedCommand`` during a change, after a second signal."""
        self.check()
        if self.received and self._insists:
            raise StoppedCommand(f"{self.reason}, and by a second signal")

    def attend(self, resource: object) -> None:
        """Set the resource that a signal has to wait for. Its ``str()`` is called when a signal arrives."""
        self._at_work = resource

    @contextlib.contextmanager
    def handled(self) -> Iterator[Self]:
        """Handle both signals while the block runs."""
        before = {number: signal.signal(number, self._receive) for number in _STATUS}
        others, StopRequests.listening = StopRequests.listening, self
        try:
            yield self
        finally:
            StopRequests.listening = others
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer stops while the block runs, so that a change is completed. May be nested."""
        before, self._deferring = self._deferring, True
        try:
            yield
        finally:
            self._deferring = before
            if not before:
                self._at_work = ""

    def _receive(self, number: int, frame: FrameType | None) -> None:
        """Record the signal and report it. ``check`` does the rest."""
        del frame
        if self.received is None:
            self.received, self._received_at = signal.Signals(number), time.monotonic()
            if self._deferring and self._at_work:
                self._tell(f"{self.reason}: finishing {self._at_work}. A second signal ends its commands")
        elif time.monotonic() - self._received_at > _ONE_MOMENT:
            self._insist(number)

    def _insist(self, number: int) -> None:
        if not self._deferring:  # no change is in progress, and the current code does not call check
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._insists:
            self._insists = True
            self._tell(f"{self.reason}, and by a second signal: ending the commands of {self._at_work}")


def check() -> None:
    """Raise ``Stopped`` after a stop request, unless a change is in progress."""
    if StopRequests.listening:
        StopRequests.listening.check()


def check_download() -> None:
    """Call ``StopRequests.check_download`` of the listener."""
    if StopRequests.listening:
        StopRequests.listening.check_download()


def check_command() -> None:
    """Call ``StopRequests.check_command`` of the listener."""
    if StopRequests.listening:
        StopRequests.listening.check_command()


_PR_SET_CHILD_SUBREAPER = 36
_MOST_LISTS = 20
"""Limit, because on a machine that keeps starting processes the list is never complete."""

_commands: set[int] = set()
"""Child processes that other code waits for. Threads that gather facts also run commands."""

starting = _thread.allocate_lock()
"""Held while a command starts, so that no thread takes it for an orphan before it is registered."""


class _Process(NamedTuple):
    """The fields of ``/proc/PID/stat``. ``age`` sorts processes, the oldest first: start time in ticks, then the id."""

    parent: int
    session: int
    age: tuple[int, int]
    has_ended: bool


class Descendants:
    """The process ``leader`` of a command, and all processes that it has started."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        result = _process(leader)
        self._age = result.age if result else (0, 0)
        _commands.add(leader)

    def forget(self) -> None:
        """Unregister the command after it has ended and was waited for."""
        _commands.discard(self._leader)

    def living(self) -> list[int]:
        """Return the ids of processes that have not ended.

        1. List all processes of this machine, and the children of each.
        2. Begin with the command, unless its id was reused, and with orphans that are younger than it.
        3. Collect their descendants.
        """
        # 1. List
        processes = _processes()
        children: dict[int, list[int]] = {}
        for pid, process in processes.items():
            children.setdefault(process.parent, []).append(pid)
        # 2. Begin
        waiting = [pid for pid in _orphans(processes) if processes[pid].age > self._age]
        leader = processes.get(self._leader)
        waiting += [self._leader] if leader and leader.age == self._age else []
        # 3. Descend
        results = []
        while waiting:
            pid = waiting.pop()
            results.append(pid)
            waiting += children.get(pid, ())
        return [pid for pid in results if not processes[pid].has_ended]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes.

        The process group gets it at once, so that members cannot start others meanwhile.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader, number)
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def reap(self) -> None:
        """Reap ended orphans of any command. Commands themselves are left to their callers."""
        with contextlib.suppress(ChildProcessError):
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in _commands:
                return
            processes = _processes()
            for pid in _orphans(processes):
                if processes[pid].has_ended:
                    os.waitpid(pid, os.WNOHANG)


def _orphans(processes: dict[int, _Process]) -> list[int]:
    """Return the processes that Puller has adopted from current or earlier commands."""
    us, session = os.getpid(), os.getsid(0)
    with starting:
        return [
            pid
            for pid, process in processes.items()
            if process.parent == us and process.session != session and pid not in _commands
        ]


@functools.cache
def adopt_orphans() -> bool:
    """Make this process adopt orphaned descendants. Return False if the system does not support it."""
    try:
        import ctypes  # 1 % of an idle run, which starts no program

        return ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0  # type: ignore[no-any-return]
    except (ImportError, OSError, AttributeError):
        return False


def _processes() -> dict[int, _Process]:
    """Return all processes, including those that start while the list is read.

    A single pass would miss a chain of short-lived processes: each could end before it is read, after starting the
    next.
    """
    result: dict[int, _Process | None] = {}
    for _ in range(_MOST_LISTS):
        new = [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if pid not in result]
        if not new:
            break
        result.update((pid, _process(pid)) for pid in new)
    return {pid: process for pid, process in result.items() if process}


def _process(pid: int) -> _Process | None:
    """Return a process, None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stream:
            # The name in parentheses may contain parentheses.
            fields = stream.read(4096).rpartition(b")")[2].split()
    except OSError:
        return None
    return _Process(int(fields[1]), int(fields[3]), (int(fields[19]), pid), fields[0] in b"ZX")


_LOCK = struct.Struct("hhqqi")  # struct flock of Linux on 64 bits: type, whence, start, length, pid


def find_holder(descriptor: int) -> str | None:
    """Return the process that holds a lock on the open file, or ``None`` if it is free. Raise ``OSError``."""
    requested = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, requested))
    if kind == fcntl.F_UNLCK:
        return None
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as name:
        return f"process {pid} ({name.read().strip()})"
    return f"process {pid}" if pid > 0 else "a process elsewhere"
