"""The outcome of a health check: problems as sentences, or the reason for an unknown result."""

from collections.abc import Sequence

import msgspec


class Answer(msgspec.Struct, frozen=True):
    """The result of one attempt of a check, as sentences."""

    wrong: Sequence[str]
    """The problems. Empty: the check passed."""
    found: str = ""
    """The observed state, for reports of a passed check."""


class NotCarriedOut(Exception):
    """A check without a result. The message is the reason."""
