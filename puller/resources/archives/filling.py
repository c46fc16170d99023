"""Filling a directory from an archive, with what is known of the archives before.

* An archive *supersedes* those that were put there for the same ``creates``; without it, those of its own path. What
  they had and it has not is removed at the end, as far as nobody has changed it and nothing else that is wanted has it.
* An archive that replaces a file of another one is put in place as well, and the other is no longer in order. Two that
  are declared side by side would do so for ever, so the second is refused.
* The receipt speaks of everything that a directory may hold, at each moment at which a run may be killed.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

import msgspec

from puller.errors import ResourceError
from puller.resources.archives.archive_receipts import (
    Filling,
    Made,
    Members,
    Place,
    Receipts,
    Removable,
    has_one_purpose,
)
from puller.resources.archives.placing import Unpacked
from puller.resources.owned_paths import OwnedPaths


class Contents(Protocol):
    """The members of an archive, beside what is in the directory that it is for."""

    members: Members

    def differs(self, path: str) -> bool:
        """Whether another file or link than the archive's is at ``path`` now."""

    def refuse_in_the_way(self, removable: Removable) -> None:
        """Raise ``ResourceError`` when something is in the way, unless it is as the archives before have made it."""


class Surroundings(msgspec.Struct, frozen=True):
    """The circumstances of a filling: where, in which words, and beside what an archive is put in place."""

    parent: str
    """The directory, as it is declared."""
    beside: Collection[str]
    """The other archives that this run takes care of."""
    owned: Callable[[], OwnedPaths] = OwnedPaths
    """Returns the paths below the directory that belong to other resources."""


class Plan:
    """The fate of the archives before. Raises ``ResourceError`` when the new one cannot be put in place."""

    def __init__(self, receipts: Receipts, filling: Filling, new: Contents, around: Surroundings) -> None:
        self.place = receipts.place(around.parent)
        self.members = {other.key: receipts.members(self.place, other) for other in self.place.fillings}
        self.others = [other for other in self.place.fillings if other.key != filling.key]
        self._filling, self._new, self._around = filling, new, around
        self._creates = self._below(filling.creates)
        """Where ``creates`` is below the directory."""
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
        kept = [other for other in self.others if other not in self.superseded]
        self.removable = self._find_removable(kept)
        self.leftovers = [path for path in self.removable if path not in new.members]
        self.overlaid = [other for other in kept if self._overlays(other)]
        new.refuse_in_the_way(self.removable)

    def _brings_creates(self, members: Members | None) -> bool:
        """Whether ``creates`` is among what an archive brings, or goes through a link that it brings."""
        if members is None:
            return True
        if not self._creates:
            return not self._filling.creates
        parts = self._creates.split("/")
        above = (members.get("/".join(parts[:count])) for count in range(1, len(parts)))
        return self._creates in members or any(made is not None and made.kind == "link" for made in above)

    def _find_removable(self, kept: Iterable[Filling]) -> Removable:
        """All that was put in place by what is superseded alone, and that no other resource takes care of."""
        wanted = {path for other in kept for path in self.members[other.key] or ()}
        owned = self._around.owned() if self.superseded else OwnedPaths()
        found: Mapping[str, list[Made]] = defaultdict(list)
        for other in self.superseded:
            for path, made in (self.members[other.key] or {}).items():
                if path not in wanted and not owned.is_touched_by(path):
                    found[path].append(made)
        return found

    def _overlays(self, other: Filling) -> bool:
        """Whether a file or link of another archive would become another one."""
        theirs = self.members[other.key]
        if theirs is None:
            return other.archive not in self._around.beside
        both = (
            path for path, made in self._new.members.items() if made.kind != "directory" and path in theirs
        )
        clash = next((path for path in both if self._new.differs(path)), None)
        if clash is not None and other.archive in self._around.beside:
            what = f"is another one in {other.archive}, which is declared for this directory, too"
            raise ResourceError(f"{os.path.join(self._around.parent, clash)} {what}")
        return clash is not None

    def after(self, filling: Filling) -> list[Filling]:
        """The archives before, as they are when the new one has replaced their files."""
        replaced = [*self.superseded, *self.overlaid]
        return [
            msgspec.structs.replace(other, replaced_by=filling.archive) if other in replaced else other
            for other in self.others
        ]

    def _below(self, path: str) -> str:
        """``path`` below the directory, by either of its names; empty when it is elsewhere."""
        for directory in (self._around.parent, self.place.directory):
            if path.startswith(above := f"{directory.rstrip('/')}/"):
                return path.removeprefix(above)
        return ""


class Filled(msgspec.Struct, frozen=True):
    """An archive that was put in place, when only the receipt is not finished yet."""

    filling: Filling
    plan: Plan
    changed: list[str]
    """What is left over, and stays because it was changed since."""


def fill(receipts: Receipts, filling: Filling, new: Unpacked, around: Surroundings) -> Filled:
    """Put an archive in place, and remove what is left over.

    1. Plan: what is replaced, what is left over, what is in the way.
    2. Say *begun* on the receipt, and of the archives before that they are *replaced*: from here on the directory is
       neither what it was nor what it is to be, and a run that is killed is found out by the next one.
    3. Put everything in its place.
    4. Remove what is left of the archives before.
    5. Require what the archive is said to bring.

    ``finish`` comes after. Raises ``ResourceError`` when it cannot be put in place, and then has changed nothing;
    ``OSError``.
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
    """Say so on the receipt; to be done when the private directory is gone, which otherwise nobody would remove."""
    plan, filling = filled.plan, msgspec.structs.replace(filled.filling, finished=True)
    gone = [other for other in plan.others if other in plan.superseded or _is_gone(other, plan.place)]
    kept = [other for other in plan.after(filling) if other.key not in {one.key for one in gone}]
    for other in gone:  # before the receipt is: otherwise nobody would know of them after a kill
        receipts.forget_members(plan.place, other)
    _save(receipts, plan.place, [*kept, filling])


def without_creates(filling: Filling) -> ResourceError:
    """The error for an archive without what it is said to bring."""
    return ResourceError(f"creates is {filling.creates}, and the archive does not bring it")


def _save_begun(receipts: Receipts, plan: Plan, filling: Filling, new: Unpacked) -> None:
    """From here on, what is in place is neither what was there before nor what is to be there."""
    ours = {path for members in plan.members.values() for path in members or ()}
    foreign = new.joined() - ours  # directories that were there, and stay when nothing is left in them
    made_by_us = {path: made for path, made in new.members.items() if path not in foreign}
    _save(receipts, plan.place, [*plan.after(filling), filling])
    receipts.save_members(plan.place, filling, made_by_us)


def _is_gone(other: Filling, place: Place) -> bool:
    """Whether nothing is left of what an archive had put there; one that was only begun is waited for."""
    paths = [os.path.join(place.directory, entry) for entry in other.entries]
    return bool(paths) and not any(map(os.path.lexists, paths))


def _save(receipts: Receipts, place: Place, fillings: Iterable[Filling]) -> None:
    receipts.save(msgspec.structs.replace(place, fillings=tuple(fillings)))
