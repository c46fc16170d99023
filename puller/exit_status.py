"""The exit statuses of every command, in one place; they are an interface (README.md)."""

from enum import IntEnum


class ExitStatus(IntEnum):
    """The end of a command; where several apply, ``worst`` decides."""

    OK = 0
    """In the desired state; changes may have been made on the way."""
    BUG = 1
    """An error of Puller's own; please report it."""
    NO = 1
    """A question was answered with *no*: there is no such key, resource or fact, or two things differ; a bundle
    has errors, which is what `puller lint` asks."""
    CHANGED = 2
    """With ``--detailed-exitcodes``: in the desired state, and changes were made; a preview: there would be."""
    FAILED = 4
    """Resources failed, or a preview says that they would."""
    CHANGED_AND_FAILED = 6
    """Resources failed, and others were changed."""
    HEALTH_FAILED = 7
    """A new bundle was given up, as its health checks failed; the last good one is enforced again."""
    HEALTH_FAILED_TWICE = 8
    """A new bundle was given up, and rolling back has failed, too."""
    SIGNATURE = 10
    """Bytes, signatures or thresholds are not what trusted keys signed."""
    EXPIRED = 11
    """Metadata past its signed expiry."""
    ROLLBACK = 12
    """Older than what this machine has already trusted."""
    REJECTED = 13
    """A bundle or manifest that is not valid."""
    FETCH_FAILED = 14
    """The site could not be reached; the last good bundle is enforced."""
    NOTHING_TO_ENFORCE = 15
    """The site could not be reached, and there is no bundle on this machine yet."""
    FELL_BACK = 16
    """The agent that is installed does not start; the one before it has done the run."""
    HELD = 20
    """Held back or disabled by the operator."""
    USAGE = 64
    """The command line is not understood."""
    BUSY = 75
    """Another run holds the lock."""
    CONFIGURATION = 78
    """The configuration is missing or not valid."""
    INTERRUPTED = 130
    """Stopped by SIGINT, before anything was changed or between two resources."""
    TERMINATED = 143
    """Stopped by SIGTERM, before anything was changed or between two resources."""


# Most serious first: an attack outranks everything, and what is wrong with this machine outranks a server that is away.
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
    """The one status that a run with all of these reports; ``OK`` for none."""
    return min(statuses, key=_SERIOUSNESS.index, default=ExitStatus.OK)
