"""Removal of an undeclared archive and its extracted files, based on its receipts.

* Changed files stay, and so does a directory with other content.
* Files of another archive in the same directory stay, and so do files that are declared as resources.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from foundation.differences import Difference, removed
from foundation.quantities import first_few
from puller.resources.archives.archive import Archive
from puller.resources.archives.archive_properties import ArchiveProperties, ArchiveState
from puller.resources.archives.archive_receipts import (
    Filling,
    Members,
    Place,
    Receipts,
    Removable,
    attributes_at,
    remove,
)
from puller.system.local_paths import open_safely

_MOST_NAMED = 5


class Contents(msgspec.Struct, frozen=True):
    """Unchanged members of an archive in one directory."""

    place: Place
    filling: Filling
    removable: Removable
    changed: Members = {}
    """Recorded attributes of files and links that have changed since. They stay."""

    def __str__(self) -> str:
        return f"{len(self.removable)} paths in {self.place.directory}"


class LeftoverArchiveState(ArchiveState, frozen=True):
    """The archive and its leftover contents."""

    contents: tuple[Contents, ...] = ()


class LeftoverArchive(Archive):
    """An archive and its contents, to be ``absent``."""

    def look(self) -> LeftoverArchiveState:
        status = self.context.system.lstat(self.properties.name)
        return LeftoverArchiveState(status, contents=tuple(self._contents()))

    def _contents(self) -> Iterator[Contents]:
        for place, filling in self._receipts.places_of(self.properties.name):
            if self.context.uncertain(place.directory):
                continue  # in a dry run: an archive with the same place removes its members
            with suppress(FileNotFoundError, NotADirectoryError), open_safely(place.directory) as directory:
                yield self._contents_in(directory, place, filling)

    def _contents_in(self, directory: int, place: Place, filling: Filling) -> Contents:
        members = self._receipts.members(place, filling) or {}
        owned = self._owned_below(place.directory)
        of_others = self._members_of_other_archives(place)
        removable, changed = {}, {}
        for path, made in members.items():
            now = attributes_at(directory, path)
            if path in of_others or now is None or owned.is_touched_by(path):
                continue
            if now == made:
                removable[path] = (made,)
            elif made.kind != "directory":
                changed[path] = made
        return Contents(place, filling, removable, changed)

    def _members_of_other_archives(self, place: Place) -> set[str]:
        """Return the paths below a directory that belong to another archive."""
        others = (other for other in place.fillings if other.archive != self.properties.name)
        return {path for other in others for path in self._receipts.members(place, other) or ()}

    def differences(self, actual: ArchiveState, *, refresh: bool = False) -> Sequence[Difference]:
        differences = list(super().differences(actual, refresh=refresh))
        differences += (
            removed("contents", str(contents))
            for contents in _contents_of(actual)
            if any(made.kind != "directory" for (made,) in contents.removable.values())
        )
        return differences

    def change(self, differences: Sequence[Difference], actual: ArchiveState) -> None:
        for contents in _contents_of(actual):
            with open_safely(contents.place.directory) as directory:
                remove(directory, contents.removable, contents.removable)
            if contents.changed:
                self._receipts.save_members(contents.place, contents.filling, contents.changed)
            else:
                self._forget(contents)
        if actual.found is not None:
            super().change(differences, actual)

    def _forget(self, contents: Contents) -> None:
        """Remove the archive from the receipt. Its members go first, because the receipt leads to them."""
        receipts, place = self._receipts, self._receipts.place(contents.place.directory)
        receipts.forget_members(place, contents.filling)
        fillings = tuple(other for other in place.fillings if other.key != contents.filling.key)
        receipts.save(msgspec.structs.replace(place, fillings=fillings))

    def final_ensure(self, actual: ArchiveState) -> str:
        return "present" if self._changed(actual) else super().final_ensure(actual)

    def work_left(self) -> Mapping[str, str]:
        return dict.fromkeys(
            self._changed(self.look()), f"was changed since {self.properties.name} brought it"
        )

    @property
    def notes(self) -> Sequence[str]:
        changed = self._changed(self.look())
        return [f"{first_few(changed, _MOST_NAMED)}: changed since, so it stays"] if changed else ()

    @staticmethod
    def _changed(actual: ArchiveState) -> list[str]:
        """Return the absolute paths of changed members."""
        return [
            os.path.join(contents.place.directory, path)
            for contents in _contents_of(actual)
            for path in sorted(contents.changed)
        ]

    def noop_message(self, differences: Sequence[Difference], actual: ArchiveState) -> str:
        for contents in _contents_of(actual):
            for path in contents.removable:
                self.context.system.expect(os.path.join(contents.place.directory, path), "absent")
        if actual.found is None:
            return "Would have removed its contents"
        return super().noop_message(differences, actual)

    @classmethod
    def occupies(cls, properties: ArchiveProperties, state_directory: Path) -> Iterator[str]:
        yield properties.name
        receipts = Receipts(state_directory / "archives")
        with suppress(OSError):  # look() reports the error
            yield from (place.directory for place, _ in receipts.places_of(properties.name))

    @classmethod
    def fills(cls, properties: ArchiveProperties) -> tuple[str, ...]:
        return ()


def _contents_of(actual: ArchiveState) -> tuple[Contents, ...]:
    return actual.contents if isinstance(actual, LeftoverArchiveState) else ()
