"""The whole of a site: its creation, the renewal of its metadata, and its verification.

Creation of a site with its keys and signed metadata, and renewal of the metadata before it expires.

* A new site appears under its name when it is complete, so that every existing site is usable.
* A renewal does not change the published content. It signs the timestamp every time, and other roles in the last third
  of their lifetime, if their keys are available.
* A role that cannot be signed is reported and does not delay the other roles.

Verification of a published site, like on a host: signatures, expiry, and every published file.

All problems are reported together, one line for each kind with the first few files, because one cause may affect
thousands of files.
"""

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from tuf.api.exceptions import LengthOrHashMismatchError

from bundles.archive.unpack import inspect
from bundles.client.client import TrustClient
from bundles.errors import BundleError, KeyFileError, PublishError, SettingsError, SignatureError
from bundles.filesystem.atomic import naming, temporary_name, write_file
from bundles.filesystem.safe_paths import REAL_DIRECTORY, open_parent
from bundles.filesystem.trees import open_regular, remove_tree
from bundles.format.fields import DESCRIPTION
from bundles.format.index import Artifact, Digest, Indexes, index_path
from bundles.format.release import Release
from bundles.format.site_targets import BIN_BITS
from bundles.format.tuf import Root, TargetFile, Targets
from bundles.publisher.ceremony import Proposal
from bundles.publisher.edition import Edition, first_root
from bundles.publisher.files import make_directory
from bundles.publisher.pruning import NOTES_FILE, Notes, save_notes, tidy
from bundles.publisher.published import ROLES, Published, Record
from bundles.publisher.settings import DEFAULT_LIFETIMES, Lifetimes, PruningRule
from bundles.publisher.signing_keys import Passphrase, generate_key
from bundles.publisher.site import SETTINGS, RoleStatus, Site, explained, statuses, utc_now
from bundles.transport.mirror import DirectoryMirror
from foundation.problems import ProblemCode
from foundation.quantities import first_few


@dataclass(frozen=True, slots=True)
class Verification:
    """The extent of a successful verification, with ``size`` in bytes."""

    targets: int
    """Number of indexes, histories, documents and archives."""
    files: int
    """Number of distinct individual files of bundles."""
    size: int
    """Size of the targets."""
    roles: list[RoleStatus]


def verify_site(site: Site) -> Verification:
    """Verify everything below ``public/`` as a host would, starting from the first root.

    Raises the errors of `TrustClient.refresh`, and `SignatureError` with the number and the first names of bad files.

    1. Read the published metadata of all bundles and all site data, as a host does.
    2. Compare the index of each bundle with its history.
    3. Verify every archive that is not pruned, and the name and version in archives that channels name.
    4. Verify the descriptions of these versions and every file in them, once each.
    5. Report problems by kind.
    """
    published = site.published()
    # 1.
    indexes = _indexes_for_hosts(site, published)
    # 2. and 3.
    of_bundles = [_of_bundle(site, site.record_of(published, bundle)) for bundle in indexes.of]
    count = len(indexes.documents) + sum(report.targets for report in of_bundles)
    problems = [problem for report in of_bundles for problem in report.problems]
    # 4.
    files, wrong = _files_of(
        site, dict.fromkeys(each for report in of_bundles for each in report.descriptions)
    )
    # 5.
    if problems := [*problems, *wrong]:
        detail = f"{len(problems)} of {count + files} published files differ from their signed metadata:"
        raise SignatureError(str(site.public), "\n".join([detail, *_lines(problems)]))
    documents = (info.length for of_bin in published.bins() for info in of_bin.targets.values())
    size = sum(documents) + sum(report.size for report in of_bundles)
    return Verification(count, files, size, statuses(published))


class _Problem(NamedTuple):
    """A problem with one file. ``details`` are about this file, ``kind`` is shared with other files."""

    kind: str
    path: str
    details: str = ""

    @classmethod
    def of(cls, error: OSError | BundleError | LengthOrHashMismatchError, path: Path) -> "_Problem":
        if isinstance(error, FileNotFoundError):
            return cls("missing", str(path))
        if isinstance(error, OSError):
            return cls("unreadable", str(path), error.strerror or str(error))
        return cls("damaged", str(path), error.what if isinstance(error, BundleError) else str(error))


def _lines(problems: Sequence[_Problem]) -> Iterator[str]:
    kinds: dict[str, list[str]] = {}
    for problem in problems:
        details = f" ({problem.details})" if problem.details else ""
        kinds.setdefault(problem.kind, []).append(f"{problem.path}{details}")
    yield from (f"{len(named)} {kind}: {first_few(named)}" for kind, named in kinds.items())


@dataclass(frozen=True, slots=True)
class _Found:
    """The targets of one bundle: index, history and archives. ``size`` is the size of the archives."""

    targets: int
    size: int
    problems: list[_Problem]
    descriptions: list[Digest]


