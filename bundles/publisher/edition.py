"""The next metadata of a site, in memory until it is written.

* An edition is signed and checked as a whole. A missing key or a wrong passphrase leaves no trace.
* The write order lets every reader, including a copy in progress, see the old or the new edition: first files with a
  version in their names, which never change, then ``timestamp.json``, which names them, and last a new root.
* A new root removes keys only from metadata that is valid without them. Metadata signed for a new root is also signed
  with the old keys, as far as they are available. Hosts accept it before and after they see the new root.
* The bins are signed with the keys of the targets. Only changed bins are signed.
"""

import contextlib
import copy
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bundles.errors import KeyFileError, PublishError, SignatureError
from bundles.filesystem.atomic import write_file
from bundles.format.site_targets import BIN_PREFIX
from bundles.format.size_limits import LARGEST_METADATA
from bundles.format.tuf import (
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Signed,
    SuccinctRoles,
    TargetFile,
    Targets,
)
from bundles.publisher.published import ROLES, Published
from bundles.publisher.settings import Lifetimes
from bundles.publisher.signing_keys import Keyring, Signer, is_verified

_HASH = "sha256"
_VERSIONED = re.compile(r"([0-9]+)\.([A-Za-z0-9_-]+)\.json")
_TIMESTAMP = "timestamp.json"


