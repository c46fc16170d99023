"""Moving an unpacked archive into a directory that may have other contents, with the records of earlier archives.

* Conflicts are detected before the first member is moved.
* Files replace files, and directories are merged. A file and a directory replace each other only if the old one is a
  leftover of an earlier archive. Links in the directory are never followed.
* An archive *supersedes* archives with the same ``creates``, or without it, archives of its own path. Their members
  that it lacks are removed at the end, unless they have changed or belong to another archive or resource.
* An archive may replace a file of another archive, which is then out of sync. Two archives that are declared for the
  same directory would replace each other in every run, so the second is refused.
* The receipt lists all possible contents of the directory, even if a run is killed at any moment.
"""

import os
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from bundles.filesystem.trees import kind_of, sync_filesystem
from foundation.problems import ProblemCode
from puller.errors import ResourceError
from puller.resources.archives.archive_receipts import (
    Filling,
    Made,
    Members,
    Place,
    Receipts,
    Removable,
    attributes_at,
    digest_at,
    everything_below,
    has_one_purpose,
    is_all_removable,
    opened,
    remove,
    stat_at,
)
from puller.resources.archives.members import needing_space
from puller.resources.owned_paths import OwnedPaths

_KINDS = {"file": "a regular file", "link": "a symbolic link", "directory": "a directory"}


class Unpacked:
    """The members of an archive in a private directory, on the file system of their destination.

    ``staging`` and ``target`` are open. ``where`` is the path of the target, for messages.
    """

    def __init__(self, staging: int, target: int, where: str) -> None:
        self._staging = staging
        self._target = target
        self._where = where
        self._device = os.fstat(target).st_dev
        self._in_the_way: list[str] = []
        self.entries = tuple(sorted(os.listdir(staging)))
        """Top-level names."""
        self.members: Members = dict(everything_below(staging))

    def joined(self) -> set[str]:
        """Return the existing directories, which stay unchanged."""
        directories = [path for path, made in self.members.items() if made.kind == "directory"]
        return {path for path in directories if attributes_at(self._target, path) == Made("directory")}

    def differs(self, path: str) -> bool:
        """Return whether the file or link at ``path`` differs from the archive's."""
        return is_another(self._target, path, self.members[path], lambda: digest_at(self._staging, path))

    def refuse_in_the_way(self, removable: Removable) -> None:
        """Raise ``ResourceError`` for another file type in the way, unless it is an unchanged earlier member."""
        self._in_the_way = list(self._find_obstacles(self._staging, self._target, "", removable))

    def put(self, removable: Removable) -> None:
        """Move all members into place."""
        # One sync for all files instead of an fsync for each of up to half a million files.
        sync_filesystem(self._staging)
        for path in self._in_the_way:
            below = [other for other in removable if other == path or other.startswith(f"{path}/")]
            remove(self._target, below, removable)
        with needing_space(self._where, self._target, "the directories of the archive", lambda: None):
            _move(self._staging, self._target)

    def remove(self, paths: Iterable[str], removable: Removable) -> list[str]:
        """Remove leftovers of earlier archives. Returns changed paths, which stay."""
        changed = remove(self._target, paths, removable)
        sync_filesystem(self._target)  # before the receipt omits them
        return changed

    def _find_obstacles(self, new: int, old: int, above: str, removable: Removable) -> Iterator[str]:
        for name in os.listdir(new):
            mine, there, path = stat_at(new, name), stat_at(old, name), above + name
            if mine is None or there is None:
                continue
            # A rename cannot cross a mount point, and would fail after some members are already in place.
            if there.st_dev != self._device:
                detail = f"is on another file system than {self._where}, and is not replaced"
                raise ResourceError(
                    f"{os.path.join(self._where, path)} {detail}", code=ProblemCode.CHANGE_REFUSED
                )
            if stat.S_ISDIR(mine.st_mode) != stat.S_ISDIR(there.st_mode):
                if not is_all_removable(self._target, path, removable):
                    raise in_the_way(self._where, path, there.st_mode, self.members[path].kind)
                yield path
            elif stat.S_ISDIR(mine.st_mode):
                with opened(new, name) as inner, opened(old, name) as outer:
                    yield from self._find_obstacles(inner, outer, f"{path}/", removable)


