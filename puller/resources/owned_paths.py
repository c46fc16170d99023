"""Paths below a directory that belong to resources: those that others keep, and those that a resource has created.

Owned paths survive the purge or removal of a directory:

* A purge, a tree, a scaffold, and the removal or replacement of a directory use this module.
* Each type states its paths (``Resource.places``, ``claims``, ``fills``, ``tool_paths``). Paths are compared in
  canonical form, and links that lead to an owned path are owned as well.
* Puller's own state, mount points, and the paths of bundles that this run does not apply are owned. So are leftovers
  with a user's work, because their removal would keep the work.

Receipts list the files that a resource created below a directory, for their removal:

* A file or directory is recorded before it is created, a file with the checksum of its content. A file that was
  changed later no longer counts as the resource's own.
* Files that existed before the resource are never recorded, even if the resource replaced their content.
* A damaged or unknown receipt is set aside. Its files stay.
* Removal needs the receipt only. Changed files, directories with content, and paths of other resources stay.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple
from urllib.parse import quote

import msgspec

from foundation.differences import ABSENT, Difference, presence
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.base import Context, Part, Properties, Resource
from puller.resources.claims import Claim, Use
from puller.resources.content_sources import sha256
from puller.resources.paths import parents, printable
from puller.resources.registry import find_remover
from puller.state import Directories, StateFile
from puller.system import local_paths
from puller.system.local_paths import RealPaths
from puller.system.protocol import System
from puller.values import common_properties

_AT_THE_LINK = frozenset({"file", "link"})
"""Types that never follow a link at their path."""
_WITH_WORK = frozenset({"archive", "checkout"})
"""Types whose leftovers may contain a user's work (``Resource.work_left``)."""
_MOST_NAMED = 5


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
    """Directories with contents that only their resource can list."""
    mounted: frozenset[str] = frozenset()
    """Mount points."""
    with_work: Mapping[str, str] = {}
    """Paths of leftovers that contain a user's work, each with the reason."""
    around: str = ""
    """Why the directory itself is not purged: it is a part of a leftover that contains work. Usually empty."""
    owners: Mapping[str, tuple[Owner, ...]] = {}
    """Claims by path."""

    def is_owned(self, path: str) -> bool:
        """Return whether a path, with everything below it, belongs to another resource."""
        return path in self.places or path in self.filled or path in self.mounted or path in self.with_work

    def is_kept(self, path: str) -> bool:
        """Return whether a path stays when the rest of the directory is removed."""
        return path in self.above or self.is_owned(path)

    def is_touched_by(self, path: str) -> bool:
        """Return whether a path is kept, or is below a path of another resource."""
        return self.is_kept(path) or any(map(self.is_owned, parents(path)))

    def notes(self, root: str) -> list[str]:
        """Return sentences about the leftovers that a purge of ``root`` leaves."""
        if not self.with_work:
            return []
        first, *additional = sorted(self.with_work.items())[:_MOST_NAMED]
        remainder = len(self.with_work) - len(additional) - 1
        named = [f"{root}/{printable(path)} {reason}, so it stays" for path, reason in (first, *additional)]
        return [*named, *([f"{remainder} more paths of leftovers stay"] if remainder else [])]

    def refuse_around(self, root: str) -> None:
        """Raise ``ResourceError`` if the directory itself is a part of a leftover that contains work."""
        if self.around:
            raise ResourceError(f"{root} is not purged: {self.around}", code=ProblemCode.CHANGE_REFUSED)


