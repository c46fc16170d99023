"""Merging of the values of several places: the strategies of a lookup, and deep merging.

* A strategy is used at three levels: over layers, over levels, and over a level's files.
* With a single place, it neither merges nor checks anything.
* The first place has priority.

Deep merging has the results of the Ruby library ``deep_merge`` 1.1.1, which Puppet uses:

* The arguments stay unchanged, since the merge works on copies.
* The copies are changed in place in the library's order, aliases included. Its results for knockouts inside new keys
  come from lists that change during iteration, and existing data rely on these results.

The numbers follow the library's function ``deep_merge!``:

1. Null in the source changes nothing.
2. Null or false in the destination is replaced by the source.
3. A mapping is merged key by key. A new key goes through the same steps, with a copy of its own value.
4. A list: 4a optionally overwritten whole · 4b optionally joined and split again · 4c cleared by a bare prefix · 4d put
   over a value that is not a list · 4e knocked out by prefixed texts · 4f optionally merged item by item if all are
   mappings, or else united, the destination's items first · 4g optionally sorted.
5. Anything else is optionally appended to a list.
6. Anything else overwrites. A text with the prefix becomes the empty text.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from hiera import regex
from hiera.errors import LookupFailure
from hiera.tree import ruby_values
from hiera.tree.explain import ABSENT, Absent, Step


class Options(NamedTuple):
    """The settings of ``merge`` besides ``strategy: deep``, which itself allows only the first three."""

    knockout_prefix: str | None = None
    sort_merged_arrays: bool = False
    merge_hash_arrays: bool = False
    preserve_unmergeables: bool = False
    overwrite_arrays: bool = False
    extend_existing_arrays: bool = False
    unpack_arrays: str | None = None


def options(given: Mapping[str, Any]) -> Options:
    """Return the options in ``given``. Null means the default. Raises ``LookupFailure`` for an empty prefix."""
    names = Options._fields
    chosen = Options(**{name: value for name, value in given.items() if name in names and value is not None})
    if chosen.knockout_prefix == "":
        raise LookupFailure("", "knockout_prefix cannot be an empty string in deep_merge!")
    return chosen


def deep_merge(source: Any, dest: Any, chosen: Options) -> Any:
    """Return ``source``, which has priority, merged into ``dest``."""
    return _Merger(chosen).merge(_copy(source), _copy(dest))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


class _Merger:
    def __init__(self, chosen: Options) -> None:
        self._options = chosen
        # As in the library, the prefix is an expression: ``.`` is any character and a leading ``+`` repeats nothing.
        self._pattern = ruby_values.compiled(f"(?:^){chosen.knockout_prefix or ''}")

    def merge(self, source: Any, dest: Any) -> Any:
        if source is None:  # 1.
            return dest
        if (dest is None or dest is False) and not self._options.preserve_unmergeables:  # 2.
            return source
        if isinstance(source, dict):  # 3.
            return self._hash(source, dest)
        if isinstance(source, list):  # 4.
            return self._list(source, dest)
        if isinstance(dest, list) and self._options.extend_existing_arrays:  # 5.
            dest.append(source)
            return dest
        return self._overwrite(source, dest)  # 6.

    def _hash(self, source: dict[Any, Any], dest: Any) -> Any:
        for name, value in source.items():
            if isinstance(dest, dict):
                held = dest.get(name)
                if held is None or held is False:
                    # Without a value in dest, merge value with a shallow copy of itself, to sort it and apply
                    # knockouts.
                    held = value.copy() if isinstance(value, (dict, list)) else value
                dest[name] = self.merge(value, held)
            elif isinstance(dest, list) and self._options.extend_existing_arrays:
                dest.append(source)
            elif not self._options.preserve_unmergeables:
                dest = self._overwrite(source, dest)  # from here on, dest is source itself
        return dest

    def _list(self, source: list[Any], dest: Any) -> Any:
        if self._options.overwrite_arrays:  # 4a.
            return source
        source, dest = self._unpacked(source, dest)  # 4b.
        prefix = self._options.knockout_prefix
        if prefix and prefix in source:  # 4c.
            dest = _cleared(dest)
            source[:] = [item for item in source if item != prefix]
        if not isinstance(dest, list):  # 4d.
            return dest if self._options.preserve_unmergeables else self._overwrite(source, dest)
        self._knock_out(source, dest)  # 4e.
        # 4f.
        if self._options.merge_hash_arrays and all(isinstance(item, dict) for item in (*source, *dest)):
            merged = [self.merge(source[i] if i < len(source) else {}, held) for i, held in enumerate(dest)]
            dest = merged + source[len(dest) :]
        else:
            dest = ruby_values.unique(dest + source)
        # 4g.
        return ruby_values.sort(dest) if self._options.sort_merged_arrays else dest

    def _unpacked(self, source: list[Any], dest: Any) -> tuple[list[Any], Any]:
        separator = self._options.unpack_arrays
        if not separator:
            return source, dest
        return _repacked(source, separator), _repacked(dest, separator) if isinstance(dest, list) else dest

    def _knock_out(self, source: list[Any], dest: list[Any]) -> None:
        """Remove each prefixed text from ``source``, and the item that it names from ``dest``."""
        if not self._options.knockout_prefix:
            return

        def knocks_out(item: Any) -> bool:
            bare = self._bare(item) if isinstance(item, str) else item
            if bare == item:
                return False
            dest[:] = [held for held in dest if held not in (bare, item)]
            return True

        _delete_if(source, knocks_out)

    def _overwrite(self, source: Any, dest: Any) -> Any:
        if self._options.preserve_unmergeables:
            return dest
        if self._options.knockout_prefix and isinstance(source, str):
            return source if self._bare(source) == source else ""
        if self._options.knockout_prefix and isinstance(source, list):
            _delete_if(source, lambda item: isinstance(item, str) and regex.is_found(self._pattern, item))
        return source

    def _bare(self, text: str) -> str:
        """Return ``text`` without all matches of the prefix, which is an expression."""
        return regex.bounded(self._pattern, text, lambda: self._pattern.sub("", text))


def _delete_if(items: list[Any], condition: Callable[[Any], bool]) -> None:
    """Ruby's ``Array#delete_if``, for a condition that may shorten ``items`` while it runs."""
    read = retained = 0
    while read < len(items):
        item = items[read]
        if not condition(item):
            if read != retained:
                items[retained] = item
            retained += 1
        read += 1
    if retained < len(items) and retained < read:
        del items[retained:read]


