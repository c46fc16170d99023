"""Filters and tests of expressions and templates: Puller's own, and Jinja2's in the sandbox.

* Puller's filters behave as users of Ansible and Salt expect, but invalid input is an error instead of a guess.
  ``OWN_FILTERS`` and ``OWN_TESTS`` list them. The first sentence of each function is its documentation.
* ``FILTERS`` and ``TESTS`` contain all filters and tests, wrapped by `table`. A wrapped filter can read secrets, and
  the result of the expression is then a secret.
* The result of a filter counts against the budget of the evaluation. The size of its input is checked before the
  filter splits it or converts it to text.
* A missing value is an error for Puller's filters, except for the filters that handle missing values.
* Each filter also has its name in Ansible's collections, such as ``ansible.builtin.to_json``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2 import Environment
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, Undefined
from jinja2.tests import TESTS as JINJA_TESTS

from hiera import limits
from hiera.errors import ExpressionError
from hiera.expressions import encodings, lists, texts, versions_and_dates
from hiera.expressions.addresses import ipaddr, ipv4, ipv6, ipwrap
from hiera.expressions.builtins import BOUNDED
from hiera.expressions.checks import CHECKS
from hiera.expressions.encodings import password_hash
from hiera.expressions.versions_and_dates import version
from hiera.limits import SCALARS, meter
from hiera.values import described

# -- decisions ------------------------------------------------------------------------------------


def ternary(value: Any, if_true: Any, if_false: Any, if_null: Any = None) -> Any:
    """Return ``if_true`` or ``if_false``, depending on the value. ``if_null`` replaces null if it is set."""
    if value is None and if_null is not None:
        return if_null
    return if_true if value else if_false


def mandatory(value: Any, message: str | None = None) -> Any:
    """Return the value. A missing value is an error with an optional message.

    Raises ExpressionError with the message, or else UndefinedError.
    """
    if isinstance(value, Undefined) and message is not None:
        raise ExpressionError("", str(message))
    if isinstance(value, Undefined):
        str(value)  # raises an error that names the missing value
    return value


_TRUE: Final = frozenset({"1", "on", "true", "yes"})
_FALSE: Final = frozenset({"", "0", "false", "no", "off"})


def to_bool(value: Any) -> bool:
    """Return a boolean from text or a number: yes, on, true, 1 and their opposites. Null is false.

    Raises ExpressionError for other values.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, (Mapping, list, tuple)):
        expected = "a boolean, or text or a number such as 'yes' or 1"
        advice = "to ask whether there is anything in it, write | length > 0"
        raise ExpressionError("", f"bool requires {expected}, not {described(value)}; {advice}")
    if value in (0, 1):  # also as decimals, such as 1.0
        return bool(value)
    text = texts.as_text(value, "bool").lower()
    if text not in _TRUE | _FALSE:
        raise ExpressionError("", f"{text[:40]!r} is neither true nor false")
    return text in _TRUE


# -- numbers --------------------------------------------------------------------------------------


def logarithm(value: float, base: float = math.e) -> float:
    """Return the logarithm of a number, natural or by a base: ``log(10)``."""
    return math.log10(value) if base == 10 else math.log(value, base)


def power(value: float, exponent: float) -> float:
    """Return a number raised to a power, as a decimal: ``2 | pow(3)`` is 8.0."""
    return math.pow(value, exponent)


def root(value: float, base: float = 2) -> float:
    """Return the square root of a number, or another root: ``root(3)``."""
    return math.sqrt(value) if base == 2 else math.pow(value, 1 / base)


# -- tables ---------------------------------------------------------------------------------------


OWN_FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "b64decode": encodings.b64decode,
    "b64encode": encodings.b64encode,
    "basename": texts.basename,
    "bool": to_bool,
    "checksum": encodings.sha1,
    "combinations": lists.combinations,
    "combine": lists.combine,
    "comment": texts.comment,
    "commonpath": texts.commonpath,
    "dict2items": lists.dict2items,
    "difference": lists.difference,
    "dirname": texts.dirname,
    "extract": lists.extract,
    "flatten": lists.flatten,
    "from_json": encodings.from_json,
    "from_yaml": encodings.from_yaml,
    "from_yaml_all": encodings.from_yaml_all,
    "hash": encodings.digest,
    "human_readable": texts.human_readable,
    "human_to_bytes": texts.human_to_bytes,
    "intersect": lists.intersect,
    "ipaddr": ipaddr,
    "ipv4": ipv4,
    "ipv6": ipv6,
    "ipwrap": ipwrap,
    "items2dict": lists.items2dict,
    "log": logarithm,
    "mandatory": mandatory,
    "md5": encodings.md5,
    "normpath": texts.normpath,
    "password_hash": password_hash,
    "path_join": texts.path_join,
    "permutations": lists.permutations,
    "pow": power,
    "product": lists.product,
    "quote": texts.quote,
    "random": lists.random,
    "regex_escape": texts.regex_escape,
    "regex_findall": texts.regex_findall,
    "regex_replace": texts.regex_replace,
    "regex_search": texts.regex_search,
    "rekey_on_member": lists.rekey_on_member,
    "relpath": texts.relpath,
    "root": root,
    "sha1": encodings.sha1,
    "sha256": encodings.sha256,
    "shuffle": lists.shuffle,
    "split": texts.split,
    "splitext": texts.splitext,
    "strftime": versions_and_dates.strftime,
    "subelements": lists.subelements,
    "symmetric_difference": lists.symmetric_difference,
    "ternary": ternary,
    "to_datetime": versions_and_dates.to_datetime,
    "to_json": encodings.to_json,
    "to_nice_json": encodings.to_nice_json,
    "to_nice_yaml": encodings.to_nice_yaml,
    "to_uuid": encodings.to_uuid,
    "to_yaml": encodings.to_yaml,
    "type_debug": texts.type_debug,
    "union": lists.union,
    "unique": lists.unique,
    "urldecode": encodings.urldecode,
    "urlsplit": texts.urlsplit,
    "version": version,
    "win_basename": texts.win_basename,
    "win_dirname": texts.win_dirname,
    "win_splitdrive": texts.win_splitdrive,
    "zip": lists.zip_lists,
    "zip_longest": lists.zip_longest,
}
OWN_TESTS: Final[dict[str, Callable[..., bool]]] = {
    "abs": texts.is_absolute,
    "all": lists.is_all,
    "any": lists.is_any,
    "change": lists.is_changed,
    "changed": lists.is_changed,
    "contains": lists.contains,
    "failed": lists.says("failed"),
    "failure": lists.says("failed"),
    "falsy": lists.is_falsy,
    "finished": lists.says("finished", otherwise=True),
    "is_abs": texts.is_absolute,
    "isnan": lists.is_nan,
    "issubset": lists.is_subset,
    "issuperset": lists.is_superset,
    "match": texts.matches_start,
    "nan": lists.is_nan,
    "reachable": lists.says_not("unreachable"),
    "regex": texts.matches,
    "search": texts.matches_anywhere,
    "skip": lists.says("skipped"),
    "skipped": lists.says("skipped"),
    "started": lists.says("started", otherwise=True),
    "subset": lists.is_subset,
    "succeeded": lists.says_not("failed"),
    "success": lists.says_not("failed"),
    "successful": lists.says_not("failed"),
    "superset": lists.is_superset,
    "timedout": lists.is_timed_out,
    "truthy": lists.is_truthy,
    "unreachable": lists.says("unreachable"),
    "uri": texts.is_uri,
    "url": texts.is_url,
    "urn": texts.is_urn,
    "vault_encrypted": lists.is_vault,
    "version": version,
    "version_compare": version,
}


