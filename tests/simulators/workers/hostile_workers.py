"""Operations of workers that belong to somebody else, in the places of those of a run."""

import os
import time
from typing import Any


class _Session:
    readable: tuple[str, ...] = ()


def unchanged(_arguments: Any) -> Any:
    """Whatever is asked, it is as it was: of no newer root, and of a timestamp that it does not know."""

    class Session(_Session):
        def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
            return (b"404", b'{"signed": {"_type": "timestamp"}}')

    return Session()


def other_bytes(_arguments: Any) -> Any:
    """Metadata of somebody else."""

    class Session(_Session):
        def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
            into.seek(0)
            into.truncate()
            into.write(b'{"signatures": [], "signed": {"_type": "root", "version": 2}}')
            return ()

    return Session()


def garbage(_arguments: Any) -> Any:
    """Bytes that are no message."""

    class Session(_Session):
        def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
            into._connection.sendall(b"\xff" * 4096)
            return (b"no", b"sense", b"at all")

    return Session()


def not_there(_arguments: Any) -> Any:
    """Nothing is there, the site itself included."""
    from bundles.errors import NotFoundError

    class Session(_Session):
        def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
            raise NotFoundError("http://elsewhere.example/\x1b[2J", "status 404")

    return Session()


def death(_arguments: Any) -> Any:
    """It ends at once."""

    class Session(_Session):
        def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
            os._exit(1)

    return Session()


def silence(_arguments: Any) -> Any:
    """It never answers."""

    class Session(_Session):
        def __call__(self, arguments: Any, into: Any) -> tuple[bytes, ...]:
            while True:
                time.sleep(60)

    return Session()
