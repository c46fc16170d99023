"""Resources that the bundles of a host declare now, and the paths that they reserve."""

import contextlib
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from puller.engine.transactions import is_managed
from puller.errors import ConfigurationError
from puller.manifest.declaration import Declaration
from puller.manifest.graph.contradictions import Key, identity_of, key_of, objects_of, spellings_of
from puller.manifest.graph.host_catalog import HostCatalog
from puller.resources.paths import parents
from puller.resources.registry import find_remover
from puller.system.local_paths import Spellings
from puller.values.common_properties import ABSENT

if TYPE_CHECKING:
    from puller.run.leftovers.reversal_rules import Declared as Part


class Declared(msgspec.Struct, frozen=True, dict=True):
    """The declarations of all valid bundles in this run."""

    declarations: Mapping[str, list[Declaration]]
    """By bundle."""
    subscribers: Mapping[str, list[str]] = {}
    """By reference, the resources that its changes refresh."""
    incomplete: frozenset[str] = frozenset()
    """Bundles with unknown declarations, because a part of them cannot be expanded on this host."""

    @classmethod
    def by(cls, catalog: HostCatalog, bundles: Sequence[str]) -> "Declared":
        """Return the declarations of a catalog by their owners. ``bundles`` are the names of its manifests."""
        declarations: dict[str, list[Declaration]] = {name: [] for name in bundles}
        incomplete = set()
        for declaration, owner in zip(catalog.declarations, catalog.owners, strict=True):
            declarations[bundles[owner]].append(declaration)
            if declaration.failure and _represents_others(declaration):
                incomplete.add(bundles[owner])
        subscribers = {
            str(catalog.declarations[index].reference): sorted({*map(str, references)})
            for index, references in catalog.links.subscribers.items()
        }
        return cls(declarations, subscribers, frozenset(incomplete))

    def kept(self, bundle: str) -> list[Declaration]:
        """Return the resources of a bundle that can become leftovers, in order."""
        if bundle not in self._kept:
            self._kept[bundle] = [
                declaration for declaration in self.declarations[bundle] if can_be_left(declaration)
            ]
        return self._kept[bundle]

    @cached_property
    def _kept(self) -> dict[str, list[Declaration]]:
        return {}

    def kept_names(self, bundle: str) -> Sequence[str]:
        """Return the references of these resources."""
        if bundle not in self._kept_names:
            # Without ``reference``, because each run does this for ten thousand resources.
            retained = self.kept(bundle)
            self._kept_names[bundle] = [f"{item.type.type_name}#{item.properties.name}" for item in retained]
        return self._kept_names[bundle]

    @cached_property
    def _kept_names(self) -> dict[str, list[str]]:
        return {}

    def kept_paths(self, bundle: str) -> Sequence[str]:
        """Return the further paths of these resources, besides the paths in their names."""
        retained = self.kept(bundle)
        paths = (path for item in retained for path in _paths(item) if path != item.properties.name)
        return sorted({*paths})

    @cached_property
    def names(self) -> frozenset[str]:
        """All references to declared resources, including aliases."""
        return frozenset(name for item in self._all() for name in item.names())

    def names_without(self, bundles: Collection[str]) -> frozenset[str]:
        """Return the references that other bundles declare."""
        others = (each for bundle, each in self.declarations.items() if bundle not in bundles)
        return frozenset(name for each in others for item in each for name in item.names())

    @cached_property
    def _places(self) -> list[str]:
        real = self._real
        return sorted(real.of(place) for item in self._all() for place in item.type.places(item.properties))

    @cached_property
    def _filled(self) -> frozenset[str]:
        real = self._real
        return frozenset(real.of(path) for item in self._all() for path in item.type.fills(item.properties))

    @cached_property
    def _purged(self) -> frozenset[str]:
        purging = (item for item in self._all() if getattr(item.properties, "purge", False))
        return frozenset(
            self._real.of(place) for item in purging for place in item.type.places(item.properties)
        )

    def part_in(self, path: str) -> "Part":
        """Return the role of declared resources at a path."""
        # 3 % of an idle run, only for trials
        from puller.run.leftovers.reversal_rules import Declared as Part

        path = self._real.of(path)
        if path in self._whole or _is_below(path, self._closed):
            return Part.WHOLE
        if self.has_place(path) or self.has_below(path):
            return Part.PART
        if self.fills(path):
            return Part.PURGED if _is_below(path, self._purged) else Part.FILLED
        return Part.PURGED if _is_below(path, self._purged) else Part.NOTHING

    def has_replaced(self, reference: str, failed: Collection[str] = ()) -> bool:
        """Return whether a declared resource that has not failed is at the path in the name of a leftover."""
        path = reference.partition("#")[2]
        if not path.startswith("/") or reference in self.names or not self.has_place(path):
            return False
        place = self._real.of(path)
        replacements = (
            item
            for item in self._all()
            if str(item.reference) not in failed
            and any(self._real.of(each) == place for each in _paths(item))
        )
        if not _fills(reference):
            return any(replacements)
        # A plain directory at the path keeps the files of a leftover tree.
        return place in self._closed or any(item.type.fills(item.properties) for item in replacements)

    def has_place(self, path: str) -> bool:
        """Return whether a resource is declared at a path."""
        path = self._real.of(path)
        return any(place == path for place in self._places_from(path))

    @cached_property
    def _whole(self) -> frozenset[str]:
        return frozenset(map(self._real.of, whole_paths(self._all())))

    @cached_property
    def _closed(self) -> frozenset[str]:
        """The paths that cannot have contents: of files, of links, and of absent resources."""
        plain = (item for item in self._all() if item.type.type_name in ("file", "link"))
        closed = (item for item in plain if item.properties.ensure != "directory")
        return frozenset(map(self._real.of, whole_paths(closed)))

    def has_below(self, path: str) -> bool:
        """Return whether a resource is declared below a directory."""
        path = self._real.of(path)
        return any(place.startswith(f"{path}/") for place in self._places_from(f"{path}/"))

    def fills(self, path: str) -> bool:
        """Return whether a path is below a directory that a resource fills with its own files."""
        return _is_below(self._real.of(path), self._filled)

    def fills_at(self, path: str) -> bool:
        """Return whether a resource fills a path, or a directory above or below it."""
        path = self._real.of(path)
        below = f"{path}/"
        return (
            path in self._filled or self.fills(path) or any(each.startswith(below) for each in self._filled)
        )

    def edits_of(self, path: str) -> list[tuple[str, Declaration]]:
        """Return the managed edits of a file in order, each with its bundle."""
        file = self.canonical(path)
        edits = ((bundle, item) for bundle, each in self.declarations.items() for item in each)
        return [
            (bundle, item)
            for bundle, item in edits
            if _edited_file(item) and self.canonical(_edited_file(item)) == file and is_managed(item)
        ]

    def real(self, path: str) -> str:
        """Return a path with resolved parent directories. Declared links count."""
        return self._real.of(path)

    def canonical(self, path: str) -> str:
        """Return a path with all links resolved, including the last component. Declared links count."""
        return self._real.directory(path)

    def replaces_parent(self, path: str) -> bool:
        """Return whether a declared file or link replaces a parent directory of a path."""
        return _is_below(self._real.of(path), self._plain)

    @cached_property
    def _plain(self) -> frozenset[str]:
        plain = (
            item for item in self._all() if item.type.type_name in ("file", "link") and can_be_left(item)
        )
        names = (item.properties.name for item in plain if item.properties.ensure != "directory")
        return frozenset(map(self._real.of, names))

    @cached_property
    def _real(self) -> Spellings:
        """Canonical paths, because the path of a leftover may now be declared with another spelling."""
        return self._spellings

    @cached_property
    def _spellings(self) -> Spellings:
        declarations = [*self._all()]
        facts = declarations[0].home.scope.facts if declarations else {}
        return spellings_of(declarations, facts)

    def find_successor(self, reference: str) -> str | None:
        """Return the declared resource that manages the object of a reference under another name."""
        if not any(reference.startswith(f"{type_name}#") for type_name in self._types):
            return None
        managed = identity_of(reference, self._spellings)
        return self._objects.get(managed) if managed is not None else None

    @cached_property
    def _types(self) -> frozenset[str]:
        return frozenset(item.type.type_name for item in self._all())

    @cached_property
    def _objects(self) -> Mapping[Key, str]:
        """The references of declared resources, by their objects."""
        declarations = [declaration for declaration in self._all() if can_be_left(declaration)]
        objects = objects_of(declarations, self._spellings)
        return {
            objects.get(id(declaration), key_of(declaration)): str(declaration.reference)
            for declaration in declarations
        }

    def of_type(self, type_name: str) -> Sequence[Any]:
        """Return the properties of all resources of a type."""
        return [item.properties for item in self._all() if item.type.type_name == type_name]

    def _places_from(self, path: str) -> Iterator[str]:
        """Yield the first place at or after a path, if it exists."""
        index = bisect_left(self._places, path)
        yield from self._places[index : index + 1]

    def _all(self) -> Iterator[Declaration]:
        for declarations in self.declarations.values():
            yield from declarations


