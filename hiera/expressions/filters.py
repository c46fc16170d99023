"""The filters and tests that expressions and templates have beside Jinja2's own.

They behave as users of Ansible and Salt expect, except that what cannot be right is an error, not a guess.
``FILTERS`` and ``TESTS`` at the end are the list; each function's first sentence is its documentation.
"""

from __future__ import annotations

import functools
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from jinja2.runtime import Undefined

from hiera import regex
from hiera.errors import ExpressionError, LimitError
from hiera.expressions.addresses import ipaddr, ipv4, ipv6, ipwrap
from hiera.expressions.versions import version
from hiera.values import sizes
from hiera.values.plain import described, plain

REGEX_LIMIT: Final = 1 << 20
"""Characters of a text that a regular expression is tried on."""
PATTERN_LIMIT: Final = 10_000
"""Characters of a regular expression: a million take a second to compile."""

# -- data as text, and back -----------------------------------------------------------------------


def to_json(value: Any, indent: int | None = None, sort_keys: bool = False, ensure_ascii: bool = True) -> str:
    """One line of JSON."""
    sizes.verify_width(indent or 0)
    value = plain(value)
    sizes.verify_printed(value, functools.partial(json.dumps, ensure_ascii=ensure_ascii), indent or 0)
    return json.dumps(value, indent=indent, sort_keys=sort_keys, ensure_ascii=ensure_ascii, allow_nan=False)


def to_nice_json(value: Any, indent: int = 4, sort_keys: bool = True, ensure_ascii: bool = True) -> str:
    """JSON for people: indented, with sorted keys."""
    return to_json(value, indent, sort_keys, ensure_ascii)


def to_yaml(
    value: Any, indent: int | None = None, sort_keys: bool = True, default_flow_style: bool | None = None
) -> str:
    """YAML, with the innermost lists and mappings on one line."""
    import yaml

    class Dumper(yaml.CSafeDumper):
        # Lists that are shared would be written as anchors, which few readers of configuration files know.
        def ignore_aliases(self, _data: Any) -> bool:
            return True

    value = plain(value)
    sizes.verify_yaml(value, indent or 2)
    return str(
        yaml.dump(
            value,
            Dumper=Dumper,
            indent=indent,
            sort_keys=sort_keys,
            default_flow_style=default_flow_style,
            allow_unicode=True,
        )
    )


def to_nice_yaml(value: Any, indent: int = 4, sort_keys: bool = True) -> str:
    """YAML for people: each item on a line of its own."""
    return to_yaml(value, indent, sort_keys, default_flow_style=False)


def from_json(text: str) -> Any:
    """The value that a JSON text stands for; read as strictly as facts in JSON."""
    from hiera.text.json_text import load

    return load(_text(text, "from_json"), "the text given to from_json")


def from_yaml(text: str) -> Any:
    """The value that a YAML text stands for; read as strictly as a manifest."""
    from hiera.text.yaml_text import load

    return load(_text(text, "from_yaml"), "the text given to from_yaml")


def b64encode(text: str, encoding: str = "utf-8") -> str:
    """Text as Base64."""
    import base64

    return base64.b64encode(_text(text, "b64encode").encode(encoding)).decode("ascii")


def b64decode(text: str, encoding: str = "utf-8") -> str:
    """The text that Base64 stands for."""
    import base64

    return base64.b64decode(_text(text, "b64decode")).decode(encoding)


def sha256(text: str) -> str:
    """The SHA-256 of a text's UTF-8 bytes, in hexadecimal."""
    import hashlib

    return hashlib.sha256(_text(text, "sha256").encode()).hexdigest()


# -- text -----------------------------------------------------------------------------------------


def _text(value: Any, name: str) -> str:
    """A text or a number as text; anything else is an error that names the filter."""
    if isinstance(value, str) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return str(value)
    raise ExpressionError("", f"{name} wants text, not {described(value)}")


def quote(value: Any) -> str:
    """One word for a shell, whatever is in it."""
    import shlex

    return shlex.quote(_text(value, "quote"))


def split(value: str, separator: str | None = None, maxsplit: int = -1) -> list[str]:
    """The parts of a text between separators (blanks, if none is given)."""
    parts = _text(value, "split").split(
        separator, maxsplit if 0 <= maxsplit < sizes.ITEM_LIMIT else sizes.ITEM_LIMIT
    )
    sizes.verify_length(parts, len(parts))
    return parts


def basename(path: str) -> str:
    """The last part of a path."""
    return posixpath.basename(_text(path, "basename"))


def dirname(path: str) -> str:
    """A path without its last part."""
    return posixpath.dirname(_text(path, "dirname"))


def splitext(path: str) -> list[str]:
    """A path without its extension, and the extension."""
    return list(posixpath.splitext(_text(path, "splitext")))


def path_join(parts: Any) -> str:
    """Parts of a path joined; an absolute part starts anew."""
    return posixpath.join(
        *(_text(part, "path_join") for part in ([parts] if isinstance(parts, str) else parts))
    )


