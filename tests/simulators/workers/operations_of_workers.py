"""Operations for workers of tests: what an honest one may ask for, and what one does that belongs to somebody else."""

import encodings.idna  # noqa: F401  the interpreter may be in a place that a worker cannot read
import os
import socket
import time
from typing import Any

from bundles.confined.frames import DATA, TRUNCATE, message
from bundles.deadline import Deadline, aside


class Session:
    """A session of which each call is a function of this module."""

    readable: tuple[str, ...] = ()

    def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
        name, *rest = arguments
        answer: tuple[bytes, ...] = globals()[name](into, *rest)
        return answer


def open_session(arguments: Any) -> Session:
    """The operation."""
    if arguments == "fails":
        raise FileNotFoundError(2, "No such file", "/etc/puller/ca.pem")
    return Session()


def echo(_into: Any, text: str) -> tuple[bytes, ...]:
    return (text.encode(),)


def pid(_into: Any) -> tuple[bytes, ...]:
    return (b"%d" % os.getpid(),)


def status(_into: Any) -> tuple[bytes, ...]:
    with open("/proc/self/status", "rb") as stream:
        return (stream.read(),)


def attempt(_into: Any, what: str, *arguments: Any) -> tuple[bytes, ...]:
    """Try a call of ``os`` or the like; the name of the error, or ``done``."""
    try:
        ATTEMPTS[what](*arguments)
    except OSError as error:
        return (type(error).__name__.encode(), str(error).encode())
    return (b"done",)


def environment(_into: Any) -> tuple[bytes, ...]:
    return tuple(f"{name}={value}".encode() for name, value in os.environ.items())


def thread(_into: Any) -> tuple[bytes, ...]:
    """The address of this machine, asked for in a thread."""
    found = aside(lambda: socket.getaddrinfo("localhost", 80, socket.AF_INET)[0][4][0], Deadline(10))
    return (str(found).encode(),)


def write(into: Any, count: int) -> tuple[bytes, ...]:
    into.write(b"x" * count)
    return ()


def rewrite(into: Any, position: int, data: bytes) -> tuple[bytes, ...]:
    into.seek(position)
    into.truncate()
    into.write(data)
    return ()


def flood(into: Any) -> tuple[bytes, ...]:
    while True:
        into.write(b"x" * 65536)


def trickle(into: Any) -> tuple[bytes, ...]:
    while True:
        into.write(b"x")
        time.sleep(0.05)


def hang(_into: Any) -> tuple[bytes, ...]:
    while True:
        time.sleep(60)


def die(_into: Any) -> tuple[bytes, ...]:
    os._exit(3)


def send(into: Any, data: bytes) -> tuple[bytes, ...]:
    """Send bytes that may be no message."""
    into._connection.sendall(data)
    return ()


def grow(into: Any) -> tuple[bytes, ...]:
    """Say that the file is longer than it is."""
    into._connection.sendall(message(TRUNCATE, b"1000000000") + message(DATA, b"x"))
    return ()


def _write_file(path: str) -> None:
    with open(path, "wb") as stream:
        stream.write(b"theirs")


def _read_file(path: str) -> None:
    with open(path, "rb") as stream:
        stream.read(1)


def _connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)


ATTEMPTS: dict[str, Any] = {
    "write": _write_file,
    "read": _read_file,
    "mkdir": os.mkdir,
    "unlink": os.unlink,
    "rename": os.rename,
    "symlink": os.symlink,
    "utime": lambda path: os.utime(path, (0, 0)),
    "truncate": lambda path: os.truncate(path, 0),
    "connect": _connect,
    "chmod": lambda path: os.chmod(path, 0o777),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "fork": os.fork,
    "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "kill": lambda number: os.kill(number, 9),
    "setuid": lambda: os.setuid(0),
    "packet": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "listdir": os.listdir,
    "chroot": lambda: os.chroot("/"),
    "setsid": os.setsid,
    "memory": lambda: bytearray(4 << 30),
}
