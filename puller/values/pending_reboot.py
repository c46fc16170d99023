"""A reboot that is due and has not happened, as records, reports and the fleet show it."""

from enum import StrEnum

import msgspec

from foundation.timestamps import minute_text, parse_moment


class RebootState(StrEnum):
    """How far a reboot has come."""

    WAITING = "waiting"
    """It waits for a time, or for the end of other work."""
    REQUESTED = "requested"
    """The run restarts the machine at its end."""
    SCHEDULED = "scheduled"
    """systemd restarts the machine at a time."""
    CANCELLED = "cancelled"
    """An administrator cancelled it. It waits for the next time."""
    FAILED = "failed"
    """The reason has remained after a reboot, or the reboot is impossible."""


class PendingReboot(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A reboot that a resource requires. Times are UTC in ISO 8601."""

    resource: str
    """``reboot#NAME``."""
    reasons: list[str]
    """Why the machine must be restarted, a short text for each reason."""
    since: str
    """The first time at which a run noticed the oldest reason."""
    state: RebootState = RebootState.WAITING
    at: str = ""
    """The time of the reboot, or the earliest time if it waits. Empty if it is unknown."""
    waits_for: str = ""
    """What it waits for, besides the time."""

    def __str__(self) -> str:
        """Return a sentence."""
        since = minute_text(parse_moment(self.since))
        return f"{self.resource}: a reboot is due since {since} ({', '.join(self.reasons)}): {self.progress}"

    @property
    def progress(self) -> str:
        """The state of the reboot in words."""
        time = minute_text(parse_moment(self.at)) if self.at else ""
        match self.state:
            case RebootState.REQUESTED:
                return f"requested for {time}"
            case RebootState.SCHEDULED:
                return f"scheduled for {time}"
            case RebootState.FAILED:
                return self.waits_for
            case RebootState.CANCELLED:
                return f"cancelled, next attempt {f'from {time} on' if time else 'at an unknown time'}"
            case RebootState.WAITING:
                waits = self.waits_for or "for its time"
                return f"waits {waits}{f', from {time} on' if time else ''}"