@dataclass(slots=True)
class Edition:
    """The next metadata of a site, in memory until `write`. Roles are signed in the order of `ROLES`."""

    directory: Path
    published: Published
    keyring: Keyring
    lifetimes: Lifetimes
    now: datetime
    files: dict[str, bytes] = field(default_factory=dict)
    former_root: Root | None = None
    root_file: bytes | None = None
    _highest: dict[str, int] = field(default_factory=dict)

    def following_root(self, root: Root) -> Metadata[Root]:
        """Return ``root`` as the unsigned successor of the published root."""
        following = copy.deepcopy(root)  # the root in force still defines who must sign its successor
        following.version = self.published.root.version + 1
        following.expires = self.now + self.lifetimes.root
        return Metadata(following)

    def sign_root(self) -> None:
        """Sign the root again, with the next version and expiry. Raises `KeyFileError`."""
        metadata = self.following_root(self.published.root)
        self.keyring.sign(metadata, Root.type, metadata.signed)
        self.adopt_root(metadata)

    def adopt_root(self, metadata: Metadata[Root]) -> None:
        """Use a signed root in this edition. Raises `SignatureError` if it lacks signatures."""
        root = metadata.signed
        # Hosts require the keys of the previous root and its own (TUF 5.3.4).
        for delegator in (self.published.root, root):
            if not is_verified(metadata, delegator):
                raise SignatureError(f"root version {root.version}", "is not signed by enough keys")
        self.former_root, self.published.root = self.published.root, root
        self.root_file = _for_hosts(Root.type, metadata)

    def stale_under(self, root: Root) -> tuple[str, ...]:
        """Return the roles to sign again for ``root``: roles that it does not verify, and roles that name them."""
        stale = [role for role in ROLES if role in self.published.documents and self._is_stale(role, root)]
        if "targets" not in stale and self._stale_bins(root):
            stale.insert(0, "targets")
        return ROLES[ROLES.index(stale[0]) :] if stale else ()

    def sign_stale(self) -> tuple[str, ...]:
        """Sign again all roles that the root does not verify. Returns these roles. Raises `KeyFileError`."""
        stale = self.stale_under(self.published.root)
        if "targets" in stale:
            self.sign_targets()
        elif "snapshot" in stale:
            self.sign_snapshot()
        if stale:
            self.sign_timestamp()
        return stale

    def sign_targets(self, due: Iterable[str] = ()) -> None:
        """Sign the targets again, the bins that are ``due`` or not signed as the root requires, and the snapshot."""
        stale = self._stale_bins(self.published.root)
        self._delegate()
        targets = self.published.targets
        self._add(Targets.type, targets)
        for name in sorted({*stale, *due}):
            self._add(name, self.published.bin(name))
        self.sign_snapshot()

    def sign_bins(self, names: Iterable[str]) -> None:
        """Sign some bins again, and the snapshot."""
        names = sorted(set(names))
        if not self._delegates_to(self.published.root):  # a key was added since, and may be the available one
            self.sign_targets(names)
            return
        for name in names:
            self._add(name, self.published.bin(name))
        self.sign_snapshot()

    def change(self, changed: Mapping[str, TargetFile | None]) -> None:
        """Sign the bins of changed targets again, and the snapshot. ``None`` removes the target."""
        for path, info in changed.items():
            targets = self.published.bin_targets(path)
            if info is not None:
                targets[path] = info
            else:
                targets.pop(path, None)
        self.sign_bins(map(self.published.bin_for, changed))

    def sign_snapshot(self) -> None:
        """Sign the snapshot again. The caller signs the timestamp next."""
        snapshot = self.published.snapshot
        data = self._signed("snapshot", snapshot)
        self.files[f"{snapshot.version}.snapshot.json"] = data
        self.published.timestamp.snapshot_meta = MetaFile.from_data(snapshot.version, data, [_HASH])

    def sign_timestamp(self) -> None:
        """Sign the timestamp again, which completes an edition."""
        self.files[_TIMESTAMP] = self._signed("timestamp", self.published.timestamp)

    @property
    def is_good_before_its_root(self) -> bool:
        """Return whether hosts with the previous root accept this edition."""
        if self.former_root is None:
            return True
        signed = [Metadata.from_bytes(data) for data in self.files.values()]
        return all(is_verified(metadata, self.former_root) for metadata in signed)

    def has_signed(self, role: str) -> bool:
        """Return whether this edition signs ``role`` again. ``role`` is not the root."""
        return f"{self.published.of(role).version}.{role}.json" in self.files

    def contents(self) -> dict[str, bytes]:
        """Return all files by name, in the order of writing."""
        # The timestamp makes other files visible. The root is last, because it may remove keys that signed them.
        files = sorted(self.files, key=lambda name: name == _TIMESTAMP)
        root = {f"{self.published.root.version}.root.json": self.root_file} if self.root_file else {}
        return {name: self.files[name] for name in files} | root

    def write(self) -> None:
        """Write all files. Raises ``OSError``, and the previous edition then stays complete."""
        for name, data in self.contents().items():
            write_file(self.directory / name, data)

    def _add(self, name: str, targets: Targets) -> None:
        """Sign the targets or a bin, and name them in the snapshot."""
        data = self._signed(name, targets)
        self.files[f"{targets.version}.{name}.json"] = data
        self.published.snapshot.meta[f"{name}.json"] = MetaFile.from_data(targets.version, data, [_HASH])

    def _delegate(self) -> None:
        """Delegate from the targets to their own keys, and temporarily to the keys of the previous root.

        Bins are verified against the root (``bundles.format.tuf``). Hosts with the previous root read them, too.
        """
        roots = [self.published.root, *([self.former_root] if self.former_root else [])]
        keys = {key_id: root.get_key(key_id) for root in roots for key_id in root.roles[Targets.type].keyids}
        threshold = min(root.roles[Targets.type].threshold for root in roots)
        roles = SuccinctRoles(list(keys), threshold, self.published.bin_bits, BIN_PREFIX)
        self.published.targets.delegations = Delegations(keys, succinct_roles=roles)

    def _delegates_to(self, root: Root) -> bool:
        """Return whether the targets delegate to every bin that is signed as ``root`` requires."""
        desired, roles = root.roles[Targets.type], self.published.bin_roles
        return (
            roles is not None
            and set(desired.keyids) <= set(roles.keyids)
            and roles.threshold <= desired.threshold
        )

    def _stale_bins(self, root: Root) -> list[str]:
        for name in (names := self.published.bin_names()):
            self.published.bin(name)  # loads it
        return [name for name in names if self._is_stale(name, root)]

    def _is_stale(self, name: str, root: Root) -> bool:
        """Return whether a document is invalid, or has a signature of a removed key and can be signed again."""
        document = self.published.documents[name]
        role = document.signed.type
        lost = document.signatures.keys() - set(root.roles[role].keyids)
        return not is_verified(document, root) or bool(lost and self.keyring.holds(role, root))

    def _signed(self, name: str, signed: Signed) -> bytes:
        role, root = signed.type, self.published.root
        signed.version = self._next_version(name, signed)
        signed.expires = self.now + self.lifetimes.of(role)
        metadata: Metadata[Any] = Metadata(signed)
        self.keyring.sign(metadata, role, root)
        root.verify_delegate(role, metadata.signed_bytes, metadata.signatures)
        if self.former_root and not is_verified(metadata, self.former_root):
            with contextlib.suppress(KeyFileError):  # the previous key may be replaced because it is lost
                self.keyring.sign_as_far_as_possible(metadata, role, self.former_root)
        return _for_hosts(name, metadata)

    def _next_version(self, name: str, signed: Signed) -> int:
        """Return a version above all existing versions, because copies of files that a crash left may exist."""
        if not self._highest:
            for file in os.listdir(self.directory):
                if match := _VERSIONED.fullmatch(file):
                    self._highest[match[2]] = max(self._highest.get(match[2], 0), int(match[1]))
        self._highest[name] = 1 + max(signed.version, self._highest.get(name, 0))
        return self._highest[name]


def _for_hosts(name: str, metadata: Metadata[Any]) -> bytes:
    """Return the file of new metadata. Raises `PublishError` if it exceeds the limit of hosts."""
    data, signed = metadata.to_bytes(), metadata.signed
    check_readable(f"{signed.version}.{name}.json", len(data), LARGEST_METADATA[signed.type])
    return data


def check_readable(name: str, size: int, largest: int) -> None:
    """Raise `PublishError` for a file that hosts would reject. ``size`` and ``largest`` are bytes."""
    if size > largest:
        raise PublishError(
            name, f"would have {size} bytes, and hosts read at most {largest}, so nothing was published"
        )


def first_root(keys: dict[str, Signer]) -> Root:
    """Return the unsigned root of a new site, with one key for each role."""
    root = Root(consistent_snapshot=True)
    for role, signer in keys.items():
        root.add_key(signer.public_key, role)
    return root
