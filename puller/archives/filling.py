"""Filling a directory from an archive, with what is known of the archives before.

* An archive *supersedes* those that were put there for the same ``creates``; without it, those of its own path. What
  they had and it has not is removed at the end, as far as nobody has changed it and nothing else that is wanted has it.
* An archive that replaces a file of another one is put in place as well, and the other is no longer in order. Two that
  are declared side by side would do so for ever, so the second is refused.
* The receipt speaks of everything that a directory may hold, at each moment at which a run may be killed.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterator

import msgspec

from puller.archives.extract import Unpacked
from puller.archives.leftovers import Removable
from puller.archives.receipts import Filling, Made, Members, Receipts, has_one_purpose
from puller.errors import ResourceError


class Filler:
    """Puts one archive into a directory; ``filling`` says which, as it is when it is done.

    ``beside`` are the other archives that this run takes care of, ``managed`` the paths of its files.
    """

    def __init__(
        self,
        receipts: Receipts,
        filling: Filling,
        unpacked: Unpacked,
        beside: Collection[str],
        managed: Collection[str],
        where: str,
    ) -> None:
        self._receipts = receipts
        self._filling = msgspec.structs.replace(filling, entries=unpacked.entries, finished=True)
        self._unpacked = unpacked
        self._beside = beside
        self._managed = managed
        self._where = where
        self._place = receipts.place(where)
        self._sign = _below(filling.creates, where, self._place.directory)
        """Where ``creates`` is below the directory."""
        self._others = [other for other in self._place.fillings if other.key != filling.key]
        self._members = {other.key: receipts.members(self._place, other) for other in self._place.fillings}

    def fill(self) -> list[str]:
        """Put it in place, and remove what is left over; gives the paths of what is left over and was changed since.

        Raises ``ResourceError`` when it cannot be put in place, and then has changed nothing; ``OSError``.
        """
        superseded = [other for other in self._others if self._supersedes(other)]
        kept = [other for other in self._others if other not in superseded]
        removable = self._removable(superseded, kept)
        leftovers = [path for path in removable if path not in self._unpacked.members]
        self._refuse_to_lose_the_sign(leftovers)
        overlaid = [other for other in kept if self._overlays(other)]
        self._unpacked.require_room(removable)
        self._begin(superseded + overlaid)
        self._unpacked.put(removable)
        changed = self._unpacked.remove(leftovers, removable)
        self._finish(superseded)
        return changed

    def _supersedes(self, other: Filling) -> bool:
        if other.archive in self._beside or not has_one_purpose(other, self._filling):
            return False
        theirs = self._members[other.key]
        return self._has_sign(self._unpacked.members) and (theirs is None or self._has_sign(theirs))

    def _has_sign(self, members: Members) -> bool:
        """Whether ``creates`` is among what an archive brings, or goes through a link that it brings."""
        if not self._sign:
            return not self._filling.creates
        parts = self._sign.split("/")
        links = (members.get("/".join(parts[:count])) for count in range(1, len(parts)))
        return self._sign in members or any(made is not None and made.kind == "link" for made in links)

    def _removable(self, superseded: list[Filling], kept: list[Filling]) -> Removable:
        """All that was put in place by what is superseded alone, and that no other resource takes care of."""
        wanted = {path for other in kept for path in self._members[other.key] or ()}
        wanted |= set(self._paths_of_others())
        found: dict[str, list[Made]] = defaultdict(list)
        for other in superseded:
            for path, made in (self._members[other.key] or {}).items():
                if path not in wanted:
                    found[path].append(made)
        return found

    def _paths_of_others(self) -> Iterator[str]:
        return filter(None, (_below(path, self._where, self._place.directory) for path in self._managed))

    def _refuse_to_lose_the_sign(self, leftovers: Collection[str]) -> None:
        if self._sign in leftovers:
            raise self._no_sign()

    def _no_sign(self) -> ResourceError:
        return ResourceError(f"creates is {self._filling.creates}, and the archive does not bring it")

    def _overlays(self, other: Filling) -> bool:
        """Whether a file or link of another archive would become another one."""
        theirs = self._members[other.key]
        if theirs is None:
            return other.archive not in self._beside
        for path, made in self._unpacked.members.items():
            if made.kind == "directory" or path not in theirs or not self._unpacked.differs(path):
                continue
            if other.archive in self._beside:
                what = f"is another one in {other.archive}, which is declared for this directory, too"
                raise ResourceError(f"{os.path.join(self._where, path)} {what}")
            return True
        return False

    # The receipt

    def _begin(self, replaced: list[Filling]) -> None:
        """From here on, what is in place is neither what was there before nor what is to be there."""
        self._receipts.save_members(self._place, self._filling, self._made())
        fillings = [
            msgspec.structs.replace(other, replaced_by=self._filling.archive) if other in replaced else other
            for other in self._others
        ]
        begun = msgspec.structs.replace(self._filling, finished=False)
        self._save([*fillings, begun])

    def _made(self) -> Members:
        """What will be ours: not the directories that are there, unless an archive has made them."""
        ours = {path for members in self._members.values() for path in members or ()}
        foreign = self._unpacked.joined() - ours
        return {path: made for path, made in self._unpacked.members.items() if path not in foreign}

    def _finish(self, superseded: list[Filling]) -> None:
        if self._filling.creates and not os.path.exists(self._filling.creates):
            raise self._no_sign()
        gone = {other.key for other in superseded}
        gone |= {other.key for other in self._others if self._is_gone(other)}
        kept = [other for other in self._place.fillings if other.key not in gone | {self._filling.key}]
        self._save([*kept, self._filling])
        for other in self._others:
            if other.key in gone:
                self._receipts.forget_members(self._place, other)

    def _is_gone(self, other: Filling) -> bool:
        """Whether somebody has removed all that an archive had put there."""
        paths = (os.path.join(self._where, entry) for entry in other.entries)
        return not any(os.path.lexists(path) for path in paths)

    def _save(self, fillings: list[Filling]) -> None:
        self._place = msgspec.structs.replace(self._place, fillings=tuple(fillings))
        self._receipts.save(self._place)


def _below(path: str, *directories: str) -> str:
    """``path`` below the first of the directories that it is below; empty when it is below none."""
    for directory in directories:
        if path.startswith(f"{directory.rstrip('/')}/"):
            return path.removeprefix(f"{directory.rstrip('/')}/")
    return ""
