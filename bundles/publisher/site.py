"""The publisher's side of a site.

::

    site.yaml            how long signatures last
    root.json            the newest root: the trust anchor for new hosts
    keys/                private keys, never below public/
    pending-root.json    a change of the root that waits for signatures
    unfinished.json      a change of keys that was cut off; whoever signs next completes it
    public/              what a web server serves
      metadata/          N.root.json  N.targets.json  N.snapshot.json  timestamp.json
      targets/           <sha256>.index.json  web/<sha256>.web-1.4.0.tar.gz

* A release never changes: its name and version stand for the same files for ever.
* Whenever a reader looks, it sees all of what was published before or all of what was published after.
* A publisher that crashed leaves files that nothing names. The next one publishes over them.

Old metadata is kept. Hosts need every root for ever. Other versions are asked for by hosts and caches
that still hold an older ``timestamp.json``: they may be deleted once they are older than that one's
lifetime.
"""

import contextlib
import fcntl
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tuf.api.exceptions import LengthOrHashMismatchError
from tuf.api.metadata import Root, TargetFile, Targets

from bundles.archive.pack import BuiltBundle, build_bundle
from bundles.archive.unpack import inspect
from bundles.client.client import TrustClient
from bundles.client.targets import target_path
from bundles.errors import (
    BundleError,
    FormatError,
    KeyFileError,
    PublishError,
    SettingsError,
    SignatureError,
)
from bundles.filesystem.atomic import (
    open_directory,
    read_limited,
    remove_leftovers,
    replace_file,
    sync_directory,
    write_file,
)
from bundles.filesystem.trees import measure, open_regular, pieces_of, remove_tree
from bundles.format import strict_yaml
from bundles.format.index import INDEX, Index, parse_channel
from bundles.format.limits import LARGEST_INDEX, LARGEST_STORED
from bundles.format.release import Release
from bundles.publisher import statements, transaction
from bundles.publisher.ceremony import Proposal
from bundles.publisher.expiry import Lifetimes
from bundles.publisher.keys import Passphrase, generate_key
from bundles.publisher.signing import ROLES, Edition, Keyring, Published, check_readable, first_root
from bundles.publisher.statements import AT_ONCE, RolloutRequest, Statement
from bundles.transport.directory import DirectoryMirror

SETTINGS = "site.yaml"
ANCHOR = "root.json"
PENDING = "pending-root.json"

_BUILD = ".build-"
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC

_LARGEST_SETTINGS = 64 * 1024
_DIRECTORY_MODE = 0o755
_RENEW_BEFORE = 3
"""Metadata is signed anew in the last third of its lifetime."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What `Site.publish` did."""

    release: Release
    """As the channel says it now, with its rollout."""
    statement: Statement
    size: int
    """Bytes."""
    sha256: str

    @property
    def changed(self) -> bool:
        return self.statement.changed

    @property
    def before(self) -> str | None:
        """The version that the channel had."""
        return self.statement.before.version if self.statement.before else None


@dataclass(frozen=True, slots=True)
class Renewal:
    """Roles that `Site.refresh` signed, and those that expire soon and could not be signed, with the reason."""

    signed: list[str]
    due: dict[str, str]


@dataclass(frozen=True, slots=True)
class Listed:
    """A release in a channel; ``size`` is bytes."""

    channel: str
    release: Release
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """Version and expiry of the metadata of one role."""

    role: str
    version: int
    expires: datetime


@dataclass(frozen=True, slots=True)
class Verification:
    """What `Site.verify` looked at; ``size`` is bytes."""

    targets: int
    size: int
    roles: list[RoleStatus]


def utc_now() -> datetime:
    return datetime.now(UTC)


