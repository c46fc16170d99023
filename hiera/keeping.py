"""Results that are kept for the next process: what they are found by, and what made them.

* A result is found by a digest of all that it follows from.
* A store holds the results of one maker: of these packages, with this Python. Those of another maker are none.
* Whoever starts a run hands in the stores (``StoreOfThread.kept_in``); without them, nothing outlives the process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from hiera.threads import PerThread

try:  # a module of its own: ``hashlib`` loads libcrypto, which takes longer than all that is kept saves
    from _blake2 import blake2b
except ImportError:  # a Python that has none
    from hashlib import blake2b

__all__ = ["DIGEST_SIZE", "Store", "StoreOfThread", "blake2b", "digest_of", "maker_digest"]

DIGEST_SIZE = 32
"""Bytes of a digest."""


class Store(Protocol):
    """Results by digests, beyond the end of this process; it raises nothing."""

    def find(self, digest: bytes) -> object:
        """The result with this digest; ``None`` when there is none that is sound."""

    def keep(self, digest: bytes, result: Any) -> None:
        """Remember the result with this digest."""


class StoreOfThread(PerThread):
    """The store that results of one kind are kept in on this thread; it is opened when it is first asked for."""

    def __init__(self, maker: Callable[[], bytes | None]) -> None:
        """``maker`` gives a digest of what makes such results, ``None`` when that is not sure."""
        self._find_maker = maker
        self._open: Callable[[bytes], Store] | None = None
        self._maker: bytes | None = None
        self._store: Store | None = None

    @contextlib.contextmanager
    def kept_in(self, open_store: Callable[[bytes], Store]) -> Iterator[None]:
        """A context whose results are kept in a store; ``open_store`` is given the digest of what makes them."""
        before = self._open, self._maker, self._store
        self._open, self._maker, self._store = open_store, None, None
        try:
            yield
        finally:
            self._open, self._maker, self._store = before

    def opened(self) -> Store | None:
        """The store; ``None`` where nobody has handed one in."""
        if self._open is not None:
            open_store, self._open = self._open, None
            self._maker = self._find_maker()
            self._store = None if self._maker is None else open_store(self._maker)
        return self._store

    def has_same_maker(self) -> bool:
        """Whether what makes results is what it was when the store was opened, and no upgrade came between."""
        return self._maker is not None and self._maker == self._find_maker()


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
