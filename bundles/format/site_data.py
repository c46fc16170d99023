"""Site data as targets of a site: documents of values that hosts read in addition to their bundles.

* ``_data/exports.yaml`` is the path of the document ``exports``. Names of bundles cannot start with an underscore.
* The target is the text of the document as published. This module does not interpret it.
* The bin with the document contains its time of publication, and the format for hosts.
"""

import contextlib
from datetime import datetime
from typing import Any

import msgspec

from bundles.errors import FormatError
from bundles.format import fields
from bundles.format.identity import parse_name
from bundles.format.release import parse_time
from foundation.strict_json import excerpt

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
    from foundation.timestamps import zulu_text  # here and below, because a configuration only needs names

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
