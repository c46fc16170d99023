"""``hiera('profile::web::port', default=…, merge=…)``: Puppet's lookup, over all data of a manifest.

* Without ``merge`` it gives what ``data`` has, with Puppet's rules for keys: dots dig, quotes keep them.
* With ``merge`` every source is a place to ask, the highest first, as levels of a hierarchy are.
* What comes out of the tree is plain: Ruby's symbols and odd keys are text. Secrets stay secrets.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hiera.errors import ExpressionError, UndefinedError
from hiera.tree import strategies
from hiera.tree.context import explain
from hiera.tree.context.explain import ABSENT, SILENT, Key, Step
from hiera.values.data_paths import MISSING
from hiera.values.plain import described
from hiera.values.secrets import hidden_at, hidden_below
from puller.data.bundle_data import BundleData

if TYPE_CHECKING:
    from hiera.tree.lookup import Tree


def look_up(data: BundleData, name: str, default: Any = MISSING, merge: Any = None) -> Any:
    """The value of a key, else ``default``, else ``UndefinedError``; raises any other ``HieraError``."""
    if not isinstance(name, str):
        raise ExpressionError("", f"hiera wants a key such as 'profile::web::port', not {described(name)}")
    key = explain.parse(name)
    value = _found(data, key) if merge is None else _merged(data, key, merge)
    if value is not MISSING:
        return value
    if default is MISSING:
        raise UndefinedError("", f"no source of data has the key {name!r}", key.root, data.all)
    return default


def _found(data: BundleData, key: Key) -> Any:
    is_elsewhere = any(key.root in source.data for source in data.documents)
    if data.tree is not None and not is_elsewhere:
        # The tree knows more than the value: a module's default hierarchy may have the part that is missing.
        return _hidden(data, key, data.ask(key.text))
    return _dug(key, data.all.get(key.root, ABSENT))


def _merged(data: BundleData, key: Key, merge: Any) -> Any:
    """The values of all sources as the strategy combines them; dug into afterwards, as in a tree."""
    # The tree is one place among the sources, where ``data`` has it: over the manifest, under what is from outside.
    places: list[Mapping[str, Any] | Tree] = [source.data for source in reversed(data.above)]
    places += [] if data.tree is None else [data.tree]
    places += [source.data for source in reversed(data.below)]

    def ask(place: "Mapping[str, Any] | Tree", step: Step) -> Any:
        if isinstance(place, Mapping):
            return place.get(key.root, ABSENT)
        # The whole value: what is dug for may be in a mapping that only the merge brings about.
        value = data.ask(explain.literal(key.root), merge)
        return ABSENT if value is MISSING else value

    value = strategies.strategy(merge).gather(places, ask, SILENT)
    for path in data.sensitive(key.root):
        value = value if value is ABSENT else hidden_at({key.root: value}, path)[key.root]
    return _dug(key, value)


def _dug(key: Key, value: Any) -> Any:
    found = ABSENT if value is ABSENT else explain.dig(key.text, key.segments, value, SILENT)
    return MISSING if found is ABSENT else found


def _hidden(data: BundleData, key: Key, value: Any) -> Any:
    """A part of the tree's value, as a secret where annotations say so."""
    asked = (key.root, *key.segments)
    for path in data.sensitive(key.root):
        value = value if value is MISSING else hidden_below(value, path, asked)
    return value
