"""A site's metadata, as its publisher reads, signs and writes it.

* What is signed anew was signed before: metadata that the site's own root does not stand behind is
  refused, so that a change made behind the publisher's back is not signed by the next `puller site
  refresh`.
* An edition is signed and checked in memory as a whole. A missing key or a wrong passphrase leaves no trace.
* It is written so that a reader, also one that copies the files meanwhile, sees the old edition or the
  new one: files with a version in their name first, none of them ever changed, then ``timestamp.json``,
  which names them, and last a new root.
* A new root takes keys away only from metadata that is good without them. What is signed anew for it is signed
  by the old keys too, as far as they can be had, so that hosts accept it before they see the new root and after.
"""

import contextlib
import copy
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from securesystemslib.exceptions import UnverifiedSignatureError
from tuf.api.exceptions import RepositoryError, UnsignedMetadataError
from tuf.api.metadata import (
    Metadata,
    MetaFile,
    Root,
    Signed,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)

from bundles.errors import FormatError, KeyFileError, PublishError, SignatureError, TokenError, reason_of
from bundles.filesystem.atomic import read_limited, write_file
from bundles.format.limits import LARGEST_METADATA, LARGEST_STORED
from bundles.format.metadata import check_metadata
from bundles.publisher.expiry import Lifetimes
from bundles.publisher.keys import NewKey, Passphrase, Signer, find_key_file, key_file, open_key

ROLES = ("root", "targets", "snapshot", "timestamp")

_HASH = "sha256"
_VERSIONED = re.compile(r"(\d+)\.(\w+)\.json")
_Role = TypeVar("_Role", Root, Targets, Snapshot, Timestamp)


@dataclass(slots=True)
class Published:
    """The metadata of a site, one of each role; version 0 is that of metadata not yet signed."""

    root: Root
    targets: Targets
    snapshot: Snapshot
    timestamp: Timestamp
    documents: dict[str, Metadata[Any]] = field(default_factory=dict)
    """The metadata as it was read, with its signatures, of each role but the root."""

    @classmethod
    def nothing(cls, root: Root) -> "Published":
        """Before the first edition."""
        published = cls(root, Targets(), Snapshot(), Timestamp())
        for role in ROLES:
            published.of(role).version = 0
        return published

    @classmethod
    def load(cls, directory: Path, anchor: Path) -> "Published":
        """Read and verify what ``timestamp.json`` leads to; raises `FormatError` and `SignatureError`.

        ``anchor`` is the publisher's own copy of a root. Expiry is not looked at: it is why one signs anew.
        """
        root = _newest_root(directory, _load(Root, anchor).signed)
        timestamp = _load(Timestamp, directory / "timestamp.json", root)
        version = timestamp.signed.snapshot_meta.version
        snapshot = _load(Snapshot, directory / f"{version}.snapshot.json", root)
        version = snapshot.signed.meta["targets.json"].version
        targets = _load(Targets, directory / f"{version}.targets.json", root)
        documents: dict[str, Metadata[Any]] = {
            "targets": targets,
            "snapshot": snapshot,
            "timestamp": timestamp,
        }
        return cls(root, targets.signed, snapshot.signed, timestamp.signed, documents)

    def of(self, role: str) -> Signed:
        """The metadata of one role."""
        signed: Signed = getattr(self, role)
        return signed


class Keyring:
    """The private keys of a site that can be used here; each is asked for its passphrase once."""

    def __init__(self, directory: Path, passphrase: Passphrase) -> None:
        self.directory = directory
        self._passphrase = passphrase
        self._signers: dict[str, Signer] = {}

    def add(self, key: NewKey) -> None:
        """Use a key that has no file yet."""
        if key.signer is not None:
            self._signers[key.public.keyid] = key.signer

    def holds(self, role: str, root: Root) -> bool:
        """Whether enough keys are here to sign for ``role``."""
        return len(self._here(role, root)) >= root.roles[role].threshold

    def sign(self, metadata: Metadata[Any], role: str, root: Root) -> None:
        """Sign with the keys of ``role``; raises `KeyFileError` when they are too few or cannot be used.

        A token that does not answer matters only when the others are not enough.
        """
        self.check_holds(role, root)
        failures = self.sign_as_far_as_possible(metadata, role, root)
        if failures and not _is_verified(metadata, root):
            raise failures[0]

    def check_holds(self, role: str, root: Root) -> None:
        """Raises `KeyFileError` when not enough keys are here to sign for ``role``."""
        here, threshold = self._here(role, root), root.roles[role].threshold
        if len(here) < threshold:
            wanted = ", ".join(
                key_file(self.directory, role, key_id).name for key_id in root.roles[role].keyids
            )
            what = f"holds {len(here)} of the {threshold} keys needed to sign for {role}, wanted {wanted}"
            raise KeyFileError(str(self.directory), what)

    def sign_as_far_as_possible(self, metadata: Metadata[Any], role: str, root: Root) -> list[TokenError]:
        """Sign with the keys of ``role`` that are here, be they few or none; what tokens do not answer is returned.

        Raises `KeyFileError` for a key file that cannot be used.
        """
        failures: list[TokenError] = []
        for key_id in self._here(role, root):
            if key_id in metadata.signatures:  # nobody is asked for a PIN twice
                continue
            try:
                signer = self._signer(role, root, key_id)
                sign_with(metadata, signer, str(find_key_file(self.directory, role, key_id) or "a new key"))
            except TokenError as error:
                failures.append(error)
        return failures

    def _here(self, role: str, root: Root) -> list[str]:
        return [
            key_id
            for key_id in root.roles[role].keyids
            if key_id in self._signers or find_key_file(self.directory, role, key_id)
        ]

    def _signer(self, role: str, root: Root, key_id: str) -> Signer:
        if key_id not in self._signers:
            path = find_key_file(self.directory, role, key_id) or key_file(self.directory, role, key_id)
            self._signers[key_id] = open_key(path, root.get_key(key_id), self._passphrase)
        return self._signers[key_id]