class Site:
    """The site in ``directory``; raises `PublishError` when there is none."""

    def __init__(self, directory: Path, now: Callable[[], datetime] = utc_now) -> None:
        self.directory = directory
        self.public = directory / "public"
        self.anchor = directory / ANCHOR
        self.keys = directory / "keys"
        self.pending_root = directory / PENDING
        self.metadata = self.public / "metadata"
        self._unfinished = directory / "unfinished.json"
        self._targets = self.public / "targets"
        self._now = now
        if not self.metadata.is_dir():
            raise PublishError(str(directory), "is not a site; `puller site init` makes one")

    @classmethod
    def init(
        cls,
        directory: Path,
        passphrase: bytes | None,
        lifetimes: Mapping[str, str] | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> "Site":
        """Make a site with new keys and nothing in it; ``passphrase`` ``None`` stores the keys in the clear.

        It appears under its name when it is complete. Raises `PublishError`.
        """
        if directory.name in ("", ".."):
            raise PublishError(str(directory), "is no name for a new directory, wanted one such as 'site'")
        with _explained(directory):
            if directory.exists() and any(directory.iterdir()):
                raise PublishError(str(directory), "exists and is not empty")
            directory.parent.mkdir(parents=True, exist_ok=True)
            staging = directory.with_name(f".{directory.name}.{secrets.token_hex(6)}.new")
            _make_directory(staging)
            try:
                cls._fill(staging, passphrase, lifetimes or {}, now)
                os.rename(staging, directory)
            except BaseException:
                remove_tree(staging)
                raise
            sync_directory(directory.parent)
        return cls(directory, now)

    def publish(
        self,
        source: Path,
        passphrase: Passphrase,
        *,
        name: str | None = None,
        version: str | None = None,
        channel: str = "stable",
        request: RolloutRequest = AT_ONCE,
    ) -> Publication:
        """Make ``source``, a bundle's directory or a built archive, what ``channel`` says of the bundle.

        For a directory ``name`` is that of the directory unless given, and a version is needed; an
        archive states both. Raises `PublishError`, for one when the version was published with other
        contents.
        """
        parse_channel(channel)
        with self.locked(), self._built(source, name, version) as bundle:
            return self._publish(bundle, channel, request, passphrase)

    def refresh(self, passphrase: Passphrase) -> Renewal:
        """Sign the timestamp anew, and whatever else is in the last third of its lifetime."""
        with self.locked():
            edition = self.edition(passphrase)
            soon = [role for role in ROLES[:-1] if self._is_due(role, edition)]
            due = {role: why for role in soon if (why := self._why_not_renewed(role, edition))}
            edition.sign_timestamp()
            self.write(edition)
            return Renewal([*(role for role in soon if role not in due), "timestamp"], due)

    def index(self) -> Index:
        """What hosts are told to run."""
        return self.index_of(self._published())

    def releases(self) -> list[Listed]:
        """What `index` says, with size and digest, sorted by channel and bundle."""
        published = self._published()
        infos = published.targets.targets
        return [
            Listed(channel, release, infos[release.target].length, infos[release.target].hashes["sha256"])
            for channel, releases in sorted(self.index_of(published).channels.items())
            for _, release in sorted(releases.items())
        ]

    def roles(self) -> list[RoleStatus]:
        """Version and expiry of each role."""
        return _statuses(self._published())

    def root(self) -> Root:
        """Keys and thresholds of the roles, as they are in force."""
        return self._published().root

    def verify(self) -> Verification:
        """Check everything below ``public/`` as a host would, from the first root on.

        Raises what `TrustClient.refresh` raises, and `SignatureError` that names every damaged target.
        """
        index, published = self._index_for_hosts(), self._published()
        infos = published.targets.targets.values()
        current = {release.target: release for release in index.releases()}
        problems = [problem for info in infos if (problem := self._problem(info, current.get(info.path)))]
        if problems:
            what = f"{len(problems)} of {len(infos)} targets: {'; '.join(problems)}"
            raise SignatureError(str(self.public), what)
        return Verification(len(infos), sum(info.length for info in infos), _statuses(published))

    @classmethod
    def _fill(
        cls,
        directory: Path,
        passphrase: bytes | None,
        lifetimes: Mapping[str, str],
        now: Callable[[], datetime],
    ) -> None:
        for part in ("public", "public/metadata", "public/targets"):
            _make_directory(directory / part)
        write_file(directory / SETTINGS, _settings_text(lifetimes).encode())
        site = cls(directory, now)
        with site.locked():  # the lock belongs to who makes the site, and not to the timer that signs it
            keys = {role: generate_key(directory / "keys", role, passphrase) for role in ROLES}
            edition = site.edition(lambda _: passphrase or b"", Published.nothing(first_root(keys)))
            edition.sign_root()
            edition.sign_targets({INDEX: site._write_index(Index())})
            edition.sign_timestamp()
            site.write(edition)

    def _index_for_hosts(self) -> Index:
        mirror, first_root = DirectoryMirror(str(self.public)), self.metadata / "1.root.json"
        with tempfile.TemporaryDirectory() as scratch:
            try:
                return TrustClient(Path(scratch), first_root, [mirror], self._now).refresh()
            except SettingsError as error:  # to a host the anchor is a setting; here it is part of the site
                raise SignatureError(error.where, error.what) from None

    def _publish(
        self, bundle: BuiltBundle, channel: str, request: RolloutRequest, passphrase: Passphrase
    ) -> Publication:
        release = Release.of(bundle.description.name, bundle.description.version)
        edition = self.edition(passphrase)
        known = edition.published.targets.targets.get(release.target)
        if known is not None:
            self._check_same(release, bundle, known)
        info = known or TargetFile(bundle.size, {"sha256": bundle.sha256}, release.target)
        index = self.index_of(edition.published)
        before = index.find(release.bundle, channel)
        following = statements.published(before, release, request, edition.now)
        statement = Statement(channel, before, following, edition.now)
        if statement.changed:
            new = [] if known else [(info, bundle.path)]
            self.announce(edition, index.with_release(following, channel), *new)
        return Publication(following, statement, info.length, info.hashes["sha256"])

    def announce(self, edition: Edition, index: Index, *new: tuple[TargetFile, Path]) -> None:
        """Sign ``index`` and ``new`` targets, and write them; hosts see it all or nothing of it."""
        about_index = _index_info(index)
        check_readable(INDEX, about_index.length, LARGEST_INDEX)
        edition.sign_targets({**{info.path: info for info, _ in new}, INDEX: about_index})
        edition.sign_timestamp()
        for info, source in new:
            self._write_target(info, source)
        self._write_index(index)
        self.write(edition)

    def _check_same(self, release: Release, bundle: BuiltBundle, known: TargetFile) -> None:
        """Other bytes may hold the same files: another zlib compresses otherwise."""
        published = known.hashes["sha256"]
        if bundle.sha256 == published or inspect(self._file_of(known)) == bundle.description:
            return
        raise PublishError(
            str(release),
            f"is published with sha256 {published}, this one has {bundle.sha256}: give it a new version",
        )

    @contextlib.contextmanager
    def _built(self, source: Path, name: str | None, version: str | None) -> Iterator[BuiltBundle]:
        if not source.is_dir():
            yield _archive(source, name, version)
            return
        if version is None:
            raise PublishError(str(source), "a directory has no version of its own, wanted one such as 1.4.0")
        for leftover in self.directory.glob(f"{_BUILD}*"):  # of a publisher that was killed
            remove_tree(leftover)
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=_BUILD) as scratch:
            output = Path(scratch, "bundle.tar.gz")
            yield build_bundle(source, output, name=name or source.resolve().name, version=version)

    def edition(self, passphrase: Passphrase, published: Published | None = None) -> Edition:
        """What is published, to be changed and signed; raises `FormatError` and `SignatureError`."""
        return Edition(
            self.metadata,
            published or self._published(),
            Keyring(self.keys, passphrase),
            self._lifetimes(),
            self._now(),
        )

    def _published(self) -> Published:
        if self._unfinished.exists():
            raise PublishError(
                str(self.directory), "a change of keys was cut off: puller site refresh ends it"
            )
        return Published.load(self.metadata, self.anchor)

    def index_of(self, published: Published) -> Index:
        """What is published there; raises `SignatureError` when the file is not as signed."""
        info = published.targets.targets[INDEX]
        path = self._file_of(info)
        data = _read(path)
        try:
            info.verify_length_and_hashes(data)
        except LengthOrHashMismatchError as error:
            raise SignatureError(str(path), f"is not what this site signed: {error}") from None
        return Index.parse(data, str(path))

    def _file_of(self, info: TargetFile) -> Path:
        return self.public / target_path(info)

    def _write_index(self, index: Index) -> TargetFile:
        info = _index_info(index)
        write_file(self._file_of(info), index.to_bytes())
        return info

    def _write_target(self, info: TargetFile, source: Path) -> None:
        destination = self._file_of(info)
        _make_directory(destination.parent)
        with open_regular(source, follow=True) as stream, open_directory(destination.parent) as parent:
            remove_leftovers(parent)
            replace_file(parent, destination.name, pieces_of(stream), mode=0o644)

    def write(self, edition: Edition) -> None:
        """Publish ``edition``; raises ``OSError``."""
        if edition.is_good_before_its_root:
            edition.write()
        else:
            transaction.record(self._unfinished, edition.contents())
            edition.write()
            transaction.forget(self._unfinished)
        # Also when a publisher was killed between the two: an older root trusts keys that were taken away since.
        newest = _read(self.metadata / f"{edition.published.root.version}.root.json")
        if not self.anchor.exists() or _read(self.anchor) != newest:
            write_file(self.anchor, newest)

    def _why_not_renewed(self, role: str, edition: Edition) -> str | None:
        """Sign a role that expires soon; when that cannot be done now, why: it must not hold up the timestamp."""
        root = edition.published.root
        if role == Root.type and self._is_root_pending(root):
            return f"a change of it is pending: puller site root show {self.directory}"
        if not edition.keyring.holds(role, root):
            renew = f"its keys are not in {self.keys}: puller site root renew {self.directory}"
            return renew if role == Root.type else f"not enough of its keys are in {self.keys}"
        try:
            self._renew(role, edition)
        except KeyFileError as error:
            return str(error)
        return None

    def _renew(self, role: str, edition: Edition) -> None:
        if role == Root.type:
            edition.sign_root()
        elif role == Targets.type:
            edition.sign_targets()
        elif not edition.has_signed(role):  # with the targets that it names
            edition.sign_snapshot()

    def _is_root_pending(self, root: Root) -> bool:
        """Whether a change waits for signatures: it is the next version, and brings a new expiry, too."""
        try:
            return self.pending_root.exists() and Proposal.load(self.pending_root).follows(root)
        except BundleError:  # whoever completes or discards it gets to see what is wrong with it
            return True

    def _is_due(self, role: str, edition: Edition) -> bool:
        left = edition.published.of(role).expires - edition.now
        return left < edition.lifetimes.of(role) / _RENEW_BEFORE

    def _problem(self, info: TargetFile, release: Release | None) -> str | None:
        path = self._file_of(info)
        try:
            with open_regular(path) as stream:
                info.verify_length_and_hashes(stream)
            if release is not None:
                description = inspect(path)
                if (description.name, description.version) != (release.bundle, release.version):
                    return f"{path}: is {description.name} {description.version}, the index says {release}"
        except (OSError, LengthOrHashMismatchError, BundleError) as error:
            return f"{path}: {error}" if isinstance(error, LengthOrHashMismatchError) else str(error)
        return None

    def _lifetimes(self) -> Lifetimes:
        path = self.directory / SETTINGS
        try:
            settings = strict_yaml.load(_read(path))
        except ValueError as error:
            raise PublishError(str(path), str(error)) from None
        settings = {} if settings is None else settings
        expiry = settings.get("expiry", {}) if isinstance(settings, dict) else None
        if not isinstance(expiry, dict) or settings.keys() - {"expiry"}:
            what = "wanted the key 'expiry' with a duration for each role, and nothing else"
            raise PublishError(str(path), what)
        return Lifetimes.parse(expiry, f"{path}: expiry")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One publisher at a time; the kernel lets go of the lock when the process ends, however it ends."""
        path = self.directory / ".lock"
        with _explained(self.directory), open(os.open(path, _LOCK, 0o644), "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PublishError(str(self.directory), "is being published to by another process") from None
            transaction.finish(self._unfinished, self.metadata)
            yield


@contextlib.contextmanager
def _explained(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PublishError(str(error.filename or directory), error.strerror or str(error)) from error


def _archive(path: Path, name: str | None, version: str | None) -> BuiltBundle:
    description = inspect(path)
    for field, found, wanted in (("name", description.name, name), ("version", description.version, version)):
        if wanted is not None and found != wanted:
            raise PublishError(str(path), f"{field} is {found!r} in the archive, {wanted!r} was asked for")
    counted = measure(path)
    return BuiltBundle(path, counted.size, counted.sha256, description)


def _index_info(index: Index) -> TargetFile:
    return TargetFile.from_data(INDEX, index.to_bytes(), ["sha256"])


def _statuses(published: Published) -> list[RoleStatus]:
    roles = [published.of(role) for role in ROLES]
    return [RoleStatus(signed.type, signed.version, signed.expires) for signed in roles]


def _make_directory(path: Path) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(_DIRECTORY_MODE)  # whatever the umask: a web server reads here


def _read(path: Path) -> bytes:
    try:
        return read_limited(path, LARGEST_STORED)
    except OSError as error:
        raise PublishError(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(str(path), str(error)) from None


def _settings_text(lifetimes: Mapping[str, str]) -> str:
    Lifetimes.parse(lifetimes, "expiry")
    wanted = {"root": "365d", "targets": "90d", "snapshot": "30d", "timestamp": "7d", **lifetimes}
    lines = "".join(f"  {role}: {text}\n" for role, text in wanted.items())
    return f"""\
# How long what this site signs is good for. Hosts stay on what they have when it has expired.
# `puller site refresh` signs anew; run it by a timer, well within the lifetime of the timestamp.
expiry:
{lines}"""
