"""The private keys of a site, and signing with them: files, tokens, services.

A key is asked for its passphrase or PIN once. What it has signed is checked at once: otherwise hosts would be the first
to find out.
"""

from pathlib import Path
from typing import Any

from securesystemslib.exceptions import UnverifiedSignatureError
from tuf.api.exceptions import UnsignedMetadataError

from bundles.errors import KeyFileError, TokenError, reason_of
from bundles.format.tuf import Metadata, Root
from bundles.publisher.keys import NewKey, Passphrase, Signer, find_key_file, key_file, open_key


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
        if failures and not is_verified(metadata, root):
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


def is_verified(metadata: Metadata[Any], root: Root) -> bool:
    """Whether enough keys of its role have signed metadata; for a bin that is the role of the targets."""
    role = metadata.signed.type
    return bool(root.get_verification_result(role, metadata.signed_bytes, metadata.signatures))
