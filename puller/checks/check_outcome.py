"""The outcome of a health check: problems as sentences, or the reason for an unknown result."""

from collections.abc import Sequence

import msgspec


class Answer(msgspec.Struct, frozen=True):
    """The sentences of one try."""

    wrong: Sequence[str]
    """All that is not as wanted; nothing is *in order*."""
    found: str = ""
    """What there is, for those who ask when nothing is wrong."""


class NotCarriedOut(Exception):
    """A check that could not tell: the reason as a sentence."""
