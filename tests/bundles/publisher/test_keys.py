"""Signing keys on disk."""

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from bundles.errors import KeyFileError, PublishError
from bundles.publisher.signing_keys import generate_key, key_file, load_signer


def never(path: Path) -> bytes:
    raise AssertionError(f"asked for the passphrase of {path}")


def the_only_key(directory: Path) -> Path:
    (path,) = directory.iterdir()
    return path


@pytest.mark.parametrize("passphrase", [None, b"open sesame", "ünïcode".encode()])
def test_a_key_signs_the_same_after_it_was_stored(tmp_path: Path, passphrase: bytes | None) -> None:
    signer = generate_key(tmp_path / "keys", "targets", passphrase)
    path = key_file(tmp_path / "keys", "targets", signer.public_key.keyid)
    loaded = load_signer(path, lambda _: passphrase or b"")
    assert loaded.public_key == signer.public_key
    assert loaded.sign(b"data").signature == signer.sign(b"data").signature


def test_a_stored_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        generate_key(tmp_path / "keys", "root", b"open sesame")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    assert stat.S_IMODE(the_only_key(tmp_path / "keys").stat().st_mode) == 0o600


def test_a_passphrase_encrypts(tmp_path: Path) -> None:
    generate_key(tmp_path / "encrypted", "root", b"open sesame")
    generate_key(tmp_path / "plain", "root", None)
    assert (
        the_only_key(tmp_path / "encrypted").read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    )
    assert the_only_key(tmp_path / "plain").read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")


def test_the_passphrase_is_asked_for_only_when_there_is_one(tmp_path: Path) -> None:
    generate_key(tmp_path, "root", None)
    load_signer(the_only_key(tmp_path), never)


def test_a_wrong_passphrase_is_said_to_be_wrong(tmp_path: Path) -> None:
    generate_key(tmp_path, "root", b"open sesame")
    path = the_only_key(tmp_path)
    for wrong in (b"open barley", b""):
        with pytest.raises(KeyFileError) as caught:
            load_signer(path, lambda _, wrong=wrong: wrong)  # type: ignore[misc]  # a default binds it
        assert str(caught.value) == f"{path}: the passphrase is wrong"


def test_a_passphrase_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    generate_key(tmp_path / "keys", "root", b"x" * 1023)
    with pytest.raises(KeyFileError, match="has more than 1023 bytes"):
        generate_key(tmp_path / "more", "root", b"x" * 1024)
    with pytest.raises(KeyFileError, match="the passphrase is wrong"):
        load_signer(the_only_key(tmp_path / "keys"), lambda _: b"x" * 1024)


def test_an_empty_passphrase_protects_nothing_and_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="the passphrase is empty"):
        generate_key(tmp_path / "keys", "root", b"")


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed448.Ed448PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (pem(ec.generate_private_key(ec.SECP256R1())), "is a key of type EC.*, expected Ed25519"),
        (pem(rsa.generate_private_key(65537, 1024)), "is a key of type RSA, expected Ed25519"),
        (pem(ed448.Ed448PrivateKey.generate()), "is a key of type Ed448, expected Ed25519"),
        (b"", "is not a private key in PEM form"),
        (b"garbage", "is not a private key in PEM form"),
        (
            Ed25519PrivateKey.generate()
            .public_key()
            .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "is not a private key in PEM form",
        ),
        (b"-" * 100_000, "is not a key file: it has more than 65536 bytes"),
    ],
)
def test_foreign_key_files_are_refused(tmp_path: Path, contents: bytes, message: str) -> None:
    path = tmp_path / "root.pem"
    path.write_bytes(contents)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match=rf"root\.pem: {message}"):
        load_signer(path, never)


def test_a_missing_key_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"root\.pem: No such file"):
        load_signer(tmp_path / "root.pem", never)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o602])
def test_a_plain_key_that_is_open_to_others_is_not_used(tmp_path: Path, mode: int) -> None:
    generate_key(tmp_path, "root", None)
    path = the_only_key(tmp_path)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"its mode is {mode:04o}, expected 0600; run chmod 600"):
        load_signer(path, never)
