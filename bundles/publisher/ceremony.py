"""Proposal of the next root of a site, which collects signatures of several signers.

* Changes are always computed from the two roots. The descriptions in the file are for readers, and never signed.
* Every key must have its own id, so that signers can identify keys by id.
* A proposal is complete when enough keys of the previous root and of the next root have signed. Only valid signatures
  of this exact content count.

A signer needs the file and a key, but neither the site nor a network:

1. ``bundles.publisher.roles`` proposes a root, signs with the keys that are at the site, and saves the proposal.
2. The file goes to the signers. Each signer loads it, which checks that it can be from this site, and reads `changes`.
3. Each signer signs with a key of the current or next root, and returns the file.
4. The site merges the signatures. Because they cover the exact content, the transport does not matter.
5. When `is_complete`, the root is published (TUF specification, 5.3.4 and 6.1).
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securesystemslib.formats import encode_canonical
from tuf.api.exceptions import RepositoryError

from bundles.errors import BundleError, FormatError, PublishError, SignatureError
from bundles.filesystem.atomic import read_limited, write_file
from bundles.format.tuf import Key, Metadata, Root, VerificationResult, check_metadata
from bundles.publisher.published import ROLES
from bundles.publisher.signing_keys import Signer, shown_id, sign_with
from foundation import strict_json
from foundation.problems import ProblemCode
from foundation.quantities import counted
from foundation.times import minute_text

_FORMAT = 1
_LARGEST = 2_000_000
_ABOUT = "The next root of a Puller site. Sign it with: puller site root sign FILE --key KEY.pem"


@dataclass(slots=True)
class Proposal:
    """The root ``following`` as the successor of ``current``, with the signatures so far."""

    current: Metadata[Root]
    following: Metadata[Root]

    @classmethod
    def load(cls, path: Path) -> "Proposal":
        """Read a file written by `save`. Raises `FormatError`, `SignatureError` and `PublishError`."""
        where = str(path)
        document = _document(path)
        pieces = [_root(document.get(name), f"{where}: {name}") for name in ("current", "next")]
        proposal = cls(*pieces)
        proposal.check(where)
        return proposal

    def save(self, path: Path) -> None:
        """Write the proposal. Raises ``OSError``."""
        document = {
            "about": _ABOUT,
            "format": _FORMAT,
            "changes": self.changes(),
            "afterwards": self.afterwards(),
            "missing": self.missing(),
            "current": self.current.to_dict(),
            "next": self.following.to_dict(),
        }
        write_file(path, json.dumps(document, indent=1).encode() + b"\n")

    @property
    def root(self) -> Root:
        """Return the proposed root."""
        return self.following.signed

    def check(self, where: str) -> None:
        """Raise `SignatureError` for a proposal that is not from this site, `PublishError` if a role could not sign."""
        current = self.current.signed
        if not current.get_verification_result(Root.type, self.current.signed_bytes, self.current.signatures):
            raise SignatureError(
                where, f"the current root, version {current.version}, is not signed by its keys"
            )
        if self.root.version != current.version + 1:
            detail = f"the next root has version {self.root.version}, expected {current.version + 1}"
            raise SignatureError(where, detail)
        for key_id, key in (*current.keys.items(), *self.root.keys.items()):
            # Signers compare ids: a wrong id could make a foreign key look familiar.
            if key_id != _own_id(key):
                raise SignatureError(where, f"lists the key {_own_id(key)} under the id {key_id[:64]!r}")
        check_thresholds(self.root, where)

    def sign(self, signer: Signer, where: str) -> bool:
        """Add a signature. Returns ``False`` if this key has already signed.

        Raises `PublishError` if the key is not a root key, and `TokenError`.
        """
        key_id, (now, afterwards) = signer.public_key.keyid, self._results()
        if key_id not in {**now.unsigned, **afterwards.unsigned}:
            if key_id in self.signed_by():
                return False
            detail = f"the key {shown_id(key_id)} is not a key of the current or the next root"
            voters = dict.fromkeys([*_ids(now), *_ids(afterwards)])
            raise PublishError(where, f"{detail}", expected=f"{_any_of(voters)}")
        sign_with(self.following, signer, where)
        return True

    def merge(self, other: "Proposal", where: str) -> int:
        """Merge signatures, and return the number of new ones. Raises `SignatureError` for another content."""
        if self.following.signed_bytes != other.following.signed_bytes:
            detail = "differs from the pending change of this site"
            raise SignatureError(where, detail, hint="export it again")
        # Only valid signatures are merged, because `signed_by` returns only these.
        before = self.signed_by()
        for key_id in other.signed_by():
            if key_id not in before:
                self.following.signatures[key_id] = other.following.signatures[key_id]
        return len(self.signed_by()) - len(before)

    def follows(self, root: Root) -> bool:
        """Return whether this is a change of ``root``. After another change, the proposal is useless."""
        return bool(self.current.signed == root)

    @property
    def is_complete(self) -> bool:
        """Return whether hosts will accept the root."""
        return all(result.verified for result in self._results())

    def signed_by(self) -> list[str]:
        """Return the ids of the keys that have signed."""
        now, afterwards = self._results()
        return list({**now.signed, **afterwards.signed})

    def missing(self) -> list[str]:
        """Return the missing signatures, in sentences."""
        now, afterwards = self._results()
        if (now.threshold, _ids(now)) == (afterwards.threshold, _ids(afterwards)):
            return _missing(now, "root keys")
        return [*_missing(now, "current root keys"), *_missing(afterwards, "root keys of the next root")]

    def changes(self) -> list[str]:
        """Return the changes to the current root, in sentences.

        They contain complete key ids, because prefixes can be imitated.
        """
        return list(_differences(self.current.signed, self.root))

    def afterwards(self) -> list[str]:
        """Return the keys of each role in the next root, in sentences."""
        keys = {role: map(shown_id, self.root.roles[role].keyids) for role in ROLES}
        return [f"{role}: {needed(self.root, role)}: {', '.join(keys[role])}" for role in ROLES]

    def _results(self) -> tuple[VerificationResult, VerificationResult]:
        payload, signatures = self.following.signed_bytes, self.following.signatures
        result = self.root.get_root_verification_result(self.current.signed, payload, signatures)
        return result.first, result.second


def check_thresholds(root: Root, where: str) -> None:
    """Raise `PublishError` for a role with fewer keys than its threshold."""
    for role in ROLES:
        keys, threshold = len(root.roles[role].keyids), root.roles[role].threshold
        if keys < threshold:
            has = counted(keys, "key")
            raise PublishError(
                where, f"{role} would have {has} and require {threshold}, so no signature would be valid"
            )


def needed(root: Root, role: str) -> str:
    """Return how many of its keys must sign for ``role``, such as ``2 of 3``."""
    return f"{root.roles[role].threshold} of {len(root.roles[role].keyids)}"


def _differences(old: Root, new: Root) -> Iterator[str]:
    yield f"version {old.version} becomes {new.version}"
    yield f"expires {minute_text(new.expires)}, previously {minute_text(old.expires)}"
    for role in ROLES:
        before, after = old.roles[role].keyids, new.roles[role].keyids
        for key_id in after:
            if key_id not in before:
                yield f"{role}: new key {key_id} ({new.keys[key_id].scheme})"
        for key_id in before:
            if key_id not in after:
                yield f"{role}: the key {key_id} ({old.keys[key_id].scheme}) is removed"
        if needed(old, role) != needed(new, role):
            yield f"{role}: {needed(new, role)} keys must sign, previously {needed(old, role)}"
    if _unnamed(old, new) != _unnamed(new, old):
        yield "OTHER FIELDS, which Puller never changes: compare the two roots before you sign"


def _unnamed(root: Root, other: Root) -> dict[str, Any]:
    """Return all fields that `_differences` does not describe."""
    document: dict[str, Any] = root.to_dict()
    # Common keys must be identical and have the same ids. `_differences` describes other keys.
    for name in ("version", "expires"):
        del document[name]
    document["keys"] = {key_id: key for key_id, key in document["keys"].items() if key_id in other.keys}
    document["roles"] = {role: root.roles[role].unrecognized_fields for role in root.roles}
    document["unused"] = root.keys.keys() - {key_id for role in root.roles.values() for key_id in role.keyids}
    return document


def _missing(result: VerificationResult, kind: str) -> list[str]:
    if result.verified:
        return []
    return [f"{counted(result.missing, 'more signature')} by the {kind}: {_any_of(result.unsigned)}"]


def _any_of(key_ids: Any) -> str:
    return " or ".join(shown_id(key_id) for key_id in key_ids)


def _ids(result: VerificationResult) -> list[str]:
    return sorted([*result.signed, *result.unsigned])


def _own_id(key: Key) -> str:
    """Return the id of a key as securesystemslib computes it, a SHA-256."""
    pieces = {"keytype": key.keytype, "scheme": key.scheme, "keyval": key.keyval}
    return hashlib.sha256((encode_canonical(pieces) or "").encode()).hexdigest()


def _document(path: Path) -> dict[str, Any]:
    try:
        document = strict_json.load_exact(read_limited(path, _LARGEST))
    except OSError as error:
        raise PublishError(
            str(path), f"cannot be read: {error.strerror}", code=ProblemCode.UNREADABLE_SOURCE
        ) from error
    except ValueError as error:
        raise FormatError(str(path), f"is not the next root of a site: {error}") from None
    version = document.get("format") if isinstance(document, dict) else None
    if version != _FORMAT:
        detail = f"has the format {version!r}, expected {_FORMAT}"
        raise FormatError(
            str(path), f"is not the next root of a site as `puller site root export` writes it: {detail}"
        )
    return dict(document)


def _root(part: Any, where: str) -> Metadata[Root]:
    try:
        check_metadata(json.dumps(part).encode(), where)
        metadata = Metadata[Root].from_dict(part)
        if isinstance(metadata.signed, Root):
            return metadata
        raise FormatError(where, f"is metadata of type {metadata.signed.type!r}", expected="'root'")
    except BundleError:
        raise
    except (RepositoryError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(where, f"is not a root: {error}") from None
