"""A site's metadata, as its publisher reads, signs and writes it.

* What is signed anew was signed before: metadata that the site's own root does not stand behind is
  refused, so that a change made behind the publisher's back is not signed by the next `puller site
  refresh`.
* An edition is signed and checked in memory as a whole. A missing key or a wrong passphrase leaves no trace.
* It is written so that a reader, also one that copies the files meanwhile, sees the old edition or the
  new one: files with a version in their name first, none of them ever changed, and ``timestamp.json``,
  which names them, last.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from tuf.api.exceptions import RepositoryError
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

from bundles.errors import FormatError, KeyFileError, PublishError, SignatureError
from bundles.files import read_limited, write_file
from bundles.keys import Passphrase, Signer, key_file, load_signer
from bundles.lifetimes import Lifetimes
from bundles.metadata import check_metadata

ROLES = ("root", "targets", "snapshot", "timestamp")

_LARGEST = 50_000_000
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
        root = _newest_root(directory, _load(Root, anchor))
        timestamp = _load(Timestamp, directory / "timestamp.json", root)
        snapshot = _load(Snapshot, directory / f"{timestamp.snapshot_meta.version}.snapshot.json", root)
        version = snapshot.meta["targets.json"].version
        return cls(root, _load(Targets, directory / f"{version}.targets.json", root), snapshot, timestamp)

    def of(self, role: str) -> Signed:
        signed: Signed = getattr(self, role)
        return signed


class Keyring:
    """The private keys of a site; each is asked for its passphrase once."""

    def __init__(self, directory: Path, passphrase: Passphrase) -> None:
        self._directory = directory
        self._passphrase = passphrase
        self._signers: dict[Path, Signer] = {}

    def holds(self, role: str, root: Root) -> bool:
        """Whether enough keys are here to sign for ``role``."""
        return len(self._paths(role, root)) >= root.roles[role].threshold

    def signers(self, role: str, root: Root) -> list[Signer]:
        """Those that sign for ``role``; raises `KeyFileError` when they are too few or cannot be used."""
        paths, threshold = self._paths(role, root), root.roles[role].threshold
        if len(paths) < threshold:
            wanted = ", ".join(
                key_file(self._directory, role, key_id).name for key_id in root.roles[role].keyids
            )
            what = f"holds {len(paths)} of the {threshold} keys needed to sign for {role}, wanted {wanted}"
            raise KeyFileError(str(self._directory), what)
        return [self._signer(path, key_id) for path, key_id in paths.items()]

    def _paths(self, role: str, root: Root) -> dict[Path, str]:
        ids = {key_file(self._directory, role, key_id): key_id for key_id in root.roles[role].keyids}
        return {path: key_id for path, key_id in ids.items() if path.exists()}

    def _signer(self, path: Path, key_id: str) -> Signer:
        if path not in self._signers:
            self._signers[path] = load_signer(path, self._passphrase)
        signer = self._signers[path]
        if signer.public_key.keyid != key_id:
            raise KeyFileError(str(path), f"holds the key {signer.public_key.keyid}, wanted {key_id}")
        return signer


@dataclass(slots=True)
class Edition:
    """The next metadata of a site, until `write` only in memory. Roles are signed in the order of `ROLES`."""

    directory: Path
    published: Published
    keyring: Keyring
    lifetimes: Lifetimes
    now: datetime
    files: dict[str, bytes] = field(default_factory=dict)

    def sign_root(self) -> None:
        """Sign the root anew, with the next version and expiry."""
        data = self._signed(self.published.root)
        self.files[f"{self.published.root.version}.root.json"] = data

    def sign_targets(self, changed: dict[str, TargetFile] | None = None) -> None:
        """Sign the targets anew, ``changed`` among them, and with them the snapshot that names them."""
        targets = self.published.targets
        targets.targets |= changed or {}
        data = self._signed(targets)
        self.files[f"{targets.version}.targets.json"] = data
        self.published.snapshot.meta["targets.json"] = MetaFile.from_data(targets.version, data, [_HASH])
        self.sign_snapshot()

    def sign_snapshot(self) -> None:
        snapshot = self.published.snapshot
        data = self._signed(snapshot)
        self.files[f"{snapshot.version}.snapshot.json"] = data
        self.published.timestamp.snapshot_meta = MetaFile.from_data(snapshot.version, data, [_HASH])

    def sign_timestamp(self) -> None:
        """Completes every edition."""
        self.files["timestamp.json"] = self._signed(self.published.timestamp)

    def write(self) -> None:
        """Raises ``OSError``; what was published before stays complete then."""
        for name, data in self.files.items():
            write_file(self.directory / name, data)

    def _signed(self, signed: Signed) -> bytes:
        role, root = signed.type, self.published.root
        signers = self.keyring.signers(role, root)
        signed.version = self._next_version(role)
        signed.expires = self.now + self.lifetimes.of(role)
        metadata: Metadata[Any] = Metadata(signed)
        for signer in signers:
            metadata.sign(signer, append=True)
        root.verify_delegate(role, metadata.signed_bytes, metadata.signatures)
        return metadata.to_bytes()

    def _next_version(self, role: str) -> int:
        """One more than any before. What a crash left behind may have been copied: it keeps its name."""
        names = (_VERSIONED.fullmatch(path.name) for path in self.directory.glob(f"*.{role}.json"))
        return 1 + max([self.published.of(role).version, *(int(match[1]) for match in names if match)])


def first_root(keys: dict[str, Signer]) -> Root:
    """The root of a new site, with one key for each role; not yet signed."""
    root = Root(consistent_snapshot=True)
    for role, signer in keys.items():
        root.add_key(signer.public_key, role)
    return root


def _newest_root(directory: Path, root: Root) -> Root:
    while (path := directory / f"{root.version + 1}.root.json").exists():
        following = _load(Root, path, root)
        if following.version != root.version + 1:
            raise SignatureError(str(path), f"is version {following.version}, wanted {root.version + 1}")
        root = following
    return root


def _load(kind: type[_Role], path: Path, root: Root | None = None) -> _Role:
    """Metadata that ``root``, and if it is a root its own keys, signed."""
    data = _read(path)
    check_metadata(data, str(path))
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
    return signed


def _read(path: Path) -> bytes:
    try:
        return read_limited(path, _LARGEST)
    except OSError as error:
        raise PublishError(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(str(path), str(error)) from None