# The wrapped filters and tests of the sandbox.


def _revealing(
    function: Callable[..., Any], *, strict: bool, counted: bool, of_text: bool = False
) -> Callable[..., Any]:
    """Return ``function`` wrapped to receive secrets revealed.

    ``strict`` rejects missing values. ``counted`` counts the result against the budget. ``of_text`` converts arguments
    to text.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if not SCALARS.issuperset(map(type, arguments)):
            if strict:  # str() of a missing value raises an error that names it
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
    """Return a list or mapping as text, and other values unchanged. Raises ExpressionError for other objects."""
    if isinstance(value, _COLLECTIONS):
        return limits.text_of(value)
    if isinstance(value, _OF_JINJA):
        return value
    limits.verify_writable(value)
    return value


def _opening(function: Callable[..., Any], *, counted: bool) -> Callable[..., Any]:
    """Return ``function`` with secrets opened, but not revealed inside: it reads no item of a list or mapping."""

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
    """Return a filter that calls ``method`` for a single text, and ``otherwise`` in other cases."""

    @functools.wraps(otherwise)
    def call(value: Any, *arguments: Any, **named: Any) -> Any:
        if type(value) is str and not arguments and not named:
            return meter.made(method(value))
        return otherwise(value, *arguments, **named)

    return call


def _of_items(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter with a limit on texts, which it splits into characters."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, str):
                limits.verify_length([], len(argument))
        return function(*arguments, **named)

    return call


_COLLECTIONS: Final = (dict, list, tuple)
_OF_JINJA: Final = (Environment, EvalContext, Context)
"""Types of the first argument that Jinja2 passes to some filters."""
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
        *("upper", "urlize", "wordcount"),
    }
)
_OF_ITEMS: Final = frozenset({"groupby", "list", "sort", "unique"})
_JINJA_FILTERS: Final = {
    name: _of_items(function) if name in _OF_ITEMS else function for name, function in JINJA_FILTERS.items()
}


def table(jinja: Mapping[str, Any], own: Mapping[str, Any], *, counted: bool) -> dict[str, Any]:
    """Return Jinja2's and ``own`` functions by name, wrapped. ``counted`` counts their results against the budget."""
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
"""Filters and tests of Jinja2 that examine the type or length of a value, or return a part of it."""

_LENIENT: Final = frozenset({"mandatory", "ternary"})  # they accept missing values without using them
_OF_TEXT_ALONE: Final[dict[str, Callable[[str], Any]]] = {
    "capitalize": str.capitalize,
    "count": len,
    "length": len,
    "lower": str.lower,
    "trim": str.strip,
    "upper": str.upper,
}
_ALL: Final = table({**_JINJA_FILTERS, **BOUNDED}, OWN_FILTERS, counted=True)
FILTERS: Final = _ALL | {name: _of_text(method, _ALL[name]) for name, method in _OF_TEXT_ALONE.items()}
_MORE_CHECKS: Final = {name: check for name, check in CHECKS.items() if name not in JINJA_TESTS}
TESTS: Final = table(JINJA_TESTS, {**_MORE_CHECKS, **OWN_TESTS}, counted=False)


def qualified(functions: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``functions`` with additional names as in the collections of Ansible."""
    builtin = {f"ansible.builtin.{name}": function for name, function in functions.items()}
    of_utils = {
        f"{collection}.{name}": functions[name]
        for collection in ("ansible.utils", "ansible.netcommon")
        for name in _ADDRESSES & functions.keys()
    }
    return {**functions, **builtin, **of_utils}


_ADDRESSES: Final = frozenset({"ipaddr", "ipv4", "ipv6", "ipwrap"})
