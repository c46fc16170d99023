"""What a managed file should hold: bytes in memory, or another file that is streamed."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from puller.errors import ResourceError
from puller.system.protocol import System


class Content(Protocol):
    """The wanted bytes of a file."""

    @property
    def size(self) -> int:
        """In bytes."""

    def chunks(self) -> Iterable[bytes]:
        """All of it, in pieces."""

    def same_as(self, path: str) -> bool:
        """Whether the regular file at ``path``, known to have this size, holds the same bytes."""


class Bytes(msgspec.Struct, frozen=True):
    """Content that is in memory: inline, rendered or downloaded."""

    data: bytes
    system: System

    @property
    def size(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterable[bytes]:
        return (self.data,)

    def same_as(self, path: str) -> bool:
        return self.system.read(path) == self.data


class SourceFile(msgspec.Struct, frozen=True):
    """Content that stays in a file of the bundle, however large."""

    path: str
    size: int
    system: System

    def chunks(self) -> Iterable[bytes]:
        return self.system.read_chunks(self.path)

    def same_as(self, path: str) -> bool:
        return sha256(self.system.read_chunks(path)) == sha256(self.chunks())


class Pending(msgspec.Struct, frozen=True):
    """In noop: content that an earlier resource of the run would bring, and that nobody knows yet."""

    path: str
    size: int = -1

    def chunks(self) -> Iterable[bytes]:
        raise ResourceError(f"source {self.path} is not there yet")

    def same_as(self, path: str) -> bool:
        del path
        return False


def sha256(chunks: Iterable[bytes]) -> str:
    """The digest of all pieces together, in hexadecimal."""
    import hashlib  # and OpenSSL: not for files that are compared byte by byte

    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def described(size: int, digest: str) -> str:
    """Content named without showing it."""
    return f"sha256 {digest[:12]}… ({size} bytes)"


OTHER, SENSITIVE = "another one", "the sensitive one"
"""The same for content that is a secret: with its checksum and size, guesses at a short one could be tried."""
