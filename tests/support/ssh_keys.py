"""SSH keys for tests."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def ssh_key_text(kind: str = "ed25519", *, passphrase: bytes = b"") -> tuple[bytes, str]:
    """Return a new private key as ``ssh-keygen`` writes it, and its public part. ``rsa in PEM`` is the older format."""
    key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    if kind == "ed25519":
        key = Ed25519PrivateKey.generate()
    elif kind == "ecdsa":
        key = ec.generate_private_key(ec.SECP256R1())
    else:
        key = rsa.generate_private_key(65537, 2048)
    form = PrivateFormat.TraditionalOpenSSL if kind == "rsa in PEM" else PrivateFormat.OpenSSH
    encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    private = key.private_bytes(Encoding.PEM, form, encryption)
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def make_ssh_key(path: Path, *, kind: str = "ed25519") -> str:
    """Write a key as ``ssh-keygen`` does, with its public part beside it, and return the public part."""
    private, public = ssh_key_text(kind)
    path.write_bytes(private)
    path.chmod(0o600)
    path.with_name(f"{path.name}.pub").write_text(f"{public} root@host\n")
    return public
