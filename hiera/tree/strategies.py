"""Merging of the values of several places.

* A strategy is used at three levels: over layers, over levels, and over a level's files.
* With a single place, it neither merges nor checks anything.
* The first place has priority.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from hiera.errors import LookupFailure
from hiera.tree.context.explain import ABSENT, Absent, Step
from hiera.tree.ruby import deep_merge, values

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
            _check(place, "a Hash value", value, isinstance(value, dict) and values.is_data(value))
        # The order of Ruby's low.merge(high): keys of the lower one first.
        return {**low, **high}


class Unique(_Merging):
    """A flat list of all values, once each."""

    name = "unique"

    def merge(self, high: Any, low: Any) -> Any:
        for place, value in (("first", high), ("second", low)):
            is_good = value is not None and not isinstance(value, dict) and values.is_data(value)
            _check(place, "a value of type Scalar or Array", value, is_good)
        return values.unique(_flat(high) + _flat(low))

    def _only(self, value: Any) -> Any:
        return values.unique(value) if isinstance(value, list) else value

    def _first(self, value: Any) -> Any:
        return _flat(value)


class Deep(_Merging):
    """Mappings merged to any depth. Lists are joined, with the lower values first."""

    name = "deep"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = options or {}

    def merge(self, high: Any, low: Any) -> Any:
        return deep_merge.merge(high, low, deep_merge.options(self.options))


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
        what = "must contain the name of a strategy in string form for the key 'strategy'"
        raise LookupFailure("", f"The hash given as 'merge' {what}")
    if name == "reverse_deep":
        return ReverseDeep(options)
    if name == "unconstrained_deep":
        return UnconstrainedDeep(options)
    if not isinstance(name, str) or name not in _PLAIN:
        raise LookupFailure("", f"Unknown merge strategy: '{values.to_s(name)}'")
    _verify_options(options, _DEEP_OPTIONS if name == "deep" else {})
    return Deep(options) if name == "deep" and len(options) > 1 else _PLAIN[name]


def _verify_options(options: Mapping[str, Any], known: Mapping[str, tuple[str, type]]) -> None:
    for name, value in options.items():
        if name == "strategy":
            continue
        if name not in known:
            raise LookupFailure("", f"The merge options has wrong type, unrecognized key '{name}'")
        wanted, kind = known[name]
        if value is not None and not isinstance(value, kind):
            what = f"entry '{name}' expects a value of type Undef or {wanted}, got {values.type_name(value)}"
            raise LookupFailure("", f"The merge options has wrong type, {what}")


def _check(place: str, wanted: str, value: Any, is_good: bool) -> None:
    if not is_good:
        what = f"The {place} element of the merge has wrong type, expects {wanted}"
        raise LookupFailure("", f"{what}, got {values.type_name(value)}")


def _flat(value: Any) -> list[Any]:
    if not isinstance(value, list):
        return [value]
    return [part for item in value for part in (_flat(item) if isinstance(item, list) else [item])]