def _of_bundle(site: Site, record: Record) -> _Found:
    # 2.
    contradiction = _contradiction(record)
    # 3.
    retained = {name: of.artifact for name, of in record.history.versions.items() if of.pruned is None}
    named = record.index.named()
    results = [
        _problem(site, artifact, Release(record.index.bundle, version) if version in named else None)
        for version, artifact in retained.items()
    ]
    problems = [problem for problem in (contradiction, *results) if problem is not None]
    size = sum(artifact.archive.length for artifact in retained.values())
    return _Found(2 + len(retained), size, problems, [artifact.description for artifact in retained.values()])


def _indexes_for_hosts(site: Site, published: Published) -> Indexes:
    mirror, first_root = DirectoryMirror(str(site.public)), site.metadata / "1.root.json"
    bundles, documents = site.bundles(published), site.data_names(published)
    with tempfile.TemporaryDirectory() as scratch:
        client = TrustClient(Path(scratch), first_root, [mirror], bundles, site.now, documents=documents)
        try:
            return client.refresh()
        except SettingsError as error:  # a setting for hosts, but a part of this site
            raise error.under(error.where, SignatureError) from None


def _contradiction(record: Record) -> _Problem | None:
    bundle = record.index.bundle
    for version, artifact in record.index.releases.items():
        if record.find_artifact(version) != artifact:
            detail = f"{bundle} {version}: the index and the history list different files"
            return _Problem("contradicted by the history", index_path(bundle), detail)
    return None


def _files_of(site: Site, descriptions: Iterable[Digest]) -> tuple[int, list[_Problem]]:
    """Return the number of files that hosts may request individually, and their problems."""
    named: dict[str, Digest] = {}
    problems: list[_Problem] = []
    read = {description.sha256 for description in descriptions}
    for description in descriptions:
        try:
            named |= site.files.named_by(description)
        except (OSError, BundleError) as error:
            problems.append(_Problem.of(error, site.files.path(description.sha256)))
    for digest in named.values():
        if digest.sha256 in read:  # already read for its contents
            continue
        try:
            for _ in site.files.verified(digest):
                pass
        except (OSError, SignatureError) as error:
            problems.append(_Problem.of(error, site.files.path(digest.sha256)))
    return len(named.keys() | read), problems


def _problem(site: Site, artifact: Artifact, release: Release | None) -> _Problem | None:
    """Return the problem of an archive. ``release`` is its expected name and version if a channel names it."""
    archive = artifact.archive
    path = site.archive_file(archive)
    info = TargetFile(archive.length, {"sha256": archive.sha256}, archive.path)
    try:
        with open_regular(path) as stream:
            info.verify_length_and_hashes(stream)
        if release is not None:
            description = inspect(path)
            if hashlib.sha256(description.to_bytes()).hexdigest() != artifact.description.sha256:
                return _Problem("of another bundle", str(path), f"{DESCRIPTION} differs from the index")
            if (description.name, description.version) != (release.bundle, release.version):
                result = (
                    f"contains {description.name} {description.version}, expected {release} from the index"
                )
                return _Problem("of another bundle", str(path), result)
    except (OSError, LengthOrHashMismatchError, BundleError) as error:
        return _Problem.of(error, path)
    return None


def make_site(
    directory: Path,
    passphrase: bytes | None,
    lifetimes: Mapping[str, str] | None = None,
    now: Callable[[], datetime] = utc_now,
    bin_bits: int = BIN_BITS,
) -> Site:
    """Create an empty site with new keys. If ``passphrase`` is ``None``, the keys are stored unencrypted.

    The site appears under its name when it is complete. It keeps its number of bins, two to the power of
    ``bin_bits``. Raises `PublishError`.
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
                    _fill(place, passphrase, lifetimes or {}, now, bin_bits)
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
    directory: Path,
    passphrase: bytes | None,
    lifetimes: Mapping[str, str],
    now: Callable[[], datetime],
    bin_bits: int,
) -> None:
    for part in ("public", "public/metadata", "public/targets"):
        make_directory(directory / part)
    write_file(directory / SETTINGS, _settings_text(lifetimes).encode())
    site = Site(directory, now)
    with site.locked():  # creates the lock with the site's owner, before the timer that signs
        keys = {role: generate_key(directory / "keys", role, passphrase) for role in ROLES}
        edition = site.edition(
            lambda _: passphrase or b"", Published.nothing(site.metadata, first_root(keys), bin_bits)
        )
        edition.sign_root()
        edition.sign_targets()
        edition.sign_timestamp()
        site.write(edition)
        save_notes(directory / NOTES_FILE, Notes(shared=now()))  # nothing is shared yet


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
