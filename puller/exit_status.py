"""The exit statuses of all commands. They are an interface (``docs/exit-statuses.md``)."""

from enum import IntEnum


class ExitStatus(IntEnum):
    """The result of a command. If several apply, ``worst`` selects one."""

    OK = 0
    """In the desired state, possibly after changes."""
    BUG = 1
    """An error in Puller. Please report it."""
    NO = 1
    """A negative answer: a key, resource or fact is missing, two things differ, or a bundle has errors (`puller
    lint`).
    """
    CHANGED = 2
    """With ``--detailed-exitcodes``: in the desired state, after changes. With ``--noop`` as well, and in a preview:
    changes are due.
    """
    FAILED = 4
    """Resources failed, or a preview predicts failures."""
    CHANGED_AND_FAILED = 6
    """Resources failed, and others were changed."""
    HEALTH_FAILED = 7
    """A new bundle was given up, because its health checks failed. The last good one is enforced again."""
    HEALTH_FAILED_TWICE = 8
    """A new bundle was given up, and the rollback failed, too."""
    SIGNATURE = 10
    """Bytes, signatures or thresholds do not match the trusted keys."""
    EXPIRED = 11
    """Metadata past its signed expiry."""
    ROLLBACK = 12
    """Older than a version that this machine has already trusted."""
    REJECTED = 13
    """An invalid bundle or manifest."""
    FETCH_FAILED = 14
    """The site could not be reached. The last good bundle is enforced."""
    NOTHING_TO_ENFORCE = 15
    """The site could not be reached, and this machine has no bundle yet."""
    FELL_BACK = 16
    """The installed agent does not start. The previous version has done the run."""
    HELD = 20
    """Held or disabled by the operator."""
    USAGE = 64
    """The command line is invalid, or names a bundle, site, store or file that does not exist."""
    BUSY = 75
    """Another run holds the lock."""
    CONFIGURATION = 78
    """The configuration is missing or invalid."""
    INTERRUPTED = 130
    """Stopped by SIGINT, before any change or between two resources."""
    TERMINATED = 143
    """Stopped by SIGTERM, before any change or between two resources."""


# Most serious first: an attack outranks all others, and a problem of this machine outranks an unreachable server.
_SERIOUSNESS = (
    ExitStatus.USAGE,
    ExitStatus.BUSY,
    ExitStatus.TERMINATED,
    ExitStatus.INTERRUPTED,
    ExitStatus.BUG,
    ExitStatus.ROLLBACK,
    ExitStatus.SIGNATURE,
    ExitStatus.EXPIRED,
    ExitStatus.HEALTH_FAILED_TWICE,
    ExitStatus.HEALTH_FAILED,
    ExitStatus.REJECTED,
    ExitStatus.CONFIGURATION,
    ExitStatus.CHANGED_AND_FAILED,
    ExitStatus.FAILED,
    ExitStatus.NOTHING_TO_ENFORCE,
    ExitStatus.FELL_BACK,
    ExitStatus.FETCH_FAILED,
    ExitStatus.HELD,
    ExitStatus.CHANGED,
    ExitStatus.OK,
)


def worst(*statuses: ExitStatus) -> ExitStatus:
    """Return the most serious of several statuses, or ``OK`` without any."""
    return min(statuses, key=_SERIOUSNESS.index, default=ExitStatus.OK)
