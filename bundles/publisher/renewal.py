"""Renewal of metadata before it expires, without changes to the published content.

The timestamp is signed every time, and other roles in the last third of their lifetime, if their keys are available. A
role that cannot be signed is reported and does not delay the others.
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
"""Metadata is renewed in the last third of its lifetime."""
_TOGETHER = 1 / 2
"""When targets or bins are due, those with less than this share of their lifetime left are renewed together."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """Roles that `refresh_site` signed, and roles that expire soon and could not be signed, with the reason."""

    signed: list[str]
    due: dict[str, str]


def refresh_site(site: Site, passphrase: Passphrase) -> Renewal:
    """Sign the timestamp and all metadata in the last third of its lifetime.

    Raises `PublishError`, `FormatError` and `SignatureError`. Nothing is written then.

    1. Lock the site against other publishers, and complete an interrupted change.
    2. Read and verify the published metadata.
    3. Sign the roles that expire soon, from the root down, if their keys are available.
    4. Sign the timestamp, which completes an edition.
    5. Write the signed metadata.
    6. Remove files that hosts can no longer request.
    """
    with site.locked():  # 1.
        # 2.
        edition = site.edition(passphrase)
        # 3. All due roles are selected before the first is signed, because signing the targets also signs the snapshot.
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
    """Sign a role that expires soon. If that fails, return the reason, because the timestamp must not be delayed."""
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
    elif not edition.has_signed(role):  # already signed with the targets
        edition.sign_snapshot()


def _renew_targets(edition: Edition) -> None:
    """Sign the targets and bins in the second half of their lifetime, so that they are rarely signed, and together."""
    expiries = edition.published.expiries().items()
    due = [name for name, expires in expiries if _left(expires, Targets.type, edition) < _TOGETHER]
    if _left(edition.published.targets.expires, Targets.type, edition) < _TOGETHER:
        edition.sign_targets(due)
    else:
        edition.sign_bins(due)


def _left(expires: datetime, role: str, edition: Edition) -> float:
    """Return the remaining share of the lifetime of metadata."""
    return (expires - edition.now) / edition.lifetimes.of(role)


def _is_root_pending(site: Site, root: Root) -> bool:
    """Return whether a change of the root waits for signatures. Its next version also renews the expiry."""
    try:
        return site.pending_root.exists() and Proposal.load(site.pending_root).follows(root)
    except BundleError:  # reported to the user who completes or discards it
        return True
