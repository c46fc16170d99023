"""The steps that an archive needs, decided from what is there alone (``docs/resources/archive.md``).

* Nothing is fetched for what can be repaired here: an owner, a group, an extraction of a file that is right.
* Contents of another archive, of another checksum or of an extraction that did not end are not the wanted ones.
* Nothing here looks or changes anything; users and groups are looked up only where an owner matters.
"""

import stat
from collections.abc import Callable

import msgspec

from foundation.differences import Difference, added, changed
from puller.resources.archives.properties import ArchiveProperties
from puller.resources.archives.receipts import Filling, Place
from puller.resources.checksums import short
from puller.resources.paths import PathState


class ArchiveState(PathState, frozen=True):
    """The state of an archive: at its path, at ``creates``, and on record for the directory."""

    sha256: str = ""
    """Of the archive, where it is asked for."""
    identity: tuple[int, ...] = ()
    """Of the file that has this checksum, as far as that can be told."""
    creates_exists: bool = False
    place: Place | None = None
    """What is known of the directory."""
    filling: Filling | None = None
    """What this archive has put into it."""
    brought_by: str = ""
    """Which other archive has brought ``creates``."""
    missing: str = ""
    """Something that this archive has put there, and that is not there any more."""

    @property
    def is_file(self) -> bool:
        """Whether a regular file is at the archive's path."""
        return self.found is not None and stat.S_ISREG(self.found.st_mode)


class Steps(msgspec.Struct, frozen=True):
    """The steps to be taken, in this order."""

    download: bool = False
    repair: bool = False
    """Owner and group of the archive."""
    extract: bool = False
    clean_up: bool = False
    remove: bool = False


def decide(properties: ArchiveProperties, actual: ArchiveState, ids: Callable[[], tuple[int, int]]) -> Steps:
    """The steps from ``actual`` to what is wanted; ``ids`` gives the wanted user and group, and may raise."""
    if properties.ensure == "absent":
        return Steps(remove=actual.found is not None)
    is_in_place = find_contents_difference(properties, actual) is None
    download = _must_download(properties, actual, is_in_place=is_in_place)
    extract = properties.extract_parent is not None and (download or not is_in_place)
    clean_up = properties.cleanup and (actual.is_file or download or extract)
    repair = False
    if actual.is_file and actual.found is not None and not (download or clean_up):
        repair = (actual.found.st_uid, actual.found.st_gid) != ids()
    return Steps(download, repair, extract, clean_up)


def _must_download(properties: ArchiveProperties, actual: ArchiveState, *, is_in_place: bool) -> bool:
    if not actual.is_file:
        return not (actual.creates_exists and is_in_place)
    if properties.checksum in (None, actual.sha256):
        return False
    # An old archive that is to be removed anyway: what it should have been is in place already.
    return not (properties.cleanup and actual.filling is not None and is_in_place)


def find_contents_difference(properties: ArchiveProperties, actual: ArchiveState) -> Difference | None:
    """Return the difference of the contents; ``None`` if they are in place."""
    filling, name, parent = actual.filling, properties.name, properties.extract_parent
    if parent is None:
        return None
    if properties.creates is not None and not actual.creates_exists:
        return changed("contents", f"without {properties.creates}", parent)
    if filling is None:
        return _first_difference(properties, actual, parent)
    if filling.replaced_by and filling.replaced_by != name:
        return changed("contents", filling.replaced_by, name)
    if filling.replaced_by or not filling.finished:
        return changed("contents", "half extracted", parent)
    if (checksum := properties.checksum or actual.sha256) and filling.sha256 != checksum:
        return changed("contents", f"sha256 {short(filling.sha256)}", f"sha256 {short(checksum)}")
    is_missing = actual.missing and properties.creates is None
    return changed("contents", f"without {actual.missing}", parent) if is_missing else None


def _first_difference(properties: ArchiveProperties, actual: ArchiveState, parent: str) -> Difference | None:
    if actual.brought_by:
        return changed("contents", actual.brought_by, properties.name)
    if actual.place is not None and actual.place.lost:
        return changed("contents", "unknown, because the receipt is unreadable", properties.name)
    # Somebody else may have extracted it. ``creates`` is the evidence.
    return None if properties.creates is not None else added("contents", parent)
