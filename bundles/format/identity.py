"""Name and version of a bundle, with the same rules everywhere.

Separate from the rest of ``bundle.json``, because a run without changes only needs these fields.
"""

import re

import msgspec

from bundles.errors import FormatError
from bundles.format.member_paths import shown
from foundation.problems import ProblemCode

DESCRIPTION = "bundle.json"
SHA256 = r"[0-9a-f]{64}"
"""Regular expression of a SHA-256 in its canonical spelling."""

_NAME = r"[a-z0-9][a-z0-9._-]{0,63}"
_VERSION = r"[0-9A-Za-z][0-9A-Za-z.+~_-]{0,63}"


class Identity(msgspec.Struct, frozen=True):
    """Name and version in a bundle's own description."""

    name: str
    version: str


def parse_name(text: str) -> str:
    """Check a bundle's name and return it. Raises ``FormatError``."""
    if not re.fullmatch(_NAME, text):
        raise FormatError(
            "name", f"is {shown(text)}", code=ProblemCode.INVALID_NAME, expected=f"{_NAME} such as 'web'"
        )
    return text


def parse_version(text: str) -> str:
    """Check a bundle's version, which is also part of file names and URLs, and return it. Raises ``FormatError``."""
    if not re.fullmatch(_VERSION, text) or ".." in text:
        raise FormatError(
            "version",
            f"is {shown(text)}",
            code=ProblemCode.INVALID_NAME,
            expected=f"{_VERSION} without '..', such as '1.4.0'",
        )
    return text


def parse_identity(data: bytes) -> Identity:
    """Return name and version from a ``bundle.json`` that was checked during unpacking. Raises ``FormatError``.

    Skips the list of files, because runs call this for large unchanged bundles.
    """
    try:
        identity = msgspec.json.decode(data, type=Identity)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(DESCRIPTION, str(error)) from None
    parse_name(identity.name)
    parse_version(identity.version)
    return identity
