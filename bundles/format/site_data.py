"""Site data as targets of a site: documents of values that hosts read beside their bundles.

* ``_data/exports.yaml`` is the path of the document ``exports``; no bundle's name begins like that.
* The target is the text of the document as it was published. What it means is not the wire's matter.
* The bin that names it says with it when it was published, and by which format hosts are to read it.
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
"""Below ``targets/``, and in the paths of these targets."""

SIGNED = "site:"
"""Begins the location of a document among those that a host is configured with."""

_SUFFIX = ".yaml"


class SiteDocument(msgspec.Struct, frozen=True):
    """A document, verified: ``contents`` are its text in UTF-8, unless it was published as something else."""

    name: str
    contents: bytes
    published: datetime


def data_path(name: str) -> str:
    """The path of a document as a target of the site."""
    return f"{DIRECTORY}/{name}{_SUFFIX}"


def data_name(path: str) -> str | None:
    """The name of the document at the path of a target; ``None`` for a target that is none."""
    directory, _, file = path.rpartition("/")
    if directory != DIRECTORY or not file.endswith(_SUFFIX):
        return None
    with contextlib.suppress(FormatError):
        return parse_data_name(file.removesuffix(_SUFFIX))
    return None


def parse_data_name(name: str) -> str:
    """The name of a document follows the rules for bundles; raises `FormatError`."""
    try:
        return parse_name(name)
    except FormatError as error:
        raise error.under("site data", FormatError) from None


def custom_fields(published: datetime) -> dict[str, Any]:
    """The fields of a document in its bin beside length and hashes: ``custom`` in the TUF specification, 4.5."""
    from foundation.timestamps import zulu_text  # here and below: a configuration asks for names alone

    return {"format": FORMAT, "published": zulu_text(published)}


def read_custom(custom: Any, where: str) -> datetime:
    """The time of publication of a document; raises `FormatError`, also for a format that this version cannot read."""
    known = fields.mapping(custom, f"{where}: custom")
    if known.get("format") != FORMAT:
        what = (
            f"is {excerpt(known.get('format'))}, this version of Puller reads {FORMAT}: upgrade Puller here"
        )
        raise FormatError(f"{where}: custom.format", what)
    try:
        return parse_time("published", known.get("published"))
    except FormatError as error:
        raise error.under(f"{where}: custom.published", FormatError) from None
