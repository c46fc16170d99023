"""Encrypted values: written and read by Puller, compatible with the real eyaml, and never shown."""

import os
import shutil
import ssl
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from foundation.masking import VALUE_MASK
from foundation.problems import DependsOn, ProblemCode
from hiera.envelopes import create_key_pair, open_envelope, seal
from hiera.errors import DocumentError, EnvelopeError, HieraError
from hiera.eyaml import Decryptor, encrypt, is_encrypted, key_reader
from hiera.tree.explain import recorder
from hiera.tree.locations import Texts
from hiera.tree.lookup import Tree
from hiera.values import Decrypted

Pair = tuple[bytes, bytes]
Eyaml = Callable[..., str]

CANARY = "hunter2-żółw"


@pytest.fixture(scope="module")
def pair() -> Pair:
    return create_key_pair()


@pytest.fixture(scope="module")
def other_pair() -> Pair:
    return create_key_pair()


def decryptor(pair: Pair) -> Decryptor:
    return Decryptor(lambda: pair[0])


@given(st.binary(max_size=200))
def test_encrypted_value_round_trip(content: bytes) -> None:
    private, certificate = PAIR
    assert open_envelope(seal(content, [certificate]), private) == content


PAIR = create_key_pair()


@given(st.data())
def test_flipped_byte_gives_a_puller_error_or_other_bytes(data: st.DataObject) -> None:
    sealed = bytearray(SEALED)
    position = data.draw(st.integers(0, len(sealed) - 1))
    sealed[position] ^= data.draw(st.integers(1, 255))
    try:
        opened = open_envelope(bytes(sealed), PAIR[0])
    except EnvelopeError as error:
        assert CANARY not in str(error)
    else:  # encryption without authentication: only the key can read the value, but everyone can change it
        assert isinstance(opened, bytes)


SEALED = seal(CANARY.encode(), [PAIR[1]])


def test_only_recipients_decrypt_an_envelope(pair: Pair, other_pair: Pair) -> None:
    sealed = seal(b"for two", [pair[1], other_pair[1]])
    assert open_envelope(sealed, pair[0]) == open_envelope(sealed, other_pair[0]) == b"for two"
    for _ in range(5):
        with pytest.raises(EnvelopeError, match="encrypted for another key"):
            open_envelope(seal(CANARY.encode() * 9, [pair[1]]), other_pair[0])


def test_certificate_with_serial_number_zero_is_accepted() -> None:
    """Old versions of eyaml wrote such certificates."""
    private, certificate = self_signed(generate_private_key(65537, 2048))
    der = ssl.PEM_cert_to_DER_cert(certificate.decode())
    zero = ssl.DER_cert_to_PEM_cert(der.replace(b"\x02\x01\x01", b"\x02\x01\x00", 1)).encode()
    assert open_envelope(seal(b"a\nb\r\n", [zero]), private) == b"a\nb\r\n"


def test_certificate_without_rsa_key_is_refused() -> None:
    with pytest.raises(EnvelopeError, match="not an RSA key"):
        seal(b"x", [self_signed(Ed25519PrivateKey.generate())[1]])


def self_signed(key: RSAPrivateKey | Ed25519PrivateKey) -> Pair:
    """Return ``key`` and a certificate with the serial number 1, both PEM."""
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(x509.Name([]), x509.Name([]), key.public_key(), 1, now, now)
    certificate = builder.sign(key, SHA256() if isinstance(key, RSAPrivateKey) else None)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private, certificate.public_bytes(Encoding.PEM)


@pytest.mark.parametrize(
    "data", [b"", b"0", b"\x30\x80\x00\x00", b"\x30\x82\xff\xff", b"\x30\x03\x02\x01\x00", b"text" * 99]
)
def test_invalid_envelope_is_refused(data: bytes, pair: Pair) -> None:
    with pytest.raises(EnvelopeError):
        open_envelope(data, pair[0])


@pytest.mark.parametrize(
    ("private_key", "message"),
    [
        (b"", "not a PEM file"),
        (b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n", "not a PEM file"),
    ],
)
def test_invalid_key_is_refused(private_key: bytes, message: str) -> None:
    with pytest.raises(EnvelopeError, match=message):
        open_envelope(SEALED, private_key)
    with pytest.raises(EnvelopeError, match="not a certificate in PEM"):
        seal(b"x", [private_key])


def test_text_with_several_encrypted_parts_loses_a_newline(pair: Pair) -> None:
    first, two = encrypt("one", [pair[1]]), encrypt("two\n", [pair[1]])
    assert is_encrypted(f"a {first} b")
    assert not is_encrypted("ENC[\nsplit]")
    assert decryptor(pair).decrypt(f"a {first} b {two}") == "a one b two"
    folded = " ".join(two[at : at + 60] for at in range(0, len(two), 60))
    assert decryptor(pair).decrypt(folded) == "two"
    assert decryptor(pair).decrypt("ENC[not base64!]") == "ENC[not base64!]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ENC[GPG,aGk=]", "encrypted with GPG, but Puller supports only PKCS7"),
        ("ENC[PKCS7,a]", "not base64"),
        ("ENC[aGk=]", "PKCS#7"),
    ],
)
def test_undecryptable_value_is_an_error(pair: Pair, text: str, message: str) -> None:
    with pytest.raises(EnvelopeError, match=message):
        decryptor(pair).decrypt(text)


