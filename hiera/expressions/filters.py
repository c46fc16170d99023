"""The filters and tests that expressions and templates have beside Jinja2's own.

They behave as users of Ansible and Salt expect, except that what cannot be right is an error, not a guess.
``FILTERS`` and ``TESTS`` at the end are the list; each function's first sentence is its documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2.runtime import Undefined

from hiera.errors import ExpressionError
from hiera.expressions import dates, encodings, lists, pathnames, results, texts
from hiera.expressions.addresses import ipaddr, ipv4, ipv6, ipwrap
from hiera.expressions.passwords import password_hash
from hiera.expressions.versions import version
from hiera.values.plain import described

# -- decisions ------------------------------------------------------------------------------------


def ternary(value: Any, if_true: Any, if_false: Any, if_null: Any = None) -> Any:
    """One of two values, by whether this one is true; a third for null, if given."""
    if value is None and if_null is not None:
        return if_null
    return if_true if value else if_false


def mandatory(value: Any, message: str | None = None) -> Any:
    """The value; when it does not exist, an error with a message of your own.

    Raises ExpressionError with the message, without one UndefinedError.
    """
    if isinstance(value, Undefined) and message is not None:
        raise ExpressionError("", str(message))
    if isinstance(value, Undefined):
        str(value)  # raises, and says what is missing
    return value


_TRUE: Final = frozenset({"1", "1.0", "on", "t", "true", "y", "yes"})
_FALSE: Final = frozenset({"", "0", "0.0", "f", "false", "n", "no", "none", "null", "off"})


def to_bool(value: Any) -> bool:
    """A boolean from text or a number: yes, on, true, 1 and their opposites; null is false.

    Raises ExpressionError for anything else.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, (Mapping, list, tuple)):
        wanted = "a truth value, or a text or number that says one, such as 'yes'"
        advice = "to ask whether there is anything in it, write | length > 0"
        raise ExpressionError("", f"bool wants {wanted}, not {described(value)}; {advice}")
    text = texts.as_text(value, "bool").strip().lower()
    if text not in _TRUE | _FALSE:
        raise ExpressionError("", f"{text[:40]!r} is neither true nor false")
    return text in _TRUE


# -- numbers --------------------------------------------------------------------------------------


def logarithm(value: float, base: float = math.e) -> float:
    """The logarithm of a number, natural or by a base: ``log(10)``."""
    return math.log10(value) if base == 10 else math.log(value, base)


def power(value: float, exponent: float) -> float:
    """A number to a power, with decimals: ``2 | pow(3)`` is 8.0."""
    return math.pow(value, exponent)


def root(value: float, base: float = 2) -> float:
    """The square root of a number, or another: ``root(3)``."""
    return math.sqrt(value) if base == 2 else math.pow(value, 1 / base)


# -- tables ---------------------------------------------------------------------------------------


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "b64decode": encodings.b64decode,
    "b64encode": encodings.b64encode,
    "basename": pathnames.basename,
    "bool": to_bool,
    "checksum": encodings.sha1,
    "combinations": lists.combinations,
    "combine": lists.combine,
    "comment": texts.comment,
    "commonpath": pathnames.commonpath,
    "dict2items": lists.dict2items,
    "difference": lists.difference,
    "dirname": pathnames.dirname,
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
    "normpath": pathnames.normpath,
    "password_hash": password_hash,
    "path_join": pathnames.path_join,
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
    "relpath": pathnames.relpath,
    "root": root,
    "sha1": encodings.sha1,
    "sha256": encodings.sha256,
    "shuffle": lists.shuffle,
    "split": texts.split,
    "splitext": pathnames.splitext,
    "strftime": dates.strftime,
    "subelements": lists.subelements,
    "symmetric_difference": lists.symmetric_difference,
    "ternary": ternary,
    "to_datetime": dates.to_datetime,
    "to_json": encodings.to_json,
    "to_nice_json": encodings.to_nice_json,
    "to_nice_yaml": encodings.to_nice_yaml,
    "to_uuid": encodings.to_uuid,
    "to_yaml": encodings.to_yaml,
    "type_debug": texts.type_debug,
    "union": lists.union,
    "unique": lists.unique,
    "urldecode": encodings.urldecode,
    "urlsplit": pathnames.urlsplit,
    "version": version,
    "win_basename": pathnames.win_basename,
    "win_dirname": pathnames.win_dirname,
    "win_splitdrive": pathnames.win_splitdrive,
    "zip": lists.zip_lists,
    "zip_longest": lists.zip_longest,
}
TESTS: Final[dict[str, Callable[..., bool]]] = {
    "abs": pathnames.is_absolute,
    "all": results.is_all,
    "any": results.is_any,
    "change": results.is_changed,
    "changed": results.is_changed,
    "contains": results.contains,
    "failed": results.says("failed"),
    "failure": results.says("failed"),
    "falsy": results.is_falsy,
    "finished": results.says("finished", otherwise=True),
    "is_abs": pathnames.is_absolute,
    "isnan": results.is_nan,
    "issubset": results.is_subset,
    "issuperset": results.is_superset,
    "match": texts.matches_start,
    "nan": results.is_nan,
    "reachable": results.says_not("unreachable"),
    "regex": texts.matches,
    "search": texts.matches_anywhere,
    "skip": results.says("skipped"),
    "skipped": results.says("skipped"),
    "started": results.says("started", otherwise=True),
    "subset": results.is_subset,
    "succeeded": results.says_not("failed"),
    "success": results.says_not("failed"),
    "successful": results.says_not("failed"),
    "superset": results.is_superset,
    "timedout": results.is_timed_out,
    "truthy": results.is_truthy,
    "unreachable": results.says("unreachable"),
    "uri": pathnames.is_uri,
    "url": pathnames.is_url,
    "urn": pathnames.is_urn,
    "vault_encrypted": results.is_vault,
    "version": version,
    "version_compare": version,
}
