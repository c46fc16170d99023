"""The functions of a template by name: Go's own, Sprig's, and those of whoever renders.

* A name is known without importing what it stands for; a group of functions is imported when a template uses one.
* Where Sprig has a function of Go's name (``slice``), Sprig's is used; the host's come before both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

from puller.templates.errors import similar_names
from puller.templates.gotemplate import builtins, host
from puller.templates.gotemplate.signature import Signature, signature_of
from puller.templates.gotemplate.sprig import GROUP_OF


@dataclass(frozen=True, slots=True)
class Function:
    """``stops_at`` is set for ``and`` (False) and ``or`` (True): the truth at which the rest is not evaluated."""

    call: Callable[..., Any]
    signature: Signature
    stops_at: bool | None = None


_STOPS_AT: Final = {"and": False, "or": True}


@cache
def find_function(name: str) -> Function:
    """The function with this name, which is one. Imports the group it is in."""
    call = _implementation(name)
    return Function(call, signature_of(call), _STOPS_AT.get(name))


def _implementation(name: str) -> Callable[..., Any]:
    if name in host.FUNCTIONS:
        return host.FUNCTIONS[name]
    if name in GROUP_OF:
        group = import_module(f"puller.templates.gotemplate.sprig.{GROUP_OF[name]}")
        functions: dict[str, Callable[..., Any]] = group.FUNCTIONS
        return functions[name]
    return builtins.FUNCTIONS[name]


def complaint_about(name: str) -> str:
    """The complaint about a name that no function has, with names that may be meant; empty for one that exists."""
    if name in host.FUNCTIONS or name in GROUP_OF or name in builtins.FUNCTIONS:
        return ""
    known = [*host.FUNCTIONS, *GROUP_OF, *builtins.FUNCTIONS]
    return f"there is no function {name}{similar_names(name, known)}"
