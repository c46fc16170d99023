"""The steps that an archive needs, decided from what is there alone (``resources.md`` section 7, decision tables).

* Nothing is fetched for what can be repaired here: an owner, a group, an extraction of a file that is right.
* Contents of another archive, of another checksum or of an extraction that did not end are not the wanted ones.
* Nothing here looks or changes anything; users and groups are looked up only where an owner matters.
"""

import stat
from collections.abc import Callable

import msgspec

from puller.resources.archives.properties import ArchiveProperties
from puller.resources.archives.receipts import Filling, Place
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
    is_in_place = not why_extract(properties, actual)
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


def why_extract(properties: ArchiveProperties, actual: ArchiveState) -> str:
    """Why the contents are not in place, in words; empty when they are."""
    filling = actual.filling
    if properties.extract_parent is None:
        return ""
    if properties.creates is not None and not actual.creates_exists:
        return f"without {properties.creates}"
    if filling is None:
        return _why_extract_first(properties, actual)
    if filling.replaced_by and filling.replaced_by != properties.name:
        return f"of {filling.replaced_by}"
    if filling.replaced_by or not filling.finished:
        return "half extracted"
    if (wanted := properties.checksum or actual.sha256) and filling.sha256 != wanted:
        return f"of sha256 {filling.sha256[:12]}…"
    return f"without {actual.missing}" if actual.missing and properties.creates is None else ""


def _why_extract_first(properties: ArchiveProperties, actual: ArchiveState) -> str:
    if actual.brought_by:
        return f"of {actual.brought_by}"
    if actual.place is not None and actual.place.lost:
        return "of an archive that is not known, as its receipt cannot be read"
    # Put there by another hand, and creates is the sign of it.
    return "" if properties.creates is not None else "not extracted"


def wanted_contents(properties: ArchiveProperties, actual: ArchiveState, why: str) -> str:
    """The wanted contents in words that fit those of ``why_extract``."""
    wanted = properties.checksum or actual.sha256
    if why.startswith("of sha256") and wanted:
        return f"of sha256 {wanted[:12]}…"
    return f"of {properties.name}" if why.startswith("of /") else f"in {properties.extract_parent}"
