"""All processes that a command has started, also those that have left its session and lost their parents.

* Orphans come to us instead of to process 1 (``prctl(2)``, PR_SET_CHILD_SUBREAPER). They are told from children of our
  own by their session: each command begins one, and nothing below it can come back to ours.
* What a command has started is below it, or below an orphan that is younger than it.
* What has ended is collected while commands run: a script that waits for its daemon to go must not find it as a zombie.
* Where that call cannot be had, what is known is the tree below the command, and its process group.
"""

import _thread  # not ``threading``, which takes longer to import than most commands to run
import contextlib
import functools
import os
import signal
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_MOST_LISTS = 20
"""On a machine that starts processes all the time, the list is never complete."""

_commands: set[int] = set()
"""Children of ours that somebody waits for; threads that gather facts run commands, too."""

starting = _thread.allocate_lock()
"""Held from the start of a command until it is known here, or another thread could take it for an orphan."""


class _Process(NamedTuple):
    """From ``/proc/PID/stat``; ``age`` orders processes, the oldest first: ticks, and within one the ids."""

    parent: int
    session: int
    age: tuple[int, int]
    has_ended: bool


class Descendants:
    """The processes that the command with process id ``leader`` has started, and itself."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        found = _process(leader)
        self._age = found.age if found else (0, 0)
        _commands.add(leader)

    def forget(self) -> None:
        """The command is over; whoever waited for it has done so."""
        _commands.discard(self._leader)

    def living(self) -> list[int]:
        """The ids of those that have not ended.

        1. List all processes of this machine, and by each its children.
        2. Begin with the command, if its id is not another's by now, and with the orphans that are younger than it.
        3. Go down from these.
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
        # 3. Go down
        found = []
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            waiting += children.get(pid, ())
        return [pid for pid in found if not processes[pid].has_ended]

    def signal(self, number: signal.Signals) -> None:
        """Send it to all that are there now, to the process group at once: nobody in it can start another meanwhile."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader, number)
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def reap(self) -> None:
        """Collect orphans of any command that have ended; a command itself is left to whoever waits for it."""
        with contextlib.suppress(ChildProcessError):
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in _commands:
                return
            processes = _processes()
            for pid in _orphans(processes):
                if processes[pid].has_ended:
                    os.waitpid(pid, os.WNOHANG)


def _orphans(processes: dict[int, _Process]) -> list[int]:
    """Processes that have come to us from commands, of now or before."""
    us, session = os.getpid(), os.getsid(0)
    with starting:
        return [
            pid
            for pid, process in processes.items()
            if process.parent == us and process.session != session and pid not in _commands
        ]


@functools.cache
def adopt_orphans() -> bool:
    """From now on orphaned descendants become children of this process; false where that cannot be had."""
    try:
        import ctypes

        return ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0  # type: ignore[no-any-return]
    except (ImportError, OSError, AttributeError):
        return False


def _processes() -> dict[int, _Process]:
    """All that there are, with those that were started while the others were read.

    One that starts another and ends would be gone when it is read, and its heir not be in the list yet: nobody would be
    seen of a chain of short lives.
    """
    found: dict[int, _Process | None] = {}
    for _ in range(_MOST_LISTS):
        new = [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if pid not in found]
        if not new:
            break
        found.update((pid, _process(pid)) for pid in new)
    return {pid: process for pid, process in found.items() if process}


def _process(pid: int) -> _Process | None:
    """None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stream:
            # The name in parentheses may hold anything, parentheses too.
            fields = stream.read(4096).rpartition(b")")[2].split()
    except OSError:
        return None
    return _Process(int(fields[1]), int(fields[3]), (int(fields[19]), pid), fields[0] in b"ZX")
