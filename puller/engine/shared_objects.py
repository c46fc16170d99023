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
    """The parts of one catalog, found when they are first asked for. ``noop``: nothing is changed in this run."""

    def __init__(self, catalog: Catalog, *, noop: bool) -> None:
        self._catalog = catalog
        self._noop = noop

    def indexes_of(self, whole: Hashable) -> list[int]:
        """The indexes of all parts of a whole, in the order of the run."""
        return self._by_whole.get(whole, [])

    def of(self, whole: Hashable) -> list[Part]:
        """All managed parts of a whole, in the order of the run; those that only look are none of a real run."""
        declarations = (self._catalog.declarations[index] for index in self.indexes_of(whole))
        return [
            Part(declaration.reference, declaration.type, declaration.properties)
            for declaration in declarations
            if (self._noop or not declaration.properties.noop) and is_managed(declaration)
        ]

    def all(self) -> list[Part]:
        """All resources that are managed in this run, or may be; of one that cannot be applied only the name is known.

        Raises ``ResourceError`` when something on this machine leaves open what is declared.
        """
        return self._all

    @cached_property
    def _all(self) -> list[Part]:
        return [
            part for declaration in self._catalog.declarations if (part := _part(declaration)) is not None
        ]

    @cached_property
    def _by_whole(self) -> dict[Hashable, list[int]]:
        found: dict[Hashable, list[int]] = {}
        for index, whole in self._wholes():
            found.setdefault(whole, []).append(index)
        return found

    def _wholes(self) -> Iterator[tuple[int, Hashable]]:
        declarations = self._catalog.declarations
        for index in self._catalog.order:
            if index >= len(declarations):  # a reversal
                continue
            declaration = declarations[index]
            if (whole := declaration.type.whole(declaration.properties)) is not None:
                yield index, whole


def _part(declaration: Declaration) -> Part | None:
    """A resource that is managed, or may be."""
    try:
        if why_unmanaged(declaration):
            return None
    except (ResourceError, HieraError):  # which is its own failure, when it has its turn
        pass
    is_open = declaration.failure and declaration.type.type_name == "apply"
    if is_open or declaration.loop is not None or "name" in declaration.unknown:
        raise ResourceError(
            f"{declaration.where}: {declaration.reference} may declare more than is known here"
        )
    is_known = isinstance(declaration.properties, declaration.type.properties_type)
    return Part(declaration.reference, declaration.type if is_known else Resource, declaration.properties)


def is_managed(declaration: Declaration) -> bool:
    """Whether it is known that a resource is managed in this run."""
    if declaration.failure or declaration.late is not None or declaration.loop is not None:
        return False
    try:
        return not why_unmanaged(declaration)
    except (ResourceError, HieraError):  # which is its own failure, when it has its turn
        return False
