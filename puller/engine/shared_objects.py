"""Resources of a catalog that manage parts of one object, such as edits of one file."""

from collections.abc import Hashable, Iterator
from functools import cached_property

from hiera.errors import HieraError
from puller.engine.conditions import why_unmanaged
from puller.errors import ResourceError
from puller.manifest.declaration import Declaration
from puller.manifest.graph.catalog import Catalog
from puller.resources.base import Part, Resource


class Parts:
    """The parts of one catalog, determined at the first request. ``noop``: the run changes nothing."""

    def __init__(self, catalog: Catalog, *, noop: bool) -> None:
        self._catalog = catalog
        self._noop = noop

    def indexes_of(self, whole: Hashable) -> list[int]:
        """Return the indexes of all parts of a whole, in the order of the run."""
        return self._by_whole.get(whole, [])

    def of(self, whole: Hashable) -> list[Part]:
        """Return all managed parts of a whole, in the order of the run. In a real run, noop resources are left out."""
        declarations = (self._catalog.declarations[index] for index in self.indexes_of(whole))
        return [
            Part(declaration.reference, declaration.type, declaration.properties)
            for declaration in declarations
            if (self._noop or not declaration.properties.noop) and is_managed(declaration)
        ]

    def all(self) -> list[Part]:
        """Return all resources that are or may be managed. If one cannot be applied, only its name is known.

        Raise ``ResourceError`` if the declarations cannot be determined on this machine.
        """
        return self._all

    @cached_property
    def _all(self) -> list[Part]:
        return [
            part for declaration in self._catalog.declarations if (part := _part(declaration)) is not None
        ]

    @cached_property
    def _by_whole(self) -> dict[Hashable, list[int]]:
        result: dict[Hashable, list[int]] = {}
        for index, whole in self._wholes():
            result.setdefault(whole, []).append(index)
        return result

    def _wholes(self) -> Iterator[tuple[int, Hashable]]:
        declarations = self._catalog.declarations
        for index in self._catalog.order:
            if index >= len(declarations):  # a reversal
                continue
            declaration = declarations[index]
            if (whole := declaration.type.whole(declaration.properties)) is not None:
                yield index, whole


def _part(declaration: Declaration) -> Part | None:
    """Return a resource that is or may be managed."""
    try:
        if why_unmanaged(declaration):
            return None
    except (ResourceError, HieraError):  # the resource fails at its own turn
        pass
    is_open = declaration.failure and declaration.type.type_name == "apply"
    if is_open or declaration.loop is not None or "name" in declaration.unknown:
        raise ResourceError(
            f"{declaration.where}: {declaration.reference} may declare further resources that depend on unknown values"
        )
    is_known = isinstance(declaration.properties, declaration.type.properties_type)
    return Part(declaration.reference, declaration.type if is_known else Resource, declaration.properties)


def is_managed(declaration: Declaration) -> bool:
    """Return whether a resource is certainly managed in this run."""
    if declaration.failure or declaration.late is not None or declaration.loop is not None:
        return False
    try:
        return not why_unmanaged(declaration)
    except (ResourceError, HieraError):  # the resource fails at its own turn
        return False
