"""Who calls whom while a template is rendered, for what is called and asks for a name that its caller has.

* A call of a template is made by ``Sandbox.call``; what stands beside the context, the variables of loops and macros,
  is told just before it by ``Callers.tell``.
* ``template()`` and ``render()`` hand all of it on. A macro sees what it is handed, as in Jinja2; a name that it lacks
  and its caller has is an error that says so, where ``default`` and ``is defined`` would answer as if there were none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from jinja2.runtime import Context
from jinja2.utils import missing

from hiera.threads import PerThread

_NONE: Final[Mapping[str, Any]] = {}


_Call: TypeAlias = tuple[Context, Mapping[str, Any]]
_Before: TypeAlias = tuple[list[_Call], Mapping[str, Any]]


class _Own:
    """The calls that the template in one thread is in, the innermost last."""

    __slots__ = ("calls", "told")

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.told: Mapping[str, Any] = _NONE


class _Thread(PerThread):
    def __init__(self) -> None:
        self.own = _Own()


_thread: Final = _Thread()


class Callers:
    """The calls that the template in this thread is in."""

    __slots__ = ()

    def tell(self, names: Mapping[str, Any]) -> None:
        """The variables at the place of the call that comes next."""
        _thread.own.told = names

    def enter(self, context: Context) -> None:
        """Begin a call from a template with this context, and the variables told last."""
        own = _thread.own
        own.calls.append((context, own.told))

    def leave(self) -> None:
        """End the call; it may be an argument of another, which is made at the same place."""
        own = _thread.own
        own.told = own.calls.pop()[1]

    def begin(self) -> _Before:
        """Begin an evaluation of its own, such as that of data that a template asks for: it has no callers.

        ``end`` is to be called with what this gives.
        """
        own = _thread.own
        before = own.calls, own.told
        if before[0]:  # every expression comes by here, and few are evaluated within another
            own.calls, own.told = [], _NONE
        return before

    def end(self, before: _Before) -> None:
        """End an evaluation."""
        own = _thread.own
        own.calls, own.told = before

    def names(self) -> dict[str, Any]:
        """All names at the place of the call that is being made; none outside of calls."""
        calls = _thread.own.calls
        if not calls:
            return {}
        context, told = calls[-1]
        return {**context.get_all(), **{name: item for name, item in told.items() if item is not missing}}

    def have(self, name: str) -> bool:
        """Whether there is this name at the place of one of the calls."""
        return any(
            told.get(name, missing) is not missing or context.resolve_or_missing(name) is not missing
            for context, told in _thread.own.calls
        )


callers: Final = Callers()