def is_another(target: int, path: str, expected: Made, digest: Callable[[], str]) -> bool:
    """Return whether ``path`` exists and differs from ``expected``. Calls ``digest`` only for files of equal size."""
    there = attributes_at(target, path)
    if there is None:
        return False
    if (there.kind, there.size, there.target) != (expected.kind, expected.size, expected.target):
        return True
    return expected.kind == "file" and digest() != digest_at(target, path)


def in_the_way(where: str, path: str, there: int, expected: str) -> ResourceError:
    """Return the error for a directory in place of a file, or the reverse. ``there`` is an ``st_mode``."""
    detail = f"is {kind_of(there)}, the archive has {_KINDS[expected]} there"
    return ResourceError(f"{os.path.join(where, path)} {detail}", code=ProblemCode.CHANGE_REFUSED)


def _move(source: int, target: int) -> None:
    for name in os.listdir(source):
        new = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISDIR(new.st_mode) and stat_at(target, name) is not None:
            # An existing directory keeps its owner, mode and other contents.
            with opened(source, name) as inner, opened(target, name) as outer:
                _move(inner, outer)
        else:
            os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
    os.fsync(target)


class Contents(Protocol):
    """The members of an archive, for comparison with a directory."""

    members: Members

    def differs(self, path: str) -> bool:
        """Return whether the file or link at ``path`` differs from the archive's."""

    def refuse_in_the_way(self, removable: Removable) -> None:
        """Raise ``ResourceError`` for another file type in the way, unless it is an unchanged earlier member."""


class Surroundings(msgspec.Struct, frozen=True):
    """The directory of an extraction, and other owners of paths in it."""

    parent: str
    """The directory as declared."""
    beside: Collection[str]
    """Other archives that this run manages."""
    owned: Callable[[], OwnedPaths] = OwnedPaths
    """Returns the paths below the directory that belong to other resources."""


class Plan:
    """Earlier archives, and how the extraction affects each one. Raises ``ResourceError`` if it is impossible."""

    def __init__(self, receipts: Receipts, filling: Filling, new: Contents, around: Surroundings) -> None:
        self.place = receipts.place(around.parent)
        self.members = {other.key: receipts.members(self.place, other) for other in self.place.fillings}
        self.others = [other for other in self.place.fillings if other.key != filling.key]
        self._filling, self._new, self._around = filling, new, around
        self._creates = self._below(filling.creates)
        """The path of ``creates`` below the directory."""
        rivals = [
            other
            for other in self.others
            if other.archive not in around.beside and has_one_purpose(other, filling)
        ]
        if any(
            self._brings_creates(self.members[other.key]) for other in rivals
        ) and not self._brings_creates(new.members):
            raise without_creates(filling)
        self.superseded = [other for other in rivals if self._brings_creates(self.members[other.key])]
        retained = [other for other in self.others if other not in self.superseded]
        self.removable = self._find_removable(retained)
        self.leftovers = [path for path in self.removable if path not in new.members]
        self.overlaid = [other for other in retained if self._overlays(other)]
        new.refuse_in_the_way(self.removable)

    def _brings_creates(self, members: Members | None) -> bool:
        """Return whether the members of an archive include ``creates``, or a link that its path goes through."""
        if members is None:
            return True
        if not self._creates:
            return not self._filling.creates
        components = self._creates.split("/")
        above = (members.get("/".join(components[:count])) for count in range(1, len(components)))
        return self._creates in members or any(made is not None and made.kind == "link" for made in above)

    def _find_removable(self, retained: Iterable[Filling]) -> Removable:
        """Return all members that only superseded archives have, and that no other resource owns."""
        desired = {path for other in retained for path in self.members[other.key] or ()}
        owned = self._around.owned() if self.superseded else OwnedPaths()
        removable: Mapping[str, list[Made]] = defaultdict(list)
        for other in self.superseded:
            for path, made in (self.members[other.key] or {}).items():
                if path not in desired and not owned.is_touched_by(path):
                    removable[path].append(made)
        return removable

    def _overlays(self, other: Filling) -> bool:
        """Return whether the new archive would change a file or link of another archive."""
        theirs = self.members[other.key]
        if theirs is None:
            return other.archive not in self._around.beside
        both = (
            path for path, made in self._new.members.items() if made.kind != "directory" and path in theirs
        )
        clash = next((path for path in both if self._new.differs(path)), None)
        if clash is not None and other.archive in self._around.beside:
            detail = f"is another one in {other.archive}, which is declared for this directory, too"
            raise ResourceError(f"{os.path.join(self._around.parent, clash)} {detail}")
        return clash is not None

    def after(self, filling: Filling) -> list[Filling]:
        """Return the earlier archives after the new one has replaced their files."""
        replaced = [*self.superseded, *self.overlaid]
        return [
            msgspec.structs.replace(other, replaced_by=filling.archive) if other in replaced else other
            for other in self.others
        ]

    def _below(self, path: str) -> str:
        """Return ``path`` relative to the directory, by either of its paths. Empty if it is elsewhere."""
        for directory in (self._around.parent, self.place.directory):
            if path.startswith(above := f"{directory.rstrip('/')}/"):
                return path.removeprefix(above)
        return ""


