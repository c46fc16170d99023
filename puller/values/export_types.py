"""Types of exports: values that a host publishes as data for other hosts.

* The manifest declares a type for each export. The host checks its own value, and the collector checks the values of
  all hosts again, because a host may have sent anything.
* Values are small and plain: one-line texts, integers, booleans, and lists of these.
* Texts must not contain expressions, which the receiving host would evaluate.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, Self

import msgspec

from foundation.formatting import did_you_mean

Scalar = str | int | bool
Value = Scalar | list[Scalar]

MOST = 32
"""Maximum number of exports of one bundle."""
LARGEST = 8 * 1024
"""Maximum size of the exports of one bundle, in bytes of JSON."""
LONGEST_TEXT = 1024
"""Maximum number of characters of a text."""
MOST_ITEMS = 64
"""Maximum number of items of a list."""

NAME = r"[a-z][a-z0-9_]{0,62}"
"""The pattern of the name of an export."""
_HOST_NAME = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*"
_LONGEST_NAME = 253
_LARGEST_NUMBER = 2**53 - 1
"""The largest integer that every reader of JSON represents exactly."""
_OF_EXPRESSIONS = ("{{", "{%", "{#", "${", "%{")
"""Starts of text that is replaced in expressions, templates, or Hiera's interpolation."""


class ExportType(msgspec.Struct, frozen=True):
    """A type of exports: ``port``, or with ``is_list`` a list of ports."""

    word: str
    is_list: bool = False

    @classmethod
    def parse(cls, written: object) -> Self:
        """Parse ``port`` or ``[port]`` of a manifest. Raise ``ValueError``, whose message continues *type*."""
        is_list = isinstance(written, list) and len(written) == 1
        word = written[0] if is_list and isinstance(written, list) else written
        if not isinstance(word, str) or word not in _PROBLEMS:
            known = ", ".join(_PROBLEMS)
            meant = did_you_mean(word, _PROBLEMS) if isinstance(word, str) else ""
            detail = meant if "mean" in meant else f", expected one of {known}, or a list of one of them"
            raise ValueError(f"is {written!r}{detail}")
        return cls(word, is_list)

    def problem(self, value: object) -> str:
        """Return why a value is not of this type, to continue the name of the export. Empty for a valid value."""
        if not self.is_list:
            return _PROBLEMS[self.word](value)
        if not isinstance(value, list):
            return f"is {_shown(value)}, expected a list"
        if len(value) > MOST_ITEMS:
            return f"has {len(value)} items, at most {MOST_ITEMS} are allowed"
        result = ((index, _PROBLEMS[self.word](item)) for index, item in enumerate(value))
        return next((f"[{index}] {problem}" for index, problem in result if problem), "")

    def __str__(self) -> str:
        return f"[{self.word}]" if self.is_list else self.word


class Export(msgspec.Struct, frozen=True):
    """An export as declared in a manifest. ``value`` can contain expressions."""

    type: ExportType
    value: Any


def parse_exports(written: object) -> tuple[dict[str, Export], dict[tuple[str | int, ...], str]]:
    """Return the ``exports`` of a manifest, and their problems: sentences by path below ``exports``."""
    if not isinstance(written, Mapping):
        return {}, {(): f"exports is {_shown(written)}, expected a mapping of names"}
    exports: dict[str, Export] = {}
    wrong: dict[tuple[str | int, ...], str] = {}
    if len(written) > MOST:
        wrong[()] = f"exports has {len(written)} names, at most {MOST} are allowed"
    for name, declared in written.items():
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            wrong[(name,)] = f"exports has {name!r}, expected a name such as address: {NAME}"
            continue
        fields = declared if isinstance(declared, Mapping) else {"value": declared}
        if unknown := [key for key in fields if key not in ("type", "value")]:
            meant = did_you_mean(str(unknown[0]), ("type", "value"))
            wrong[(name, unknown[0])] = f"exports.{name} has unknown key {unknown[0]!r}{meant}"
        if "value" not in fields:
            wrong[(name,)] = f"exports.{name} has no value"
            continue
        try:
            exports[name] = Export(ExportType.parse(fields.get("type", "text")), fields["value"])
        except ValueError as error:
            wrong[(name, "type")] = f"exports.{name}: type {error}"
    return exports, wrong


def find_problem(values: Mapping[str, object]) -> str:
    """Return why these values are too large to be exported together. Empty if they fit."""
    if len(values) > MOST:
        return f"{len(values)} exports, at most {MOST} are allowed"
    size = len(msgspec.json.encode(dict(values)))
    return f"exports have {size} bytes, at most {LARGEST} are allowed" if size > LARGEST else ""


def _text(value: object) -> str:
    if not isinstance(value, str):
        return f"is {_shown(value)}, expected text"
    if len(value) > LONGEST_TEXT:
        return f"has {len(value)} characters, at most {LONGEST_TEXT} are allowed"
    if not value.isprintable():
        return f"is {_shown(value)}, expected one line without control characters"
    if result := next((mark for mark in _OF_EXPRESSIONS if mark in value), None):
        return f"is {_shown(value)}, and {result} would start an expression in the documents that read it"
    return ""


def _integer(value: object) -> str:
    if type(value) is not int:  # True is an int
        return f"is {_shown(value)}, expected a whole number"
    return "" if abs(value) <= _LARGEST_NUMBER else f"is {_shown(value)}, expected at most {_LARGEST_NUMBER}"


def _port(value: object) -> str:
    return (
        ""
        if type(value) is int and 1 <= value <= 65535
        else f"is {_shown(value)}, expected a port: 1 to 65535"
    )


def _boolean(value: object) -> str:
    return "" if isinstance(value, bool) else f"is {_shown(value)}, expected true or false"


def _address(description: str, versions: tuple[int, ...]) -> Callable[[object], str]:
    def problem(value: object) -> str:
        try:
            if (
                isinstance(value, str)
                and "%" not in value
                and ipaddress.ip_address(value).version in versions
            ):
                return ""
        except ValueError:
            pass
        return f"is {_shown(value)}, expected {description}"

    return problem


def _host_name(value: object) -> str:
    is_name = isinstance(value, str) and len(value) <= _LONGEST_NAME and re.fullmatch(_HOST_NAME, value)
    return "" if is_name else f"is {_shown(value)}, expected the name of a host"


_PROBLEMS: dict[str, Callable[[object], str]] = {
    "text": _text,
    "integer": _integer,
    "boolean": _boolean,
    "ip": _address("an IP address", (4, 6)),
    "ipv4": _address("an IPv4 address", (4,)),
    "ipv6": _address("an IPv6 address", (6,)),
    "hostname": _host_name,
    "port": _port,
}
TYPES = tuple(_PROBLEMS)
"""The words for types."""


def _shown(value: object) -> str:
    text = repr(value)
    text = text if text.isprintable() else ascii(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
