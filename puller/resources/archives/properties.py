"""The properties of an archive, and all that is wrong with them (``docs/resources/archive.md``)."""

import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from foundation.durations import Duration
from foundation.masking import mask_location
from hiera.values.secrets import Secret
from puller.resources.archives.kinds import ENDINGS, find_kind
from puller.resources.base import Properties, PropertyError, missing_property
from puller.resources.checksums import check_sha256
from puller.resources.owners import MISSING
from puller.resources.paths import check_path

_HEADER = re.compile(r"[A-Za-z0-9-]+")


class ArchiveProperties(Properties, frozen=True):
    """The properties of an archive."""

    url: str | None = None
    """Where to fetch it: an ``http(s)://`` URL of a file of the same kind as ``name``."""
    checksum: str | None = None
    """SHA-256 of the archive, in hexadecimal."""
    extract_parent: str | None = None
    """The directory to put its contents into; made when missing."""
    creates: str | None = None
    """A path that the contents bring; while it is there, of this archive or by another hand, nothing is fetched."""
    cleanup: bool = False
    """Remove the archive when its contents are in place; wants ``extract_parent`` and ``creates``."""
    owner: str | int | None = None
    """Owner of the archive and of its contents: name, or id when all digits."""
    group: str | int | None = None
    """Group of both: name, or id when all digits."""
    username: str | None = None
    """For basic authentication."""
    password: Secret | None = None
    """For basic authentication."""
    headers: dict[str, Secret] = msgspec.field(default_factory=dict)
    """Further headers of the request; an ``Authorization`` goes before ``username``."""
    timeout: Duration = Duration(600.0)
    """The most time that fetching may take, with redirects and retries."""


def check_properties(properties: ArchiveProperties) -> Iterator[PropertyError]:
    """All that is wrong with values or with several properties at once."""
    if properties.ensure not in ("present", "absent"):
        yield PropertyError("ensure", f"is {properties.ensure!r}", expected="present or absent")
    for name in ("name", "extract_parent", "creates"):
        if (path := getattr(properties, name)) is not None:
            yield from check_path(name, path)
    if find_kind(os.path.basename(properties.name)) is None:
        yield PropertyError(
            "name", f"is {properties.name!r}", expected=f"one that ends in {', '.join(ENDINGS)}"
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
    for required in ("extract_parent", "creates"):
        if properties.cleanup and getattr(properties, required) is None:
            yield missing_property("cleanup", f"wants {required}", because=[required, "ensure"])
    if (properties.username is None) is not (properties.password is None):
        what = "and password are given together or not at all"
        yield PropertyError("username", what, because=["password"])
    if properties.timeout <= 0:
        yield PropertyError("timeout", "is 0", expected="a time that a download can end in")
    for name, value in properties.headers.items():
        text = value.reveal()
        if not _HEADER.fullmatch(name) or not (text and text.isascii() and text.isprintable()):
            yield PropertyError("headers", f"has {name!r}, whose name or value is not that of a header")


def _check_url(properties: ArchiveProperties) -> Iterator[PropertyError]:
    if properties.url is None:
        yield missing_property("url", MISSING, because=["ensure"])
        return
    shown = repr(_shown(properties.url))
    try:
        parts = urlsplit(properties.url)
        _ = parts.port  # read here because it is the property that refuses ports that are no number
    except ValueError as error:
        what = str(error).partition(" as ")[0]  # what it cannot read as a port may be a part of a password
        yield PropertyError("url", f"is {shown}: {what}")
        return
    if parts.scheme not in ("http", "https") or not parts.hostname or not properties.url.isprintable():
        yield PropertyError("url", f"is {shown}", expected="an http:// or https:// URL")
        return
    kind, wanted = find_kind(parts.path.rpartition("/")[2]), find_kind(properties.name)
    if kind is None:
        yield PropertyError("url", f"is {shown}", expected=f"one that ends in {', '.join(ENDINGS)}")
    elif wanted is not None and kind is not wanted:
        yield PropertyError("url", f"is {shown}, which is a {kind}, and name is a {wanted}", because=["name"])


def _shown(url: str) -> str:
    """Without what may be a secret: user information and query."""
    return mask_location(url).partition("?")[0]
