"""The time that one download has, and what is said when it is over."""

from bundles.deadline import Deadline
from bundles.errors import TransportError
from bundles.transport.settings import TransportSettings


def deadline_of(url: str, settings: TransportSettings, common: Deadline | None) -> Deadline:
    """Of one download; ``common`` is that of several. Raises `TransportError` when that one is over."""
    if common is None:
        return Deadline(settings.total_timeout)
    if common.is_over:
        raise TransportError(url, f"is not asked for: the {common.seconds:g} s of total_timeout are over")
    return common.within(common.seconds)


def too_late(url: str, deadline: Deadline) -> TransportError:
    """The error for a download whose time is over."""
    seconds = f"{deadline.seconds:.1f}".removesuffix(".0")
    return TransportError(url, f"took longer than the {seconds} s that it may take")
