"""The record of this host: the resources that each bundle manages, created resources, and leftovers.

* A resource is *made* if it was absent when Puller first changed it, and has existed since (``created_resources``).
  It stays made while any bundle declares it or it is a leftover, even if it moves to another bundle.
* If the declarations of a bundle are unknown (it left the configuration, or cannot be read), its last declarations
  count. A mistake in the configuration removes nothing.
* A damaged record is set aside. Existing resources then count as existing before.
* A run without changes compares lists of names and writes nothing.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import msgspec

from foundation.times import iso_text
from puller.reporting.report import Event, State
from puller.run.leftovers.created_resources import MakingsJournal
from puller.run.leftovers.declared_resources import Declared
from puller.state import Directories, StateFile
from puller.values.common_properties import ABSENT

if TYPE_CHECKING:
    from puller.run.leftovers.shared_edits import Heir, Inheritance


_LOSS = "resources that Puller created before count as foreign and are never removed"
_LARGEST = 128 * 1024 * 1024  # bytes: a million resources
_MADE, _FOUND, _UNKNOWN = "m", "f", "-"
"""Created by Puller, existed before, not applied yet."""
_TAKEN, _KEPT = "x", "-"
"""The removal policy of a created resource that is not declared any longer."""
SEEN = (State.STABLE, State.CHANGED, State.REFRESHED)


class Left(msgspec.Struct, frozen=True, omit_defaults=True):
    """A leftover of a bundle. ``since`` is UTC in ISO 8601."""

    reference: str
    made: bool
    since: str
    removed: bool = False
    """Whether the last version that declared it requests its removal."""
    subscribers: tuple[str, ...] = ()
    """The resources that its changes refreshed."""
    stays: str = ""
    """Why the last run has not removed it, although it should be removed. Otherwise empty."""
    gone: bool = False
    """A bundle on trial has removed it. If that bundle is given up, it returns with its origin."""
    taken: bool = False
    """Only bundles on trial declare it. If they are given up, it is a leftover again."""

    @property
    def is_to_go(self) -> bool:
        """Whether it is removed as soon as possible."""
        return self.made and self.removed and not self.gone

    @property
    def is_listed(self) -> bool:
        """Whether it is currently a leftover."""
        return not self.gone and not self.taken


class Resources(msgspec.Struct, omit_defaults=True):
    """The resources of one bundle: declared ones in order, with a letter each in both texts, and leftovers."""

    declared: list[str] = []
    removed: str = ""
    origins: str = ""
    subscribers: dict[str, list[str]] = {}
    left: list[Left] = []
    paths: list[str] = []
    """Further paths of declared resources, besides the paths in their names."""

    def leave(self, index: int, since: str) -> Left:
        """Return the resource with this index as a leftover."""
        reference, made = self.declared[index], self.origins[index] == _MADE
        subscribers = tuple(self.subscribers.get(reference, ()))
        return Left(reference, made, since, self.removed[index] == _TAKEN, subscribers)

    def __post_init__(self) -> None:
        if not len(self.declared) == len(self.removed) == len(self.origins):
            raise ValueError("must have as many letters as resources")


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1] = 1
    bundles: dict[str, Resources] = {}


def _removed(bundle: str, declared: Declared) -> str:
    return "".join(_TAKEN if item.properties.removed == ABSENT else _KEPT for item in declared.kept(bundle))


def _with_created_resources(
    resources: Resources, made: Collection[str], owners: Collection[str]
) -> Resources:
    """Mark declared resources as created by Puller, and remove their former owners from the leftovers."""
    pairs = zip(resources.declared, resources.origins, strict=True)
    origins = "".join(_MADE if reference in made else origin for reference, origin in pairs)
    leftovers = [item for item in resources.left if item.reference not in owners]
    return msgspec.structs.replace(resources, origins=origins, left=leftovers)


def _without(leftovers: Sequence[Left], returned: Collection[str]) -> list[Left]:
    """Return the leftovers without objects that Puller has not created after all."""
    return [each for each in leftovers if not (each.made and each.reference in returned)]


def _mark(leftover: Left, gone: Collection[str]) -> Left:
    return msgspec.structs.replace(leftover, gone=True) if leftover.reference in gone else leftover


class Managed:
    """The record. Methods raise ``OSError``. With ``noop`` nothing is written."""

    def __init__(self, directories: Directories, warn: Callable[[str], None], *, noop: bool = False) -> None:
        self._file = StateFile(directories.managed, _Document, _LOSS, largest=_LARGEST)
        self._noop = noop
        self._bundles = (self._file.load(warn, noop=noop) or _Document()).bundles
        self._makings = directories.makings
        self._state = directories.state
        self._renamed: dict[str, str] = {}
        """The earlier references of objects that are now declared with another name."""
        self._is_changed = self._makings.exists() and self._take_over()

    def journal(self) -> MakingsJournal:
        """Return the journal of created resources that the record does not contain yet."""
        return MakingsJournal(self._makings)

    def _take_over(self) -> bool:
        """Add the journal of a killed run to the record. Return whether it had entries."""
        makings = self.journal().read()
        for making in makings:
            before = self._bundles.get(making.bundle, Resources())
            declared, removed, origins = before.declared, before.removed, before.origins
            if making.reference in declared:
                index = declared.index(making.reference)
                origins = f"{origins[:index]}{_MADE}{origins[index + 1 :]}"
            else:
                declared = [*declared, making.reference]
                removed += _TAKEN if making.removed else _KEPT
                origins += _MADE
            self._bundles[making.bundle] = msgspec.structs.replace(
                before, declared=declared, removed=removed, origins=origins
            )
        return bool(makings)

    # Queries

    def left(self, bundle: str) -> list[Left]:
        """Return the leftovers of a bundle."""
        return [item for item in self._bundles.get(bundle, Resources()).left if item.is_listed]

    def remains(self, bundle: str) -> list[Left]:
        """Return the resources that would be unmanaged without this bundle, with its leftovers."""
        resources = self._bundles.get(bundle, Resources())
        return [*self._leave(resources, ()), *self.left(bundle)]

    def is_created_at(self, path: str) -> bool:
        """Return whether Puller has created the file, link or directory at a path, by any type."""
        return any(self._origins.get(f"{each}#{path}") == _MADE for each in ("file", "link", "scaffold"))

    def made(self) -> set[str]:
        """Return the references of all resources that Puller has made, of all bundles."""
        return {reference for reference, origin in self._origins.items() if origin == _MADE}

    def is_made(self, reference: str) -> bool:
        """Return whether Puller has made a resource."""
        return self._origins.get(reference) == _MADE

    def is_known(self, reference: str) -> bool:
        """Return whether the origin of a resource is known."""
        return reference in self._origins

    @cached_property
    def _origins(self) -> dict[str, str]:
        """The origins of resources, from the records of all bundles."""
        result: dict[str, str] = {}
        for resources in self._bundles.values():
            pairs = zip(resources.declared, resources.origins, strict=True)
            leftovers = ((item.reference, _MADE if item.made else _FOUND) for item in resources.left)
            for reference, origin in (*pairs, *leftovers):
                if origin != _UNKNOWN and result.get(reference) != _MADE:
                    result[reference] = origin
        return result

    def leaving(self, declared: Declared) -> dict[str, list[Left]]:
        """Return the leftovers by bundle, the last declared first.

        If a given up trial has taken a resource from another bundle, it is a leftover only of that other bundle.
        """
        result = {}
        taken = {
            leftovers.reference: bundle
            for bundle, resources in self._bundles.items()
            for leftovers in resources.left
            if leftovers.taken
        }
        for bundle in declared.declarations:
            resources = self._bundles.get(bundle)
            if resources is None or (
                not resources.left and resources.declared == declared.kept_names(bundle)
            ):
                continue
            names = declared.names | self._declared_elsewhere(declared)
            new = () if bundle in declared.incomplete else self._leave(resources, names)
            leftovers = [*new, *(item for item in resources.left if item.reference not in names)]
            leftovers = [
                msgspec.structs.replace(item, taken=False) if item.taken else item
                for item in leftovers
                if taken.get(item.reference, bundle) == bundle
            ]
            if leftovers := [item for item in leftovers if not self._is_renamed(item.reference, declared)]:
                result[bundle] = leftovers
        return result

    def all_leftovers(self, declared: Declared) -> list[str]:
        """Return the references of all leftovers that are neither declared now nor already removed."""
        here = [item for each in self.leaving(declared).values() for item in each]
        elsewhere = [item for each in self._elsewhere(declared) for item in each.left]
        return [item.reference for item in (*here, *elsewhere) if not item.gone]

    def _is_renamed(self, reference: str, declared: Declared) -> bool:
        """Return whether a declared resource manages the object under another name. Record its earlier reference."""
        successor = declared.find_successor(reference)
        if successor is not None:
            self._renamed[successor] = reference
        return successor is not None

    def _leave(self, resources: Resources, names: Collection[str]) -> Iterator[Left]:
        since = iso_text(datetime.now(UTC))
        for index in reversed(range(len(resources.declared))):
            if resources.declared[index] not in names and resources.origins[index] != _UNKNOWN:
                yield resources.leave(index, since)

    def _declared_elsewhere(self, declared: Declared) -> frozenset[str]:
        """Return the resources of bundles whose current declarations are unknown."""
        return frozenset(reference for each in self._elsewhere(declared) for reference in each.declared)

    def paths_elsewhere(self, declared: Declared) -> Sequence[str]:
        """Return the paths of those resources. Everything below them is included."""
        others = self._elsewhere(declared)
        names = (reference.partition("#")[2] for each in others for reference in each.declared)
        return [
            path for path in (*names, *(path for each in others for path in each.paths)) if path[:1] == "/"
        ]

    def _elsewhere(self, declared: Declared) -> Sequence[Resources]:
        return [each for name, each in self._bundles.items() if name not in declared.declarations]

    # Edits with several declarations

    def heirs(self, declared: Declared, made: Collection[str] = ()) -> "dict[str, list[Heir]]":
        """Return the declared edits of objects that another resource owns, by the owner.

        Only edits with an unknown origin are included. ``made`` are the resources that this run has created.
        """
        return self._find_successors(self._inheritance(), declared, made) if self._open(declared) else {}

    def _find_successors(
        self, inheritance: "Inheritance", declared: Declared, made: Collection[str]
    ) -> "dict[str, list[Heir]]":
        edits = (
            each
            for bundle in self._open(declared)
            for each in inheritance.edits_in(bundle, declared.kept(bundle))
        )
        unknown = [
            each
            for each in edits
            if not self.is_known(str(each[1].reference)) and each[1].reference not in made
        ]
        return inheritance.heirs(
            unknown, lambda owner: owner in made or self._origins.get(owner) == _MADE, declared.canonical
        )

    def _inheritance(self) -> "Inheritance":
        # 1 % of an idle run, which has no new resource
        from puller.run.leftovers.shared_edits import Inheritance

        return Inheritance(self._state, noop=self._noop)

    def _open(self, declared: Declared) -> list[str]:
        """Return the bundles with resources of unknown origin."""
        return [
            bundle
            for bundle in declared.declarations
            if (resources := self._bundles.get(bundle, Resources())).declared != declared.kept_names(bundle)
            or _UNKNOWN in resources.origins
        ]

    def pass_on(self, declared: Declared, on_trial: Collection[str]) -> None:
        """Pass leftover edits on to the resources that declare them, unless these are on trial."""
        leftovers = {
            item.reference for each in self._bundles.values() for item in each.left if not item.taken
        }
        if not leftovers or not self._open(declared):
            return
        inheritance = self._inheritance()
        heirs = {
            owner: heir
            for owner, each in self._find_successors(inheritance, declared, ()).items()
            if owner in leftovers
            and (heir := next((item for item in each if item.bundle not in on_trial), None))
        }
        if not heirs or self._noop:
            return
        # After an interruption, the next run finds the owner and repeats this.
        for owner, heir in heirs.items():
            inheritance.copy(owner, heir)
        made = {heir.reference for heir in heirs.values()}
        self._save({name: _with_created_resources(each, made, heirs) for name, each in self._bundles.items()})
        for owner, heir in heirs.items():
            inheritance.forget(owner, heir)

    # Outcome of a run

    def conclude(
        self,
        declared: Declared,
        leaving: Mapping[str, list[Left]],
        events: Sequence[Event],
        made: Collection[str],
        gone: Collection[str],
        on_trial: Collection[str] = (),
        returned: Collection[str] = (),
    ) -> None:
        """Record the outcome of a run.

        ``leaving`` are the leftovers before the run, of which ``gone`` are removed. ``made`` are the created resources.
        Objects that bundles ``on_trial`` have removed may return. ``returned`` are the references of objects that have
        their state before Puller again, so Puller has not created them.
        """
        new = {}
        if returned:
            self._disown(returned)
            leaving = {bundle: _without(leftovers, returned) for bundle, leftovers in leaving.items()}
        heirs = self.heirs(declared, made)
        gone = {*gone} - heirs.keys()  # their heirs keep them
        failed = {event.reference for event in events if event.state not in SEEN}
        shared = {heir.reference for each in heirs.values() for heir in each}
        for bundle in declared.declarations:
            leftovers = [_mark(item, gone) for item in leaving.get(bundle, ())]
            if not on_trial:  # otherwise the replacement may be given up
                leftovers = [item for item in leftovers if not declared.has_replaced(item.reference, failed)]
            leftovers = leftovers if bundle in on_trial else [item for item in leftovers if not item.gone]
            leftovers += self._taken(bundle, declared, on_trial)
            if bundle in on_trial:
                leftovers += self._declared_absent(bundle, declared)
            new[bundle] = self._resources(bundle, declared, events, made, leftovers, shared)
        for bundle, resources in self._bundles.items():
            if resources.left and bundle not in new:  # it may be declared by another bundle
                leftovers = [item for item in resources.left if item.reference not in declared.names]
                leftovers += self._taken(bundle, declared, on_trial)
                new[bundle] = msgspec.structs.replace(resources, left=leftovers)
        if self._is_changed or any(self._bundles.get(bundle) != each for bundle, each in new.items()):
            self._save({**self._bundles, **new})
        elif not self._noop:  # of failed changes
            self._makings.unlink(missing_ok=True)
        self.pass_on(declared, on_trial)

    def _disown(self, returned: Collection[str]) -> None:
        """Record that Puller has not made these resources, in the records of all bundles."""
        self._bundles = {
            bundle: msgspec.structs.replace(
                each,
                origins="".join(
                    _FOUND if reference in returned and origin == _MADE else origin
                    for reference, origin in zip(each.declared, each.origins, strict=True)
                ),
                left=_without(each.left, returned),
            )
            for bundle, each in self._bundles.items()
        }
        self.__dict__.pop("_origins", None)
        self._is_changed = True

    def _declared_absent(self, bundle: str, declared: Declared) -> list[Left]:
        """Return the resources that Puller has made, and that a bundle on trial declares as absent.

        If the bundle is given up, they return with their origin.
        """
        resources = self._bundles.get(bundle)
        if resources is None or bundle in declared.incomplete:
            return []
        kept = {name for each in declared.declarations for name in declared.kept_names(each)}
        absent = declared.names - kept
        leaving = (item for item in self._leave(resources, kept) if item.made)
        earlier = (item for item in resources.left if item.gone and item.made)
        return [
            msgspec.structs.replace(item, gone=True)
            for item in (*leaving, *earlier)
            if item.reference in absent
        ]

    def _taken(self, bundle: str, declared: Declared, on_trial: Collection[str]) -> list[Left]:
        """Return the leftovers of a bundle that only other bundles on trial declare."""
        others = {*on_trial} - {bundle}
        resources = self._bundles.get(bundle)
        if not others or resources is None or bundle in declared.incomplete:
            return []
        names = declared.names_without(others) | self._declared_elsewhere(declared)
        new = self._leave(resources, names) if bundle in declared.declarations else ()
        leftovers = (*new, *(item for item in resources.left if item.reference not in names))
        return [
            msgspec.structs.replace(item, taken=True)
            for item in leftovers
            if item.reference in declared.names
        ]

    def _resources(
        self,
        bundle: str,
        declared: Declared,
        events: Sequence[Event],
        made: Collection[str],
        left: list[Left],
        shared: Collection[str],
    ) -> Resources:
        before = self._bundles.get(bundle, Resources())
        names, removed = [*declared.kept_names(bundle)], _removed(bundle, declared)
        paths = [*declared.kept_paths(bundle)]
        subscribers = {}
        if declared.subscribers:
            subscribers = {name: result for name in names if (result := declared.subscribers.get(name))}
        if bundle in declared.incomplete:  # its earlier resources may still be declared
            here = {*names}
            remainder = [index for index, name in enumerate(before.declared) if name not in here]
            names += [before.declared[index] for index in remainder]
            removed += "".join(before.removed[index] for index in remainder)
            paths = sorted({*paths, *before.paths})
        if names == before.declared and _UNKNOWN not in before.origins:
            origins = before.origins
        else:
            seen = {event.reference for event in events if event.state in SEEN} - {*shared}
            origins = "".join(self._origin(name, seen, made) for name in names)
        return Resources(names, removed, origins, subscribers, left, paths)

    def _origin(self, reference: str, seen: Collection[str], made: Collection[str]) -> str:
        known = self._origins.get(reference) or self._origins.get(self._renamed.get(reference, ""))
        if known is not None:
            return known
        if reference in made:
            return _MADE
        return _FOUND if reference in seen else _UNKNOWN

    def passed(self, bundle: str) -> None:
        """Discard removed and taken resources of a bundle that has passed its trial. They can no longer return."""
        declared = {*self._bundles.get(bundle, Resources()).declared}
        bundles = dict(self._bundles)
        for name, resources in self._bundles.items():
            leftovers = [
                item
                for item in resources.left
                if not (item.gone and name == bundle) and not (item.taken and item.reference in declared)
            ]
            if len(leftovers) < len(resources.left):
                bundles[name] = msgspec.structs.replace(resources, left=leftovers)
        if bundles != self._bundles:
            self._save(bundles)

    # Requests of the operator

    def forget(self, bundle: str) -> None:
        """Remove the record of a bundle. Its resources are unmanaged from now on."""
        if bundle in self._bundles:
            self._save({name: each for name, each in self._bundles.items() if name != bundle})

    def forget_leftovers(self, bundle: str, references: Collection[str] = ()) -> list[Left]:
        """Remove leftovers of a bundle from the record, or only ``references``. Return the removed leftovers."""
        resources = self._bundles.get(bundle, Resources())
        forgotten = [item for item in self.left(bundle) if not references or item.reference in references]
        if forgotten:
            leftovers = [item for item in resources.left if item not in forgotten]
            self._save({**self._bundles, bundle: msgspec.structs.replace(resources, left=leftovers)})
        return forgotten

    def _save(self, bundles: dict[str, Resources]) -> None:
        self._bundles, self._is_changed = bundles, False
        self.__dict__.pop("_origins", None)
        if not self._noop:
            self._file.save(_Document(bundles=bundles))
            self._makings.unlink(missing_ok=True)
