"""Metadata signed anew before it expires; what is published stays the same.

The timestamp every time, other roles in the last third of their lifetime, as far as their keys are here. A role that
cannot be signed now is told, and holds nothing else up.
"""

from dataclasses import dataclass
from datetime import datetime

from bundles.errors import BundleError, KeyFileError
from bundles.format.tuf import Root, Targets
from bundles.publisher.ceremony import Proposal
from bundles.publisher.edition import Edition
from bundles.publisher.keys import Passphrase
from bundles.publisher.pruning.prune import tidy
from bundles.publisher.published import ROLES
from bundles.publisher.site import Site, statuses

_RENEW_BEFORE = 3
"""Metadata is signed anew in the last third of its lifetime."""
_TOGETHER = 1 / 2
"""Of the targets and bins, those with less than this part of their lifetime left are signed along with what is due."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """Roles that `refresh_site` signed, and those that expire soon and could not be signed, with the reason."""

    signed: list[str]
    due: dict[str, str]


def refresh_site(site: Site, passphrase: Passphrase) -> Renewal:
    """Sign the timestamp anew, and whatever else is in the last third of its lifetime.

    Raises `PublishError`, `FormatError` and `SignatureError`; nothing is written then.

    1. Nobody else publishes meanwhile, and what another publisher could not finish is finished.
    2. Read what is published, and verify it.
    3. Sign the roles that expire soon, from the root down, as far as their keys are here.
    4. Sign the timestamp, which completes every edition.
    5. Write what was signed.
    6. Remove what no host can ask for any more.
    """
    with site.locked():  # 1.
        # 2.
        edition = site.edition(passphrase)
        # 3. All that are due are found before the first is signed: with the targets the snapshot is signed, too.
        expiries = {status.role: status.expires for status in statuses(edition.published)}
        soon = [role for role in ROLES[:-1] if _left(expiries[role], role, edition) < 1 / _RENEW_BEFORE]
        due = {role: why for role in soon if (why := _why_not_renewed(site, role, edition))}
        # 4.
        edition.sign_timestamp()
        # 5.
        site.write(edition)
        # 6.
        tidy(site, edition)
        return Renewal([*(role for role in soon if role not in due), "timestamp"], due)


def _why_not_renewed(site: Site, role: str, edition: Edition) -> str | None:
    """Sign a role that expires soon; when that cannot be done now, why: it must not hold up the timestamp."""
    root = edition.published.root
    if role == Root.type and _is_root_pending(site, root):
        return f"a change of it is pending: puller site root show {site.directory}"
    if not edition.keyring.holds(role, root):
        renew = f"its keys are not in {site.keys}: puller site root renew {site.directory}"
        return renew if role == Root.type else f"not enough of its keys are in {site.keys}"
    try:
        _renew(role, edition)
    except KeyFileError as error:
        return str(error)
    return None


def _renew(role: str, edition: Edition) -> None:
    if role == Root.type:
        edition.sign_root()
    elif role == Targets.type:
        _renew_targets(edition)
    elif not edition.has_signed(role):  # with the targets that it names
        edition.sign_snapshot()


def _renew_targets(edition: Edition) -> None:
    """Sign the targets and bins that are in the second half of their lifetime: seldom, and together."""
    expiries = edition.published.expiries().items()
    due = [name for name, expires in expiries if _left(expires, Targets.type, edition) < _TOGETHER]
    if _left(edition.published.targets.expires, Targets.type, edition) < _TOGETHER:
        edition.sign_targets(due)
    else:
        edition.sign_bins(due)


def _left(expires: datetime, role: str, edition: Edition) -> float:
    """The part of its lifetime that metadata still has."""
    return (expires - edition.now) / edition.lifetimes.of(role)


def _is_root_pending(site: Site, root: Root) -> bool:
    """Whether a change waits for signatures: it is the next version, and brings a new expiry, too."""
    try:
        return site.pending_root.exists() and Proposal.load(site.pending_root).follows(root)
    except BundleError:  # whoever completes or discards it gets to see what is wrong with it
        return True
