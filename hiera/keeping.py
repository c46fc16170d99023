"""Results that are kept for the next process: what they are found by, and what made them.

* A result is found by a digest of all that it follows from.
* A store holds the results of one maker: of these packages, with this Python. Those of another maker are none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

try:  # a module of its own: ``hashlib`` loads libcrypto, which takes longer than all that is kept saves
    from _blake2 import blake2b
except ImportError:  # a Python that has none
    from hashlib import blake2b

__all__ = ["DIGEST_SIZE", "Store", "blake2b", "digest_of", "maker_digest"]

DIGEST_SIZE = 32
"""Bytes of a digest."""


class Store(Protocol):
    """Results by digests, beyond the end of this process; it raises nothing."""

    def find(self, digest: bytes) -> object:
        """The result with this digest; ``None`` when there is none that is sound."""

    def keep(self, digest: bytes, result: Any) -> None:
        """Remember the result with this digest."""


def digest_of(data: bytes) -> bytes:
    """A digest (BLAKE2b) of bytes."""
    return blake2b(data, digest_size=DIGEST_SIZE).digest()


def maker_digest(directories: Iterable[str], since: int = sys.maxsize) -> bytes | None:
    """A digest of this Python, and of the packages in ``directories``; ``None`` when that is not sure.

    Files are told apart by what ``stat`` says, since a distribution mends them without another version. What was
    changed after ``since`` (nanoseconds) may or may not be what this process has loaded.
    """
    found: list[tuple[object, ...]] = [(sys.version, sys.implementation.cache_tag)]
    try:
        for directory in directories:
            found += _files(directory, since)
    except (OSError, ValueError):
        return None
    return digest_of(repr(found).encode("utf-8", "surrogatepass"))


def _files(directory: str, since: int) -> Iterator[tuple[object, ...]]:
    """The files of a package, each with what changes when it does. Raises ``OSError``, ``ValueError``."""
    for name in sorted(os.listdir(directory)):
        if "." not in name:  # __pycache__, which changes when a module is first loaded
            continue
        found = os.stat(os.path.join(directory, name))
        if found.st_ctime_ns >= since:
            raise ValueError(f"{name} was changed meanwhile")
        yield name, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
