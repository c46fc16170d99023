"""The values of YAML texts, kept for the next process: a text that has not changed is not read again.

* A value follows from its text, the limit of its length, and what reads it: nothing of the machine goes into it.
* What is kept of a text is sealed with the text (``hiera.sealing``): who has not the one can make nothing of the other,
  so that a password in it is written nowhere else.
* Whoever reads texts hands in a store (``kept_in``); without one, nothing outlives the process.
* A store that fails, or holds something else, costs time and nothing more.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from hiera.keeping import StoreOfThread, maker_digest
from hiera.sealing import names_of, seal, unseal


def makers() -> tuple[str, ...]:
    """The directories of the PyYAML and the modules that read texts; none when that is not sure."""
    from importlib.machinery import PathFinder

    if (found := PathFinder.find_spec("yaml")) is None or found.origin is None:
        return ()
    return os.path.dirname(sys.modules[__name__].__file__ or ""), os.path.dirname(found.origin)


def _maker() -> bytes | None:
    """A digest of the Python, the PyYAML and the module that read texts; ``None`` when that is not sure."""
    return maker_digest(found) if (found := makers()) else None


_store: Final = StoreOfThread(_maker)
kept_in: Final = _store.kept_in
"""A context whose texts take their values from a store; it is opened when there is a text."""


def value_of(text: str | bytes, limit: int, read: Callable[[], Any]) -> Any:
    """The value of a text, kept or read now; raises what ``read`` raises."""
    if (store := _store.opened()) is None:
        return read()
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    # Both depend on the limit, too, which one text may have several of.
    digest, key = names_of(b"%d\0%s" % (limit, data))
    if isinstance(sealed := store.find(digest), bytes):
        with contextlib.suppress(ValueError, TypeError, EOFError):
            return marshal.loads(unseal(sealed, key))  # noqa: S302  nobody else can have written it
    value = read()
    # What has read it was imported after the maker was known, and may have been another by then.
    if _store.has_same_maker():
        store.keep(digest, seal(marshal.dumps(value), key))
    return value
