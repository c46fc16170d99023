"""PKCS#7 enveloped data (RFC 5652, section 6), as hiera-eyaml writes it: AES-CBC for the content, RSA for its key.

* The library ``cryptography`` writes envelopes (``seal``). This module reads their DER, and the library decrypts.
* A private key is enough to open an envelope. The library's function also requires the certificate, which hosts
  do not have.
* Errors never contain any part of the content.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, generate_private_key
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES, AES256
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs7 import PKCS7EnvelopeBuilder, PKCS7Options
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509 import Certificate, load_pem_x509_certificate

from foundation.problems import DependsOn
from hiera.errors import EnvelopeError

_SEQUENCE, _SET = 0x30, 0x31
_TAGGED_0, _TAGGED_0_PLAIN = 0xA0, 0x80

_ENVELOPED_DATA: Final = bytes.fromhex("2a864886f70d010703")
_RSA: Final = bytes.fromhex("2a864886f70d010101")
_AES_KEY_BYTES = {
    bytes.fromhex("608648016503040102"): 16,
    bytes.fromhex("608648016503040116"): 24,
    bytes.fromhex("60864801650304012a"): 32,
}


@dataclass(frozen=True, slots=True)
class _Node:
    """One DER value: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    whole: bytes

    def parts(self) -> "list[_Node]":
        pieces = []
        remainder = self.content
        while remainder:
            part = _first(remainder)
            pieces.append(part)
            remainder = remainder[len(part.whole) :]
        return pieces

    def sequence(self, least: int, tag: int = _SEQUENCE) -> "list[_Node]":
        components = self.parts() if self.tag == tag else []
        if len(components) < least:
            raise _malformed()
        return components


def _malformed() -> EnvelopeError:
    return EnvelopeError("", "not PKCS#7 enveloped data in DER")


def _first(data: bytes) -> _Node:
    if len(data) < 2:
        raise _malformed()
    length, start = data[1], 2
    if length > 0x80:  # the long form: so many bytes of length
        start += length & 0x7F
        length = int.from_bytes(data[2:start])
    elif length == 0x80:
        raise EnvelopeError("", "BER of indefinite length, expected DER")
    end = start + length
    if end > len(data):
        raise _malformed()
    return _Node(data[0], data[start:end], data[:end])


def open_envelope(data: bytes, private_key_pem: bytes) -> bytes:
    """Return the content of ``data``. Raises ``EnvelopeError`` for a wrong key or malformed data.

    1. ``ContentInfo`` must contain enveloped data (RFC 5652, section 3).
    2. ``EnvelopedData`` has a set of recipients and the encrypted content (6.1).
    3. The private key is read.
    4. For each recipient, the key of the content is decrypted (``KeyTransRecipientInfo``, 6.2.1; 6.4).
    5. The cipher and its vector stand beside the encrypted content (``EncryptedContentInfo``, 6.1).
    6. The content is decrypted and its padding removed (6.3). If that fails, the next recipient is tried.
    """
    # 1. ContentInfo: contentType, content [0]
    info = _first(data).sequence(2)
    if info[0].content != _ENVELOPED_DATA:
        raise _malformed()
    # 2. EnvelopedData: version, originatorInfo [0]?, recipientInfos, encryptedContentInfo, unprotectedAttrs [1]?
    fields = info[1].sequence(1, _TAGGED_0)[0].sequence(3)
    recipients = next((field for field in fields if field.tag == _SET), None)
    content = next((field for field in fields if field.tag == _SEQUENCE), None)
    if recipients is None or content is None:
        raise _malformed()
    # 3. The private key. Recipients are named by their certificates, which are not available here, so try each.
    key = _load_private_key(private_key_pem)
    for recipient in recipients.parts():
        opened = _decrypt(content, _content_key(recipient, key))
        if opened is not None:
            return opened
    raise EnvelopeError("", "encrypted for another key than the private key that is configured").depending(
        DependsOn.KEY
    )