def test_key_comes_from_environment_options_or_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str) -> bytes:
        return path.encode()

    options = {"pkcs7_private_key": "level.pem", "pkcs7_private_key_env_var": "PULLER_TEST_KEY"}
    assert key_reader(options, read, "host.pem")() == b"level.pem"
    assert key_reader({}, read, "host.pem")() == b"host.pem"
    monkeypatch.setenv("PULLER_TEST_KEY", "from environment")
    assert key_reader(options, read, None)() == b"from environment"
    with pytest.raises(EnvelopeError, match="pkcs7_private_key is not defined"):
        key_reader({}, read, None)()


def test_a_missing_key_file_is_an_unreadable_secret() -> None:
    def read(path: str) -> bytes:
        raise DocumentError(path, "No such file or directory")

    with pytest.raises(HieraError) as raised:
        key_reader({}, read, "host.pem")()
    problem = raised.value.problems[0]
    assert (problem.code, problem.depends_on) == (ProblemCode.UNREADABLE_SECRET, DependsOn.KEY)


LEVELS = """\
version: 5
hierarchy:
  - {name: secrets, lookup_key: eyaml_lookup_key, path: s.eyaml, options: {pkcs7_private_key: keys/private.pem}}
  - {name: common, path: common.yaml}
"""


def tree(pair: Pair, secrets: str, common: str = "") -> Tree:
    files: dict[str, str | bytes] = {
        "hiera.yaml": LEVELS,
        "data/s.eyaml": secrets,
        "data/common.yaml": common,
        "keys/private.pem": pair[0],
    }
    return Tree(
        {"role": "web"},
        environment="/e",
        documents=Texts({f"/e/{path}": text for path, text in files.items()}),
    )


def test_decrypted_value_stays_secret_everywhere(pair: Pair) -> None:
    password = encrypt(CANARY, [pair[1]])
    common = "uri: \"db://u:%{lookup('password')}@h\"\nlist: \"%{lookup('nested')}\"\nm: {b: 1}"
    result = tree(
        pair,
        f"password: {password}\nnested: {{a: ['{password}']}}\nm: {{a: '{password}'}}\nplain: '%{{role}}'",
        common,
    )
    assert result.lookup("plain") == "web"
    for key, value in {
        "password": CANARY,
        "uri": f"db://u:{CANARY}@h",
        "list": f'{{"a"=>["{CANARY}"]}}',
        "nested.a.0": CANARY,
    }.items():
        step = recorder()
        answer = result.lookup(key, step=step)
        assert isinstance(answer, Decrypted)
        assert (answer.reveal(), str(answer)) == (value, VALUE_MASK)
        assert CANARY not in str(step) + repr(step.as_data())
    assert result.lookup("m", merge="deep") == {"a": Decrypted(CANARY), "b": 1}


def test_expressions_in_decrypted_text_are_resolved_and_masked(pair: Pair) -> None:
    good, bad = encrypt("%{role}-%{nope}", [pair[1]]), encrypt(f"%{{unknown('{CANARY}')}}", [pair[1]])
    result = tree(pair, f"good: {good}\nbad: {bad}")
    assert result.lookup("good") == Decrypted("web-")
    with pytest.raises(HieraError) as caught:
        result.lookup("bad")
    assert str(caught.value) == (
        "bad: an expression in a decrypted text fails (LookupFailure) "
        "(file: /e/data/s.eyaml, level 'secrets', key 'bad')"
    )


def test_clear_values_need_no_key(pair: Pair) -> None:
    assert tree((b"no key at all", pair[1]), "plain: text").lookup("plain") == "text"
    with pytest.raises(HieraError) as caught:
        tree((b"no key at all", pair[1]), f"secret: {encrypt('x', [pair[1]])}").lookup("secret")
    assert str(caught.value) == (
        "secret: hiera-eyaml backend error decrypting when looking up secret in /e/data/s.eyaml. "
        "Error was the private key is not a PEM file without password"
    )


@pytest.fixture
def eyaml(tmp_path: Path) -> Eyaml:
    """Return the real command, with its own directory."""
    command = shutil.which("eyaml")
    if not command:
        pytest.skip("needs the eyaml command (Debian's package hiera-eyaml)")

    def run(*arguments: str) -> str:
        environment = {**os.environ, "HOME": str(tmp_path), "LANG": "C.UTF-8"}
        done: Any = subprocess.run(
            [command, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return str(done.stdout)

    return run


@pytest.mark.eyaml
def test_eyaml_and_puller_decrypt_each_others_values(eyaml: Eyaml, tmp_path: Path, pair: Pair) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/private_key.pkcs7.pem").write_bytes(pair[0])
    (tmp_path / "keys/public_key.pkcs7.pem").write_bytes(pair[1])
    assert eyaml("decrypt", "-s", encrypt(CANARY, [pair[1]])).strip() == CANARY
    assert decryptor(pair).decrypt(eyaml("encrypt", "-o", "string", "-s", CANARY).splitlines()[-1]) == CANARY


@pytest.mark.eyaml
def test_keys_that_eyaml_made_work_here(eyaml: Eyaml, tmp_path: Path) -> None:
    eyaml("createkeys")
    private, public = (
        (tmp_path / "keys" / f"{kind}_key.pkcs7.pem").read_bytes() for kind in ("private", "public")
    )
    assert eyaml("decrypt", "-s", encrypt(CANARY, [public])).strip() == CANARY
    block = eyaml("encrypt", "-o", "block", "-s", CANARY)
    text = " ".join(block[block.index("ENC[") :].split())
    assert decryptor((private, public)).decrypt(text) == CANARY
