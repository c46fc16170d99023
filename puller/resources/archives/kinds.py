"""The kinds of archive, known by the end of a name."""

from enum import StrEnum


class Kind(StrEnum):
    """A kind of archive, as messages name it."""

    TAR = "tar"
    TAR_GZ = "tar.gz"
    ZIP = "zip"


ENDINGS = {".tar.gz": Kind.TAR_GZ, ".tgz": Kind.TAR_GZ, ".tar": Kind.TAR, ".zip": Kind.ZIP}
"""All endings, in the words of messages."""


def find_kind(name: str) -> Kind | None:
    """The kind of a file of this name; ``None`` when it is not one of ours. Upper case is as good."""
    lower = name.lower()
    found = (kind for ending, kind in ENDINGS.items() if lower.endswith(ending) and lower != ending)
    return next(found, None)
