"""Filters for lists and mappings, random choices with a seed, and Ansible's tests of values.

The tests check results of tasks that are stored in data, compare lists as sets, and check numbers and truth values.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

from jinja2 import pass_environment
from jinja2.filters import FILTERS as JINJA

from hiera import limits
from hiera.errors import ExpressionError, LimitError
from hiera.values import described, plain


def combine(base: Any, *others: Any, recursive: bool = False, list_merge: str = "replace") -> dict[Any, Any]:
    """Merge mappings, with priority for later ones. ``recursive`` merges nested mappings, and lists by ``list_merge``.

    Raises ExpressionError unless all arguments are mappings.
    """
    if list_merge not in _LIST_MERGES:
        raise ExpressionError(
            "", f"combine does not accept list_merge {list_merge!r}, only {', '.join(_LIST_MERGES)}"
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
            raise ExpressionError("", f"combine requires mappings, not {described(plain(mapping))}")
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
    """Return a mapping as a list of ``{key, value}``. Raises ExpressionError for other values."""
    if not isinstance(value, Mapping):
        raise ExpressionError("", f"dict2items requires a mapping, not {described(plain(value))}")
    return [{key_name: key, value_name: item} for key, item in value.items()]


def items2dict(value: Iterable[Any], key_name: str = "key", value_name: str = "value") -> dict[Any, Any]:
    """Return a list of ``{key, value}`` as a mapping. Raises ExpressionError for other values."""
    items = plain(value)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ExpressionError("", "items2dict requires a list of mappings")
    if not all({key_name, value_name} <= item.keys() for item in items):
        raise ExpressionError("", f"items2dict requires {key_name!r} and {value_name!r} in every item")
    return {item[key_name]: item[value_name] for item in items}


def flatten(value: Iterable[Any], levels: int | None = None, skip_nulls: bool = True) -> list[Any]:
    """Return one flat list of the items of nested lists, ``levels`` deep."""
    result: list[Any] = []
    for item in value:
        if isinstance(item, (list, tuple)) and levels != 0:
            result += flatten(item, None if levels is None else levels - 1, skip_nulls)
        elif item is not None or not skip_nulls:
            result.append(item)
        limits.verify_length(result, len(result))
    return result


def contained(left: Iterable[Any], right: Iterable[Any]) -> bool:
    """Return whether every item of the first list is in the second."""
    others = _Items(right)
    return all(item in others for item in left)


def union(left: Iterable[Any], right: Iterable[Any]) -> list[Any]:
    """Return the items of both lists together, once each."""
    return _distinct([*left, *right])


def intersect(left: Iterable[Any], right: Iterable[Any]) -> list[Any]:
    """Return the items that are in both lists, once each."""
    others = _Items(right)
    return _distinct(item for item in left if item in others)


def difference(left: Iterable[Any], right: Iterable[Any]) -> list[Any]:
    """Return the items of the first list that are not in the second, once each."""
    others = _Items(right)
    return _distinct(item for item in left if item not in others)


def symmetric_difference(left: Iterable[Any], right: Iterable[Any]) -> list[Any]:
    """Return the items that are in exactly one list, once each."""
    left, right = list(left), list(right)
    return difference(left, right) + difference(right, left)


class _Items:
    """A set of values that may be lists or mappings, in constant time: they are compared as JSON."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._seen = {self._key(item) for item in items}

    def __contains__(self, item: Any) -> bool:
        return self._key(item) in self._seen

    def add(self, item: Any) -> None:
        self._seen.add(self._key(item))

    @staticmethod
    def _key(item: Any) -> Any:
        # A list or mapping becomes a tuple, so that no text equals it.
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
    """Return lists of the first items of all lists, the second items, and so on, up to the shortest list."""
    return [list(items) for items in zip(*lists, strict=False)]


def zip_longest(*lists: Iterable[Any], fillvalue: Any = None) -> list[list[Any]]:
    """Return ``zip`` up to the longest list, with ``fillvalue`` after the end of shorter lists."""
    return [list(items) for items in itertools.zip_longest(*map(_items, lists), fillvalue=fillvalue)]


def _items(value: Iterable[Any]) -> list[Any]:
    """Return the items of a list, or the characters of a text. Raises LimitError for a long text."""
    if isinstance(value, str):
        limits.verify_length([], len(value))
    return list(value)