def _cleared(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        value.clear()
        return value
    return "" if isinstance(value, str) else None


def _repacked(items: list[Any], separator: str) -> list[Any]:
    fields = _joined(items, separator).split(separator)
    while fields and not fields[-1]:  # Ruby's split drops empty texts at the end
        fields.pop()
    return list(fields)


def _joined(value: Any, separator: str) -> str:
    return (
        separator.join(_joined(item, separator) for item in value)
        if isinstance(value, list)
        else ruby_values.to_s(value)
    )


Place = TypeVar("Place")
Fetch = Callable[[Place, Step], Any | Absent]

Merge = str | Mapping[str, Any] | None


class Strategy:
    """The first existing value, without merging."""

    name = "first"
    options: Mapping[str, Any] = {}

    def gather(self, places: Sequence[Place], fetch: Fetch[Place], step: Step) -> Any | Absent:
        """Return the merged value of the ``places``. ``fetch`` reads a place."""
        for place in places:
            value = fetch(place, step)
            if value is not ABSENT:
                return value
        return ABSENT

    def merge(self, high: Any, low: Any) -> Any:
        """Return two values as one. Raises ``LookupFailure`` for values that cannot be merged."""
        return high


class _Merging(Strategy):
    def gather(self, places: Sequence[Place], fetch: Fetch[Place], step: Step) -> Any | Absent:
        # Puppet does not merge a single variant, which is visible with unique (_only).
        if len(places) == 1:
            value = fetch(places[0], step)
            return value if value is ABSENT else self._only(value)
        step = step.add(
            "merge", self.name, options={k: v for k, v in self.options.items() if k != "strategy"}
        )
        result: Any | Absent = ABSENT
        for place in places:
            value = fetch(place, step)
            if value is not ABSENT:
                result = self._first(value) if result is ABSENT else self.merge(result, value)
        if result is not ABSENT:
            step.result(result)
        return result

    def _only(self, value: Any) -> Any:
        """Return the value of a single place."""
        return value

    def _first(self, value: Any) -> Any:
        """Return the start of the merge, made from the first value."""
        return value


class Hash(_Merging):
    """Mappings merged at the top level only, in the order of the lowest mapping, with the values of the highest."""

    name = "hash"

    def merge(self, high: Any, low: Any) -> Any:
        for place, value in (("first", high), ("second", low)):
            _check(place, "a Hash value", value, isinstance(value, dict) and ruby_values.is_data(value))
        # The order of Ruby's low.merge(high): keys of the lower one first.
        return {**low, **high}


class Unique(_Merging):
    """A flat list of all values, once each."""

    name = "unique"

    def merge(self, high: Any, low: Any) -> Any:
        for place, value in (("first", high), ("second", low)):
            is_good = value is not None and not isinstance(value, dict) and ruby_values.is_data(value)
            _check(place, "a value of type Scalar or Array", value, is_good)
        return ruby_values.unique(_flat(high) + _flat(low))

    def _only(self, value: Any) -> Any:
        return ruby_values.unique(value) if isinstance(value, list) else value

    def _first(self, value: Any) -> Any:
        return _flat(value)


class Deep(_Merging):
    """Mappings merged to any depth. Lists are joined, with the lower values first."""

    name = "deep"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = options or {}

    def merge(self, high: Any, low: Any) -> Any:
        return deep_merge(high, low, options(self.options))


class UnconstrainedDeep(Deep):
    """``Deep`` with all options of the library below it."""

    name = "unconstrained_deep"


class ReverseDeep(Deep):
    """``Deep`` with the lower value over the higher one."""

    name = "reverse_deep"

    def merge(self, high: Any, low: Any) -> Any:
        return super().merge(low, high)


FIRST = Strategy()
HASH = Hash()
_PLAIN: dict[str, Strategy] = {
    "first": FIRST,
    "default": FIRST,
    "hash": HASH,
    "unique": Unique(),
    "deep": Deep(),
}
_DEEP_OPTIONS = {
    "knockout_prefix": ("String", str),
    "merge_debug": ("Boolean", bool),
    "merge_hash_arrays": ("Boolean", bool),
    "sort_merged_arrays": ("Boolean", bool),
}


def strategy(merge: Merge) -> Strategy:
    """Return the strategy in ``merge`` (of a caller, or of ``lookup_options``). Raises ``LookupFailure``."""
    if not merge and not isinstance(merge, str | Mapping):  # null, and false, which data can contain
        return FIRST
    options = merge if isinstance(merge, Mapping) else {"strategy": merge}
    name = options.get("strategy")
    if name is None:
        detail = "must contain the name of a strategy in string form for the key 'strategy'"
        raise LookupFailure("", f"The hash given as 'merge' {detail}")
    if name == "reverse_deep":
        return ReverseDeep(options)
    if name == "unconstrained_deep":
        return UnconstrainedDeep(options)
    if not isinstance(name, str) or name not in _PLAIN:
        raise LookupFailure("", f"Unknown merge strategy: '{ruby_values.to_s(name)}'")
    _verify_options(options, _DEEP_OPTIONS if name == "deep" else {})
    return Deep(options) if name == "deep" and len(options) > 1 else _PLAIN[name]


def _verify_options(options: Mapping[str, Any], known: Mapping[str, tuple[str, type]]) -> None:
    for name, value in options.items():
        if name == "strategy":
            continue
        if name not in known:
            raise LookupFailure("", f"The merge options has wrong type, unrecognized key '{name}'")
        desired, kind = known[name]
        if value is not None and not isinstance(value, kind):
            detail = f"entry '{name}' expects a value of type Undef or {desired}, got {ruby_values.type_name(value)}"
            raise LookupFailure("", f"The merge options has wrong type, {detail}")


def _check(place: str, desired: str, value: Any, is_good: bool) -> None:
    if not is_good:
        detail = f"The {place} element of the merge has wrong type, expects {desired}"
        raise LookupFailure("", f"{detail}, got {ruby_values.type_name(value)}")


def _flat(value: Any) -> list[Any]:
    if not isinstance(value, list):
        return [value]
    return [part for item in value for part in (_flat(item) if isinstance(item, list) else [item])]
