"""Common properties of resources: references to resources, the refresh of subscribers, and the removal policy.

* A reference is ``type#name``, ``type#pattern*`` or ``label#name``.
* A refresh is either complete or a reload of the configuration. In lists and records, ``reload type#name`` requests
  a reload.
* The removal policy keeps or removes the objects of a resource that is no longer declared.
"""

import re
from collections.abc import Callable
from enum import IntEnum

LABEL = "label"
"""Replaces the type in a reference to all resources with a label."""


class Reference(str):
    """A reference to a resource by its type and its name or alias. Compares as the text ``type#name``."""

    __slots__ = ()

    @classmethod
    def to(cls, type_name: str, name: str) -> "Reference":
        """Return the reference to a resource."""
        return cls(f"{type_name}#{name}")

    @property
    def is_pattern(self) -> bool:
        """Whether it may match several resources by a ``*``, which matches any text."""
        return "*" in self

    def matcher(self) -> Callable[[str], object]:
        """Return a function that matches references against the pattern."""
        return re.compile(".*".join(map(re.escape, self.split("*"))), re.DOTALL).fullmatch

    @classmethod
    def parse(cls, text: object) -> "Reference":
        """Parse ``type#name``. The name may contain ``#``. Raise ``ValueError``."""
        if isinstance(text, str):
            kind, mark, name = text.partition("#")
            if mark and kind and name:
                return cls(text)
        raise ValueError(f"is {text!r}, expected a reference such as 'file#/etc/motd'")


# Refreshes of subscribers.

_RELOAD = "reload "


class Refresh(IntEnum):
    """The due refresh. The largest of several has priority."""

    NONE = 0
    RELOAD = 1
    WHOLE = 2


def reload_of(reference: str) -> Reference:
    """Return a subscriber that needs a reload."""
    return Reference(_RELOAD + reference)


def subscriber_of(listed: str) -> tuple[Reference, Refresh]:
    """Return the resource of a listed subscriber, and the kind of its refresh."""
    # Names of types never contain a space.
    if listed.startswith(_RELOAD):
        return Reference(listed.removeprefix(_RELOAD)), Refresh.RELOAD
    return Reference(listed), Refresh.WHOLE


class Removed(str):
    """``keep`` or ``absent``. Compares as text."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> "Removed":
        """Parse the word. Raise ``ValueError``."""
        if value in (KEEP, ABSENT):
            return cls(value)
        raise ValueError(f"is {value!r}, expected keep or absent")


KEEP = Removed("keep")
"""It stays, and ``puller status`` lists it."""
ABSENT = Removed("absent")
"""It is removed if Puller has created it."""
