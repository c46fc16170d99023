"""The parts of a resource, made in their own contexts, such as the fragments of a file."""

from collections.abc import Callable, Sequence
from typing import Any

from puller.engine.conditions import is_left_out
from puller.errors import ResourceError
from puller.manifest.declaration import Declaration
from puller.manifest.graph.catalog import Catalog
from puller.resources.base import Context, Resource


class JoinedParts:
    """The parts of all resources of one catalog.

    ``context_of`` returns the context of a part. With ``noop``, resources with failed parts are already skipped.
    """

    def __init__(
        self, catalog: Catalog, context_of: Callable[[Declaration], Context], *, noop: bool = False
    ) -> None:
        self._catalog = catalog
        self._context_of = context_of
        self._noop = noop

    def of(self, reference: str) -> Sequence[Resource[Any, Any]] | None:
        """Return the managed parts of a resource. ``None`` if one is unknown in noop.

        Raise ``ResourceError`` if one cannot be applied, and the errors of its condition.
        """
        declared = [self._catalog.declarations[part] for part in self._indexes(reference)]
        parts = [declaration for declaration in declared if not is_left_out(declaration)]
        if unknown := next((part for part in parts if part.failure or part.late is not None), None):
            if self._noop:  # an earlier resource would create a file that its properties read
                return None
            raise ResourceError(f"{unknown.reference} cannot be applied, so the content is unknown")
        return [part.type(part.properties, self._context_of(part)) for part in parts]

    def _indexes(self, reference: str) -> Sequence[int]:
        catalog = self._catalog
        for whole, parts in catalog.links.parts.items():
            if catalog.declarations[whole].reference == reference:
                return parts
        return ()
