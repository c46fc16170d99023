"""Test operations for workers: requests of honest and of hostile workers."""

import _thread
import ctypes
import encodings.idna  # noqa: F401  the interpreter may be in a directory that a worker cannot read
import mmap
import os
import socket
import time
from typing import Any

from bundles.confined.worker import DATA, LOG, TRUNCATE, message
from bundles.deadline import Deadline, aside
from bundles.errors import TransportError
from foundation.problems import ProblemCode


class Session:
    """A session whose calls are functions of this module."""

    readable: tuple[str, ...] = ()

    def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
        name, *remainder = arguments
        answer: tuple[bytes, ...] = globals()[name](into, *remainder)
        return answer


def open_session(arguments: Any) -> Session:
    """Return a session. Raises ``FileNotFoundError`` if the test requests it."""
    if arguments == "fails":
        raise FileNotFoundError(2, "No such file", "/etc/puller/ca.pem")
    return Session()


def echo(_into: Any, text: str) -> tuple[bytes, ...]:
    return (text.encode(),)


def fail(_into: Any) -> tuple[bytes, ...]:
    raise TransportError("a", "b", code=ProblemCode.CHECKSUM_MISMATCH, hint="repeat the upload")


def pid(_into: Any) -> tuple[bytes, ...]:
    return (b"%d" % os.getpid(),)


def status(_into: Any) -> tuple[bytes, ...]:
    with open("/proc/self/status", "rb") as stream:
        return (stream.read(),)


def attempt(_into: Any, what: str, *arguments: Any) -> tuple[bytes, ...]:
    """Try a call, for example of ``os``. Return the name of the error, or ``done``."""
    try:
        ATTEMPTS[what](*arguments)
    except (OSError, MemoryError, RuntimeError) as error:  # RuntimeError: the thread cannot start
        return (type(error).__name__.encode(), str(error).encode())
    return (b"done",)


def environment(_into: Any) -> tuple[bytes, ...]:
    return tuple(f"{name}={value}".encode() for name, value in os.environ.items())


def name(_into: Any) -> tuple[bytes, ...]:
    """Return the address of this machine."""
    result = aside(lambda: socket.getaddrinfo("localhost", 80, socket.AF_INET)[0][4][0], Deadline(10))
    return (str(result).encode(),)


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
    """Send bytes that may not be a message."""
    into._connection.sendall(data)
    return ()


def log(into: Any, count: int, line: bytes) -> tuple[bytes, ...]:
    """Send log lines."""
    for _ in range(count):
        into._connection.sendall(message(LOG, line))
    return ()


def begin(into: Any, count: int) -> tuple[bytes, ...]:
    """Begin many files."""
    for number in range(count):
        into.begin_file(f"file{number}", 0, None)
    return ()


def grow(into: Any) -> tuple[bytes, ...]:
    """Claim a larger size of the file."""
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


def _listen(bound: bool, kind: int = socket.SOCK_STREAM) -> None:
    with socket.socket(socket.AF_INET, kind) as waiting:
        if bound:
            waiting.bind(("127.0.0.1", 0))
        waiting.listen()
        waiting.settimeout(0.01)
        waiting.accept()


def _bind(family: int, kind: int, address: Any) -> None:
    with socket.socket(family, kind) as bound:
        bound.bind(address)


def _fill(size: int) -> None:
    """Use shared memory."""
    shared = mmap.mmap(-1, size)
    for start in range(0, size, 1 << 20):
        shared[start] = 1


def _descriptors() -> None:
    descriptors: list[int] = []
    try:
        for _ in range(1000):
            descriptors += os.pipe()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


_LIBC = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> None:
    """Call a libc function that Python lacks."""
    if getattr(_LIBC, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


ATTEMPTS: dict[str, Any] = {
    "thread": lambda: _thread.start_new_thread(time.sleep, (0,)),
    "listen": lambda: _listen(bound=False),
    "bind": lambda: _listen(bound=True),
    "bind datagrams": lambda: _bind(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
    "bind 6": lambda: _bind(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
    "pair": socket.socketpair,
    "raw": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    "ping": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
    "sctp": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16),
    "vsock": lambda: socket.socket(40, socket.SOCK_STREAM),
    "memfd": lambda: os.memfd_create("x"),
    "shared memory": lambda: _fill(2 << 30),
    "descriptors": _descriptors,
    "open": lambda path: os.open(path, os.O_RDWR),
    "create": lambda path: os.open(path, os.O_RDONLY | os.O_CREAT),
    "empty": lambda path: os.open(path, os.O_RDONLY | os.O_TRUNC),
    "nameless": lambda path: os.open(path, os.O_TMPFILE | os.O_RDWR),
    "inotify": lambda: _call("inotify_init1", 0),
    "fanotify": lambda: _call("fanotify_init", 0, 0),
    "shmget": lambda: _call("shmget", 0, 4096, 0o1600),
    "mq_open": lambda: _call("mq_open", b"/x", 0o102, 0o600, None),
    "ptrace": lambda: _call("ptrace", 0, 0, 0, 0),
    "syslog": lambda: _call("klogctl", 10, None, 0),
    "mkfifo": os.mkfifo,
    "link": lambda path: os.link(path, f"{path}2"),
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
