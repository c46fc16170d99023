"""References to resources (``type#name``, ``type#pattern*``, ``label#name``), and the refresh of subscribers.

A refresh is either complete or a reload of the configuration. In lists and records, ``reload type#name`` requests
a reload.
"""

import re
from collections.abc import Callable
from enum import IntEnum

LABEL = "label"
"""What stands in the place of a type for all resources with a label."""


class Reference(str):
    """One resource, by its type and its name or alias; compares and hashes as the text ``type#name``."""

    __slots__ = ()

    @classmethod
    def to(cls, type_name: str, name: str) -> "Reference":
        """The reference to a resource."""
        return cls(f"{type_name}#{name}")

    @property
    def is_pattern(self) -> bool:
        """Whether it may mean several resources by a ``*``, which stands for any text."""
        return "*" in self

    def matcher(self) -> Callable[[str], object]:
        """Return what matches the references that a pattern means."""
        return re.compile(".*".join(map(re.escape, self.split("*"))), re.DOTALL).fullmatch

    @classmethod
    def parse(cls, text: object) -> "Reference":
        """Read ``type#name``; the name may hold further ``#``. Raises ``ValueError``."""
        if isinstance(text, str):
            kind, mark, name = text.partition("#")
            if mark and kind and name:
                return cls(text)
        raise ValueError(f"is {text!r}, wanted a reference such as 'file#/etc/motd'")


# Refreshes of subscribers.

_RELOAD = "reload "


class Refresh(IntEnum):
    """The refresh that is due; of several the largest counts."""

    NONE = 0
    RELOAD = 1
    WHOLE = 2


def reload_of(reference: str) -> Reference:
    """A subscriber that is to reload."""
    return Reference(_RELOAD + reference)


def subscriber_of(listed: str) -> tuple[Reference, Refresh]:
    """The resource that is listed as a subscriber, and what is asked of it."""
    # No type has a blank in its name.
    if listed.startswith(_RELOAD):
        return Reference(listed.removeprefix(_RELOAD)), Refresh.RELOAD
    return Reference(listed), Refresh.WHOLE
