"""Execution of programs, with argument lists, a fixed environment and limits on time and output.

* At the time limit, the command and all processes that it started are ended, first with TERM, then with KILL.
* A child that keeps the pipes open after the command has ended is not awaited.
* A signal that stops Puller ends a query at once. It ends other commands when it arrives a second time.
* Output is kept up to a limit. Memory use does not grow with the output.
* ``split_words`` splits a command line by the shell's quoting rules, without a shell (``docs/resources/exec.md``).
"""

import contextlib
import os
import pwd
import selectors
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from puller.errors import ChangedMeanwhile
from puller.system import processes
from puller.system.identity import Identity
from puller.system.local_paths import hold_directory
from puller.system.processes import Descendants, adopt_orphans, starting

if TYPE_CHECKING:
    import subprocess

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_GRACE = 5.0  # seconds between TERM and KILL
_LINGER = 0.5  # seconds to read output after the command has ended
_CHUNK = 65536
_LOOK = 0.5  # seconds between checks for ended processes
_LAST_WAIT = 2.0  # seconds after KILL; a process that remains waits for a disk or a file server


def base_environment() -> dict[str, str]:
    """Return the environment of every command, which does not depend on Puller's own environment."""
    try:
        user = pwd.getpwuid(os.geteuid())
        name, home, shell = user.pw_name, user.pw_dir, user.pw_shell or "/bin/sh"
    except KeyError:
        name, home, shell = str(os.geteuid()), "/", "/bin/sh"
    return {
        "PATH": SEARCH_PATH,
        "HOME": home,
        "USER": name,
        "LOGNAME": name,
        "SHELL": shell,
        "LANG": "C.UTF-8",
    }


class Command(msgspec.Struct, frozen=True):
    """A command line without a shell. ``timeout`` is in seconds, ``output_limit`` in bytes."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = {}
    """Added to ``base_environment``. Its ``PATH`` is also searched for the program."""
    directory: str = "/"
    timeout: float = 300.0
    output_limit: int = 256 * 1024
    """The last bytes to keep, for each of stdout and stderr."""
    input: bytes = b""
    """Its standard input, which may be secret. Empty: ``/dev/null``."""
    identity: Identity | None = None
    """The user to run as, with groups, home and shell. Default: Puller's own user."""
    directory_owner: int | None = None
    """The uid that must own the directory when the command starts, ``None`` for any."""

    def __repr__(self) -> str:
        """Return the arguments only, because other fields may be secret."""
        return f"Command({self.arguments!r})"


class Completed(msgspec.Struct, frozen=True):
    """The result of a command. Either ``exit_code`` or ``signal`` is set unless it ``timed_out``."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    stdout: str
    stderr: str
    duration: float
    """Seconds."""

    @property
    def outcome(self) -> str:
        """The result in words, for messages."""
        if self.timed_out:
            return f"killed after {self.duration:.1f} s, its time limit"
        if self.signal is not None:
            return f"ended by signal {_name_of(self.signal)}"
        return f"exit code {self.exit_code}"

    def tail(self, lines: int = 10) -> str:
        """Return the end of its output, stdout before stderr, for an error message."""
        text = "\n".join(part for part in (self.stdout.strip(), self.stderr.strip()) if part)
        return "\n".join(text.splitlines()[-lines:])


def _name_of(number: int) -> str:
    """Return the name of a signal: ``SIGTERM``. Real-time signals have only numbers."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def run(command: Command) -> Completed:
    """Run a command until it ends or times out.

    1. Start it in its own session, in a pinned directory. Puller adopts its orphans.
    2. Read its output until it ends, a signal stops Puller, or the timeout expires.
    3. After a timeout, end it and all processes that it started: TERM, a pause, then KILL until none remains.
    4. After any other exception, end them as well.
    5. Close the pipes, which children may hold open, and unregister the command.

    Raises ``OSError`` if the program cannot be started (``FileNotFoundError``, ``PermissionError``), ``ResourceError``
    for an unsafe link in the path of its directory, and like ``processes.check_command``.
    """
    started = time.monotonic()
    # 1. Start. The lock keeps other threads from taking it for an orphan.
    with starting:
        process = _start(command)
        descendants = Descendants(process.pid)
    stdout, stderr = _Tail(command.output_limit), _Tail(command.output_limit)
    timed_out = False
    try:
        # 2. Collect
        timed_out = not _read_until_exit(process, descendants, stdout, stderr, started + command.timeout)
        # 3. End
        if timed_out:
            _end(process, descendants)
        # After KILL, a remaining process hangs in the kernel. Waiting for it would have no limit.
        code = process.poll() if timed_out else process.wait()
    # 4. End after any exception
    except BaseException:
        _end(process, descendants)
        process.poll()
        raise
    # 5. Close
    finally:
        _close_pipes(process)
        descendants.forget()
    return Completed(
        exit_code=code if code is not None and code >= 0 and not timed_out else None,
        signal=-code if code is not None and code < 0 and not timed_out else None,
        timed_out=timed_out,
        stdout=stdout.text(),
        stderr=stderr.text(),
        duration=time.monotonic() - started,
    )


