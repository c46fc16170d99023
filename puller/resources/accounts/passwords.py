"""Hashes of passwords as crypt(3) makes them, and how they lock an account.

* The leading ``!`` of a field are no part of the hash: they lock it (passwd(1), ``usermod -L``).
* Messages quote nothing.
"""

import re

_PATTERNS = (
    re.compile(r"\$1\$[^$]{0,8}\$[./0-9A-Za-z]{22}"),
    re.compile(r"\$5\$(?:rounds=[0-9]+\$)?[^$]{0,16}\$[./0-9A-Za-z]{43}"),
    re.compile(r"\$6\$(?:rounds=[0-9]+\$)?[^$]{0,16}\$[./0-9A-Za-z]{86}"),
    re.compile(r"\$2[abxy]\$[0-9]{2}\$[./0-9A-Za-z]{53}"),
    re.compile(r"\$g?y\$[./0-9A-Za-z]+\$[./0-9A-Za-z]{0,86}\$[./0-9A-Za-z]{43}"),
    # Others that a libcrypt knows, or will: an id, something, and a hash.
    re.compile(r"\$(?![1256]\$|2[abxy]\$|g?y\$)[0-9a-z-]{1,16}\$.*[./0-9A-Za-z]{16,}"),
)
_PRINTED = re.compile(r"[!-9<-~]+")  # neither blanks nor : and ;
NONE = ("*", "!")
"""What is in the place of a hash where no password is right."""


def problem_of(password: str) -> str:
    """Why a text is nothing to be written into shadow(5), after the name of its property; empty when it is."""
    if password in NONE:
        return ""
    if password.startswith("!"):
        return "begins with !, wanted the hash alone, and locked: true"
    # What crypt(3) never makes of a password is none of its hashes.
    is_plain = _PRINTED.fullmatch(password) and not {*"!*\\"} & {*password}
    if is_plain and any(pattern.fullmatch(password) for pattern in _PATTERNS):
        return ""
    return "is no hash, wanted one of crypt(3) such as '$6$…' or '$y$…' (as mkpasswd makes it), or '*' or '!' for none"


def hash_of(field: str) -> str:
    """The hash in a field; empty when there is nothing but a lock."""
    return field.lstrip("!")


def is_met(password: str, field: str) -> bool:
    """Whether a field has the wanted password, locked or not; an empty one lets everybody in, and meets nothing."""
    return field != "" and hash_of(field) == hash_of(password)


def is_locked(field: str) -> bool:
    """Whether the password in a field lets nobody in for as long as it is locked."""
    return field.startswith("!")


def field_of(password: str, found: str, *, locked: bool | None) -> str:
    """The field for a wanted password; an account that is locked stays so where ``locked`` says nothing.

    One that never had a password is no such account: nothing is there yet that could be locked.
    """
    stays_locked = is_locked(found) and bool(hash_of(found))
    lock = "!" if (stays_locked if locked is None else locked) else ""
    return (lock + hash_of(password)) or "!"
