"""``hiera('profile::web::port', default=…, merge=…)``: Puppet's lookup, over all data of a manifest.

* Without ``merge`` the result is the value in ``data``. Keys follow Puppet's rules: dots dig, and quotes keep them.
* With ``merge`` the sources act as levels of a hierarchy, the highest first.
* Values of the tree are plain: Ruby's symbols and odd keys become text. Secrets stay secrets.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hiera.errors import ExpressionError, UndefinedError
from hiera.tree import explain, strategies
from hiera.tree.explain import ABSENT, SILENT, Key, Step
from hiera.values import MISSING, described, hidden_at, hidden_below
from puller.data.bundle_data import BundleData

if TYPE_CHECKING:
    from hiera.tree.lookup import Tree


def look_up(data: BundleData, name: str, default: Any = MISSING, merge: Any = None) -> Any:
    """Return the value of a key, or ``default``. Raise ``UndefinedError`` without both, or ``HieraError``."""
    if not isinstance(name, str):
        raise ExpressionError("", f"hiera requires a key such as 'profile::web::port', not {described(name)}")
    key = explain.parse(name)
    value = _found(data, key) if merge is None else _merged(data, key, merge)
    if value is not MISSING:
        return value
    if default is MISSING:
        raise UndefinedError("", f"the key {name!r} is missing in all data sources", key.root, data.all)
    return default


def _found(data: BundleData, key: Key) -> Any:
    is_elsewhere = any(key.root in source.data for source in data.documents)
    if data.tree is not None and not is_elsewhere:
        # A lookup in the tree finds more: the default hierarchy of a module may have the missing part.
        return _hidden(data, key, data.ask(key.text))
    return _dug(key, data.all.get(key.root, ABSENT))


def _merged(data: BundleData, key: Key, merge: Any) -> Any:
    """Return the values of all sources, combined by the strategy. Digging follows the merge, as in a tree."""
    # The tree keeps its position between the sources: above the manifest, below the sources from outside.
    places: list[Mapping[str, Any] | Tree] = [source.data for source in reversed(data.above)]
    places += [] if data.tree is None else [data.tree]
    places += [source.data for source in reversed(data.below)]

    def ask(place: "Mapping[str, Any] | Tree", step: Step) -> Any:
        if isinstance(place, Mapping):
            return place.get(key.root, ABSENT)
        # The whole value, because digging may need a mapping that only the merge creates.
        value = data.ask(explain.literal(key.root), merge)
        return ABSENT if value is MISSING else value

    value = strategies.strategy(merge).gather(places, ask, SILENT)
    for path in data.sensitive(key.root):
        value = value if value is ABSENT else hidden_at({key.root: value}, path)[key.root]
    return _dug(key, value)


def _dug(key: Key, value: Any) -> Any:
    result = ABSENT if value is ABSENT else explain.dig(key.text, key.segments, value, SILENT)
    return MISSING if result is ABSENT else result


def _hidden(data: BundleData, key: Key, value: Any) -> Any:
    """Return a part of the tree's value. Sensitive parts become secrets."""
    requested = (key.root, *key.segments)
    for path in data.sensitive(key.root):
        value = value if value is MISSING else hidden_below(value, path, requested)
    return value