def _start(command: Command) -> "subprocess.Popen[bytes]":
    import subprocess  # with threading, 2 % of an idle run, which starts no command

    adopt_orphans()
    identity = command.identity
    login = identity.environment if identity else {}
    if identity is not None and _is_this_process(identity):
        identity = None  # only root may set its ids again, because setgroups(2) requires it
    environment = {**base_environment(), **login, **command.environment}
    program = _find(command.arguments[0], environment["PATH"])
    working_directory = _working_directory(command.directory, command.directory_owner)
    with working_directory as directory, _standard_input(command.input) as stdin:
        return subprocess.Popen(
            [program, *command.arguments[1:]],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # In its own session, the timeout can end the whole group, and no terminal can be asked for a password.
            start_new_session=True,
            user=identity.uid if identity else None,
            group=identity.gid if identity else None,
            extra_groups=identity.groups if identity else None,
        )


def _is_this_process(identity: Identity) -> bool:
    uid, gid = os.geteuid(), os.getegid()
    return uid != 0 and (uid, gid) == (os.getuid(), os.getgid()) == (identity.uid, identity.gid)


@contextlib.contextmanager
def _standard_input(data: bytes) -> Iterator[int | None]:
    """Yield a file in memory with the input, or ``None`` without input.

    Unlike a pipe, the file needs no writer while the command runs.
    """
    if not data:
        yield None
        return
    with open(os.memfd_create("stdin", os.MFD_CLOEXEC), "r+b", buffering=0) as stream:
        stream.write(data)
        stream.seek(0)
        yield stream.fileno()


@contextlib.contextmanager
def _working_directory(path: str, owner: int | None) -> Iterator[str]:
    """Yield a pinned path of the directory. Links in its path are checked like those of a managed file."""
    if path == "/":  # the root directory needs no pinning
        yield path
        return
    with hold_directory(path) as descriptor:
        if owner is not None and (uid := os.fstat(descriptor).st_uid) != owner:
            raise ChangedMeanwhile(f"{path}: belongs to user {uid} now, not to user {owner}")
        yield f"/proc/self/fd/{descriptor}"


def _find(program: str, search_path: str) -> str:
    """Search the command's PATH, because Popen would search Puller's."""
    if "/" in program:
        return program
    for directory in search_path.split(":"):
        candidate = os.path.join(directory, program)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(2, f"no executable {program!r} in {search_path}")


