"""A refusal of python-tuf, as an error of ours with the file, the value found and the value wanted.

python-tuf's exceptions are sentences without values. The values are looked up where they are: in the
metadata last fetched, and in what was trusted before it.
"""

import re

from tuf.api import exceptions as tuf
from tuf.api.serialization import DeserializationError

from bundles.client.updater import Workflow
from bundles.errors import BundleError, ExpiredError, RollbackError, SignatureError
from bundles.first_few import first_few
from bundles.format.tuf import Metadata, Root, Signed, Snapshot, Targets, Timestamp
from foundation.problems import ProblemCode
from foundation.timestamps import zulu_text

# python-tuf gives these values in its sentences only. Should one change, our message says less, and no more than that.
_KEYS = re.compile(r"(\d+)/(\d+) keys")
_MISMATCH = re.compile(r"Observed (length|hash) (\w+) does not match expected \w+ (\w+)")


def verdict(error: tuf.RepositoryError | tuf.DownloadError, workflow: Workflow) -> BundleError:
    """The error to raise for what `Workflow.refresh` raised; raises ``MemoryError`` when that was the cause."""
    if isinstance(error.__cause__, MemoryError):  # python-tuf takes it for one of the metadata
        raise MemoryError from None  # a new one: in a circle with ``error`` it would hold the memory that is missing
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
    """A sentence for bytes that are not the signed ones."""
    found = _MISMATCH.search(str(error))
    if not found:
        return str(error)
    name = "sha256" if found[1] == "hash" else "length"
    return f"{name} is {found[2]}, the signed metadata says {found[3]}"


def _of_signatures(text: str, workflow: Workflow) -> str:
    found = _KEYS.search(text)
    holding, needed = (found[1], found[2]) if found else ("too few", "more")
    root = workflow.trusted.root
    if workflow.is_delegated:
        return f"is signed by {holding} of the {needed} keys that the targets demand"
    if "root.json" in workflow.fetcher.path:
        return (
            f"is signed by {holding} of the {needed} keys needed, both by root {root.version} and by itself"
        )
    # At version 1 no root of the site has followed the anchor yet: it may be that of another site.
    hint = "; is the trust anchor that of this site?" if root.version == 1 else ""
    return f"is signed by {holding} of the {needed} keys that root {root.version} demands{hint}"


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
    what = f"version {signed.version} of {name} {when}" if signed else f"{name} {when}"
    return ExpiredError(
        str(workflow.fetcher.mirror),
        f"{what}, this host's clock says {zulu_text(now)}; the publisher signs anew with `puller site refresh`",
    )


def _of_versions(workflow: Workflow) -> BundleError:
    trusted, found, where = workflow.trusted, _fetched(workflow), workflow.fetcher.where
    match found:
        case Root():
            wanted = trusted.root.version + 1
            # Beyond the next one is no rollback: the file is not the one that its name says.
            kind = RollbackError if found.version < wanted else SignatureError
            return kind(where, f"is version {found.version}, wanted {wanted}")
        case Timestamp() if found.version < trusted.timestamp.version:
            return RollbackError(where, _older(found.version, trusted.timestamp.version))
        case Timestamp():
            named, before = found.snapshot_meta.version, trusted.timestamp.snapshot_meta.version
            return RollbackError(where, f"names snapshot {_older(named, before)}")
        case Snapshot() if found.version != trusted.timestamp.snapshot_meta.version:
            wanted = trusted.timestamp.snapshot_meta.version
            return SignatureError(where, f"is version {found.version}, the timestamp says {wanted}")
        case Snapshot():
            return RollbackError(where, _older_names(found, trusted.snapshot))
        case Targets():
            wanted = trusted.snapshot.meta[f"{_role_of(workflow.fetcher.path)}.json"].version
            return SignatureError(where, f"is version {found.version}, the snapshot says {wanted}")
    return RollbackError(where, "is of a version that does not follow what this host has trusted")


def _older_names(found: Snapshot, trusted: Snapshot) -> str:
    files = (
        (name, found.meta[name].version, trusted.meta[name].version)
        for name in found.meta.keys() & trusted.meta
    )
    older = [f"{name} {_older(now, before)}" for name, now, before in sorted(files) if now < before]
    return f"names {first_few(older)}"


def _older(found: int, trusted: int) -> str:
    return f"version {found}, older than {trusted}, which this host has trusted before"


def _fetched(workflow: Workflow) -> Signed | None:
    """The metadata last fetched, trusted or not: only for what a message says."""
    try:
        signed: Signed = Metadata.from_bytes(workflow.fetcher.data).signed
    except tuf.RepositoryError:
        return None
    return signed


def _role_of(path: str) -> str:
    """``bin-05`` of ``metadata/12.bin-05.json``."""
    return path.removesuffix(".json").rpartition("/")[2].rpartition(".")[2]