def product(*lists: Iterable[Any], repeat: int = 1) -> list[list[Any]]:
    """Return every choice of one item of each list. ``repeat`` repeats the lists. Raises LimitError."""
    if len(lists) * repeat > _LONGEST_CHOICE:  # checked before any choice is made
        raise LimitError("", f"product accepts at most {_LONGEST_CHOICE} lists, not {len(lists) * repeat}")
    return _choices(itertools.product(*map(_items, lists), repeat=repeat))


def permutations(items: Iterable[Any], length: int | None = None) -> list[list[Any]]:
    """Return every ordered selection of ``length`` items. ``length`` defaults to all items."""
    return _choices(itertools.permutations(_items(items), length))


def combinations(items: Iterable[Any], length: int) -> list[list[Any]]:
    """Return every selection of ``length`` items, in their order."""
    return _choices(itertools.combinations(_items(items), length))


_LONGEST_CHOICE: Final = 1000


def _choices(choices: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    result, count = [], 0
    for choice in choices:
        count += len(choice) + 1
        limits.verify_length([], count)
        result.append(list(choice))
    return result


@pass_environment
def unique(
    environment: Any, value: Iterable[Any], case_sensitive: bool = False, attribute: Any = None
) -> list[Any]:
    """Return the items of a list, once each, including lists and mappings. Text is compared without case by default."""
    items = _items(value)
    if attribute is None and any(isinstance(item, (list, tuple, Mapping)) for item in items):
        return _distinct(items)
    return list(JINJA["unique"](environment, items, bool(case_sensitive), attribute))


@pass_environment
def extract(environment: Any, item: Any, container: Any, morekeys: Any = None) -> Any:
    """Return the value in ``container`` at a key or index: ``hosts | map('extract', ips)``.

    ``morekeys`` are further keys or indexes inside this value.
    """
    keys = [] if morekeys is None else morekeys if isinstance(morekeys, list) else [morekeys]
    for key in (item, *keys):
        container = environment.getitem(container, key)
    return container


def subelements(value: Any, subelements: Any, skip_missing: bool = False) -> list[list[Any]]:
    """Return pairs of each item and each entry of its inner list: ``users | subelements('groups')``."""
    path = subelements.split(".") if isinstance(subelements, str) else list(subelements)
    results = []
    for item in value.values() if isinstance(value, Mapping) else value:
        results += [[item, part] for part in _inner(item, path, skip_missing)]
        limits.verify_length(results, len(results))
    return results


def _inner(item: Any, path: Sequence[str], skip_missing: bool) -> list[Any]:
    for key in path:
        if not isinstance(item, Mapping):
            raise ExpressionError("", f"subelements requires a mapping with {key!r}, not {described(item)}")
        if key not in item and skip_missing:
            return []
        if key not in item:
            raise ExpressionError(
                "", f"subelements requires the key {key!r} in each item, unless skip_missing=true"
            )
        item = item[key]
    if not isinstance(item, list):
        raise ExpressionError("", f"subelements requires a list at {'.'.join(path)!r}, not {described(item)}")
    return item


def rekey_on_member(value: Any, key: str, duplicates: str = "error") -> dict[Any, Any]:
    """Return a mapping of the mappings in a list or mapping, keyed by each mapping's value at ``key``.

    ``duplicates='overwrite'`` keeps the last mapping. Raises ExpressionError.
    """
    if duplicates not in ("error", "overwrite"):
        raise ExpressionError("", f"duplicates is {duplicates!r}, expected error or overwrite")
    result: dict[Any, Any] = {}
    for item in value.values() if isinstance(value, Mapping) else value:
        if not isinstance(item, Mapping) or key not in item:
            raise ExpressionError("", f"rekey_on_member requires mappings with a key {key!r}")
        if item[key] in result and duplicates == "error":
            raise ExpressionError(
                "",
                f"rekey_on_member requires unique keys, but {item[key]!r} is duplicate",
            )
        result[item[key]] = item
    return result


# -- random choices, the same in every run --------------------------------------------------------


def random(value: Any, start: int | None = None, step: int | None = None, seed: Any = None) -> Any:
    """Return a random item of a list, or a number below ``value``.

    The result depends on ``seed`` only: ``random(seed=facts.fqdn)``. Raises ExpressionError without a seed, and for an
    empty list or range.
    """
    chance = _chance("random", seed)
    if isinstance(value, int) and (numbers := range(start or 0, value, step or 1)):
        return chance.choice(numbers)
    if isinstance(value, int) or not (items := _items(value)):
        raise ExpressionError("", "random requires an item to choose from")
    return chance.choice(items)


def shuffle(value: Iterable[Any], seed: Any = None) -> list[Any]:
    """Return a list in random order. It depends on ``seed`` only: ``shuffle(seed=facts.fqdn)``.

    Raises ExpressionError without a seed.
    """
    chance, items = _chance("shuffle", seed), _items(value)
    chance.shuffle(items)
    return items


def _chance(name: str, seed: Any) -> Random:
    if seed is None:
        raise ExpressionError(
            "", f"{name} requires a seed, such as {name}(seed=facts.fqdn), so that runs agree"
        )
    # As in Ansible, a number and its digits are different seeds.
    return Random(seed if isinstance(seed, (int, float, str)) else str(seed))  # noqa: S311  spreads hosts, keeps no secret


# Ansible's tests of values.

_YES = frozenset({"1", "on", "t", "true", "y", "yes"})
_NO = frozenset({"", "0", "f", "false", "n", "no", "off"})


def _result(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ExpressionError(
            "", f"{name} requires the result of a task, a mapping, not {described(plain(value))}"
        )
    return value


def says(key: str, *, otherwise: bool = False) -> Callable[[Any], bool]:
    """Return a test whether a task's result is true at ``key``. ``otherwise`` is the default for a missing key."""

    def test(value: Any) -> bool:
        return bool(_result(value, key).get(key, otherwise))

    return test


def says_not(key: str) -> Callable[[Any], bool]:
    """Return a test of a task's result: whether it is false or missing at ``key``."""
    return lambda value: not _result(value, key).get(key)


def is_changed(value: Any) -> bool:
    """Test ``changed``: the result of a task, or any item of its ``results``, is changed."""
    result = _result(value, "changed")
    pieces = result.get("results")
    several = pieces if isinstance(pieces, list) else []
    return bool(
        result.get("changed", any(part.get("changed") for part in several if isinstance(part, Mapping)))
    )


def is_timed_out(value: Any) -> bool:
    """Test ``timedout``: the result of a task has a timeout that ended it."""
    result = _result(value, "timedout").get("timedout")
    return isinstance(result, Mapping) and bool(result.get("period"))


def is_nan(value: Any) -> bool:
    """Test ``nan``: not a number, such as infinity minus infinity."""
    return isinstance(value, float) and math.isnan(value)


def is_any(value: Iterable[Any]) -> bool:
    """Test ``any``: at least one item is true."""
    return any(value)


def is_all(value: Iterable[Any]) -> bool:
    """Test ``all``: every item is true."""
    return all(value)


def contains(value: Any, item: Any) -> bool:
    """Test ``contains``: ``in`` with swapped sides, for ``selectattr('groups', 'contains', 'admin')``."""
    return item in value


def is_subset(value: Iterable[Any], other: Iterable[Any]) -> bool:
    """Test ``subset``: every item is in ``other``."""
    return contained(value, other)


def is_superset(value: Iterable[Any], other: Iterable[Any]) -> bool:
    """Test ``superset``: every item of ``other`` is in this list."""
    return contained(other, value)


def is_truthy(value: Any, convert_bool: bool = False) -> bool:
    """Test ``truthy``: ``if`` treats the value as true. ``convert_bool`` also reads yes and no."""
    text = str(value).strip().lower() if isinstance(value, str) else ""
    if convert_bool and isinstance(value, str) and text in _YES | _NO:
        return text in _YES
    return bool(value)


def is_falsy(value: Any, convert_bool: bool = False) -> bool:
    """Test ``falsy``: the opposite of ``truthy``."""
    return not is_truthy(value, convert_bool)


def is_vault(value: Any) -> bool:
    """Test ``vault_encrypted``: a text encrypted by Ansible's vault, which is unsupported here."""
    return isinstance(value, str) and value.startswith("$ANSIBLE_VAULT;")
