"""Keys of age: the identities of a host or a person, and their recipients.

* An identity is a private key: a line ``AGE-SECRET-KEY-1…`` in a file, as ``age-keygen`` writes it, or an SSH key.
* A recipient is its public part: ``age1…``, or ``ssh-ed25519 …``.
* The library ``pyrage`` decrypts and encrypts. It takes 1 MiB of memory, so it is imported on use. Files are read for
  the first encrypted file.
* An unusable key never hides a usable key. It is named in a warning if another key takes its place, and in the error
  if none does. An encrypted file is not skipped then, because the unusable key may be the right one.
* Messages never quote an identity.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from foundation.problems import DependsOn, Problem, ProblemCode
from hiera.errors import EnvelopeError, RecipientError

if TYPE_CHECKING:
    from pyrage import ssh, x25519

_RSA_IN_PEM: Final = b"-----BEGIN RSA PRIVATE KEY-----"
_SSH_PRIVATE: Final = (b"-----BEGIN OPENSSH PRIVATE KEY-----", _RSA_IN_PEM)
_SSH_KINDS: Final = ("ssh-ed25519", "ssh-rsa")
_AGE_PRIVATE: Final = "AGE-SECRET-KEY-1"
_AGE_PLUGIN: Final = "AGE-PLUGIN-"
_AGE_ENCRYPTED: Final = (b"-----BEGIN AGE ENCRYPTED FILE-----", b"age-encryption.org/v1")
_ENVIRONMENT: Final = "SOPS_AGE_KEY"
_NO_KEY: Final = "contains neither a key of age nor an SSH key"
_SIZE_LIMIT: Final = 64 * 1024
_SHOWN: Final = 5
"""Recipients in a message."""


Key = TypeVar("Key")


class Opaque(StrEnum):
    """How an opaque value, which replaces a decrypted value without a key, is derived."""

    BY_CIPHERTEXT = "ciphertext"
    """A changed value has another opaque value. So has a value that was encrypted again."""
    BY_PLACE = "place"
    """The value depends on its path only."""


class Identities(msgspec.Struct, frozen=True):
    """The identities that open encrypted files. A missing file is skipped."""

    files: tuple[str, ...] = ()
    opaque: Opaque | None = None
    """Replaces every decrypted value, so that no key is used: lint, previews and tests need none."""
    texts: tuple[str, ...] = ()
    """Identities of age without a file, from the environment of an author."""
    problems: list[Problem] = []
    """Unusable keys in place of which another key was used, each once. Callers report them as warnings."""

    def __repr__(self) -> str:
        return f"Identities(files={self.files!r}, opaque={self.opaque!r})"  # texts are secret

    def open_key(self, sealed: Mapping[str, str], names: Mapping[str, str]) -> bytes:
        """Return the key of a file. ``sealed`` has the encrypted key by recipient, ``names`` names of recipients.

        Raises ``RecipientError`` if no identity opens it. Raises ``EnvelopeError`` if one of the keys is unusable.
        """
        import pyrage  # 1 MiB of memory, only for hosts with encrypted files

        usable, damaged, unreadable = self._read_all(_identities_in)
        for text in sealed.values() if usable else ():
            try:
                key: bytes = pyrage.decrypt(text.encode(), usable)
            except (pyrage.DecryptError, ValueError):  # for another recipient, or damaged
                continue
            self._report(damaged)  # but no key that is unreadable for this user: an author is not root
            return key
        listed = _listed(sealed, names)
        if unusable := [*damaged, *unreadable]:
            detail = f"encrypted for {listed}, and no usable key opens it: {'; '.join(map(str, unusable))}"
            hint = (
                "use root, or --identity with your own key"
                if unreadable
                else "restore the key from a backup, or remove it"
            )
            raise EnvelopeError("", detail, hint=hint)
        if not usable:
            files = " and ".join(self.files) or "no key is configured"
            hint = "create a key, and encrypt the file for its recipient"
            error = RecipientError("", f"encrypted for {listed}, and no key exists: {files}", hint=hint)
            raise error.depending(DependsOn.KEY)
        own = ", ".join(map(shortened, self.recipients()))
        hint = "encrypt the file for this recipient"
        error = RecipientError("", f"encrypted for {listed}, not for this key: {own}", hint=hint)
        raise error.depending(DependsOn.KEY)

    def seal(self, data: bytes) -> bytes:
        """Return data encrypted for the identities themselves. Raises ``EnvelopeError`` without one."""
        import pyrage  # 1 MiB of memory, only for hosts with encrypted files

        own = [_parsed(recipient) for recipient in self.recipients()]
        if not own:
            raise EnvelopeError("", f"no key exists: {' and '.join(self.files)}")
        sealed: bytes = pyrage.encrypt(data, own, armored=True)
        return sealed

    def unseal(self, data: bytes) -> bytes | None:
        """Return data that ``seal`` encrypted, ``None`` for data of another key."""
        import pyrage  # 1 MiB of memory, only for hosts with encrypted files

        usable, damaged, _ = self._read_all(_identities_in)
        self._report(damaged)
        try:
            plain: bytes = pyrage.decrypt(data, usable)
        except (pyrage.DecryptError, ValueError):
            return None
        return plain

    def recipients(self) -> list[str]:
        """Return the recipients of the usable identities. Raises ``EnvelopeError`` if all keys are unusable."""
        result, damaged, _ = self._read_all(_recipients_in)
        if damaged and not result:
            raise _together(damaged)
        self._report(damaged)
        return result

    def _read_all(
        self, read: Callable[[bytes, str], Iterator[Key]]
    ) -> tuple[list[Key], list[EnvelopeError], list[EnvelopeError]]:
        """Return everything that ``read`` yields for the sources of keys, and the damaged and unreadable keys."""
        usable, damaged, unreadable = list[Key](), list[EnvelopeError](), list[EnvelopeError]()
        sources = [
            *((_ENVIRONMENT, text.encode()) for text in self.texts),
            *((path, None) for path in self.files),
        ]
        for path, data in sources:
            try:
                if (data := _read(path) if data is None else data) is not None:
                    for key in read(data, path):  # what it yields before an error is usable
                        usable.append(key)
            except PermissionError as error:
                unreadable.append(_unusable(path, f"cannot be read: {error.strerror}"))
            except EnvelopeError as error:
                damaged.append(error)
        return usable, damaged, unreadable

    def _report(self, errors: Iterable[EnvelopeError]) -> None:
        self.problems.extend(problem for problem in map(_unused, errors) if problem not in self.problems)


def _unused(error: EnvelopeError) -> Problem:
    """Return the warning for an unusable key in place of which another key is used."""
    message = f"{error.what}, so another key is used"
    return Problem(code=ProblemCode.UNREADABLE_SECRET, message=message, hint=error.hint)


NO_IDENTITIES: Final = Identities()
"""For callers that read no encrypted file."""

OPAQUE: Final = Identities(opaque=Opaque.BY_PLACE)
"""For commands that never need a decrypted value."""


def wrapped(key: bytes, recipient: str) -> str:
    """Return ``key`` encrypted for a recipient, armoured. Raises ``EnvelopeError`` for an invalid recipient."""
    import pyrage  # 1 MiB of memory, only for hosts with encrypted files

    armoured: bytes = pyrage.encrypt(key, [_parsed(recipient)], armored=True)
    return armoured.decode()


def is_recipient(text: str) -> bool:
    """Return whether ``text`` is a valid recipient."""
    try:
        _parsed(text)
    except EnvelopeError:
        return False
    return True


def normalized(recipient: str) -> str:
    """Return a recipient without the comment of an SSH key, which is not part of the key."""
    return " ".join(recipient.split()[:2])


def new_identity() -> tuple[str, str]:
    """Return a new identity of age, and its recipient."""
    from pyrage import x25519  # only for hosts with encrypted files

    identity = x25519.Identity.generate()
    return str(identity), str(identity.to_public())


def recipients_of(path: str) -> list[str]:
    """Return the recipients of the identities in a file, empty for a missing file.

    Raises ``EnvelopeError`` and ``PermissionError``.
    """
    data = _read(path)
    return [] if data is None else list(_recipients_in(data, path))


def _recipients_in(data: bytes, path: str) -> Iterator[str]:
    if not data.startswith(_SSH_PRIVATE):
        yield from (str(identity.to_public()) for identity in _age_identities(data, path))
        return
    from cryptography.exceptions import UnsupportedAlgorithm  # cryptography takes 65 % of an idle run
    from cryptography.hazmat.primitives import serialization  # see the line above

    is_pem = data.startswith(_RSA_IN_PEM)
    load = serialization.load_pem_private_key if is_pem else serialization.load_ssh_private_key
    try:
        public = load(data, None).public_key()
        openssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        recipient = public.public_bytes(*openssh).decode()
    except TypeError:
        raise _unusable(path, "has a passphrase, which is not supported") from None
    except (ValueError, UnsupportedAlgorithm):
        raise _unusable(path, "is a damaged SSH key") from None
    _require_kind(recipient, path)
    yield recipient


def _require_kind(recipient: str, path: str) -> None:
    kind = recipient.split()[0]
    if kind not in _SSH_KINDS:
        raise _unusable(path, f"is a key of the kind {kind}, which age cannot use")


class PublishedKey(msgspec.Struct, frozen=True):
    """The key of a host whose recipient is in its reports, and its file."""

    recipient: str
    path: str

    @property
    def is_ssh(self) -> bool:
        """Whether the identity is an SSH key."""
        return self.recipient.startswith("ssh-")


def find_published(paths: Sequence[str], warn: Callable[[Problem], None]) -> PublishedKey | None:
    """Return the first usable key, or ``None`` without a key. No SSH key with a public file is parsed.

    The public file beside an SSH key is enough: a wrong one makes files unreadable, never readable for others. Unusable
    keys before a usable key are passed to ``warn``. Raises ``EnvelopeError`` if all existing keys are unusable, and
    ``PermissionError``: an unreadable key may be the first usable key.
    """
    damaged = []
    for path in paths:
        try:
            recipient = _find_recipient(path)
        except EnvelopeError as error:
            damaged.append(error)
            continue
        if recipient is not None:
            for problem in map(_unused, damaged):
                warn(problem)
            return PublishedKey(recipient, path)
    if damaged:
        raise _together(damaged)
    return None


def _find_recipient(path: str) -> str | None:
    """Return the recipient of the first key in a file, ``None`` for a missing file."""
    if not _exists(path):
        return None
    public = _read(f"{path}.pub")
    words = public.decode("utf-8", "replace").split() if public is not None else []
    if len(words) < 2 or not words[0].startswith(("ssh-", "ecdsa-", "sk-")):
        data = _read(path)
        return None if data is None else next(_recipients_in(data, path))
    _require_kind(words[0], path)
    return normalized(" ".join(words))


def _together(errors: Sequence[EnvelopeError]) -> EnvelopeError:
    return EnvelopeError("", "; ".join(map(str, errors)), hint=errors[0].hint)


def shortened(recipient: str) -> str:
    """Return a recipient for a message. The end of an SSH key is its distinct part."""
    kind, _, key = recipient.partition(" ")
    return f"{kind} …{key[-16:]}" if key else recipient


def _listed(sealed: Iterable[str], names: Mapping[str, str]) -> str:
    texts = [names.get(recipient) or shortened(recipient) for recipient in sealed]
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more} others" if more > 0 else "")


def _parsed(recipient: str) -> x25519.Recipient | ssh.Recipient:
    import pyrage  # 1 MiB of memory, only for hosts with encrypted files

    try:
        if recipient.startswith("ssh-"):
            return pyrage.ssh.Recipient.from_str(recipient)
        return pyrage.x25519.Recipient.from_str(recipient)
    except pyrage.RecipientError:
        raise EnvelopeError("", f"{recipient} is not a recipient: expected age1… or ssh-ed25519 …") from None


def _identities_in(data: bytes, path: str) -> Iterator[x25519.Identity | ssh.Identity]:
    """Yield the usable identities in a file. Raises ``EnvelopeError`` behind them if a part is unusable."""
    if not data.startswith(_SSH_PRIVATE):
        yield from _age_identities(data, path)
        return
    from pyrage import IdentityError, ssh  # only for hosts with encrypted files

    try:
        yield ssh.Identity.from_buffer(data)
    except IdentityError:
        list(_recipients_in(data, path))  # raises with the reason
        raise _unusable(path, "is not a usable SSH key") from None


def _age_identities(data: bytes, path: str) -> Iterator[x25519.Identity]:
    """Yield the usable identities in a file. Raises ``EnvelopeError`` behind them if a line is unusable."""
    from pyrage import IdentityError, x25519  # only for hosts with encrypted files

    if data.startswith(_AGE_ENCRYPTED):
        raise _unusable(path, "is encrypted with a passphrase, which is not supported")
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    # SOPS accepts several keys on a line, for SOPS_AGE_KEY.
    texts = [word for line in lines if not line.startswith("#") for word in line.split()]
    reason = "" if texts else _NO_KEY
    for text in texts:
        if text.startswith(_AGE_PRIVATE):
            try:
                yield x25519.Identity.from_str(text)
            except IdentityError:
                reason = "contains a damaged key of age"
        elif text.startswith(_AGE_PLUGIN):
            reason = "contains a key for a plugin of age, which is not supported"
        else:
            reason = _NO_KEY
    if reason:
        raise _unusable(path, reason)


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
