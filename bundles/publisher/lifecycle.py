"""Creation of a site with its keys and signed metadata, and renewal of the metadata before it expires.

* A new site appears under its name when it is complete, so that every existing site is usable.
* A renewal does not change the published content. It signs the timestamp every time, and other roles in the last third
  of their lifetime, if their keys are available.
* A role that cannot be signed is reported and does not delay the other roles.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bundles.errors import BundleError, KeyFileError, PublishError
from bundles.filesystem.atomic import naming, temporary_name, write_file
from bundles.filesystem.safe_paths import REAL_DIRECTORY, open_parent
from bundles.filesystem.trees import remove_tree
from bundles.format.tuf import Root, Targets
from bundles.publisher.ceremony import Proposal
from bundles.publisher.edition import Edition, first_root
from bundles.publisher.files import make_directory
from bundles.publisher.keys import Passphrase, generate_key
from bundles.publisher.pruning import tidy
from bundles.publisher.published import ROLES, Published
from bundles.publisher.settings import DEFAULT_LIFETIMES, Lifetimes, PruningRule
from bundles.publisher.site import SETTINGS, Site, explained, statuses, utc_now
from foundation.problems import ProblemCode


def make_site(
    directory: Path,
    passphrase: bytes | None,
    lifetimes: Mapping[str, str] | None = None,
    now: Callable[[], datetime] = utc_now,
) -> Site:
    """Create an empty site with new keys. If ``passphrase`` is ``None``, the keys are stored unencrypted.

    The site appears under its name when it is complete. Raises `PublishError`.
    """
    if directory.name in ("", ".."):
        raise PublishError(
            str(directory),
            "is not the name of a new directory",
            code=ProblemCode.INVALID_NAME,
            expected="a name such as 'site'",
        )
    with explained(directory):
        if directory.exists() and any(directory.iterdir()):
            raise PublishError(str(directory), "exists and is not empty", code=ProblemCode.UNWRITABLE_OUTPUT)
        with naming(directory), open_parent(directory, make=True) as (parent, name):
            staging = temporary_name(name)
            os.mkdir(staging, 0o755, dir_fd=parent)
            try:
                # Filled through its descriptor: another user who owns the parent may exchange the name for a link.
                with _opened_new(parent, staging) as place:
                    _fill(place, passphrase, lifetimes or {}, now)
                os.rename(staging, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                remove_tree(Path(f"/proc/self/fd/{parent}/{staging}"))
                raise
            os.fsync(parent)
    return Site(directory, now)


@contextlib.contextmanager
def _opened_new(parent: int, name: str) -> Iterator[Path]:
    """Yield a path of the new directory that renames do not change. Raises ``OSError``."""
    descriptor = os.open(name, REAL_DIRECTORY, dir_fd=parent)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid() or os.listdir(descriptor):
            raise FileExistsError(errno.EEXIST, "was replaced by another user", name)
        os.fchmod(descriptor, 0o755)  # regardless of the umask, for a web server
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _fill(
    directory: Path, passphrase: bytes | None, lifetimes: Mapping[str, str], now: Callable[[], datetime]
) -> None:
    for part in ("public", "public/metadata", "public/targets"):
        make_directory(directory / part)
    write_file(directory / SETTINGS, _settings_text(lifetimes).encode())
    site = Site(directory, now)
    with site.locked():  # creates the lock with the site's owner, before the timer that signs
        keys = {role: generate_key(directory / "keys", role, passphrase) for role in ROLES}
        edition = site.edition(
            lambda _: passphrase or b"", Published.nothing(site.metadata, first_root(keys))
        )
        edition.sign_root()
        edition.sign_targets()
        edition.sign_timestamp()
        site.write(edition)


def _settings_text(lifetimes: Mapping[str, str]) -> str:
    Lifetimes.parse(lifetimes, "expiry")
    rule = PruningRule()
    lines = "".join(f"  {role}: {text}\n" for role, text in {**DEFAULT_LIFETIMES, **lifetimes}.items())
    return f"""\
# Lifetimes of signed metadata. If metadata expires, hosts keep their current releases.
# `puller site refresh` renews metadata. Run it by a timer that is much shorter than the lifetime of the timestamp.
expiry:
{lines}
# Versions of a bundle to keep, in addition to versions in channels: the latest ones, and versions that a channel
# named within this time. `puller site prune --noop` lists versions to delete. With `automatic: false`, only
# `puller site prune` deletes them.
# prune: {{versions: {rule.versions}, after: {rule.after.days}d, automatic: true}}
"""


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
        soon = _expiring(edition)
        due = {role: why for role in soon if (why := _why_not_renewed(site, role, edition))}
        # 4.
        edition.sign_timestamp()
        # 5.
        site.write(edition)
        # 6.
        tidy(site, edition)
        return Renewal([*(role for role in soon if role not in due), "timestamp"], due)


def plan_refresh(site: Site, passphrase: Passphrase) -> Renewal:
    """Return the roles that `refresh_site` would sign. Raises the same errors, and uses no key."""
    edition = site.edition(passphrase)
    soon = _expiring(edition)
    due = {role: why for role in soon if (why := _why_not_renewable(site, role, edition))}
    return Renewal([*(role for role in soon if role not in due), "timestamp"], due)


def _expiring(edition: Edition) -> list[str]:
    """Return the roles except the timestamp that are in the last third of their lifetime."""
    expiries = {status.role: status.expires for status in statuses(edition.published)}
    return [role for role in ROLES[:-1] if _left(expiries[role], role, edition) < 1 / _RENEW_BEFORE]


def _why_not_renewed(site: Site, role: str, edition: Edition) -> str | None:
    """Sign a role that expires soon. If that fails, return the reason, because the timestamp must not be delayed."""
    if why := _why_not_renewable(site, role, edition):
        return why
    try:
        _renew(role, edition)
    except KeyFileError as error:
        return str(error)
    return None


def _why_not_renewable(site: Site, role: str, edition: Edition) -> str | None:
    """Return why a role cannot be signed here, as far as that is known without opening its keys."""
    root = edition.published.root
    if role == Root.type and _is_root_pending(site, root):
        return f"a change of the root is pending: puller site root show {site.directory}"
    if not edition.keyring.holds(role, root):
        renew = f"its keys are not in {site.keys}: puller site root renew {site.directory}"
        return renew if role == Root.type else f"not enough of its keys are in {site.keys}"
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