def owned_below(root: str, context: Context, reference: str, *, spares_work: bool = True) -> OwnedPaths:
    """Return the paths below ``root`` that belong to other resources than ``reference``.

    With ``spares_work``, this includes leftovers that contain a user's work. The removal of a leftover does not need
    it, because it removes only its own files.

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
    leftovers = [each for each in context.leftovers() if each != reference] if spares_work else ()
    work = _work_near(above, leftovers, context, known.real) if leftovers else {}
    with_work = {path.removeprefix(above): reason for path, reason in work.items() if path.startswith(above)}
    around = next((f"{path} {why}" for path, why in work.items() if above.startswith(f"{path}/")), "")
    leading = frozenset(directory for path in (*places, *filled, *with_work) for directory in parents(path))
    return OwnedPaths(frozenset(places), leading, filled, mounted, with_work, around, owners)


def _work_near(above: str, leftovers: Iterable[str], context: Context, real: RealPaths) -> Mapping[str, str]:
    """Return the paths of leftovers with work at, above or below a directory, each with the reason."""
    work: dict[str, str] = {}
    state = context.state_directory or Directories.of_user().state
    for type_name, _, name in (reference.partition("#") for reference in leftovers):
        remover = find_remover(type_name) if type_name in _WITH_WORK else None
        if remover is None:
            continue
        properties = remover.properties_type(name=name, ensure=str(common_properties.ABSENT))
        places = [f"{real.directory(path)}/" for path in remover.occupies(properties, state)]
        if any(place.startswith(above) or above.startswith(place) for place in places):
            result = remover(properties, context).work_left()
            work.update((real.of(path), reason) for path, reason in result.items())
    return work


def refuse_owned_below(path: str, context: Context, reference: str, verb: str) -> None:
    """Raise ``ResourceError`` if another resource owns something below a directory that is to be ``verb``."""
    owned = owned_below(path, context, reference)
    for place, reason in owned.with_work.items():
        raise ResourceError(
            f"{path} cannot be {verb}: {path}/{printable(place)} {reason}", code=ProblemCode.CHANGE_REFUSED
        )
    for place in sorted(owned.places | owned.filled):
        owners = owned.owners.get(place, ())
        is_to_go = any(owner.claim.use is Use.ABSENT for owner in owners)
        if not is_to_go and context.system.exists(f"{path}/{place}"):
            name = next((owner.reference for owner in owners), "another resource")
            raise ResourceError(
                f"{path} cannot be {verb}: {name} keeps {path}/{place}", code=ProblemCode.CHANGE_REFUSED
            )


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
        resources = context.resources()
        links = {
            resource.properties.name: resource.properties.target
            for resource in resources
            if resource.reference.startswith("link#") and _is_link(resource)
        }
        real = RealPaths(links)
        places = [owned for resource in resources for owned in _places(resource, real)]
        filled = [
            _OwnedPath(place, resource.reference)
            for resource in resources
            for path in resource.type.fills(resource.properties)
            for place in {real.of(path), real.directory(path)}
        ]
        declared = (resource for resource in resources if resource.reference.startswith("link#"))
        filled += [_OwnedPath(real.of(resource.properties.name), resource.reference) for resource in declared]
        own = [] if context.state_directory is None else [str(context.state_directory)]
        filled += [_OwnedPath(real.of(path)) for path in (*context.elsewhere(), *own)]
        return cls(changes, real, places, filled, local_paths.mount_points())


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


SCAFFOLDS, TREES = "scaffolds", "trees"
"""The folders of receipts, one for each kind of resource."""

_LARGEST = 64 * 1024 * 1024  # bytes
_LONGEST_NAME = 200  # bytes; file systems allow 255


class Receipt(msgspec.Struct, omit_defaults=True, tag_field="format", tag=1):
    """The files and directories that a resource created. Paths are relative to ``root``."""

    target: str
    root: str = ""
    """The canonical path of the target."""
    files: dict[str, str] = {}
    """The SHA-256 of the written content, by path."""
    directories: list[str] = []
    """The empty path is the target itself."""


class Receipts:
    """The receipt of one resource, in the folder ``kind``. Methods raise ``OSError``."""

    def __init__(self, kind: str, target: str, state_directory: Path | None, *, noop: bool = False) -> None:
        directory = (state_directory or Directories.of_user().state) / kind
        name = quote(target, safe="")
        if len(name) > _LONGEST_NAME:
            name = sha256([target.encode()])
        self._file = StateFile(directory / f"{name}.json", Receipt, "", largest=_LARGEST)
        self._target, self._noop = target, noop

    @property
    def path(self) -> str:
        """The path of the receipt. A rollback of the resource also restores this file."""
        return str(self._file.path)

    def load(self) -> Receipt:
        """Return the receipt, or an empty one if it is missing or invalid."""
        result = self._file.load(lambda sentence: None, noop=self._noop)
        return result if result is not None and result.target == self._target else Receipt(self._target)

    def note(
        self, root: str, made: Iterable[str], directories: Iterable[str], written: Mapping[str, str]
    ) -> None:
        """Record paths that are about to be ``made`` in ``root``, and own files that are about to be ``written``.

        ``written`` has the SHA-256 of each new content.
        """
        before, new = self.load(), {*made}
        files = {path: digest for path, digest in before.files.items() if os.path.lexists(f"{root}/{path}")}
        files |= {path: digest for path, digest in written.items() if path in files or path in new}
        retained = [path for path in before.directories if os.path.isdir(f"{root}/{path}")]
        retained = [*dict.fromkeys((*retained, *directories))]
        receipt = Receipt(self._target, root, files, retained)
        if receipt != before and (files or retained):
            self._file.save(receipt)

    def forget(self) -> None:
        """Remove the receipt, because none of its files remain."""
        self._file.remove()


def is_own_directory(path: str, context: Context) -> bool:
    """Return whether Puller has created a directory, for a resource that creates its first file there.

    The receipt of a tree or scaffold at the path decides. Without a receipt, the record of created resources decides.
    """
    folders = (
        Receipts(kind, path, context.state_directory, noop=context.noop) for kind in (TREES, SCAFFOLDS)
    )
    receipts = [receipt for folder in folders if (receipt := folder.load()).root]
    return any("" in receipt.directories for receipt in receipts) or (
        not receipts and context.is_created_at(path)
    )


def own_file(system: System, root: str, path: str, receipt: Receipt) -> os.stat_result | None:
    """Return the ``lstat`` of a file that the resource created and that is unchanged, else ``None``."""
    for above in (root, *(f"{root}/{directory}" for directory in parents(path))):
        status = system.lstat(above)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return None
    status = system.lstat(f"{root}/{path}")
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return status if sha256(system.read_chunks(f"{root}/{path}")) == receipt.files[path] else None


# Removal of an undeclared tree. Works from the receipt and does not need the source.


class LeftoverTreeState(msgspec.Struct, frozen=True):
    """Leftover files of a tree, relative to its target, and directories, the innermost first."""

    receipt: Receipt
    exists: bool
    """Whether any path of the receipt exists, changed or not. Without a receipt: whether the target exists."""
    files: dict[str, os.stat_result] = {}
    directories: dict[str, os.stat_result] = {}


class LeftoverFiles(Resource[Properties, LeftoverTreeState]):
    """Leftover files and directories of a resource. The desired state is ``absent``."""

    properties_type = Properties
    receipts: ClassVar[str]
    """The folder of the receipts."""
    noun: ClassVar[str]
    """The name of the files in messages."""

    def look(self) -> LeftoverTreeState:
        receipt, system = self._receipts.load(), self.context.system
        if not receipt.root:
            return LeftoverTreeState(receipt, system.lstat(self.properties.name) is not None)
        reference = f"{self.type_name}#{self.properties.name}"
        owned = owned_below(receipt.root, self.context, reference, spares_work=False)
        files = {}
        for path in receipt.files:
            is_kept = owned.is_touched_by(path)
            if not is_kept and (result := own_file(system, receipt.root, path, receipt)):
                files[path] = result
        exists = any(
            os.path.lexists(self._path(receipt, path)) for path in (*receipt.files, *receipt.directories)
        )
        return LeftoverTreeState(receipt, exists, files, self._emptied(receipt, files, owned))

    def _emptied(
        self, receipt: Receipt, files: dict[str, os.stat_result], owned: OwnedPaths
    ) -> dict[str, os.stat_result]:
        """Return the directories that contain only paths to be removed."""
        going = {self._path(receipt, path) for path in files}
        emptied = {}
        for path in sorted(receipt.directories, reverse=True):
            place, system = self._path(receipt, path), self.context.system
            status = system.lstat(place)
            if status is None or not stat.S_ISDIR(status.st_mode) or owned.is_touched_by(path):
                continue
            if all(f"{place}/{name}" in going for name, _ in system.children(place)):
                emptied[path] = status
                going.add(place)
        return emptied

    def differences(self, actual: LeftoverTreeState, *, refresh: bool = False) -> Sequence[Difference]:
        del refresh
        files = [presence("present", ABSENT, printable(path)) for path in actual.files]
        directories = (printable(path) for path in actual.directories)
        return [*files, *(presence("a directory", ABSENT, path) for path in directories)]

    def change(self, differences: Sequence[Difference], actual: LeftoverTreeState) -> None:
        del differences
        receipt, system = actual.receipt, self.context.system
        with system.removing(receipt.root):
            for path, found in actual.files.items():
                system.remove(self._path(receipt, path), found, within=receipt.root)
            for path in actual.directories:
                place = self._path(receipt, path)
                if (now := system.lstat(place)) is not None:  # its timestamps have changed
                    system.remove(place, now, within=receipt.root if path else "")
        if not self.look().exists:
            self._receipts.forget()

    def noop_message(self, differences: Sequence[Difference], actual: LeftoverTreeState) -> str:
        del differences
        for path in (*actual.files, *actual.directories):
            self.context.system.expect(self._path(actual.receipt, path), "absent")
        return f"Would have removed {len(actual.files)} {self.noun}"

    def final_ensure(self, actual: LeftoverTreeState) -> str:
        return "present" if actual.exists else "absent"

    def changed_paths(self, actual: LeftoverTreeState) -> Sequence[str]:
        return [
            self._receipts.path,
            *(self._path(actual.receipt, path) for path in (*actual.directories, *actual.files)),
        ]

    @classmethod
    def fills(cls, properties: Properties) -> tuple[str]:
        return (properties.name,)

    @staticmethod
    def _path(receipt: Receipt, path: str) -> str:
        return f"{receipt.root}/{path}" if path else receipt.root

    @property
    def _receipts(self) -> Receipts:
        return Receipts(
            self.receipts, self.properties.name, self.context.state_directory, noop=self.context.noop
        )