def _content_key(recipient: _Node, key: "RSAPrivateKey") -> bytes:
    """Return the key of the content, or invalid bytes if it was encrypted for another recipient."""
    # 4. KeyTransRecipientInfo: version, rid, keyEncryptionAlgorithm, encryptedKey
    fields = recipient.sequence(4)
    if fields[2].sequence(1)[0].content != _RSA:
        raise EnvelopeError("", "the key in it is not encrypted with RSA as eyaml does it")
    try:
        return key.decrypt(fields[3].content, PKCS1v15())
    except ValueError:  # newer versions of OpenSSL return random bytes instead, to prevent probing the key
        return b""


def _decrypt(info: _Node, key: bytes) -> bytes | None:
    """Return the content, or ``None`` if ``key`` is certainly wrong."""
    # 5. EncryptedContentInfo: contentType, contentEncryptionAlgorithm, encryptedContent [0]
    _, algorithm, body = info.sequence(3)[:3]
    name, vector = algorithm.sequence(2)[:2]
    if name.content not in _AES_KEY_BYTES or len(vector.content) != 16:
        raise EnvelopeError("", f"its cipher (OID {name.content.hex()}) is not AES-CBC")
    # An implicit tag keeps the octets: in one piece, or in several pieces that are joined.
    if body.tag not in (_TAGGED_0, _TAGGED_0_PLAIN):
        raise _malformed()
    text = b"".join(part.content for part in body.parts()) if body.tag == _TAGGED_0 else body.content
    if len(key) != _AES_KEY_BYTES[name.content]:
        return None
    # 6. The content: wrong keys almost always cause wrong padding
    decryptor = Cipher(AES(key), CBC(vector.content)).decryptor()
    unpadder = PKCS7(128).unpadder()
    try:
        return unpadder.update(decryptor.update(text) + decryptor.finalize()) + unpadder.finalize()
    except ValueError:  # wrong length or padding
        return None


@lru_cache(maxsize=8)  # checking its primes takes much longer than opening an envelope
def _load_private_key(pem: bytes) -> "RSAPrivateKey":
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: the key is encrypted with a password
        error = EnvelopeError("", "the private key is not a PEM file without password")
        raise error.depending(DependsOn.KEY) from None
    if not isinstance(key, RSAPrivateKey):
        raise EnvelopeError("", "the private key is not an RSA key").depending(DependsOn.KEY)
    return key


def seal(content: bytes, certificate_pems: Sequence[bytes]) -> bytes:
    """Return ``content`` in an envelope that the private key of each certificate opens.

    Raise ``EnvelopeError`` if a certificate is invalid, or if its key is not an RSA key.
    """
    builder = PKCS7EnvelopeBuilder().set_data(content).set_content_encryption_algorithm(AES256)
    # Certificates of old versions of eyaml have the serial number 0, which the library reports as deprecated.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for pem in certificate_pems:
            builder = builder.add_recipient(_load_certificate(pem))
        # Without the option ``Binary``, the library replaces each newline by CR LF, as for mail.
        return builder.encrypt(Encoding.DER, [PKCS7Options.Binary])


def _load_certificate(pem: bytes) -> Certificate:
    try:
        certificate = load_pem_x509_certificate(pem)
    except ValueError:
        raise EnvelopeError("", "not a certificate in PEM") from None
    try:
        public_key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise EnvelopeError("", "the certificate holds no public key that can be read") from None
    if not isinstance(public_key, RSAPublicKey):
        raise EnvelopeError("", "the certificate's key is not an RSA key")
    return certificate


def create_key_pair(bits: int = 2048) -> tuple[bytes, bytes]:
    """Return a new private key and its self-signed certificate, both PEM, like ``eyaml createkeys``."""
    key = generate_private_key(65537, bits)
    now = datetime.now(UTC)
    nobody = x509.Name([])
    certificate = (
        x509.CertificateBuilder(nobody, nobody, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=50 * 365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return private, certificate.public_bytes(Encoding.PEM)
