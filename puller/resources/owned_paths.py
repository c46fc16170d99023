"""The paths below a directory that belong to other resources: nothing that empties a directory touches them.

* A purge, a tree, a scaffold, and the removal or replacement of a directory all ask here.
* Each type states its paths (``Resource.places``, ``claims``, ``fills``, ``tool_paths``). Paths are compared in
  canonical form, and the links that lead to an owned path are owned as well.
* Puller's own state, mount points, and the paths of bundles that this run does not apply stay as well.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from puller.errors import ResourceError
from puller.resources.base import Context, Part
from puller.resources.claims import Claim, Use
from puller.resources.tree_paths import parents
from puller.system.real_paths import RealPaths

_AT_THE_LINK = frozenset({"file", "link"})
"""Types that never follow a link at their path."""


class Owner(NamedTuple):
    """The resource that owns a path, with its claim."""

    reference: str
    claim: Claim


class OwnedPaths(msgspec.Struct, frozen=True):
    """The paths of other resources below a directory, relative to it."""

    places: frozenset[str] = frozenset()
    """Declared paths."""
    above: frozenset[str] = frozenset()
    """The directories that lead to owned paths."""
    filled: frozenset[str] = frozenset()
    """Directories with contents that only their resource knows."""
    mounted: frozenset[str] = frozenset()
    """Mount points."""
    owners: Mapping[str, tuple[Owner, ...]] = {}
    """Claims by path."""

    def is_owned(self, path: str) -> bool:
        """Whether a path, with everything below it, belongs to another resource."""
        return path in self.places or path in self.filled or path in self.mounted

    def is_kept(self, path: str) -> bool:
        """Whether a path stays when everything else in the directory is removed."""
        return path in self.above or self.is_owned(path)


def owned_below(root: str, context: Context, reference: str) -> OwnedPaths:
    """Return the paths below ``root`` that belong to other resources than ``reference``.

    Raises ``OSError``, and ``ResourceError`` if a declaration cannot be evaluated on this machine.
    """
    known = _Known.current(context)
    above = f"{known.real.directory(root).rstrip('/')}/"

    def below(paths: Iterable[_OwnedPath]) -> Iterator[tuple[str, _OwnedPath]]:
        for owned in paths:
            if owned.path.startswith(above) and owned.reference != reference:
                yield owned.path.removeprefix(above), owned

    owners: dict[str, tuple[Owner, ...]] = {}
    places = set()
    for path, owned in below(known.places):
        places.add(path)
        if owned.claim is not None:
            owners[path] = (*owners.get(path, ()), Owner(owned.reference, owned.claim))
    filled = frozenset(path for path, _ in below(known.filled))
    mounted = frozenset(path for path, _ in below(map(_OwnedPath, known.mounted)))
    leading = frozenset(directory for path in (*places, *filled) for directory in parents(path))
    return OwnedPaths(frozenset(places), leading, filled, mounted, owners)


def refuse_owned_below(path: str, context: Context, reference: str, verb: str) -> None:
    """Raise ``ResourceError`` if another resource owns something below a directory that is to be ``verb``."""
    owned = owned_below(path, context, reference)
    for place in sorted(owned.places | owned.filled):
        owners = owned.owners.get(place, ())
        is_to_go = any(owner.claim.use is Use.ABSENT for owner in owners)
        if not is_to_go and context.system.exists(f"{path}/{place}"):
            name = next((owner.reference for owner in owners), "another resource")
            raise ResourceError(f"{path} cannot be {verb}: {name} keeps {path}/{place}")


class _OwnedPath(NamedTuple):
    """A canonical path and its owner."""

    path: str
    reference: str = ""
    claim: Claim | None = None


class _Known(msgspec.Struct):
    """The canonical paths of all resources of a run, until the next change of the machine."""

    changes: int
    """The number of changes that the run had begun when the paths were collected."""
    real: RealPaths
    places: list[_OwnedPath]
    filled: list[_OwnedPath]
    mounted: list[str]

    @classmethod
    def current(cls, context: Context) -> "_Known":
        """Return the paths as of now. All directories of a run that changes nothing share them."""
        known: _Known | None = context.shared.get(cls)
        changes = context.changes()
        if known is None or known.changes != changes:
            known = context.shared[cls] = cls._collected(context, changes)
        return known

    @classmethod
    def _collected(cls, context: Context, changes: int) -> "_Known":
        from puller.system.mounts import mount_points

        resources = context.resources()
        links = {
            part.properties.name: part.properties.target
            for part in resources
            if part.reference.startswith("link#") and _is_link(part)
        }
        real = RealPaths(links)
        places = [owned for part in resources for owned in _places(part, real)]
        filled = [
            _OwnedPath(place, part.reference)
            for part in resources
            for path in part.type.fills(part.properties)
            for place in {real.of(path), real.directory(path)}
        ]
        declared = (part for part in resources if part.reference.startswith("link#"))
        filled += [_OwnedPath(real.of(part.properties.name), part.reference) for part in declared]
        own = [] if context.state_directory is None else [str(context.state_directory)]
        filled += [_OwnedPath(real.of(path)) for path in (*context.elsewhere(), *own)]
        return cls(changes, real, places, filled, mount_points())


def _is_link(part: Part) -> bool:
    return bool(part.properties.ensure == "present" and getattr(part.properties, "target", ""))


def _places(part: Part, real: RealPaths) -> Iterator[_OwnedPath]:
    """Yield every place of a resource, with the links that lead there and the target of a link at its end."""
    kind, properties, reference = part.type, part.properties, part.reference
    for claim in kind.claims(properties):
        path = real.of(claim.path)
        yield _OwnedPath(path, reference, claim)
        yield from _around(claim.path, path, part, real)
    for place in (*kind.places(properties), *kind.tool_paths(properties)):
        path = real.of(place)
        yield _OwnedPath(path, reference, Claim(place, Use.KEPT))
        yield from _around(place, path, part, real)


def _around(written: str, path: str, part: Part, real: RealPaths) -> Iterator[_OwnedPath]:
    yield from (_OwnedPath(link, part.reference) for link in real.links_on(written))
    if part.reference.partition("#")[0] not in _AT_THE_LINK:
        target = real.directory(path)
        if target != path:
            yield _OwnedPath(target, part.reference)
            yield from (_OwnedPath(link, part.reference) for link in real.links_on(f"{path}/."))
