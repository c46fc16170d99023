"""The server of workers: started by the agent, with its user, and it starts one worker for each session.

It speaks to nobody but the agent, and has read nothing of the agent's but the orders: a new program, so that the memory
of a worker has no decrypted value, and no password of another server. It imports the operations, which takes the time
of most of them, once for all.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from typing import Any

from bundles.confined.frames import read_order
from bundles.confined.worker import DESCRIPTOR, import_operation, settle, work


def serve() -> None:
    """Obey the agent at the other end of the socket `DESCRIPTOR` until it closes it; then no worker is left.

    Orders are ``("open", number, operation, arguments, user)``, with the worker's socket beside it, where an operation
    is named ``module:function``; and ``("end", number)``, after which this worker is gone.
    """
    settle()
    control = socket.socket(fileno=DESCRIPTOR)
    workers: dict[int, int] = {}
    passed: list[int] = []

    def receive(count: int) -> bytes:
        data, descriptors, *_ = socket.recv_fds(control, count, 1)
        passed.extend(descriptors)
        return data

    while (order := read_order(receive)) is not None:
        if order[0] == "end":
            _end(workers.pop(order[1], 0))
            continue
        _, number, name, arguments, user = order
        connection = socket.socket(fileno=passed.pop())
        with suppress(ImportError, AttributeError):  # the worker says so
            import_operation(name)
        workers[number] = pid = os.fork()
        if pid == 0:
            control.close()
            _work(connection, name, arguments, user)
        connection.close()
    for pid in workers.values():
        _end(pid)


def _work(connection: socket.socket, name: str, arguments: Any, user: str) -> None:
    try:
        work(connection, name, arguments, user)
    finally:
        os._exit(0)


def _end(pid: int) -> None:
    """End a worker, whatever it does. Its number is its own until it is waited for."""
    if pid:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