class _Tail:
    """The last bytes of a stream, and whether bytes before them were dropped."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept = bytearray()
        self.dropped = 0

    def add(self, data: bytes) -> None:
        self.kept += data
        # Cut at twice the limit, which copies once per limit instead of once per chunk.
        if len(self.kept) > 2 * self.limit:
            self._cut()

    def _cut(self) -> None:
        surplus = len(self.kept) - self.limit
        if surplus > 0:
            self.dropped += surplus
            del self.kept[:surplus]

    def text(self) -> str:
        self._cut()
        note = f"[… {self.dropped} bytes before this were dropped]\n" if self.dropped else ""
        return note + self.kept.decode("utf-8", errors="replace")


def _read_until_exit(
    process: "subprocess.Popen[bytes]",
    descendants: Descendants,
    stdout: _Tail,
    stderr: _Tail,
    deadline: float,
) -> bool:
    """Read output until the command has ended. Return False if the deadline came first.

    Waits on a pidfd and on the pipes, because a command may close its output and continue, or end while its children
    hold the pipes open.
    """
    pidfd = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pidfd, selectors.EVENT_READ, None)
            for pipe, tail in ((process.stdout, stdout), (process.stderr, stderr)):
                assert pipe is not None  # noqa: S101  _start requests both pipes; for the type checker
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, tail)
            ended = False
            while selector.get_map():
                processes.check_command()
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return ended
                for key, _ in selector.select(min(remaining, _LOOK)):
                    if key.fd == pidfd:
                        selector.unregister(pidfd)
                        ended = True
                        deadline = min(deadline, time.monotonic() + _LINGER)
                    elif not _read_some(key.fd, key.data):
                        selector.unregister(key.fileobj)
                descendants.reap()
            return ended
    finally:
        os.close(pidfd)


def _read_some(descriptor: int, tail: _Tail) -> bool:
    """Read available bytes. Return False at the end of the stream."""
    try:
        data = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return True
    tail.add(data)
    return bool(data)


def _end(process: "subprocess.Popen[bytes]", descendants: Descendants) -> None:
    """End the command and all processes that it started, in any session.

    1. Send TERM to all.
    2. Wait for them to clean up, until none remains or the time is over.
    3. Send KILL until none remains, or the remaining ones hang in the kernel.
    """
    # 1. TERM
    descendants.signal(signal.SIGTERM)
    # 2. Pause
    _wait_for_end(process, descendants, time.monotonic() + _GRACE)
    # 3. KILL
    limit = time.monotonic() + _LAST_WAIT
    while descendants.living() and time.monotonic() < limit:
        # Repeat faster than a process can start others, because a killed one may just have started another.
        descendants.signal(signal.SIGKILL)
        _wait_for_end(process, descendants, time.monotonic() + 0.01)


def _wait_for_end(process: "subprocess.Popen[bytes]", descendants: Descendants, limit: float) -> None:
    while descendants.living() and (remaining := limit - time.monotonic()) > 0:
        time.sleep(min(remaining, 0.02))
        process.poll()
        descendants.reap()


def _close_pipes(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


# Splitting of command lines.
#
# Blanks, tabs and newlines separate words. Single quotes are literal. Inside double quotes a backslash escapes only
# ``$``, a backtick, ``"``, a newline and itself. Outside it escapes any character. A backslash and newline vanish.
# Comments, globs and expansions are not supported. The standard library's ``shlex`` has other escapes.

_BLANKS = " \t\n\r"
_ESCAPED_IN_DOUBLE = '$`"\\'


def split_words(text: str) -> list[str]:
    """Return the words of ``text``. Raises ``ValueError`` for an unterminated quote or escape."""
    words: list[str] = []
    word: list[str] | None = None  # None between words, so that '' is a word too
    position, end = 0, len(text)
    while position < end:
        character = text[position]
        position += 1
        if character in _BLANKS:
            if word is not None:
                words.append("".join(word))
                word = None
            continue
        if character == "\\" and text.startswith("\n", position):
            position += 1
            continue
        word = [] if word is None else word
        if character == "'":
            position = _single_quoted(text, position, word)
        elif character == '"':
            position = _double_quoted(text, position, word)
        elif character == "\\":
            if position == end:
                raise ValueError("ends in a backslash")
            word.append(text[position])
            position += 1
        else:
            word.append(character)
    if word is not None:
        words.append("".join(word))
    return words


def _single_quoted(text: str, position: int, word: list[str]) -> int:
    end = text.find("'", position)
    if end < 0:
        raise ValueError("has a single quote that is not closed")
    word.append(text[position:end])
    return end + 1


def _double_quoted(text: str, position: int, word: list[str]) -> int:
    while position < len(text):
        character = text[position]
        position += 1
        if character == '"':
            return position
        if character == "\\" and position < len(text):
            escaped = text[position]
            position += 1
            if escaped != "\n":
                word.append(escaped if escaped in _ESCAPED_IN_DOUBLE else f"\\{escaped}")
        else:
            word.append(character)
    raise ValueError("has a double quote that is not closed")
