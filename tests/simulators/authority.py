"""A certificate authority for tests that verify TLS."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority for ``127.0.0.1``, with files for requests and for `ssl`.

    With an ``issuer`` it is an intermediate authority. Without ``has_key_usage`` its certificates have only the
    required extensions, like those of many private authorities.
    """

    def __init__(
        self,
        directory: Path,
        name: str = "Test authority",
        issuer: "Authority | None" = None,
        *,
        has_key_usage: bool = True,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self._directory, self._has_key_usage = directory, has_key_usage
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = (issuer or self)._signed(self._name, "authority", self._key.public_key(), is_authority=True)
        self._chain = own if issuer else b""  # Servers omit the root certificate.
        self.bundle = self._write("authority.pem", own)

    def server(self, valid: timedelta = timedelta(days=1), demand_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.identity("127.0.0.1", valid))
        if demand_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.bundle)
        return context

    def identity(self, name: str, valid: timedelta = timedelta(days=1)) -> Path:
        """Write a certificate and its key into one file, and return its path."""
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._write(
            f"{name}.pem", pem + self._signed(subject, name, key.public_key(), valid) + self._chain
        )

    def _signed(
        self,
        subject: x509.Name,
        name: str,
        key: ec.EllipticCurvePublicKey,
        valid: timedelta = timedelta(days=1),
        is_authority: bool = False,
    ) -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=10))
            .not_valid_after(now + valid)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([_alternative(name)]), critical=False)
        )
        if self._has_key_usage:
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = (
                builder.add_extension(_usage(is_authority), critical=True)
                .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
                .add_extension(issuer, critical=False)
            )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def _write(self, name: str, data: bytes) -> Path:
        path = self._directory / name
        path.write_bytes(data)
        return path


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(is_authority: bool) -> x509.KeyUsage:
    """Return the key usage that Python 3.13 requires of an authority."""
    names = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign")
    others = dict.fromkeys((*names, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=not is_authority, key_cert_sign=is_authority, **others)
