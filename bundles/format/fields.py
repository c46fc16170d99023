"""Fields of signed JSON documents, parsed strictly. Each helper raises `FormatError` with the place of a field.

An unknown key may control hosts (a rollout, a halt). The whole document is therefore rejected, and the host keeps its
state. Keys that start with ``x-`` are comments for people and tools.

Name and version of a bundle have the same rules everywhere. `Identity` is separate from the rest of ``bundle.json``,
because a run without changes only needs these fields.
"""

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import msgspec

from bundles.errors import BundleError, FormatError
from bundles.format.member_paths import shown
from foundation import strict_json
from foundation.problems import ProblemCode
from foundation.strict_json import LARGEST_NUMBER, excerpt

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


Fields = Mapping[str, Any]
_Value = TypeVar("_Value")


def read_document(data: bytes, where: str, kind: str, expected_format: int) -> Fields:
    """Return the fields of a document. Raises `FormatError`. ``kind`` is its name in messages: ``an index``."""
    try:
        document = strict_json.load_exact(data)
    except ValueError as error:
        raise FormatError(where, f"is not {kind}: {error}") from None
    _check_format(document, where, expected_format)
    return mapping(document, where)


def known_fields(value: Any, place: str, known: AbstractSet[str]) -> Fields:
    """Return the fields of an object without comments. Raises `FormatError` for fields that are not ``known``."""
    fields = mapping(value, place)
    if fields.keys() <= known:
        return fields
    # Comments have no effect, so that older versions may ignore them.
    fields = {key: item for key, item in fields.items() if not key.startswith("x-")}
    if unknown := sorted(fields.keys() - known):
        names = ", ".join(shown(key) for key in unknown[:5])
        raise FormatError(
            place, f"unknown keys {names}, expected {', '.join(sorted(known))}: upgrade Puller on this host"
        )
    return fields


def mapping(value: Any, place: str) -> dict[str, Any]:
    """Return an object. Raises `FormatError` for another type."""
    if not isinstance(value, dict):
        raise FormatError(place, f"is {excerpt(value)}", expected="an object")
    return value


def array(fields: Fields, key: str, place: str) -> list[Any]:
    """Return an array. Raises `FormatError` for another type."""
    value = fields.get(key)
    if not isinstance(value, list):
        raise FormatError(f"{place}.{key}", f"is {excerpt(value)}", expected="an array")
    return value


def text(fields: Fields, key: str, place: str) -> str:
    """Return a string. Raises `FormatError` for another type."""
    value = fields.get(key)
    if not isinstance(value, str):
        raise FormatError(f"{place}.{key}", f"is {excerpt(value)}", expected="a string")
    return value


def size(fields: Fields, key: str, place: str) -> int:
    """Return a number of bytes. Raises `FormatError` for another type."""
    value = fields.get(key)
    if type(value) is not int or value < 0:  # True == 1
        raise FormatError(
            f"{place}.{key}", f"is {excerpt(value)}", expected=f"a number of bytes from 0 to {LARGEST_NUMBER}"
        )
    return value


def sha256(fields: Fields, key: str, place: str) -> str:
    """Return a SHA-256 in lower case. Raises `FormatError`."""
    value = text(fields, key, place)
    if not re.fullmatch(SHA256, value):
        raise FormatError(
            f"{place}.{key}", f"is {excerpt(value)}", expected="64 hexadecimal digits in lower case"
        )
    return value


def checked(place: str, parse: Callable[[str], _Value], value: str) -> _Value:
    """Return the value parsed by ``parse``. Raises `FormatError` with the place."""
    try:
        return parse(value)
    except BundleError as error:
        raise error.under(f"{place}: {error.where}", FormatError) from None


def _check_format(document: Any, where: str, expected_format: int) -> None:
    """Check the format before other fields, so that a document of a later format gets the right error."""
    value = mapping(document, where).get("format")
    if type(value) is not int:  # True == 1
        raise FormatError(
            f"{where}: format", f"is {excerpt(value)}", expected=f"the number {expected_format}"
        )
    if value > expected_format:
        raise FormatError(
            f"{where}: format",
            f"is {value}, and this version of Puller reads {expected_format}: upgrade Puller on this host",
        )
    if value != expected_format:
        raise FormatError(
            f"{where}: format",
            f"is {value}, and this version of Puller reads {expected_format}: the site was made by another version",
        )