def _pattern(pattern: str, ignorecase: bool, multiline: bool) -> re.Pattern[str]:
    if len(pattern) > PATTERN_LIMIT:  # compiling is one step, too
        raise LimitError("", f"a pattern has {len(pattern)} characters, at most {PATTERN_LIMIT} are possible")
    try:
        return re.compile(pattern, (re.IGNORECASE if ignorecase else 0) | (re.MULTILINE if multiline else 0))
    except (re.error, RecursionError, OverflowError) as error:
        raise ExpressionError("", f"{pattern!r} is no regular expression: {error}") from None


def _subject(value: Any, name: str) -> str:
    text = _text(value, name)
    if len(text) > REGEX_LIMIT:
        raise LimitError("", f"{name} was given {len(text)} characters, at most {REGEX_LIMIT} are searched")
    return text


def regex_replace(
    value: Any,
    pattern: str,
    replacement: str = "",
    ignorecase: bool = False,
    multiline: bool = False,
    count: int = 0,
) -> str:
    """The text with every match replaced; ``\\\\1`` or ``\\\\g<name>`` in the replacement is a group."""
    made = 0

    def expand(match: re.Match[str]) -> str:
        nonlocal made
        text = match.expand(replacement) if "\\" in replacement else replacement
        # Each match may be replaced by far more than itself: counted as it is made, not when all is there.
        made += len(text)
        sizes.verify_length(text, made)
        return text

    compiled, text = _pattern(pattern, ignorecase, multiline), _subject(value, "regex_replace")
    return regex.bounded(compiled, text, lambda: compiled.sub(expand, text, count))


def regex_search(
    value: Any, pattern: str, *groups: str, ignorecase: bool = False, multiline: bool = False
) -> Any:
    """The first match, or a list of the groups asked for (``'\\\\1'``, ``'\\\\g<name>'``); null for none."""
    compiled, text = _pattern(pattern, ignorecase, multiline), _subject(value, "regex_search")

    def search() -> Any:
        match = compiled.search(text)
        if match is None or not groups:
            return match and match[0]
        return [match.expand(group) for group in groups]

    return regex.bounded(compiled, text, search)


def regex_findall(value: Any, pattern: str, multiline: bool = False, ignorecase: bool = False) -> list[Any]:
    """All matches: of the whole pattern, of its one group, or lists of its groups."""
    compiled, text = _pattern(pattern, ignorecase, multiline), _subject(value, "regex_findall")
    found = regex.bounded(compiled, text, lambda: compiled.findall(text))
    return [list(item) if isinstance(item, tuple) else item for item in found]


def regex_escape(value: Any) -> str:
    """A text as a regular expression that matches just this text."""
    return re.escape(_text(value, "regex_escape"))


def matches_start(value: Any, pattern: str, ignorecase: bool = False, multiline: bool = False) -> bool:
    """Test ``match``: the regular expression fits at the start of the text."""
    compiled, text = _pattern(pattern, ignorecase, multiline), _subject(value, "match")
    return regex.bounded(compiled, text, lambda: compiled.match(text) is not None)


def matches_anywhere(value: Any, pattern: str, ignorecase: bool = False, multiline: bool = False) -> bool:
    """Test ``search``: the regular expression fits somewhere in the text."""
    return regex.is_found(_pattern(pattern, ignorecase, multiline), _subject(value, "search"))


# -- lists and mappings ---------------------------------------------------------------------------


def combine(base: Any, *others: Any, recursive: bool = False, list_merge: str = "replace") -> dict[Any, Any]:
    """Mappings on top of one another, later wins; ``recursive`` merges what is inside, lists as told.

    Raises ExpressionError for what is no mapping.
    """
    if list_merge not in _LIST_MERGES:
        raise ExpressionError(
            "", f"combine knows no list_merge {list_merge!r}, only {', '.join(_LIST_MERGES)}"
        )
    result: dict[Any, Any] = {}
    for mapping in (item for argument in (base, *others) for item in _mappings(argument)):
        result = _combined(result, mapping, recursive, list_merge)
    return result


_LIST_MERGES: Final[dict[str, Callable[[list[Any], list[Any]], list[Any]]]] = {
    "replace": lambda _, new: new,
    "keep": lambda old, _: old,
    "append": lambda old, new: old + new,
    "prepend": lambda old, new: new + old,
    "append_rp": lambda old, new: [item for item in old if item not in new] + new,
    "prepend_rp": lambda old, new: new + [item for item in old if item not in new],
}


def _mappings(argument: Any) -> Iterable[Mapping[Any, Any]]:
    for mapping in argument if isinstance(argument, (list, tuple)) else [argument]:
        if not isinstance(mapping, Mapping):
            raise ExpressionError("", f"combine wants mappings, not {described(plain(mapping))}")
        yield mapping


