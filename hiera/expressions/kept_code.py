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
import time
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Final

from hiera import keeping
from hiera.keeping import Store, digest_of
from hiera.limits import meter
from hiera.threads import PerThread

_MOST: Final = 256
"""Templates whose code stays in memory: one may be rendered for each item of a loop, or for each of many machines."""

_LONGEST: Final = 32 * 1024
"""Characters of such a template."""

_MAKERS: Final = ("jinja2", "hiera.expressions")
"""The packages that the code of a template follows from."""

Key = tuple[object, ...]
"""All that code follows from, besides what makes it; ``repr`` tells two of them apart."""


class _Codes:
    """The code that is at hand, and the store behind it, which is opened when it is first asked for."""

    def __init__(self, open_store: Callable[[bytes], Store] | None = None) -> None:
        self._codes: dict[Key, CodeType] = {}
        self._open, self._since = open_store, time.time_ns()
        self._store: Store | None = None

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
        digest = digest_of(repr(key).encode("utf-8", "surrogatepass"))
        if not isinstance(code := store.find(digest), CodeType):
            code = make()
            store.keep(digest, code)
        return code

    def _opened(self) -> Store | None:
        if self._open is not None:
            open_store, self._open = self._open, None
            maker = maker_digest(self._since)
            self._store = None if maker is None else open_store(maker)
        return self._store


class _Current(PerThread):
    """The code for templates of this thread."""

    codes = _Codes()
    """Of threads that nobody has given a store."""


_current: Final = _Current()


@contextlib.contextmanager
def kept_in(open_store: Callable[[bytes], Store]) -> Iterator[None]:
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
    """A digest of the Python, the Jinja2 and the sandbox that make code; ``None`` when that is not sure."""
    try:
        directories = [os.path.dirname(sys.modules[package].__file__ or "") for package in _MAKERS]
    except KeyError:
        return None
    return keeping.maker_digest(directories, since)
