"""Cache of the Python code that Jinja2 compiles from templates: in memory, and between processes in a store.

* A key contains everything that the code depends on: the text, its name, and the options of its environment.
* The caller provides the store (``stored_in``). Without a store, the code stays in memory only.
* Code that was compiled after the evaluation has read a secret is never stored, because it may contain the secret.
* A store that fails costs time, and never changes a result.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Final, Protocol

from hiera.limits import PerThread, meter

MEMORY_SIZE: Final = 256
"""Templates whose code stays in memory, for loops that render one template for each item."""

_LONGEST_IN_MEMORY: Final = 32 * 1024  # characters of a template
_COMPILER_PACKAGES: Final = ("jinja2", "hiera.expressions")

Key = tuple[object, ...]


class CodeStore(Protocol):
    """Code that outlives the process. Its methods raise nothing."""

    def find(self, key: str) -> CodeType | None:
        """Return the code of ``key``, or ``None`` if the store lacks it or it is damaged."""

    def add(self, key: str, code: CodeType) -> None:
        """Store the code of ``key``."""


OpenStore = Callable[[str], CodeStore]
"""Open the store of a compiler, identified by ``compiler_identity``."""


class _Cache:
    """The code in memory, and the store behind it, which the first template opens."""

    def __init__(self, open_store: OpenStore | None = None) -> None:
        self._in_memory: dict[Key, CodeType] = {}
        self._open_store = open_store
        self._created = time.time_ns()
        self._store: CodeStore | None = None

    def code_of(self, key: Key, length: int, compile_template: Callable[[], CodeType]) -> CodeType:
        code = self._in_memory.get(key)
        if code is None:
            code = self._stored(key, compile_template)
            if length <= _LONGEST_IN_MEMORY:
                if len(self._in_memory) >= MEMORY_SIZE:
                    del self._in_memory[next(iter(self._in_memory))]
                self._in_memory[key] = code
        return code

    def _stored(self, key: Key, compile_template: Callable[[], CodeType]) -> CodeType:
        store = self._opened()
        if store is None or (meter.depth and meter.secret):
            return compile_template()
        text = repr(key)
        code = store.find(text)
        if code is None:
            code = compile_template()
            store.add(text, code)
        return code

    def _opened(self) -> CodeStore | None:
        if self._open_store is not None:
            identity = compiler_identity(self._created)
            self._store = None if identity is None else self._open_store(identity)
            self._open_store = None
        return self._store


class _Current(PerThread):
    """The cache of this thread."""

    cache = _Cache()  # of all threads without ``stored_in``


_current: Final = _Current()


@contextlib.contextmanager
def stored_in(open_store: OpenStore) -> Iterator[None]:
    """Let the templates of this thread take their code from a store, which the first template opens."""
    previous, _current.cache = _current.cache, _Cache(open_store)
    try:
        yield
    finally:
        _current.cache = previous


def code_of(key: Key, length: int, compile_template: Callable[[], CodeType]) -> CodeType:
    """Return the code of a template with ``length`` characters. Raise what ``compile_template`` raises."""
    return _current.cache.code_of(key, length, compile_template)


def compiler_identity(since: int = sys.maxsize) -> str | None:
    """Return a text that changes with Python, Jinja2 and our sandbox, or ``None`` if it cannot be determined.

    Files are compared by their ``stat``, because distributions patch them without a new version. A file that was
    changed after ``since`` (nanoseconds) may differ from the module that this process has imported.
    """
    files: list[tuple[object, ...]] = []
    try:
        for package in _COMPILER_PACKAGES:
            directory = os.path.dirname(sys.modules[package].__file__ or "")
            for name in sorted(os.listdir(directory)):
                if "." not in name:  # __pycache__, which changes with the first import
                    continue
                status = os.stat(os.path.join(directory, name))
                if status.st_ctime_ns >= since:
                    return None
                files.append((name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    except (OSError, KeyError):
        return None
    return repr((sys.version, sys.implementation.cache_tag, files))