def sign_with(metadata: Metadata[Any], signer: Signer, where: str) -> None:
    """Add one signature, and check it; raises `TokenError`, and `KeyFileError` when nobody gives a PIN."""
    try:
        signature = metadata.sign(signer, append=True)
        # A token may hold another key than it did when it was added: hosts would be the first to find out.
        signer.public_key.verify_signature(signature, metadata.signed_bytes)
    except UnsignedMetadataError as error:
        cause = error.__cause__ or error
        if isinstance(cause, KeyFileError):
            raise cause from None
        raise TokenError(where, f"does not sign: {reason_of(cause)}") from error
    except UnverifiedSignatureError:
        del metadata.signatures[signer.public_key.keyid]
        what = f"signs with another key than {signer.public_key.keyid}, which the site knows"
        raise TokenError(where, what) from None


@dataclass(slots=True)
class Edition:
    """The next metadata of a site, until `write` only in memory. Roles are signed in the order of `ROLES`."""

    directory: Path
    published: Published
    keyring: Keyring
    lifetimes: Lifetimes
    now: datetime
    files: dict[str, bytes] = field(default_factory=dict)
    former_root: Root | None = None
    root_file: bytes | None = None

    def following_root(self, root: Root) -> Metadata[Root]:
        """``root`` as the one that follows what is published, not yet signed."""
        following = copy.deepcopy(root)  # the one in force still says who must sign this one
        following.version = self.published.root.version + 1
        following.expires = self.now + self.lifetimes.root
        return Metadata(following)

    def sign_root(self) -> None:
        """Sign the root anew, with the next version and expiry; raises `KeyFileError`."""
        metadata = self.following_root(self.published.root)
        self.keyring.sign(metadata, Root.type, metadata.signed)
        self.adopt_root(metadata)

    def adopt_root(self, metadata: Metadata[Root]) -> None:
        """Make the next root that of this edition; raises `SignatureError` when it is not signed enough."""
        root = metadata.signed
        # By the keys of the root before and by its own, as hosts will check it (TUF 5.3.4).
        for delegator in (self.published.root, root):
            if not _is_verified(metadata, delegator):
                raise SignatureError(f"root version {root.version}", "is not signed by enough keys")
        self.former_root, self.published.root = self.published.root, root
        self.root_file = _for_hosts(metadata)

    def stale_under(self, root: Root) -> tuple[str, ...]:
        """Roles to be signed anew for ``root``: those that it does not stand behind, and those that name them."""
        stale = [role for role in ROLES if role in self.published.documents and self._is_stale(role, root)]
        return ROLES[ROLES.index(stale[0]) :] if stale else ()

    def sign_stale(self) -> tuple[str, ...]:
        """Sign anew what the root does not stand behind; the roles signed. Raises `KeyFileError`."""
        stale = self.stale_under(self.published.root)
        if "targets" in stale:
            self.sign_targets()
        elif "snapshot" in stale:
            self.sign_snapshot()
        if stale:
            self.sign_timestamp()
        return stale

    def sign_targets(self, changed: dict[str, TargetFile] | None = None) -> None:
        """Sign the targets anew, ``changed`` among them, and with them the snapshot that names them."""
        targets = self.published.targets
        targets.targets |= changed or {}
        data = self._signed(targets)
        self.files[f"{targets.version}.targets.json"] = data
        self.published.snapshot.meta["targets.json"] = MetaFile.from_data(targets.version, data, [_HASH])
        self.sign_snapshot()

    def sign_snapshot(self) -> None:
        """Sign the snapshot anew; the timestamp has to follow."""
        snapshot = self.published.snapshot
        data = self._signed(snapshot)
        self.files[f"{snapshot.version}.snapshot.json"] = data
        self.published.timestamp.snapshot_meta = MetaFile.from_data(snapshot.version, data, [_HASH])

    def sign_timestamp(self) -> None:
        """Sign the timestamp anew, which completes every edition."""
        self.files["timestamp.json"] = self._signed(self.published.timestamp)

    @property
    def is_good_before_its_root(self) -> bool:
        """Whether hosts that have not seen the new root accept what it is published with."""
        if self.former_root is None:
            return True
        signed = [Metadata.from_bytes(data) for data in self.files.values()]
        return all(_is_verified(metadata, self.former_root) for metadata in signed)

    def has_signed(self, role: str) -> bool:
        """Whether this edition signs ``role``, which is not the root, anew."""
        return f"{self.published.of(role).version}.{role}.json" in self.files

    def contents(self) -> dict[str, bytes]:
        """All files by name, in the order of writing."""
        # The root last: it may take away keys that the rest was signed with until now.
        root = {f"{self.published.root.version}.root.json": self.root_file} if self.root_file else {}
        return self.files | root

    def write(self) -> None:
        """Raises ``OSError``; what was published before stays complete then."""
        for name, data in self.contents().items():
            write_file(self.directory / name, data)

    def _is_stale(self, role: str, root: Root) -> bool:
        """Not good any more; or still good, but with the signature of a key that the role has lost."""
        document = self.published.documents[role]
        lost = document.signatures.keys() - set(root.roles[role].keyids)
        return not _is_verified(document, root) or bool(lost and self.keyring.holds(role, root))

    def _signed(self, signed: Signed) -> bytes:
        role, root = signed.type, self.published.root
        signed.version = self._next_version(role)
        signed.expires = self.now + self.lifetimes.of(role)
        metadata: Metadata[Any] = Metadata(signed)
        self.keyring.sign(metadata, role, root)
        root.verify_delegate(role, metadata.signed_bytes, metadata.signatures)
        if self.former_root and not _is_verified(metadata, self.former_root):
            with contextlib.suppress(KeyFileError):  # a key may be replaced because it is lost
                self.keyring.sign_as_far_as_possible(metadata, role, self.former_root)
        return _for_hosts(metadata)

    def _next_version(self, role: str) -> int:
        """One more than any before. What a crash left behind may have been copied: it keeps its name."""
        names = (_VERSIONED.fullmatch(path.name) for path in self.directory.glob(f"*.{role}.json"))
        return 1 + max([self.published.of(role).version, *(int(match[1]) for match in names if match)])


