"""Fields of an entry of the journal, beside its sentence, by which it is found.

The table of both is in docs/monitoring.md.
"""

from enum import StrEnum
from typing import TypedDict


class MessageId(StrEnum):
    """The kinds of entries (docs/monitoring.md); such a number never changes, nor gets another meaning."""

    RESOURCE_STABLE = "4e6b73f3eaf2462fb6732427b8a181a9"
    RESOURCE_CHANGED = "36cae90329814f04aa29d204207c4b58"
    RESOURCE_REFRESHED = "478fe513d28e4ff7b2895b4f1b5c5a69"
    RESOURCE_FAILED = "5b48c55352c64f1c9d54408095d5e26d"
    RESOURCE_SKIPPED = "da89496eae8f4452a789a49727f3b1f8"
    RESOURCE_WOULD_CHANGE = "a9d6daa52830490583c983130b06d4c3"
    RESOURCE_RESTLESS = "a85358a6335e42a9a2dea513644bb222"
    BUNDLE_FETCHING = "1d8577ffc0d54dfeaf71a8d6aa6b5e1d"
    BUNDLE_ENFORCED = "e144877940a64928ba0246a2b772eb1f"
    BUNDLE_APPLIED = "cddad6c448db483ab2a1e23857c32828"
    BUNDLE_HELD = "4e79c2eeffad47708cf6927ba1363276"
    BUNDLE_GIVEN_UP = "0c49ceb420a9455cb2de54e26ca4d85a"
    RUN_PAUSED = "466547ce01654923abe98922271bb0b2"
    RUN_ENDED = "c7b07cb816c745568252f4d8bf527da7"
    PROBLEM = "199f04db40044f8c93de76a39770fed5"
    WARNING = "3733eb19651d4c2a9fbc80355425403d"


class Fields(TypedDict, total=False):
    """The fields of one entry."""

    kind: MessageId
    run: str
    """Identity of the run."""
    bundle: str
    """Name of a bundle."""
    resource: str
    """``type#name``."""
    state: str
    """The end of a resource, as in reports."""
    differences: str
    """The differences of a resource, as JSON."""
    code: str
    """The code of the first problem."""
    exit: int
    """An exit status: of the run that ended, or what a problem adds to it."""


NAMES = {
    "kind": "MESSAGE_ID",
    "run": "PULLER_RUN",
    "bundle": "PULLER_BUNDLE",
    "resource": "PULLER_RESOURCE",
    "state": "PULLER_STATE",
    "differences": "PULLER_DIFFERENCES",
    "code": "PULLER_CODE",
    "exit": "PULLER_EXIT",
}
