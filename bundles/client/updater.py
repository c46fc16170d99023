"""TUF client workflow on one mirror, and its errors.

python-tuf makes the trust decisions. The numbers here are the clauses of the TUF specification 1.0, section 5:

5.1  The time is fixed: the caller passes it once for the whole refresh.
5.2  Load the trusted root: the trust anchor, then the stored chain of roots that begins there.
5.3  Root: fetch N+1 (5.3.3), verify it with the keys of N and its own keys (5.3.4, 5.3.5), store it (5.3.8). Repeat
     until the newest. Check expiry at the end only (5.3.10). Rotated keys reset the stored versions (5.3.11).
5.4  Timestamp: fetch (5.4.1), verify with the root (5.4.2), reject a timestamp or snapshot version that is older than
     the stored one (5.4.3), check expiry (5.4.4), store (5.4.5).
5.5  Snapshot: check length, hash and version from the timestamp (5.5.1, 5.5.2, 5.5.4), verify (5.5.3), reject older
     versions in it (5.5.5), check expiry (5.5.6), store (5.5.7). A stored snapshot that still matches is not fetched.
5.6  Targets: the same checks as in 5.5 against the snapshot. Then the bin of each requested target, to which the
     targets delegate (5.6.7). Each path has exactly one bin.
5.7  The target: ``bundles.client.targets``.

Puller adds:

* Bytes come through a `Mirror`, and metadata is parsed strictly before python-tuf reads it.
* `TrustDirectory` stores metadata durably and reports damage.
* A root chain that ends below the highest root of this host is a rollback, even if that root was damaged here.
* The client follows the chain of roots to its end, whatever its length. Each verified root is stored at once, so that
  the next run resumes an interrupted one.
* A role above the size limit of this version is reported before a byte of it is fetched.
* `verdict` turns python-tuf's exceptions, which are sentences without values, into errors with the file and the
  actual and expected values. The values come from the metadata last fetched and from the metadata trusted before.
"""

import io
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tuf.api import exceptions as tuf
from tuf.api.exceptions import DownloadHTTPError
from tuf.api.serialization import DeserializationError
from tuf.ngclient import UpdaterConfig
from tuf.ngclient.fetcher import FetcherInterface
from tuf.ngclient.updater import Updater

from bundles.client.trust import Anchor, TrustDirectory
from bundles.errors import (
    BundleError,
    ExpiredError,
    FormatError,
    NotFoundError,
    OversizeError,
    RollbackError,
    SignatureError,
    TransportError,
)
from bundles.format.size_limits import LARGEST_METADATA, LARGEST_STORED
from bundles.format.tuf import (  # before python-tuf's client, which imports the same
    Metadata,
    Root,
    Signed,
    Snapshot,
    Targets,
    Timestamp,
    check_metadata,
    names_signatures,
)
from bundles.transport.mirror import Mirror
from foundation.problems import ProblemCode
from foundation.quantities import first_few
from foundation.times import zulu_text

# isort: split


_NOT_FOUND = 404
_AS_MANY_AS_THERE_ARE = sys.maxsize
"""Every root is signed with the keys of the root before it, so an attacker cannot extend the chain."""


def _largest(role: str) -> int:
    return LARGEST_METADATA.get(role, LARGEST_METADATA[Targets.type])


