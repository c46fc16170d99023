"""Name and version of a bundle, at every door the same.

Apart from the rest of ``bundle.json``, because a run asks for no more of a bundle that has not changed.
"""

import re

import msgspec

from bundles.errors import FormatError
from bundles.format.member_paths import shown
from foundation.problems import ProblemCode

DESCRIPTION = "bundle.json"
SHA256 = r"[0-9a-f]{64}"
"""The form of a SHA-256, in the one spelling that is compared: a regular expression."""

_NAME = r"[a-z0-9][a-z0-9._-]{0,63}"
_VERSION = r"[0-9A-Za-z][0-9A-Za-z.+~_-]{0,63}"


class Identity(msgspec.Struct, frozen=True):
    """Name and version, as a bundle states them itself."""

    name: str
    version: str


def parse_name(text: str) -> str:
    """A bundle's name; raises ``FormatError``."""
    if not re.fullmatch(_NAME, text):
        raise FormatError(
            "name", f"is {shown(text)}", code=ProblemCode.INVALID_NAME, expected=f"{_NAME} such as 'web'"
        )
    return text


def parse_version(text: str) -> str:
    """A bundle's version, which is also part of file names and URLs; raises ``FormatError``."""
    if not re.fullmatch(_VERSION, text) or ".." in text:
        raise FormatError(
            "version",
            f"is {shown(text)}",
            code=ProblemCode.INVALID_NAME,
            expected=f"{_VERSION} without '..', such as '1.4.0'",
        )
    return text


def parse_identity(data: bytes) -> Identity:
    """Name and version alone, of a ``bundle.json`` that was checked when it was unpacked; raises
    ``FormatError``.

    Skips the files without looking at them: a run asks this of large bundles that have not changed.
    """
    try:
        identity = msgspec.json.decode(data, type=Identity)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(DESCRIPTION, str(error)) from None
    parse_name(identity.name)
    parse_version(identity.version)
    return identity
