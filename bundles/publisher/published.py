"""Published metadata and records of a site, verified with the site's own root, and the versions of its bundles.

* Metadata that the root does not verify is rejected. Otherwise the next `puller site refresh` would sign a change
  that the publisher did not make.
* Bins are read on demand: a publication needs two of them.
* A `Record` consists of the index and the history of a bundle, which change together. The index contains the current
  statement of each channel. The history also contains the times.
* The index offers the versions of all channels and the latest other versions, for hosts that are pinned to one of
  them. Its size is therefore bounded. To pin hosts to a version for a long time, name the version in a channel.
* The order of versions is for display only, because hosts never compare versions. It is the order of Debian packages
  and of ``sort -V``.
* The next version (``--version auto``) sorts after every published version. It depends on the published versions only,
  so it is the same on every machine and at any time.
* `Changes` lists the files of two versions that differ in contents, mode or existence.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

import msgspec
from tuf.api.exceptions import RepositoryError

from bundles.errors import FormatError, PublishError, SignatureError
from bundles.filesystem.atomic import read_limited
from bundles.format.description import BundleDescription
from bundles.format.fields import parse_version
from bundles.format.index import Artifact, History, Index
from bundles.format.release import Release
from bundles.format.site_targets import BIN_NAME, BIN_PREFIX, bin_of
from bundles.format.size_limits import LARGEST_STORED
from bundles.format.tuf import (
    Metadata,
    Root,
    Signed,
    Snapshot,
    SuccinctRoles,
    TargetFile,
    Targets,
    Timestamp,
    check_metadata,
)
from foundation.problems import ProblemCode

ROLES = ("root", "targets", "snapshot", "timestamp")

_Role = TypeVar("_Role", Root, Targets, Snapshot, Timestamp)


@dataclass(slots=True)
class Published:
    """The metadata of a site: one of each role, and the bins. Unsigned metadata has version 0."""

    directory: Path
    root: Root
    targets: Targets
    snapshot: Snapshot
    timestamp: Timestamp
    documents: dict[str, Metadata[Any]] = field(default_factory=dict)
    """The metadata with its signatures, of each role except the root, and of bins by name."""
    _read_under: Root = field(init=False)
    """The root in force when the metadata was read. ``root`` may be replaced by the next root."""

    def __post_init__(self) -> None:
        self._read_under = self.root

    @classmethod
    def nothing(cls, directory: Path, root: Root, bin_bits: int) -> "Published":
        """Return the state before the first edition, with two to the power of ``bin_bits`` empty bins."""
        published = cls(directory, root, Targets(), Snapshot(meta={}), Timestamp())
        for role in ROLES:
            published.of(role).version = 0
        names = SuccinctRoles([], 1, bin_bits, BIN_PREFIX).get_roles()
        published.documents = {name: Metadata(_empty_bin(name)) for name in names}
        return published

    @classmethod
    def load(cls, directory: Path, anchor: Path) -> "Published":
        """Read and verify the metadata that ``timestamp.json`` leads to. Raises `FormatError` and `SignatureError`.

        ``anchor`` is the publisher's own copy of a root. Expiry is ignored, because expired metadata is renewed by
        signing it.
        """
        root = _newest_root(directory, _load(Root, anchor).signed)
        timestamp = _load(Timestamp, directory / "timestamp.json", root)
        version = timestamp.signed.snapshot_meta.version
        snapshot = _load(Snapshot, directory / f"{version}.snapshot.json", root)
        version = snapshot.signed.meta["targets.json"].version
        targets = _load(Targets, path := directory / f"{version}.targets.json", root)
        _check_layout(targets.signed, path)
        documents: dict[str, Metadata[Any]] = {
            "targets": targets,
            "snapshot": snapshot,
            "timestamp": timestamp,
        }
        return cls(directory, root, targets.signed, snapshot.signed, timestamp.signed, documents)

    def of(self, role: str) -> Signed:
        """Return the metadata of one role."""
        signed: Signed = getattr(self, role)
        return signed

    def bin_names(self) -> list[str]:
        """Return the names of all bins."""
        named = (name.removesuffix(".json") for name in self.snapshot.meta)
        return [name for name in named if name != Targets.type] or [*self.documents]

    @property
    def bin_roles(self) -> SuccinctRoles | None:
        """The delegation of the targets to the bins, or ``None`` before the first edition."""
        delegations = self.targets.delegations
        return delegations.succinct_roles if delegations else None

    @property
    def bin_bits(self) -> int:
        """The number of bits that select a bin. A site keeps the number of bins of its first edition."""
        roles = self.bin_roles
        return roles.bit_length if roles else len(self.documents).bit_length() - 1

    def bin_for(self, path: str) -> str:
        """Return the name of the bin for the target ``path``."""
        return bin_of(path, self.bin_bits)

    def bin_targets(self, path: str) -> dict[str, TargetFile]:
        """Return all targets of the bin for the target ``path``. Raises `FormatError` and `SignatureError`."""
        return self.bin(self.bin_for(path)).targets

    def bin(self, name: str) -> Targets:
        """Return one bin. Raises `FormatError` and `SignatureError`."""
        if name not in self.documents:
            path = self._file_of(name)
            self.documents[name] = _load(Targets, path, self._read_under)
            if self.documents[name].signed.unrecognized_fields.get(BIN_NAME) != name:
                raise SignatureError(
                    str(path), f"contains another bin than {name}", hint="restore it from a copy"
                )
        signed: Targets = self.documents[name].signed
        return signed

    def bins(self) -> Iterator[Targets]:
        """Yield all bins."""
        yield from map(self.bin, self.bin_names())

    def expiries(self) -> dict[str, datetime]:
        """Return when each bin expires. Raises `SignatureError` for files that differ from the snapshot."""
        return {name: self._expiry(name) for name in self.bin_names()}

    def _expiry(self, name: str) -> datetime:
        data = read_stored(path := self._file_of(name))
        digest = self.snapshot.meta[f"{name}.json"].hashes or {}
        if hashlib.sha256(data).hexdigest() != digest.get("sha256"):
            detail = "differs from the content that this site signed"
            raise SignatureError(str(path), detail, hint="restore it from a copy")
        return datetime.fromisoformat(msgspec.json.decode(data)["signed"]["expires"])

    def _file_of(self, name: str) -> Path:
        return self.directory / f"{self.snapshot.meta[f'{name}.json'].version}.{name}.json"


def _empty_bin(name: str) -> Targets:
    empty = Targets(unrecognized_fields={BIN_NAME: name})
    empty.version = 0
    return empty


def _check_layout(targets: Targets, path: Path) -> None:
    if targets.delegations is None or targets.delegations.succinct_roles is None:
        detail = "contains the published files, as in sites of an older version"
        hint = "create a new site with `puller site init`, and publish the bundles there"
        raise PublishError(str(path), detail, hint=hint)


def _newest_root(directory: Path, root: Root) -> Root:
    while (path := directory / f"{root.version + 1}.root.json").exists():
        following = _load(Root, path, root).signed
        if following.version != root.version + 1:
            raise SignatureError(
                str(path), f"has version {following.version}", expected=f"{root.version + 1}"
            )
        root = following
    return root


def _load(kind: type[_Role], path: Path, root: Root | None = None) -> Metadata[_Role]:
    """Return metadata signed by ``root``, and a new root also by its own keys."""
    data = read_stored(path)
    check_metadata(data, str(path), kind.type, root)
    try:
        metadata = Metadata[_Role].from_bytes(data)
        signed = metadata.signed
        if not isinstance(signed, kind):
            raise FormatError(str(path), f"is metadata of type {signed.type!r}", expected=f"{kind.type!r}")
        for delegator in (root, signed):
            if isinstance(delegator, Root):
                delegator.verify_delegate(kind.type, metadata.signed_bytes, metadata.signatures)
    except RepositoryError as error:
        reason = error.__cause__ or error
        raise SignatureError(
            str(path),
            f"differs from the content that this site signed ({reason})",
            hint="restore it from a copy",
        ) from None
    return metadata


def read_stored(path: Path) -> bytes:
    """Return a file of a site. Raises ``PublishError`` if it is unreadable, ``FormatError`` if it is too large."""
    try:
        return read_limited(path, LARGEST_STORED)
    except OSError as error:
        raise PublishError(
            str(path), f"cannot be read: {error.strerror}", code=ProblemCode.UNREADABLE_SOURCE
        ) from error
    except ValueError as error:
        raise FormatError(str(path), str(error)) from None


# Records of bundles.

OFFERED = 20
"""Number of versions in an index in addition to those that channels name."""


@dataclass(frozen=True, slots=True)
class Record:
    """Index and history of one bundle."""

    index: Index
    history: History

    def find_artifact(self, version: str) -> Artifact | None:
        """Return the files of a published version, or ``None`` if they are pruned."""
        known = self.history.versions.get(version)
        return known.artifact if known is not None and known.pruned is None else None

    def with_version(self, version: str, artifact: Artifact, now: datetime) -> Self:
        """Return this record with one more version, which no channel names yet."""
        return self._offering(self.history.with_version(version, artifact, now), self.index.channels)

    def with_statement(self, channel: str, release: Release | None, now: datetime) -> Self:
        """Return this record with another release in a channel. ``None`` removes the bundle from the channel."""
        channels = {name: of for name, of in self.index.channels.items() if name != channel}
        if release is not None:
            channels[channel] = release
        return self._offering(self.history.with_statement(channel, release, now), channels)

    def without_files(self, versions: Iterable[str], now: datetime) -> Self:
        """Return this record after the files of versions that no channel names were pruned."""
        gone = set(versions) - self.index.named()
        return self._offering(self.history.without_files(gone, now), self.index.channels)

    def _offering(self, history: History, channels: Mapping[str, Any]) -> Self:
        index = Index(self.index.bundle, MappingProxyType(dict(channels)))
        there = [name for name, version in history.versions.items() if version.pruned is None]
        offered = {*index.named(), *there[-OFFERED:]}
        releases = {name: history.versions[name].artifact for name in there if name in offered}
        return type(self)(Index(index.bundle, index.channels, MappingProxyType(releases)), history)


AUTO = "auto"
"""Placeholder for the next version of a changed bundle."""
FIRST = "1.0.0"

_PARTS = re.compile(r"([^0-9]*)([0-9]*)")
_FIRST_NUMBERS = re.compile(r"([^0-9]*(?:[0-9]+\.)*)([0-9]+)")
"""Matches ``v1.4.0-rc1``: the prefix, and the last of the first numbers."""

_Order = tuple[tuple[tuple[int, ...], int], ...]


def order(version: str) -> _Order:
    """Return the sort key of a version: text and numbers in turn, numbers by value.

    In text, ``~`` comes before the end, the end before letters, and letters before other characters:
    https://www.debian.org/doc/debian-policy/ch-controlfields.html#version.
    """
    return tuple(((*map(_weight, text), 0), int(number or 0)) for text, number in _PARTS.findall(version))


def next_version(published: Iterable[str]) -> str:
    """Return a version that sorts after all of these. Raises `PublishError` if it would be too long.

    Increments the last of the first numbers of the newest version, and drops the rest: ``1.4.0`` and ``1.4.0-rc2`` give
    ``1.4.1``, which is also last in tools with other rules for ``-rc2``.
    """
    newest = max(published, key=lambda version: (order(version), version), default=None)
    if newest is None:
        return FIRST
    numbers = _FIRST_NUMBERS.match(newest)
    following = f"{newest.removesuffix('.')}.1" if numbers is None else numbers[1] + _incremented(numbers[2])
    try:
        return parse_version(following)
    except FormatError:
        raise PublishError(
            newest,
            "the next version would be too long",
            code=ProblemCode.INVALID_NAME,
            expected="a version by --version",
        ) from None


def _incremented(digits: str) -> str:
    """Increment with the same width, so that ``2026.09`` follows ``2026.08``."""
    return str(int(digits) + 1).zfill(len(digits))


def _weight(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) + (0 if character.isalpha() else 256)


# Changes between two versions.

_LIBRARIES = "libraries"
"""Directory of a packed bundle with a subdirectory for each library."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Sorted paths of files. Files of a library, which other bundles may contain, start with ``libraries/NAME/``."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    @classmethod
    def between(cls, before: BundleDescription, after: BundleDescription) -> Self:
        """Compare the files of two descriptions, regardless of their versions."""
        old = {path.text: entry for path, entry in before.files.items()}
        new = {path.text: entry for path, entry in after.files.items()}
        return cls(
            added=tuple(sorted(new.keys() - old.keys())),
            removed=tuple(sorted(old.keys() - new.keys())),
            changed=tuple(sorted(path for path in old.keys() & new.keys() if old[path] != new[path])),
        )

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    @property
    def libraries(self) -> tuple[str, ...]:
        """Return the names of changed libraries."""
        names = map(_library_of, (*self.added, *self.removed, *self.changed))
        return tuple(sorted({name for name in names if name is not None}))

    def own(self) -> "Changes":
        """Return the changes outside of libraries."""
        return Changes(_own(self.added), _own(self.removed), _own(self.changed))


def _own(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if _library_of(path) is None)


def _library_of(path: str) -> str | None:
    directory, *remainder = path.split("/")
    return remainder[0] if directory == _LIBRARIES and len(remainder) > 1 else None
