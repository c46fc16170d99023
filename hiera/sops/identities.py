"""Keys of age: the identities of a host or a person, and their recipients.

* An identity is a private key: a line ``AGE-SECRET-KEY-1…`` in a file, as ``age-keygen`` writes it, or an SSH key.
* A recipient is its public part: ``age1…``, or ``ssh-ed25519 …``.
* The library ``pyrage`` decrypts and encrypts. It is imported on use, and files are read for the first encrypted file.
* Messages never quote an identity.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from foundation.problems import DependsOn
from hiera.errors import EnvelopeError, RecipientError

if TYPE_CHECKING:
    from pyrage import ssh, x25519

_SSH_PRIVATE: Final = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_SSH_KINDS: Final = ("ssh-ed25519", "ssh-rsa")
_AGE_PRIVATE: Final = "AGE-SECRET-KEY-1"
_ENVIRONMENT: Final = "the environment"
_SIZE_LIMIT: Final = 64 * 1024
_SHOWN: Final = 5
"""Recipients in a message."""


class Opaque(StrEnum):
    """How an opaque value, which replaces a decrypted value without a key, is derived."""

    BY_CIPHERTEXT = "ciphertext"
    """A changed value has another opaque value. So has a value that was encrypted again."""
    BY_PLACE = "place"
    """The value depends on its path only."""


@dataclass(frozen=True, slots=True)
class Identities:
    """The identities that open encrypted files. A missing file is skipped."""

    files: tuple[str, ...] = ()
    opaque: Opaque | None = None
    """Replaces every decrypted value, so that no key is used: lint, previews and tests need none."""
    texts: tuple[str, ...] = field(default=(), repr=False)
    """Identities of age without a file, from the environment of an author."""

    def open_key(self, sealed: Mapping[str, str], names: Mapping[str, str]) -> bytes:
        """Return the key of a file. ``sealed`` has the encrypted key by recipient, ``names`` names of recipients.

        Raises ``RecipientError`` if no identity opens it, and ``EnvelopeError`` for an unusable key. A key that this
        user cannot read may be the right one, so it is no ``RecipientError``: an optional file is not skipped.
        """
        import pyrage  # only hosts with encrypted files need the library

        identities, unreadable = list[Any](), list[str]()
        for text in self.texts:
            identities += _age_identities(text.encode(), _ENVIRONMENT)
        for path in self.files:
            try:
                identities += _load_identities(path)
            except PermissionError:
                unreadable.append(path)
        for text in sealed.values() if identities else ():
            try:
                key: bytes = pyrage.decrypt(text.encode(), identities)
                return key
            except (pyrage.DecryptError, ValueError):  # for another recipient, or damaged
                continue
        if unreadable:
            detail = f"encrypted for {_listed(sealed, names)}, and {' and '.join(unreadable)} cannot be read"
            raise EnvelopeError("", detail, hint="use root, or --identity with your own key")
        if not identities:
            hint = "create a key, and encrypt the file for its recipient"
            files = " and ".join(self.files) or "no key is configured"
            error = RecipientError(
                "", f"encrypted for {_listed(sealed, names)}, and no key exists: {files}", hint=hint
            )
            raise error.depending(DependsOn.KEY)
        own = ", ".join(map(shortened, self.recipients()))
        error = RecipientError(
            "",
            f"encrypted for {_listed(sealed, names)}, not for this key: {own}",
            hint="encrypt the file for this recipient",
        )
        raise error.depending(DependsOn.KEY)

    def seal(self, data: bytes) -> bytes:
        """Return data encrypted for the identities themselves. Raises ``EnvelopeError`` without one."""
        import pyrage  # see above

        own = [_parsed(recipient) for recipient in self.recipients()]
        if not own:
            raise EnvelopeError("", f"no key exists: {' and '.join(self.files)}")
        sealed: bytes = pyrage.encrypt(data, own, armored=True)
        return sealed

    def unseal(self, data: bytes) -> bytes | None:
        """Return data that ``seal`` encrypted, ``None`` for data of another key. Raises ``EnvelopeError``."""
        import pyrage  # see above

        own: list[Any] = [key for text in self.texts for key in _age_identities(text.encode(), _ENVIRONMENT)]
        own += [key for path in self.files for key in _load_identities(path)]
        try:
            plain: bytes = pyrage.decrypt(data, own)
        except (pyrage.DecryptError, ValueError):
            return None
        return plain

    def recipients(self) -> Iterator[str]:
        """Yield the recipients of all identities. Raises ``EnvelopeError`` for an unusable key."""
        for text in self.texts:
            yield from (
                str(identity.to_public()) for identity in _age_identities(text.encode(), _ENVIRONMENT)
            )
        for path in self.files:
            yield from recipients_of(path)


NO_IDENTITIES: Final = Identities()
"""For callers that read no encrypted file."""

OPAQUE: Final = Identities(opaque=Opaque.BY_PLACE)
"""For commands that never need a decrypted value."""


def wrapped(key: bytes, recipient: str) -> str:
    """Return ``key`` encrypted for a recipient, armoured. Raises ``EnvelopeError`` for an invalid recipient."""
    import pyrage  # see above

    armoured: bytes = pyrage.encrypt(key, [_parsed(recipient)], armored=True)
    return armoured.decode()


def is_recipient(text: str) -> bool:
    """Return whether ``text`` is a valid recipient."""
    try:
        _parsed(text)
    except EnvelopeError:
        return False
    return True


def new_identity() -> tuple[str, str]:
    """Return a new identity of age, and its recipient."""
    from pyrage import x25519  # see above

    identity = x25519.Identity.generate()
    return str(identity), str(identity.to_public())


def recipients_of(path: str) -> list[str]:
    """Return the recipients of the identities in a file, empty for a missing file.

    Raises ``EnvelopeError`` and ``PermissionError``.
    """
    data = _read(path)
    if data is None:
        return []
    if not data.startswith(_SSH_PRIVATE):
        return [str(identity.to_public()) for identity in _age_identities(data, path)]
    from cryptography.exceptions import UnsupportedAlgorithm  # cryptography takes 65 % of an idle run
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

    try:
        key = load_ssh_private_key(data, None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: the key has a passphrase
        raise _unusable(path, "is not an SSH key without passphrase") from None
    return [key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()]


@dataclass(frozen=True, slots=True)
class PublishedKey:
    """The key of a host whose recipient is in its reports, and its file."""

    recipient: str
    path: str

    @property
    def is_ssh(self) -> bool:
        """Whether the identity is an SSH key."""
        return self.recipient.startswith("ssh-")


def find_published(paths: Sequence[str]) -> PublishedKey | None:
    """Return the first key that exists, or ``None``. No private key is parsed for an SSH key with a public file.

    The public file beside an SSH key is enough: a wrong one makes files unreadable, never readable for others. Raises
    ``EnvelopeError`` for an unusable key, and ``PermissionError``: an unreadable key is not a missing key.
    """
    for path in paths:
        if not _exists(path):
            continue
        public = _read(f"{path}.pub")
        words = public.decode("utf-8", "replace").split() if public is not None else []
        own = [" ".join(words[:2])] if len(words) > 1 and words[0].startswith("ssh-") else recipients_of(path)
        if not own[0].startswith(("age1", *(f"{kind} " for kind in _SSH_KINDS))):
            raise _unusable(path, f"is a key of the kind {own[0].split()[0]}, which age cannot use")
        return PublishedKey(own[0], path)
    return None


def shortened(recipient: str) -> str:
    """Return a recipient for a message. The end of an SSH key is its distinct part."""
    kind, _, key = recipient.partition(" ")
    return f"{kind} …{key[-16:]}" if key else recipient


def _listed(sealed: Iterable[str], names: Mapping[str, str]) -> str:
    texts = [names.get(recipient) or shortened(recipient) for recipient in sealed]
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more} others" if more > 0 else "")


def _parsed(recipient: str) -> x25519.Recipient | ssh.Recipient:
    import pyrage  # see above

    try:
        if recipient.startswith("ssh-"):
            return pyrage.ssh.Recipient.from_str(recipient)
        return pyrage.x25519.Recipient.from_str(recipient)
    except pyrage.RecipientError:
        raise EnvelopeError("", f"{recipient} is not a recipient: expected age1… or ssh-ed25519 …") from None


def _load_identities(path: str) -> list[x25519.Identity | ssh.Identity]:
    data = _read(path)
    if data is None:
        return []
    if not data.startswith(_SSH_PRIVATE):
        return [*_age_identities(data, path)]
    from pyrage import IdentityError, ssh  # see above

    try:
        return [ssh.Identity.from_buffer(data)]
    except IdentityError:
        raise _unusable(path, "is not an SSH key without passphrase") from None


def _age_identities(data: bytes, path: str) -> list[x25519.Identity]:
    from pyrage import IdentityError, x25519  # see above

    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    texts = [line for line in lines if line and not line.startswith("#")]
    if not texts or not all(text.startswith(_AGE_PRIVATE) for text in texts):
        raise _unusable(path, "contains neither a key of age nor an SSH key")
    try:
        return [x25519.Identity.from_str(text) for text in texts]
    except IdentityError:
        raise _unusable(path, "contains a damaged key of age") from None


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    except PermissionError:
        raise
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None
    return True


def _read(path: str) -> bytes | None:
    """Return the content of a key file, or ``None`` if it does not exist. Raises ``PermissionError``."""
    try:
        # A named pipe without a writer would block for ever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            return file.read(_SIZE_LIMIT)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None


def _unusable(path: str, detail: str) -> EnvelopeError:
    return EnvelopeError("", f"{path}: {detail}")
