"""Which exit status an error means: one table for all commands and for the run."""

from bundles.errors import (
    BundleError,
    ExpiredError,
    FormatError,
    PublishError,
    RollbackError,
    SettingsError,
    StoreError,
    TransportError,
    TrustError,
)
from hiera.errors import HieraError
from puller.errors import PullerError
from puller.exit_status import ExitStatus

# Subclasses before their bases. What the store of this machine refuses stops updates, as a site that is away does.
_BUNDLE_ERRORS: tuple[tuple[type[BundleError], ExitStatus], ...] = (
    (ExpiredError, ExitStatus.EXPIRED),
    (RollbackError, ExitStatus.ROLLBACK),
    (TrustError, ExitStatus.SIGNATURE),
    (FormatError, ExitStatus.REJECTED),
    (TransportError, ExitStatus.FETCH_FAILED),
    (PublishError, ExitStatus.USAGE),
    (SettingsError, ExitStatus.CONFIGURATION),
    (StoreError, ExitStatus.FETCH_FAILED),
)


def status_of(error: BaseException) -> ExitStatus | None:
    """The documented status of an error of ours or of the system; ``None`` for a bug."""
    if isinstance(error, PullerError):
        return error.exit_status
    for kind, status in _BUNDLE_ERRORS:
        if isinstance(error, kind):
            return status
    if isinstance(error, HieraError | BundleError):
        return ExitStatus.REJECTED
    if isinstance(error, OSError):
        return ExitStatus.CONFIGURATION
    return None