def _fills(reference: str) -> bool:
    """Return whether a leftover fills a directory with its own files."""
    type_name, _, name = reference.partition("#")
    with contextlib.suppress(ConfigurationError):  # a type of another distribution that is unusable now
        if (kind := find_remover(type_name)) is not None:
            return bool([*kind.fills(kind.properties_type(name=name, ensure=str(ABSENT)))])
    return False


def _is_below(path: str, directories: Collection[str]) -> bool:
    return bool(directories) and any(above in directories for above in parents(path))


def whole_paths(declarations: Iterable[Declaration]) -> frozenset[str]:
    """Return the paths that declarations determine completely: applying them reverts all changes there."""
    whole = (
        declaration
        for declaration in declarations
        if declaration.type.is_whole(declaration.properties) and not declaration.failure
    )
    return frozenset(
        path
        for declaration in whole
        if not declaration.type.fills(declaration.properties)
        for path in declaration.type.places(declaration.properties)
    )


def can_be_left(declaration: Declaration) -> bool:
    """Return whether an object stays on the machine when the resource is no longer declared."""
    return declaration.type.has_state and declaration.properties.ensure != ABSENT


def _paths(declaration: Declaration) -> Iterator[str]:
    kind, properties = declaration.type, declaration.properties
    yield from kind.places(properties)
    yield from kind.fills(properties)


def _edited_file(declaration: Declaration) -> str:
    is_known = isinstance(declaration.properties, declaration.type.properties_type)
    return declaration.type.edited_file(declaration.properties) if is_known else ""


def _represents_others(declaration: Declaration) -> bool:
    return declaration.type.type_name == "apply" or "name" in declaration.unknown
