"""Private keys and certificates. Each is new in every run, so a file with them changes every time."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, ClassVar, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from foundation.masking import MASK
from puller.templates.gotemplate.function_calls import Struct, define_type
from puller.templates.template_errors import FunctionError

_PrivateKey = rsa.RSAPrivateKey | dsa.DSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
_RSA_EXPONENT: Final = 65537
_LONGEST: Final = 365_000  # days: later than the year 9999, a certificate cannot contain the date


@dataclass(frozen=True, slots=True)
class Certificate(Struct):
    """A certificate and its private key, both as PEM. ``repr`` masks the key."""

    certificate: str
    key: str

    go_type: ClassVar[str] = "sprig.certificate"

    def fields(self) -> Mapping[str, Any]:
        """``.Cert`` and ``.Key``."""
        return {"Cert": self.certificate, "Key": self.key}

    def text(self) -> str:
        """Return the struct as Go prints it, including the key, since the template prints it explicitly."""
        return f"{{{self.certificate} {self.key}}}"

    def json_value(self) -> Mapping[str, Any]:
        """Return the exported fields."""
        return dict(self.fields())

    def __repr__(self) -> str:
        return f"Certificate({MASK})"


define_type("Certificate", Certificate.go_type, lambda value: isinstance(value, Certificate))


# Keys ----------------------------------------------------------------------------------------------------------------


def _gen_private_key(kind: str) -> str:
    """``genPrivateKey``: a new key of this kind (default RSA), as PEM."""
    match kind:
        case "" | "rsa":
            key: _PrivateKey = rsa.generate_private_key(_RSA_EXPONENT, 4096)
        case "dsa":
            key = dsa.generate_private_key(2048)
        case "ecdsa":
            key = ec.generate_private_key(ec.SECP256R1())
        case "ed25519":
            key = ed25519.Ed25519PrivateKey.generate()
        case _:
            return f"Unknown type {kind}"
    return _key_text(key)


def _key_text(key: _PrivateKey) -> str:
    form = serialization.PrivateFormat.TraditionalOpenSSL  # this format does not support Ed25519
    if isinstance(key, ed25519.Ed25519PrivateKey):
        form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _read_key(text: str) -> _PrivateKey:
    try:
        key = serialization.load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FunctionError(f"parsing private key: {error}") from None
    if not isinstance(key, _PrivateKey):
        raise FunctionError(f"parsing private key: {type(key).__name__} cannot sign certificates")
    return key


def _new_key() -> _PrivateKey:
    return rsa.generate_private_key(_RSA_EXPONENT, 2048)


# Certificates --------------------------------------------------------------------------------------------------------


def _alternative_names(addresses: list[Any], names: list[Any]) -> list[x509.GeneralName]:
    for value in (*addresses, *names):
        if not isinstance(value, str):
            raise FunctionError(f"{value!r} is not a string: expected lists of addresses and names")
    try:
        return [*map(x509.DNSName, names), *(x509.IPAddress(ip_address(address)) for address in addresses)]
    except ValueError as error:
        raise FunctionError(str(error)) from None


def _builder(
    name: str, addresses: list[Any], names: list[Any], days: int, *, is_authority: bool = False
) -> x509.CertificateBuilder:
    """Return a builder of a certificate that is valid from now on, for servers and clients."""
    if abs(days) > _LONGEST:
        raise FunctionError(f"{days} days are more than {_LONGEST}")
    start = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(_key_usage(is_authority), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    alternatives = _alternative_names(addresses, names)
    return (
        builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        if alternatives
        else builder
    )


def _key_usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    builder: x509.CertificateBuilder, issuer: x509.Name, key: _PrivateKey, signer: _PrivateKey
) -> Certificate:
    signed = (
        builder.issuer_name(issuer)
        .public_key(key.public_key())
        .sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )
    return Certificate(signed.public_bytes(serialization.Encoding.PEM).decode(), _key_text(key))


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])


def _authority(name: str, days: int, key: _PrivateKey) -> Certificate:
    return _signed(_builder(name, [], [], days, is_authority=True), _subject(name), key, key)


def _self_signed(
    name: str, addresses: list[Any], names: list[Any], days: int, key: _PrivateKey
) -> Certificate:
    return _signed(_builder(name, addresses, names, days), _subject(name), key, key)


def _signed_by(
    name: str, addresses: list[Any], names: list[Any], days: int, authority: Certificate, key: _PrivateKey
) -> Certificate:
    issuer = _read_certificate(authority.certificate.encode()).subject
    return _signed(_builder(name, addresses, names, days), issuer, key, _read_key(authority.key))


def _read_certificate(data: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError as error:
        raise FunctionError(f"error parsing certificate: {error}") from None


# Functions -----------------------------------------------------------------------------------------------------------


def _gen_ca(name: str, days: int) -> Certificate:
    """``genCA``: a new authority, valid for a number of days."""
    return _authority(name, days, _new_key())


def _gen_ca_with_key(name: str, days: int, key: str) -> Certificate:
    """``genCAWithKey``: an authority with an existing key in PEM."""
    return _authority(name, days, _read_key(key))


def _gen_self_signed(name: str, addresses: list[Any], names: list[Any], days: int) -> Certificate:
    """``genSelfSignedCert``: a self-signed certificate with a new key."""
    return _self_signed(name, addresses, names, days, _new_key())


def _gen_self_signed_with_key(
    name: str, addresses: list[Any], names: list[Any], days: int, key: str
) -> Certificate:
    """``genSelfSignedCertWithKey``: a self-signed certificate with an existing key."""
    return _self_signed(name, addresses, names, days, _read_key(key))


def _gen_signed(
    name: str, addresses: list[Any], names: list[Any], days: int, authority: Certificate
) -> Certificate:
    """``genSignedCert``: a certificate with a new key, signed by the authority."""
    return _signed_by(name, addresses, names, days, authority, _new_key())


def _gen_signed_with_key(
    name: str, addresses: list[Any], names: list[Any], days: int, authority: Certificate, key: str
) -> Certificate:
    """``genSignedCertWithKey``: a certificate with an existing key, signed by the authority."""
    return _signed_by(name, addresses, names, days, authority, _read_key(key))


def _build_custom_cert(certificate: str, key: str) -> Certificate:
    """``buildCustomCert``: a certificate and its key from base64 of their PEM."""
    try:
        pieces = [base64.b64decode(part, validate=True) for part in (certificate, key)]
    except (binascii.Error, ValueError):
        raise FunctionError("unable to decode base64 certificate or private key") from None
    _read_certificate(pieces[0])
    _read_key(pieces[1].decode("utf-8", "replace"))
    return Certificate(
        pieces[0].decode("utf-8", "surrogateescape"), pieces[1].decode("utf-8", "surrogateescape")
    )


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "buildCustomCert": _build_custom_cert,
    "genCA": _gen_ca,
    "genCAWithKey": _gen_ca_with_key,
    "genPrivateKey": _gen_private_key,
    "genSelfSignedCert": _gen_self_signed,
    "genSelfSignedCertWithKey": _gen_self_signed_with_key,
    "genSignedCert": _gen_signed,
    "genSignedCertWithKey": _gen_signed_with_key,
}
