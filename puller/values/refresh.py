"""Refreshes: all that a change asks of a subscriber, or only to read its configuration again.

Where subscribers are listed or on record, one that is to reload stands as ``reload type#name``.
"""

from enum import IntEnum

from puller.values.reference import Reference

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
