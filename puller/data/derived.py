"""Expressions in data, resolved over the data of all sources together.

* A derived value follows its inputs in any source: ``url`` of a bundle follows ``version`` of the host.
* Keys are resolved on demand, each text once. A cycle is an error that shows the chain of keys.
* A value that a higher source replaces has no influence: it is not an error if it cannot be resolved.
* A value of this host that needs data of another bundle is an error only for its readers.
* Values of the tree are final. A key is looked up in the tree when an expression needs it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from foundation.problems import NOWHERE, Location
from hiera.document.document import Chosen
from hiera.document.layers import Layer, LayeredMapping, LayerSource, Path, Resolver
from hiera.errors import HieraError, LimitError
from hiera.expressions.expressions import Scope, resolve
from hiera.limits import total
from puller.data.sources import DataSource, Surroundings


class Everything:
    """The data that expressions use during the evaluation."""

    def __init__(
        self,
        below: tuple[DataSource, ...],
        above: tuple[DataSource, ...],
        sensitive: frozenset[Path],
        here: Surroundings,
        tree: Mapping[Any, Any] | None,
    ) -> None:
        """``below`` and ``above`` are the sources under and over the ``tree``, lowest first."""
        self._resolver = Resolver(sensitive)
        under = [layer for source in below for layer in _layers_of(source)]
        over = [layer for source in above for layer in _layers_of(source)]
        between = [] if tree is None else [Layer(tree, (), LayerSource(_nowhere), final=True)]
        self.data = LayeredMapping([*under, *between, *over], self._resolver)
        scope = Scope(here.facts, self.data, here.environ)
        self._resolver.resolve_text = lambda text: resolve(text, scope)

    def evaluate(self, key: Any) -> None:
        """Resolve all values below a top-level key. Raise ``HieraError``."""
        value = self.data[key]
        if isinstance(value, LayeredMapping):
            value.own()

    def resolved(self, source: DataSource, chosen: Chosen) -> DataSource:
        """Return a source with its own values. Unresolved values are replaced and recorded."""
        resolver = (
            Resolver()
        )  # without a value in progress: this source may have another value than all sources together
        resolver.known, resolver.resolve_text = self._resolver.known, self._resolver.resolve_text
        unresolved: dict[object, str] = {}

        def note(path: Path, error: HieraError) -> bool:
            unresolved[path[0]] = str(error)
            return True

        resolved = chosen.of_layered(LayeredMapping(chosen.layers, resolver), resolver, note)
        return msgspec.structs.replace(
            source,
            data=resolved.data,
            explanation=resolved.explanation,
            unresolved=unresolved,
            is_open=False,
        )


def evaluate(
    everything: Everything, sources: tuple[DataSource, ...], is_optional: Callable[[Any], bool]
) -> tuple[tuple[DataSource, ...], dict[Any, HieraError]]:
    """Return ``sources`` with resolved values, and the errors of unresolved top-level keys.

    Only keys that are ``is_optional`` may be unresolved. Raise ``HieraError`` for others.
    """
    failed: dict[Any, HieraError] = {}
    with total:
        try:
            for key in dict.fromkeys(key for source in sources for key in _derived_keys(source)):
                try:
                    everything.evaluate(key)
                except HieraError as error:
                    if not is_optional(key):
                        raise
                    failed[key] = error
            resolved = tuple(
                everything.resolved(source, source.chosen) if source.is_open and source.chosen else source
                for source in sources
            )
        except RecursionError:
            raise LimitError("data", "the chain of references between values is too long") from None
    return resolved, failed


def _derived_keys(source: DataSource) -> list[Any]:
    return source.chosen.derived_keys if source.is_open and source.chosen else []


def _layers_of(source: DataSource) -> list[Layer]:
    if source.is_open and source.chosen:
        return list(source.chosen.layers)
    return [Layer(source.data, (), LayerSource(_nowhere, joins_lists=source.joins_lists), final=True)]


def _nowhere(path: Path) -> Location:
    """Return an empty place: values of these layers are final, so errors never refer to them."""
    return NOWHERE
