"""Properties of an archive, their validation, and the steps that the current state requires.

See ``docs/resources/archive.md``. The decision depends on the state only. This module neither reads nor changes files.

* Nothing is downloaded if a local step is enough: a new owner or group, or the extraction of a valid file.
* Content of another archive, of another checksum or of an unfinished extraction counts as different.
* Users and groups are looked up only if the owner matters.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import msgspec

from bundles.format.fields import DEEPEST_PATH
from foundation.differences import Difference, added, changed
from foundation.masking import mask_location
from foundation.times import Duration
from hiera.values import Secret
from puller.resources.archives.archive_receipts import Filling, Place
from puller.resources.archives.members import ENDINGS, find_kind
from puller.resources.base import Properties, PropertyError, missing_property
from puller.resources.content_sources import check_sha256, short
from puller.resources.paths import MISSING, PathState, check_path

_HEADER = re.compile(r"[A-Za-z0-9-]+")


class ArchiveProperties(Properties, frozen=True):
    """The properties of an archive."""

    url: str | None = None
    """An ``http(s)://`` URL of a file of the same type as the name: ``.tar.gz``, ``.tar`` or ``.zip``, for example."""
    checksum: str | None = None
    """SHA-256 of the archive, in lower-case hexadecimal."""
    extract_parent: str | None = None
    """The target directory for the contents. Created if missing."""
    strip_components: int = 0
    """The number of leading components to remove from each path in the archive."""
    creates: str | None = None
    """A path in the contents. If it exists, the archive counts as extracted."""
    cleanup: bool = False
    """Remove the archive after extraction. Requires ``extract_parent`` and ``creates``."""
    owner: str | int | None = None
    """Owner of the archive and its contents: name, or numeric id."""
    group: str | int | None = None
    """Group of the archive and its contents: name, or numeric id."""
    username: str | None = None
    """User for basic authentication, with ``password``."""
    password: Secret | None = None
    """Password for basic authentication, with ``username``."""
    headers: dict[str, Secret] = msgspec.field(default_factory=dict)
    """Additional headers of the request, by name. ``Authorization`` overrides ``username``."""
    timeout: Duration = Duration(600.0)
    """Time limit of the download with redirects and retries."""


def check_properties(properties: ArchiveProperties) -> Iterator[PropertyError]:
    """Yield all errors in values and combinations of properties."""
    if properties.ensure not in ("present", "absent"):
        yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present or absent")
    for name in ("name", "extract_parent", "creates"):
        if (path := getattr(properties, name)) is not None:
            yield from check_path(name, path)
    if find_kind(os.path.basename(properties.name)) is None:
        yield PropertyError(
            "name", f"is {properties.name!r}", expected=f"a name that ends in {', '.join(ENDINGS)}"
        )
    if properties.ensure == "present":
        yield from _check_present(properties)


def _check_present(properties: ArchiveProperties) -> Iterator[PropertyError]:
    yield from _check_url(properties)
    for required in ("owner", "group"):
        if getattr(properties, required) in (None, ""):
            yield missing_property(required, MISSING, because=["ensure"])
    if properties.checksum is not None:
        yield from check_sha256("checksum", properties.checksum)
    if not 0 <= properties.strip_components <= DEEPEST_PATH:
        yield PropertyError(
            "strip_components",
            f"is {properties.strip_components}",
            expected=f"a number from 0 to {DEEPEST_PATH}",
        )
    elif properties.strip_components and properties.extract_parent is None:
        yield missing_property("extract_parent", MISSING, because=["strip_components"])
    for required in ("extract_parent", "creates"):
        if properties.cleanup and getattr(properties, required) is None:
            yield missing_property("cleanup", f"wants {required}", because=[required, "ensure"])
    if (properties.username is None) is not (properties.password is None):
        detail = "and password require each other"
        yield PropertyError("username", detail, because=["password"])
    if properties.timeout <= 0:
        yield PropertyError("timeout", "is 0", expected="a positive duration")
    for name, value in properties.headers.items():
        text = value.reveal()
        if not _HEADER.fullmatch(name) or not (text and text.isascii() and text.isprintable()):
            yield PropertyError("headers", f"has {name!r}, whose name or value is not valid in a header")


def _check_url(properties: ArchiveProperties) -> Iterator[PropertyError]:
    if properties.url is None:
        yield missing_property("url", MISSING, because=["ensure"])
        return
    shown = repr(_shown(properties.url))
    try:
        url_parts = urlsplit(properties.url)
        _ = url_parts.port  # reading ``port`` raises for an invalid port
    except ValueError as error:
        description = str(error).partition(" as ")[0]  # the invalid port may be part of a password
        yield PropertyError("url", f"is {shown}: {description}")
        return
    if (
        url_parts.scheme not in ("http", "https")
        or not url_parts.hostname
        or not properties.url.isprintable()
    ):
        yield PropertyError("url", f"is {shown}", expected="an http:// or https:// URL")
        return
    kind, desired = find_kind(url_parts.path.rpartition("/")[2]), find_kind(properties.name)
    if kind is None:
        yield PropertyError("url", f"is {shown}", expected=f"a URL that ends in {', '.join(ENDINGS)}")
    elif desired is not None and kind is not desired:
        yield PropertyError(
            "url", f"is {shown}, which is a {kind}, and name is a {desired}", because=["name"]
        )


def _shown(url: str) -> str:
    """Return the URL without parts that may be secret: user information and query."""
    return mask_location(url).partition("?")[0]


class ArchiveState(PathState, frozen=True):
    """The state of an archive: at its path, at ``creates``, and in the receipt of the directory."""

    sha256: str = ""
    """The checksum of the archive, if it is needed."""
    identity: tuple[int, ...] = ()
    """The identity of the file with this checksum, if it is certain."""
    creates_exists: bool = False
    place: Place | None = None
    """The receipt of the directory."""
    filling: Filling | None = None
    """The recorded extraction of this archive."""
    brought_by: str = ""
    """The other archive that created ``creates``."""
    missing: str = ""
    """A missing path that this archive had created."""

    @property
    def is_file(self) -> bool:
        """Whether a regular file is at the archive's path."""
        return self.found is not None and stat.S_ISREG(self.found.st_mode)


class Steps(msgspec.Struct, frozen=True):
    """The required steps, in this order."""

    download: bool = False
    repair: bool = False
    """Change owner and group of the archive."""
    extract: bool = False
    clean_up: bool = False
    remove: bool = False


def decide(properties: ArchiveProperties, actual: ArchiveState, ids: Callable[[], tuple[int, int]]) -> Steps:
    """Return the steps from ``actual`` to the desired state.

    ``ids`` returns the desired user and group, and may raise.
    """
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
    # An outdated archive that cleanup removes anyway: the contents of the new one are already in place.
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
    if filling.stripped != properties.strip_components:
        return changed("strip_components", str(filling.stripped), str(properties.strip_components))
    is_missing = actual.missing and properties.creates is None
    return changed("contents", f"without {actual.missing}", parent) if is_missing else None


def _first_difference(properties: ArchiveProperties, actual: ArchiveState, parent: str) -> Difference | None:
    if actual.brought_by:
        return changed("contents", actual.brought_by, properties.name)
    if actual.place is not None and actual.place.lost:
        return changed("contents", "unknown, because the receipt is unreadable", properties.name)
    # A user may have extracted it. ``creates`` is the evidence.
    return None if properties.creates is not None else added("contents", parent)
