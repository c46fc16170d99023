"""Targets of a site: the bins that contain them, and site data, which is documents of values beside the bundles.

Bins divide the targets, so that a host reads only the bins of its bundles:

* They are TUF's succinct hashed bins (TAP 15): the first bits of the SHA-256 of a target's path select its bin.
* Each bin must be signed with the keys that the *root* assigns to the targets, and with the keys of the delegation. A
  key that the root revokes can therefore no longer sign bins, even if old targets delegate to it.
* The signed part of each bin contains its own name. TUF metadata does not contain the name of a role. An attacker with
  the keys of snapshot and timestamp could otherwise replace a bin by another one.
* Runs without a new release import this module, so it does not import python-tuf.

Site data:

* ``_data/exports.yaml`` is the path of the document ``exports``. Names of bundles cannot start with an underscore.
* The target is the text of the document as published. This module does not interpret it.
* The bin with the document contains its time of publication, and the format for hosts.
"""

import contextlib
import re
from datetime import datetime
from typing import Any

import msgspec

from bundles.digests import sha256
from bundles.errors import FormatError
from bundles.format import fields
from bundles.format.fields import parse_name
from bundles.format.release import parse_time
from foundation.strict_json import excerpt
from foundation.times import zulu_text

BIN_PREFIX = "bin"
BIN_BITS = 6
"""A new site has 64 bins. With 1,000 bundles, each bin has 31 targets in 5 KB, and the snapshot has 8 KB."""

BIN_NAME = "x-puller-bin"
"""The field of a bin with its own name."""

_FILE = rf"{BIN_PREFIX}-[0-9a-f]{{1,8}}\.json"


def bin_of(path: str, bits: int) -> str:
    """Return the name of the bin for the target ``path``, among two to the power of ``bits``."""
    first = int.from_bytes(sha256(path.encode()).digest()[:4], "big") >> (32 - bits)
    return f"{BIN_PREFIX}-{first:0{(bits + 3) // 4}x}"


def is_bin_file(name: str) -> bool:
    """Return whether a file of trusted metadata is a bin, by its name."""
    return re.fullmatch(_FILE, name) is not None


FORMAT = 1
DIRECTORY = "_data"
"""Directory below ``targets/``, and in the paths of these targets."""

SIGNED = "site:"
"""Prefix for the location of a document in the configuration of a host."""

_SUFFIX = ".yaml"


class SiteDocument(msgspec.Struct, frozen=True):
    """A verified document. ``contents`` is UTF-8, unless it was published in another encoding."""

    name: str
    contents: bytes
    published: datetime


def data_path(name: str) -> str:
    """Return the path of a document as a target of the site."""
    return f"{DIRECTORY}/{name}{_SUFFIX}"


def data_name(path: str) -> str | None:
    """Return the name of the document at the path of a target, or ``None`` for another target."""
    directory, _, file = path.rpartition("/")
    if directory != DIRECTORY or not file.endswith(_SUFFIX):
        return None
    with contextlib.suppress(FormatError):
        return parse_data_name(file.removesuffix(_SUFFIX))
    return None


def parse_data_name(name: str) -> str:
    """Check a document name by the rules for bundle names. Raises `FormatError`."""
    try:
        return parse_name(name)
    except FormatError as error:
        raise error.under("site data", FormatError) from None


def custom_fields(published: datetime) -> dict[str, Any]:
    """Return the fields of a document in its bin, without length and hashes.

    They are ``custom`` in the TUF specification, 4.5.
    """
    return {"format": FORMAT, "published": zulu_text(published)}


def read_custom(custom: Any, where: str) -> datetime:
    """Return the publication time of a document. Raises `FormatError`, also for an unknown format."""
    known = fields.mapping(custom, f"{where}: custom")
    if known.get("format") != FORMAT:
        result = excerpt(known.get("format"))
        detail = f"is {result}, and this version of Puller reads {FORMAT}: upgrade Puller on this host"
        raise FormatError(f"{where}: custom.format", detail)
    try:
        return parse_time("published", known.get("published"))
    except FormatError as error:
        raise error.under(f"{where}: custom.published", FormatError) from None
