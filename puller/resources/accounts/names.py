"""Names and fields of accounts: what may be put into the databases, whose fields colons and line ends separate."""

import re
from collections.abc import Iterable, Iterator

from puller.errors import ResourceError
from puller.resources.base import PropertyError, missing_property

_NEW = re.compile(r"[a-z_][a-z0-9_-]{0,30}\$?")
_OTHER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,30}\$?")
_WANTED = "letters, digits, _ . and -, a letter or _ first, at most 31 and perhaps a $"
LARGEST_ID = 2**32 - 2
"""The one above it is what the system takes for *no change*."""


def check_name(name: str) -> Iterator[PropertyError]:
    """The problem of the name of an account that is managed; packages have made such with capital letters, too."""
    if not _OTHER.fullmatch(name):
        yield PropertyError("name", f"is {name!r}", expected=_WANTED)


def require_new_name(name: str) -> None:
    """Raise ``ResourceError`` for a name that no new account is given, as useradd(8) recommends."""
    if not _NEW.fullmatch(name):
        wanted = "lower-case letters, digits, _ and - for a new one"
        raise ResourceError(f"name is {name!r}", expected=wanted)


def check_ensure(ensure: str) -> Iterator[PropertyError]:
    """The problem of what is wanted of an account."""
    if ensure not in ("present", "absent"):
        yield PropertyError("ensure", f"is {ensure!r}", expected="present or absent")


def check_others(name: str, others: Iterable[str]) -> Iterator[PropertyError]:
    """The problems of a property that lists other accounts."""
    for other in others:
        if not _OTHER.fullmatch(other):
            yield PropertyError(name, f"has {other!r}", expected="a name")


def check_id(name: str, number: int | None) -> Iterator[PropertyError]:
    """The problem of an id."""
    if number is not None and not 0 <= number <= LARGEST_ID:
        yield PropertyError(name, f"is {number}", expected=f"0 to {LARGEST_ID}")


def check_membership(name: str, others: tuple[str, ...] | None, membership: str) -> Iterator[PropertyError]:
    """The problem of whether others than those listed in a property are left."""
    if membership not in ("minimum", "inclusive"):
        yield PropertyError("membership", f"is {membership!r}", expected="minimum or inclusive")
    elif membership == "inclusive" and others is None:
        yield missing_property("membership", f"is inclusive, and {name} is missing", because=[name])


def is_id(other: str | int) -> bool:
    """Whether an account is named by its id."""
    return isinstance(other, int) or (other.isascii() and other.isdecimal())


def is_field(text: str) -> bool:
    """Whether a text can be a field of a database: no colon, and nothing that is not printed."""
    return ":" not in text and all(character.isprintable() for character in text)