class Filled(msgspec.Struct, frozen=True):
    """An archive that was moved into place, with an unfinished receipt."""

    filling: Filling
    plan: Plan
    changed: list[str]
    """Leftover paths that stay because they have changed."""


def fill(receipts: Receipts, filling: Filling, new: Unpacked, around: Surroundings) -> Filled:
    """Move an archive into place and remove leftovers.

    1. Plan: replaced members, leftovers, and conflicts.
    2. Mark the archive as *begun* in the receipt, and earlier archives as *replaced*. If the run is killed after this
       step, the next run detects the incomplete directory.
    3. Move all members into place.
    4. Remove leftovers of earlier archives.
    5. Verify that ``creates`` exists.

    Call ``finish`` afterwards. Raises ``OSError``, and ``ResourceError`` for a conflict (before any change) or a
    missing ``creates``.
    """
    # 1. Plan
    plan = Plan(receipts, filling, new, around)
    filling = msgspec.structs.replace(filling, entries=new.entries)
    # 2. Begun
    _save_begun(receipts, plan, filling, new)
    # 3. Place
    new.put(plan.removable)
    # 4. Remove
    changed = new.remove(plan.leftovers, plan.removable)
    # 5. Require
    if filling.creates and not os.path.exists(filling.creates):
        raise without_creates(filling)
    return Filled(filling, plan, changed)


def finish(receipts: Receipts, filled: Filled) -> None:
    """Mark the extraction as finished. Call it after the removal of the private directory.

    In the other order, a killed run would leave the private directory, because the next run only repeats unfinished
    extractions.
    """
    plan, filling = filled.plan, msgspec.structs.replace(filled.filling, finished=True)
    gone = [other for other in plan.others if other in plan.superseded or _is_gone(other, plan.place)]
    retained = [other for other in plan.after(filling) if other.key not in {item.key for item in gone}]
    for other in gone:  # before the receipt, because no later run could find them after a kill
        receipts.forget_members(plan.place, other)
    _save(receipts, plan.place, [*retained, filling])


def without_creates(filling: Filling) -> ResourceError:
    """Return the error for an archive without its ``creates``."""
    return ResourceError(f"creates is {filling.creates}, and the archive does not bring it")


def _save_begun(receipts: Receipts, plan: Plan, filling: Filling, new: Unpacked) -> None:
    """Mark the extraction as begun in the receipt, and save its members."""
    ours = {path for members in plan.members.values() for path in members or ()}
    foreign = new.joined() - ours  # existing directories, which stay even when they become empty
    made_by_us = {path: made for path, made in new.members.items() if path not in foreign}
    _save(receipts, plan.place, [*plan.after(filling), filling])
    receipts.save_members(plan.place, filling, made_by_us)


def _is_gone(other: Filling, place: Place) -> bool:
    """Return whether all paths of an archive are missing. An extraction that has only begun does not count."""
    paths = [os.path.join(place.directory, entry) for entry in other.entries]
    return bool(paths) and not any(map(os.path.lexists, paths))


def _save(receipts: Receipts, place: Place, fillings: Iterable[Filling]) -> None:
    receipts.save(msgspec.structs.replace(place, fillings=tuple(fillings)))
