"""Where documents arrive: a directory, or an object store."""

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

import msgspec


class Found(msgspec.Struct, frozen=True):
    """A file that may be a document."""

    path: str
    """Below the source: ``host/run.json.gz``."""
    host: str
    """The directory that it is in."""
    size: int
    """Bytes."""
    stamp: int
    """Of its last change: another one means that it is another file."""


class Refused(msgspec.Struct, frozen=True):
    """A file that is no document, and why."""

    path: str
    why: str


class Gone(Exception):
    """A file that was there a moment ago, and that another import or its host has removed."""


class Unreadable(ValueError):
    """A file that cannot be read now; it may be the next time, without being another one."""


class Source(Protocol):
    """A place that hosts send to. Methods raise ``SourceError`` when it cannot be used at all."""

    name: str
    """Identifies it in the store."""

    def listed(self) -> Iterator[Found | Refused]:
        """All files there; what can be no document is refused."""

    def read(self, found: Found) -> tuple[bytes, datetime]:
        """The bytes of a file, and when it arrived; raises ``ValueError`` saying why it is none, and ``Gone``."""

    def remove(self, found: Found) -> None:
        """Remove a file that was imported, if it is still that one."""

    def close(self) -> None:
        """Let go of it."""
