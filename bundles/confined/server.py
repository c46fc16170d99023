"""Server of workers: started by the agent with its user, it forks one worker for each session.

It communicates only with the agent, and reads only its orders. It is a new program, so that the memory of workers
contains neither decrypted values nor passwords of other servers. It imports the operations once for all workers,
because imports take most of their time.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from typing import Any

from bundles.confined.worker import DESCRIPTOR, import_operation, read_order, settle, work


def serve() -> None:
    """Serve the agent at the other end of the socket `DESCRIPTOR` until it closes the socket. Then end all workers.

    Orders are ``("open", number, operation, arguments, user)`` with the worker's socket attached, where an operation is
    ``module:function``, and ``("end", number)``, which ends a worker.
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
        with suppress(ImportError, AttributeError):  # the worker reports it
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
    """Kill a worker. Its process number cannot be reused before it is waited for."""
    if pid:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
