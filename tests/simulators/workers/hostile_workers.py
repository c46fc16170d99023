"""Hostile operations in place of the worker operations of a run."""

import os
import time
from typing import Any


class _Session:
    readable: tuple[str, ...] = ()


def unchanged(_arguments: Any) -> Any:
    """Claim that no newer root exists, and return an unknown timestamp."""

    class Session(_Session):
        def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
            return (b"404", b'{"signed": {"_type": "timestamp"}}')

    return Session()


def other_bytes(_arguments: Any) -> Any:
    """Return foreign metadata."""

    class Session(_Session):
        def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
            into.seek(0)
            into.truncate()
            into.write(b'{"signatures": [], "signed": {"_type": "root", "version": 2}}')
            return ()

    return Session()


def garbage(_arguments: Any) -> Any:
    """Send bytes that are not a message."""

    class Session(_Session):
        def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
            into._connection.sendall(b"\xff" * 4096)
            return (b"no", b"sense", b"at all")

    return Session()


def not_there(_arguments: Any) -> Any:
    """Claim that every file is missing, including the site."""
    from bundles.errors import NotFoundError

    class Session(_Session):
        def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
            raise NotFoundError("http://elsewhere.example/\x1b[2J", "status 404")

    return Session()


def death(_arguments: Any) -> Any:
    """Exit at once."""

    class Session(_Session):
        def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
            os._exit(1)

    return Session()


def silence(_arguments: Any) -> Any:
    """Never answer."""

    class Session(_Session):
        def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
            while True:
                time.sleep(60)

    return Session()
