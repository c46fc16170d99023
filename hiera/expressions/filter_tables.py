"""The filters and tests of the sandbox: Jinja2's own and those of Puller, each bounded and with secrets revealed to it.

* A secret that a filter is given is revealed to it; then the result of the whole expression is a secret.
* What a filter makes is counted; what it takes apart or writes down as text is measured before.
* Each is known by its name within Ansible's collections, too: ``ansible.builtin.to_json``.
* What does not exist is an error for a filter of Puller's, but for those whose business it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2 import Environment
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, Undefined
from jinja2.tests import TESTS as JINJA_TESTS

from hiera.expressions import filters
from hiera.expressions.builtins import BOUNDED
from hiera.expressions.checks import CHECKS
from hiera.limits import SCALARS, meter
from hiera.values import sizes


def _revealing(
    function: Callable[..., Any], *, strict: bool, counted: bool, of_text: bool = False
) -> Callable[..., Any]:
    """``function`` with secrets revealed to it.

    ``strict``: it refuses what is missing; ``counted``: its result is paid for; ``of_text``: it takes text, and what is
    none is written down.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if not SCALARS.issuperset(map(type, arguments)):
            if strict:  # str() of what is missing raises, and says what it is
                arguments = tuple(str(item) if isinstance(item, Undefined) else item for item in arguments)
            arguments = tuple(map(meter.revealed, arguments))
            if of_text:
                arguments = tuple(map(_written, arguments))
        if named:
            named = {name: meter.revealed(argument) for name, argument in named.items()}
        value = function(*arguments, **named)
        return meter.made(value) if counted else value

    return call


def _written(value: Any) -> Any:
    """A list or mapping as text; anything else as it is. Raises ExpressionError for what has no text."""
    if isinstance(value, _COLLECTIONS):
        return sizes.text_of(value)
    if isinstance(value, _OF_JINJA):
        return value
    sizes.verify_writable(value)
    return value


def _opening(function: Callable[..., Any], *, counted: bool) -> Callable[..., Any]:
    """``function``, which looks at no item of a list or mapping, with a secret opened to it."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if not SCALARS.issuperset(map(type, arguments)):
            arguments = tuple(map(meter.opened, arguments))
        if named:
            named = {name: meter.opened(argument) for name, argument in named.items()}
        value = meter.opened(function(*arguments, **named))
        return meter.made(value) if counted else value

    return call


def _of_text(method: Callable[[str], Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """A filter, which does for a text alone what a method of text does."""

    @functools.wraps(otherwise)
    def call(value: Any, *arguments: Any, **named: Any) -> Any:
        if type(value) is str and not arguments and not named:
            return meter.made(method(value))
        return otherwise(value, *arguments, **named)

    return call


def _of_items(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that takes apart what it is given, also a text into characters."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, str):
                sizes.verify_length([], len(argument))
        return function(*arguments, **named)

    return call


_COLLECTIONS: Final = (dict, list, tuple)
_OF_JINJA: Final = (Environment, EvalContext, Context)
"""What Jinja2 gives some filters as their first argument."""
_OF_TEXT: Final = frozenset(
    {
        *(
            "capitalize",
            "e",
            "escape",
            "forceescape",
            "lower",
            "safe",
            "string",
            "striptags",
            "title",
            "trim",
        ),
        *("truncate", "upper", "urlize", "wordcount"),
    }
)
_OF_ITEMS: Final = frozenset({"groupby", "list", "sort", "unique"})
_JINJA_FILTERS: Final = {
    name: _of_items(function) if name in _OF_ITEMS else function for name, function in JINJA_FILTERS.items()
}


def table(jinja: Mapping[str, Any], own: Mapping[str, Any], *, counted: bool) -> dict[str, Any]:
    """Jinja2's functions and ``own`` ones by name, wrapped; ``counted`` are those whose results are paid for."""
    lenient = {
        name: _opening(function, counted=counted)
        if name in (_FILTERS_OF_OUTSIDES if counted else _TESTS_OF_OUTSIDES)
        else _revealing(function, strict=False, counted=counted, of_text=counted and name in _OF_TEXT)
        for name, function in jinja.items()
    }
    return lenient | {
        name: _revealing(function, strict=name not in _LENIENT, counted=counted)
        for name, function in own.items()
    }


_FILTERS_OF_OUTSIDES: Final = frozenset({"count", "d", "default", "dictsort", "first", "last", "length"})
_TESTS_OF_OUTSIDES: Final = frozenset(
    {
        *(
            "boolean",
            "defined",
            "float",
            "integer",
            "iterable",
            "mapping",
            "none",
            "number",
            "sequence",
            "string",
        ),
        "undefined",
    }
)
"""Of Jinja2, those that ask what a value is, how long it is, or hand on a part of it."""

_LENIENT: Final = frozenset({"mandatory", "ternary"})  # they may be given what is missing, and not use it
_OF_TEXT_ALONE: Final[dict[str, Callable[[str], Any]]] = {
    "capitalize": str.capitalize,
    "count": len,
    "length": len,
    "lower": str.lower,
    "trim": str.strip,
    "upper": str.upper,
}
_ALL: Final = table({**_JINJA_FILTERS, **BOUNDED}, filters.FILTERS, counted=True)
FILTERS: Final = _ALL | {name: _of_text(method, _ALL[name]) for name, method in _OF_TEXT_ALONE.items()}
_MORE_CHECKS: Final = {name: check for name, check in CHECKS.items() if name not in JINJA_TESTS}
TESTS: Final = table(JINJA_TESTS, {**_MORE_CHECKS, **filters.TESTS}, counted=False)


def qualified(functions: Mapping[str, Any]) -> dict[str, Any]:
    """``functions``, also by the names that they have in the collections of Ansible."""
    builtin = {f"ansible.builtin.{name}": function for name, function in functions.items()}
    of_utils = {
        f"{collection}.{name}": functions[name]
        for collection in ("ansible.utils", "ansible.netcommon")
        for name in _ADDRESSES & functions.keys()
    }
    return {**functions, **builtin, **of_utils}


_ADDRESSES: Final = frozenset({"ipaddr", "ipv4", "ipv6", "ipwrap"})