def _combined(old: Any, new: Any, recursive: bool, list_merge: str) -> Any:
    result = dict(old)
    for key, item in new.items():
        present = result.get(key)
        if recursive and isinstance(present, Mapping) and isinstance(item, Mapping):
            item = _combined(present, item, recursive, list_merge)
        elif isinstance(present, list) and isinstance(item, list):
            item = _LIST_MERGES[list_merge](present, item)
        result[key] = item
    return result


def dict2items(value: Mapping[Any, Any], key_name: str = "key", value_name: str = "value") -> list[Any]:
    """A mapping as a list of ``{key, value}``. Raises ExpressionError for anything else."""
    if not isinstance(value, Mapping):
        raise ExpressionError("", f"dict2items wants a mapping, not {described(plain(value))}")
    return [{key_name: key, value_name: item} for key, item in value.items()]


def items2dict(value: Iterable[Any], key_name: str = "key", value_name: str = "value") -> dict[Any, Any]:
    """A list of ``{key, value}`` as a mapping. Raises ExpressionError for anything else."""
    items = plain(value)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ExpressionError("", "items2dict wants a list of mappings")
    if not all({key_name, value_name} <= item.keys() for item in items):
        raise ExpressionError("", f"items2dict wants {key_name!r} and {value_name!r} in every item")
    return {item[key_name]: item[value_name] for item in items}


def flatten(value: Iterable[Any], levels: int | None = None, skip_nulls: bool = True) -> list[Any]:
    """One list of what is in lists inside lists, ``levels`` deep."""
    result: list[Any] = []
    for item in value:
        if isinstance(item, (list, tuple)) and levels != 0:
            result += flatten(item, None if levels is None else levels - 1, skip_nulls)
        elif item is not None or not skip_nulls:
            result.append(item)
        sizes.verify_length(result, len(result))
    return result


def union(left: Iterable[Any], right: Iterable[Any]) -> list[Any]:
    """The items of either list, once each."""
    return _distinct([*left, *right])


def intersect(left: Iterable[Any], right: Iterable[Any]) -> list[Any]:
    """The items of both lists, once each."""
    others = _Items(right)
    return _distinct(item for item in left if item in others)


def difference(left: Iterable[Any], right: Iterable[Any]) -> list[Any]:
    """The items of the first list that are not in the second, once each."""
    others = _Items(right)
    return _distinct(item for item in left if item not in others)


def symmetric_difference(left: Iterable[Any], right: Iterable[Any]) -> list[Any]:
    """The items of one of the lists only, once each."""
    left, right = list(left), list(right)
    return difference(left, right) + difference(right, left)


class _Items:
    """Membership of values that may be lists or mappings, in constant time: their JSON stands for them."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._seen = {self._key(item) for item in items}

    def __contains__(self, item: Any) -> bool:
        return self._key(item) in self._seen

    def add(self, item: Any) -> None:
        self._seen.add(self._key(item))

    @staticmethod
    def _key(item: Any) -> Any:
        # A tuple stands for a list or mapping, so that no text is equal to it.
        return (
            (json.dumps(plain(item), sort_keys=True),) if isinstance(item, (list, tuple, Mapping)) else item
        )


def _distinct(items: Iterable[Any]) -> list[Any]:
    seen, result = _Items(), []
    for item in items:
        if item not in seen:
            seen.add(item)
            result.append(item)
    return result


def zip_lists(*lists: Iterable[Any]) -> list[list[Any]]:
    """The first items of all lists, the second, and so on, to the end of the shortest."""
    return [list(items) for items in zip(*lists, strict=False)]


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
    text = _text(value, "bool").strip().lower()
    if text not in _TRUE | _FALSE:
        raise ExpressionError("", f"{text[:40]!r} is neither true nor false")
    return text in _TRUE


# -- tables ---------------------------------------------------------------------------------------


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "b64decode": b64decode,
    "b64encode": b64encode,
    "basename": basename,
    "bool": to_bool,
    "combine": combine,
    "dict2items": dict2items,
    "difference": difference,
    "dirname": dirname,
    "flatten": flatten,
    "from_json": from_json,
    "from_yaml": from_yaml,
    "intersect": intersect,
    "ipaddr": ipaddr,
    "ipv4": ipv4,
    "ipv6": ipv6,
    "ipwrap": ipwrap,
    "items2dict": items2dict,
    "mandatory": mandatory,
    "path_join": path_join,
    "quote": quote,
    "regex_escape": regex_escape,
    "regex_findall": regex_findall,
    "regex_replace": regex_replace,
    "regex_search": regex_search,
    "sha256": sha256,
    "split": split,
    "splitext": splitext,
    "symmetric_difference": symmetric_difference,
    "ternary": ternary,
    "to_json": to_json,
    "to_nice_json": to_nice_json,
    "to_nice_yaml": to_nice_yaml,
    "to_yaml": to_yaml,
    "union": union,
    "version": version,
    "zip": zip_lists,
}
TESTS: Final[dict[str, Callable[..., bool]]] = {
    "match": matches_start,
    "regex": matches_anywhere,
    "search": matches_anywhere,
    "version": version,
    "version_compare": version,
}
