"""The code that Jinja2 makes of templates, kept: in memory for the next rendering, in a store for the next process.

* Code is found by all that it follows from: the text, its names, the settings of its environment, and what made it.
* Whoever runs templates hands in a store (``kept_in``); without one, nothing outlives the process.
* What is compiled after a look at a secret goes to no store: how it is named may come out of that secret.
* A store that fails, or holds something else, costs time and nothing more.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Final, Protocol

from hiera.limits import meter

_MOST: Final = 256
"""Templates whose code stays in memory: one may be rendered for each item of a loop, or for each of many machines."""

_LONGEST: Final = 32 * 1024
"""Characters of such a template."""

_MAKERS: Final = ("jinja2", "hiera.expressions")
"""The packages that the code of a template follows from."""

Key = tuple[object, ...]
"""All that code follows from, besides what makes it; ``repr`` tells two of them apart."""


class CodeStore(Protocol):
    """Code by digests, beyond the end of this process; it raises nothing."""

    def find(self, digest: bytes) -> CodeType | None:
        """The code with this digest of 32 bytes; ``None`` when there is none that is sound."""

    def keep(self, digest: bytes, code: CodeType) -> None:
        """Remember the code with this digest."""


class _Codes:
    """The code that is at hand, and the store behind it, which is opened when it is first asked for."""

    def __init__(self, open_store: Callable[[bytes], CodeStore] | None = None) -> None:
        self._codes: dict[Key, CodeType] = {}
        self._open, self._since = open_store, time.time_ns()
        self._store: CodeStore | None = None

    def code_of(self, key: Key, length: int, make: Callable[[], CodeType]) -> CodeType:
        if (code := self._codes.get(key)) is None:
            code = self._stored(key, make)
            if length <= _LONGEST:
                if len(self._codes) >= _MOST:
                    del self._codes[next(iter(self._codes))]
                self._codes[key] = code
        return code

    def _stored(self, key: Key, make: Callable[[], CodeType]) -> CodeType:
        if (store := self._opened()) is None or (meter.depth and meter.secret):
            return make()
        import hashlib  # which Jinja2 has imported, and a run without templates has not

        digest = hashlib.sha256(repr(key).encode("utf-8", "surrogatepass")).digest()
        if (code := store.find(digest)) is None:
            code = make()
            store.keep(digest, code)
        return code

    def _opened(self) -> CodeStore | None:
        if self._open is not None:
            open_store, self._open = self._open, None
            maker = maker_digest(self._since)
            self._store = None if maker is None else open_store(maker)
        return self._store


class _Current(threading.local):
    """The code for templates of this thread."""

    codes = _Codes()
    """Of threads that nobody has given a store."""


_current: Final = _Current()


@contextlib.contextmanager
def kept_in(open_store: Callable[[bytes], CodeStore]) -> Iterator[None]:
    """A context whose templates take their code from a store; it is opened when there is a template.

    ``open_store`` is given the digest of what makes the code: code of another maker is none.
    """
    before, _current.codes = _current.codes, _Codes(open_store)
    try:
        yield
    finally:
        _current.codes = before


def code_of(key: Key, length: int, make: Callable[[], CodeType]) -> CodeType:
    """The code of a text of ``length`` characters, kept or made now; raises what ``make`` raises."""
    return _current.codes.code_of(key, length, make)


def maker_digest(since: int = sys.maxsize) -> bytes | None:
    """A digest of the Python, the Jinja2 and the sandbox that make code; ``None`` when that is not sure.

    Files are told apart by what ``stat`` says, since a distribution mends them without another version. What was
    changed after ``since`` (nanoseconds) may or may not be what this process has loaded.
    """
    import hashlib

    found: list[tuple[object, ...]] = [(sys.version, sys.implementation.cache_tag)]
    try:
        for package in _MAKERS:
            found += _sources(os.path.dirname(sys.modules[package].__file__ or ""), since)
    except (KeyError, OSError, ValueError):
        return None
    return hashlib.sha256(repr(found).encode()).digest()


def _sources(directory: str, since: int) -> Iterator[tuple[object, ...]]:
    """The files of a package, each with what changes when it does. Raises ``OSError``, ``ValueError``."""
    for name in sorted(os.listdir(directory)):
        found = os.stat(os.path.join(directory, name))
        if found.st_ctime_ns >= since:
            raise ValueError(f"{name} was changed meanwhile")
        if "." in name:  # and no __pycache__, which changes when a module is first loaded
            yield name, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
