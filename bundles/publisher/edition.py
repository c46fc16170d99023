"""The next metadata of a site, until it is written only in memory.

* An edition is signed and checked as a whole. A missing key or a wrong passphrase leaves no trace.
* It is written so that a reader, also one that copies the files meanwhile, sees the old edition or the new one: files
  with a version in their name first, none of them ever changed, then ``timestamp.json``, which names them, and last a
  new root.
* A new root takes keys away only from metadata that is good without them. What is signed anew for it is signed by the
  old keys too, as far as they can be had, so that hosts accept it before they see the new root and after.
* The bins are signed by the keys of the targets: those that change, and nothing else.
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
from bundles.format.bins import BITS, PREFIX, bin_of
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
from bundles.publisher.expiry import Lifetimes
from bundles.publisher.keys import Keyring, Signer, is_verified
from bundles.publisher.published import ROLES, Published

_HASH = "sha256"
_VERSIONED = re.compile(r"([0-9]+)\.([A-Za-z0-9_-]+)\.json")
_TIMESTAMP = "timestamp.json"


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
    _highest: dict[str, int] = field(default_factory=dict)

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
            if not is_verified(metadata, delegator):
                raise SignatureError(f"root version {root.version}", "is not signed by enough keys")
        self.former_root, self.published.root = self.published.root, root
        self.root_file = _for_hosts(Root.type, metadata)

    def stale_under(self, root: Root) -> tuple[str, ...]:
        """Roles to be signed anew for ``root``: those that it does not stand behind, and those that name them."""
        stale = [role for role in ROLES if role in self.published.documents and self._is_stale(role, root)]
        if "targets" not in stale and self._stale_bins(root):
            stale.insert(0, "targets")
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

    def sign_targets(self, due: Iterable[str] = ()) -> None:
        """Sign the targets anew, and those bins that are ``due`` or are not signed as the root demands.

        With them the snapshot that names them.
        """
        stale = self._stale_bins(self.published.root)
        self._delegate()
        targets = self.published.targets
        self._add(Targets.type, targets)
        for name in sorted({*stale, *due}):
            self._add(name, self.published.bin(name))
        self.sign_snapshot()

    def sign_bins(self, names: Iterable[str]) -> None:
        """Sign some bins anew, and the snapshot that names them."""
        names = sorted(set(names))
        if not self._delegates_to(
            self.published.root
        ):  # a key was added since, and may be the one that is here
            self.sign_targets(names)
            return
        for name in names:
            self._add(name, self.published.bin(name))
        self.sign_snapshot()

    def change(self, changed: Mapping[str, TargetFile | None]) -> None:
        """Sign anew the bins of these targets, ``None`` for none any more, and the snapshot that names them."""
        for path, info in changed.items():
            targets = self.published.bin(bin_of(path)).targets
            if info is not None:
                targets[path] = info
            else:
                targets.pop(path, None)
        self.sign_bins(map(bin_of, changed))

    def sign_snapshot(self) -> None:
        """Sign the snapshot anew; the timestamp has to follow."""
        snapshot = self.published.snapshot
        data = self._signed("snapshot", snapshot)
        self.files[f"{snapshot.version}.snapshot.json"] = data
        self.published.timestamp.snapshot_meta = MetaFile.from_data(snapshot.version, data, [_HASH])

    def sign_timestamp(self) -> None:
        """Sign the timestamp anew, which completes every edition."""
        self.files[_TIMESTAMP] = self._signed("timestamp", self.published.timestamp)

    @property
    def is_good_before_its_root(self) -> bool:
        """Whether hosts that have not seen the new root accept what it is published with."""
        if self.former_root is None:
            return True
        signed = [Metadata.from_bytes(data) for data in self.files.values()]
        return all(is_verified(metadata, self.former_root) for metadata in signed)

    def has_signed(self, role: str) -> bool:
        """Whether this edition signs ``role``, which is not the root, anew."""
        return f"{self.published.of(role).version}.{role}.json" in self.files

    def contents(self) -> dict[str, bytes]:
        """All files by name, in the order of writing."""
        # The timestamp makes the others visible. The root last: it may take away keys that the rest was signed with.
        files = sorted(self.files, key=lambda name: name == _TIMESTAMP)
        root = {f"{self.published.root.version}.root.json": self.root_file} if self.root_file else {}
        return {name: self.files[name] for name in files} | root

    def write(self) -> None:
        """Raises ``OSError``; what was published before stays complete then."""
        for name, data in self.contents().items():
            write_file(self.directory / name, data)

    def _add(self, name: str, targets: Targets) -> None:
        """Sign the targets, or a bin, and let the snapshot name them."""
        data = self._signed(name, targets)
        self.files[f"{targets.version}.{name}.json"] = data
        self.published.snapshot.meta[f"{name}.json"] = MetaFile.from_data(targets.version, data, [_HASH])

    def _delegate(self) -> None:
        """Let the targets delegate to their own keys, and to those of the root before as long as it is in force.

        What bins are held to is the root (``bundles.format.bins``). Hosts that do not know the new one read them, too.
        """
        roots = [self.published.root, *([self.former_root] if self.former_root else [])]
        keys = {key_id: root.get_key(key_id) for root in roots for key_id in root.roles[Targets.type].keyids}
        threshold = min(root.roles[Targets.type].threshold for root in roots)
        roles = SuccinctRoles(list(keys), threshold, BITS, PREFIX)
        self.published.targets.delegations = Delegations(keys, succinct_roles=roles)

    def _delegates_to(self, root: Root) -> bool:
        """Whether a bin that is signed as ``root`` demands is one that the targets delegate to."""
        wanted, delegations = root.roles[Targets.type], self.published.targets.delegations
        roles = delegations.succinct_roles if delegations else None
        return (
            roles is not None
            and set(wanted.keyids) <= set(roles.keyids)
            and roles.threshold <= wanted.threshold
        )

    def _stale_bins(self, root: Root) -> list[str]:
        for name in (names := self.published.bin_names()):
            self.published.bin(name)  # reads it
        return [name for name in names if self._is_stale(name, root)]

    def _is_stale(self, name: str, root: Root) -> bool:
        """Not good any more; or still good, but with the signature of a key that the role has lost."""
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
            with contextlib.suppress(KeyFileError):  # a key may be replaced because it is lost
                self.keyring.sign_as_far_as_possible(metadata, role, self.former_root)
        return _for_hosts(name, metadata)

    def _next_version(self, name: str, signed: Signed) -> int:
        """One more than any before. What a crash left behind may have been copied: it keeps its name."""
        if not self._highest:
            for file in os.listdir(self.directory):
                if found := _VERSIONED.fullmatch(file):
                    self._highest[found[2]] = max(self._highest.get(found[2], 0), int(found[1]))
        self._highest[name] = 1 + max(signed.version, self._highest.get(name, 0))
        return self._highest[name]


def _for_hosts(name: str, metadata: Metadata[Any]) -> bytes:
    """The file of new metadata; raises `PublishError` when it is larger than hosts read."""
    data, signed = metadata.to_bytes(), metadata.signed
    check_readable(f"{signed.version}.{name}.json", len(data), LARGEST_METADATA[signed.type])
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