def _for_hosts(metadata: Metadata[Any]) -> bytes:
    """The file of new metadata; raises `PublishError` when it is larger than hosts read."""
    data, signed = metadata.to_bytes(), metadata.signed
    check_readable(f"{signed.version}.{signed.type}.json", len(data), LARGEST_METADATA[signed.type])
    return data


def check_readable(name: str, size: int, largest: int) -> None:
    """Raises `PublishError` for a file that hosts would refuse; ``size`` and ``largest`` are bytes."""
    if size > largest:
        raise PublishError(
            name, f"would have {size} bytes, hosts read at most {largest}: nothing was published"
        )


def first_root(keys: dict[str, Signer]) -> Root:
    """The root of a new site, with one key for each role; not yet signed."""
    root = Root(consistent_snapshot=True)
    for role, signer in keys.items():
        root.add_key(signer.public_key, role)
    return root


def _newest_root(directory: Path, root: Root) -> Root:
    while (path := directory / f"{root.version + 1}.root.json").exists():
        following = _load(Root, path, root).signed
        if following.version != root.version + 1:
            raise SignatureError(str(path), f"is version {following.version}, wanted {root.version + 1}")
        root = following
    return root


def _load(kind: type[_Role], path: Path, root: Root | None = None) -> Metadata[_Role]:
    """Metadata that ``root``, and if it is a root its own keys, signed."""
    data = read_stored(path)
    check_metadata(data, str(path), kind.type, root)
    try:
        metadata = Metadata[_Role].from_bytes(data)
        signed = metadata.signed
        if not isinstance(signed, kind):
            raise FormatError(str(path), f"is metadata of type {signed.type!r}, wanted {kind.type!r}")
        for delegator in (root, signed):
            if isinstance(delegator, Root):
                delegator.verify_delegate(kind.type, metadata.signed_bytes, metadata.signatures)
    except RepositoryError as error:
        reason = error.__cause__ or error
        raise SignatureError(
            str(path), f"is not what this site signed ({reason}); restore it from a copy"
        ) from None
    return metadata


def _is_verified(metadata: Metadata[Any], root: Root) -> bool:
    role = metadata.signed.type
    return bool(root.get_verification_result(role, metadata.signed_bytes, metadata.signatures))


def read_stored(path: Path) -> bytes:
    """A file of a site; raises ``PublishError`` when it cannot be read, ``FormatError`` when it is too large."""
    try:
        return read_limited(path, LARGEST_STORED)
    except OSError as error:
        raise PublishError(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(str(path), str(error)) from None