class MirrorFetcher(FetcherInterface):
    """A mirror as a fetcher of python-tuf. ``path`` and ``data`` belong to the metadata last fetched."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.path = ""
        self.data = b""
        self.is_exact = False
        """Whether the length of the next file is signed, or only an upper limit."""
        self.is_whole = False
        """Whether the end of the last file is certain."""

    @property
    def where(self) -> str:
        """Location of the metadata last requested, for messages."""
        return f"{self.mirror}/{self.path}"

    def download_bytes(self, url: str, max_length: int) -> bytes:
        """Return the bytes of one file. Raises ``DownloadHTTPError`` for a missing file, otherwise `TransportError`.

        A file of more than ``max_length`` bytes raises `SignatureError`, because it cannot be the signed file.
        """
        self.path, self.data = url.lstrip("/"), b""
        buffer = io.BytesIO()
        try:
            self.is_whole = self.mirror.download(self.path, max_length, buffer, is_exact=self.is_exact)
        except NotFoundError as error:
            # python-tuf treats this error as the end of the root chain. Other errors pass through python-tuf.
            raise DownloadHTTPError(str(error), _NOT_FOUND) from error
        except OversizeError as error:
            raise error.under(error.where, SignatureError) from None
        self.data = buffer.getvalue()
        return self.data

    def _fetch(self, url: str) -> Iterator[bytes]:
        yield self.download_bytes(url, LARGEST_STORED)


class Workflow(Updater):
    """One refresh from one mirror, as of ``now``. ``directory`` contains the metadata on the mirror."""

    def __init__(
        self,
        store: TrustDirectory,
        anchor: Anchor,
        mirror: Mirror,
        now: datetime,
        *,
        directory: str = "metadata",
    ) -> None:
        self.fetcher = MirrorFetcher(mirror)
        self._store = store
        config = UpdaterConfig(
            max_root_rotations=_AS_MANY_AS_THERE_ARE,
            root_max_length=LARGEST_METADATA["root"],
            timestamp_max_length=LARGEST_METADATA["timestamp"],
            snapshot_max_length=LARGEST_METADATA["snapshot"],
            targets_max_length=LARGEST_METADATA["targets"],
        )
        # 5.2. Starts from the anchor and not from the stored root.json, so that a damaged root.json is repaired.
        super().__init__(
            str(store.path), directory, fetcher=self.fetcher, config=config, bootstrap=anchor.data
        )
        self.trusted = self._trusted_set
        self._delegator = Root.type
        # 5.1.
        self.trusted.reference_time = now

    @property
    def targets(self) -> Targets:
        """The published targets, after `refresh`."""
        return self.trusted.targets

    @property
    def is_delegated(self) -> bool:
        """Return whether the targets delegate to the role last requested."""
        return self._delegator != Root.type

    def _load_root(self) -> None:
        """Run clause 5.3. python-tuf checks expiry (5.3.10) with the timestamp."""
        highest = self._store.highest_root()
        # 5.3.1 to 5.3.9.
        super()._load_root()
        reached = self.trusted.root
        if reached.version < highest:
            detail = (
                f"the chain of roots ends at version {reached.version}, and this host has trusted {highest}"
            )
            raise RollbackError(self.fetcher.where, detail)
        # 5.3.11.
        self._store.check_roles(reached)

    def _load_targets(self, role: str, parent_role: str) -> Targets:
        """Run clause 5.6, for the targets and for delegated roles."""
        self._delegator = parent_role
        return super()._load_targets(role, parent_role)

    def _download_metadata(self, rolename: str, length: int, version: int | None = None) -> bytes:
        """Run clauses 5.3.3, 5.4.1, 5.5.1 and 5.6.1, with the signed length or the limit of this version."""
        self.fetcher.is_exact = length != _largest(rolename)
        data = super()._download_metadata(rolename, self._checked(rolename, length, version), version)
        try:
            check_metadata(data, self.fetcher.where, rolename, self.trusted[self._delegator])
        except SignatureError as error:
            # The lengths of root and timestamp are not signed. An error page of a server or a lost connection gives a
            # document without valid signatures, which is a failed transfer and not an attack.
            fetcher = self.fetcher
            if (
                fetcher.is_exact
                or (fetcher.is_whole and names_signatures(data))
                or not fetcher.mirror.is_remote
            ):
                raise
            detail = "the server sent another file, or the transfer ended early"
            raise TransportError(error.where, f"{error.what}; {detail}") from None
        return data

    def _checked(self, role: str, length: int, version: int | None) -> int:
        """Return the signed length, or the limit for a role without one."""
        largest = _largest(role)
        if length > largest:
            where = f"{self.fetcher.mirror}: version {version} of {role}"
            detail = (
                f"has {length} bytes, and this version of Puller reads {largest}: upgrade Puller on this host"
            )
            raise FormatError(where, detail)
        return length

    def _persist_file(self, filename: str, data: bytes) -> None:
        """Run clauses 5.3.8, 5.4.5, 5.5.7 and 5.6.6."""
        self._store.write(str(Path(filename).relative_to(self._store.path)), data)


# Errors of python-tuf, with file and values.

# python-tuf has these values in its messages only. If a message changes, the error has less detail.
_KEYS = re.compile(r"(\d+)/(\d+) keys")
_MISMATCH = re.compile(r"Observed (length|hash) (\w+) does not match expected \w+ (\w+)")


def verdict(error: tuf.RepositoryError | tuf.DownloadError, workflow: Workflow) -> BundleError:
    """Return the error for an exception of `Workflow.refresh`. Raises ``MemoryError`` if that was the cause."""
    if isinstance(error.__cause__, MemoryError):  # python-tuf reports it as invalid metadata
        raise MemoryError from None  # a new exception, because a cycle with ``error`` would keep the memory allocated
    where = workflow.fetcher.where
    match error:
        case tuf.DownloadHTTPError(__cause__=BundleError() as missing):
            return missing
        case tuf.UnsignedMetadataError():
            return SignatureError(where, _of_signatures(str(error), workflow))
        case tuf.LengthOrHashMismatchError():
            return SignatureError(where, mismatch(error), code=ProblemCode.CHECKSUM_MISMATCH)
        case tuf.ExpiredMetadataError():
            return _of_expiry(workflow)
        case tuf.BadVersionNumberError():
            return _of_versions(workflow)
        case DeserializationError():
            return SignatureError(where, f"is not metadata: {error.__cause__ or error}")
    return SignatureError(where, str(error) or f"is not valid: {error.__cause__}")


def mismatch(error: tuf.LengthOrHashMismatchError) -> str:
    """Return a sentence for bytes that differ from the signed ones."""
    match = _MISMATCH.search(str(error))
    if not match:
        return str(error)
    name = "sha256" if match[1] == "hash" else "length"
    return f"{name} is {match[2]}, expected {match[3]} from the signed metadata"


def _of_signatures(text: str, workflow: Workflow) -> str:
    match = _KEYS.search(text)
    holding, needed = (match[1], match[2]) if match else ("too few", "more")
    root = workflow.trusted.root
    if workflow.is_delegated:
        return f"is signed by {holding} of the {needed} keys that the targets require"
    if "root.json" in workflow.fetcher.path:
        return (
            f"is signed by {holding} of the {needed} keys required by root {root.version} and by the new root"
        )
    # At version 1 no root has followed the anchor, which may belong to another site.
    hint = ": check that the trust anchor belongs to this site" if root.version == 1 else ""
    return f"is signed by {holding} of the {needed} keys that root {root.version} requires{hint}"


def _of_expiry(workflow: Workflow) -> ExpiredError:
    now = workflow.trusted.reference_time
    name, signed = next(
        (
            (role.type, workflow.trusted[role.type])
            for role in (Root, Timestamp, Snapshot)
            if role.type in workflow.trusted and workflow.trusted[role.type].is_expired(now)
        ),
        (_role_of(workflow.fetcher.path), _fetched(workflow)),
    )
    when = f"expired at {zulu_text(signed.expires)}" if signed else "expired"
    detail = f"version {signed.version} of {name} {when}" if signed else f"{name} {when}"
    return ExpiredError(
        str(workflow.fetcher.mirror),
        f"{detail}, and the clock of this host shows {zulu_text(now)}",
        hint="the publisher renews it with `puller site refresh`",
    )


def _of_versions(workflow: Workflow) -> BundleError:
    trusted, result, where = workflow.trusted, _fetched(workflow), workflow.fetcher.where
    match result:
        case Root():
            desired = trusted.root.version + 1
            # A version after the next one is not a rollback: the file contradicts its name.
            kind = RollbackError if result.version < desired else SignatureError
            return kind(where, f"has version {result.version}, expected {desired}")
        case Timestamp() if result.version < trusted.timestamp.version:
            return RollbackError(where, _older(result.version, trusted.timestamp.version))
        case Timestamp():
            named, before = result.snapshot_meta.version, trusted.timestamp.snapshot_meta.version
            return RollbackError(where, f"lists snapshot {_older(named, before)}")
        case Snapshot() if result.version != trusted.timestamp.snapshot_meta.version:
            desired = trusted.timestamp.snapshot_meta.version
            return SignatureError(
                where, f"has version {result.version}, expected {desired} from the timestamp"
            )
        case Snapshot():
            return RollbackError(where, _older_names(result, trusted.snapshot))
        case Targets():
            desired = trusted.snapshot.meta[f"{_role_of(workflow.fetcher.path)}.json"].version
            return SignatureError(
                where, f"has version {result.version}, expected {desired} from the snapshot"
            )
    return RollbackError(where, "has a version that does not follow the trusted version")


def _older_names(snapshot: Snapshot, trusted: Snapshot) -> str:
    files = (
        (name, snapshot.meta[name].version, trusted.meta[name].version)
        for name in snapshot.meta.keys() & trusted.meta
    )
    older = [f"{name} {_older(now, before)}" for name, now, before in sorted(files) if now < before]
    return f"lists {first_few(older)}"


def _older(result: int, trusted: int) -> str:
    return f"version {result}, older than the trusted version {trusted}"


def _fetched(workflow: Workflow) -> Signed | None:
    """Return the metadata last fetched, even if untrusted. Only for messages."""
    try:
        signed: Signed = Metadata.from_bytes(workflow.fetcher.data).signed
    except tuf.RepositoryError:
        return None
    return signed


def _role_of(path: str) -> str:
    """Return ``bin-05`` for ``metadata/12.bin-05.json``."""
    return path.removesuffix(".json").rpartition("/")[2].rpartition(".")[2]
