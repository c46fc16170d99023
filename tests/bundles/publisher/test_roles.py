"""Keys of roles: adding, removing and replacing keys, and the effect on hosts."""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from securesystemslib.signer import (
    SIGNER_FOR_URI_SCHEME,
    CryptoSigner,
    Key,
    Signature,
    Signer,
    SSlibKey,
)

from bundles.errors import KeyFileError, PublishError, RollbackError, SignatureError, TokenError
from bundles.publisher import signing_keys
from bundles.publisher.lifecycle import make_site, refresh_site, verify_site
from bundles.publisher.roles import Outcome, RoleKeys
from bundles.publisher.signing_keys import (
    NewKey,
    change_passphrase,
    is_encrypted,
    load_public_key,
    load_signer,
    make_key,
    signer_of,
    token_key,
)
from bundles.publisher.site import Site
from foundation.extras import how_to_install
from foundation.problems import ProblemCode

if TYPE_CHECKING:
    from tests.support.sites import Clock, Host, Publisher, Survives
    from tests.support.sweeps import Sweep

ROLES = ("root", "targets", "snapshot", "timestamp")
NewHost = Callable[..., "Host"]


def no_passphrase(key: Path) -> bytes:
    raise AssertionError(f"{key} is not encrypted")


def plain_key() -> NewKey:
    return make_key(None)


@pytest.fixture
def role_keys(publisher: Publisher) -> RoleKeys:
    return RoleKeys(publisher.site, no_passphrase)


def ids(role_keys: RoleKeys, role: str) -> list[str]:
    return [key.key_id for key in role_keys.held_keys() if key.role == role]


def tree(directory: Path) -> dict[str, bytes]:
    """Return the contents of all files of a site except its lock."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def refused(
    publisher: Publisher, message: str, action: Callable[[], object], kind: Any = PublishError
) -> None:
    """Check that the action fails with this message and changes nothing."""
    before = tree(publisher.site.directory)
    with pytest.raises(kind, match=message):
        action()
    assert tree(publisher.site.directory) == before


# --- replacing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
def test_hosts_follow_when_the_keys_of_a_role_are_replaced(
    role: str, publisher: Publisher, host: Host, new_host: NewHost, role_keys: RoleKeys
) -> None:
    assert host.version() == "1.0.0"
    (before,) = ids(role_keys, role)
    outcome = role_keys.rotate(role, plain_key)
    (after,) = ids(role_keys, role)
    publisher.deploy()
    assert after != before
    assert outcome.signed == ["root", *ROLES[max(ROLES.index(role), 1) :]][: None if role != "root" else 1]
    assert host.version() == "1.0.0"
    publisher.publish("1.1.0")
    assert host.version() == "1.1.0"
    assert new_host(name="new").version() == "1.1.0"


def test_replaced_keys_are_described(role_keys: RoleKeys) -> None:
    (before,) = ids(role_keys, "timestamp")
    outcome = role_keys.rotate("timestamp", plain_key)
    (after,) = ids(role_keys, "timestamp")
    assert outcome.changes[0] == "version 1 becomes 2"
    assert outcome.changes[2:] == [
        f"timestamp: new key {after} (ed25519)",
        f"timestamp: the key {before} (ed25519) is removed",
    ]


def test_the_file_of_a_replaced_key_is_kept_aside(publisher: Publisher, role_keys: RoleKeys) -> None:
    keys = publisher.site.keys
    (old,) = keys.glob("targets-*.pem")
    contents = old.read_bytes()
    assert role_keys.rotate("targets", plain_key).retired == [keys / "retired" / old.name]
    assert not old.exists()
    assert (keys / "retired" / old.name).read_bytes() == contents
    (new,) = keys.glob("targets-*.pem")
    assert load_signer(new, no_passphrase).public_key.keyid == ids(role_keys, "targets")[0]


def test_role_with_two_keys_replaces_both_or_a_single_key(role_keys: RoleKeys) -> None:
    role_keys.add("snapshot", plain_key(), threshold=2)
    before = ids(role_keys, "snapshot")
    role_keys.rotate("snapshot", plain_key)
    between = ids(role_keys, "snapshot")
    assert len(between) == 2
    assert not {*before} & {*between}
    role_keys.rotate("snapshot", plain_key, key=between[0][:8])
    assert ids(role_keys, "snapshot")[0] == between[1]
    assert {key.needed for key in role_keys.held_keys() if key.role == "snapshot"} == {"2 of 2"}


@pytest.mark.everything
def test_a_host_with_the_first_anchor_follows_many_replacements(
    publisher: Publisher, host: Host, role_keys: RoleKeys
) -> None:
    for _ in range(5):
        for role in ROLES:
            role_keys.rotate(role, plain_key)
    publisher.publish("1.1.0")
    assert publisher.site.root().version == 21
    assert host.version() == "1.1.0"
    assert verify_site(publisher.site)


@pytest.mark.attack("keys.revoked")
@pytest.mark.parametrize("role", ["targets", "snapshot", "timestamp"])
def test_a_stolen_key_signs_nothing_after_it_was_replaced(
    role: str, publisher: Publisher, host: Host, role_keys: RoleKeys
) -> None:
    host.refresh()
    thief = publisher.forge()
    stolen = thief.keys[role]
    role_keys.rotate(role, plain_key)
    publisher.deploy()
    thief = publisher.forge()
    thief.keys[role] = stolen
    thief.publish()
    with pytest.raises(SignatureError, match=f"{role}.*signed by 0 of the 1 keys"):
        host.refresh()


@pytest.mark.parametrize(
    ("stolen", "replaced"),
    [
        pytest.param(["timestamp"], ["timestamp"], marks=pytest.mark.attack("fast-forward.timestamp")),
        pytest.param(
            ["snapshot", "timestamp"],
            ["snapshot", "timestamp"],
            marks=pytest.mark.attack("fast-forward.snapshot"),
        ),
        pytest.param(
            ["targets", "snapshot", "timestamp"],
            ["targets", "snapshot", "timestamp"],
            marks=pytest.mark.attack("fast-forward.targets"),
        ),
    ],
    ids=lambda roles: "+".join(roles),
)
def test_version_jump_is_reset_by_new_keys(
    stolen: list[str], replaced: list[str], publisher: Publisher, host: Host, role_keys: RoleKeys
) -> None:
    host.refresh()
    thief = publisher.forge()
    for role in stolen:
        getattr(thief, role).version = 2**31
    thief.write(*stolen)
    host.refresh()
    publisher.publish("1.1.0")
    with pytest.raises(RollbackError):
        host.refresh()
    for role in replaced:
        role_keys.rotate(role, plain_key)
    publisher.deploy()
    assert host.version() == "1.1.0"


@pytest.mark.parametrize(
    "generate",
    [
        pytest.param(
            partial(CryptoSigner.generate_ecdsa, "", "ecdsa-sha2-nistp256"), id="ecdsa-sha2-nistp256"
        ),
        pytest.param(
            partial(CryptoSigner.generate_ecdsa, "", "ecdsa-sha2-nistp384"), id="ecdsa-sha2-nistp384"
        ),
        pytest.param(
            partial(CryptoSigner.generate_ecdsa, "", "ecdsa-sha2-nistp521"), id="ecdsa-sha2-nistp521"
        ),
        pytest.param(partial(CryptoSigner.generate_rsa, ""), id="rsassa-pss-sha256"),
    ],
)
@pytest.mark.parametrize("role", ["root", "timestamp"])
def test_hosts_accept_the_key_types_of_tokens_and_services(
    role: str,
    generate: Callable[[], CryptoSigner],
    publisher: Publisher,
    host: Host,
    role_keys: RoleKeys,
) -> None:
    signer = generate()
    public = SSlibKey.from_crypto(signer.public_key._crypto_key())
    signer._public_key = public  # the default ID of a key
    role_keys.rotate(role, lambda: NewKey(public, signer))
    publisher.deploy()
    assert host.version() == "1.0.0"
    assert [key.scheme for key in role_keys.held_keys() if key.role == role] == [public.scheme]


# --- adding and removing ------------------------------------------------------------------------------------


def test_the_keys_of_a_site_are_listed(publisher: Publisher, role_keys: RoleKeys) -> None:
    role_keys.add("root", NewKey(plain_key().public))
    listed = role_keys.held_keys()
    assert [key.role for key in listed] == ["root", "root", "targets", "snapshot", "timestamp"]
    assert [key.needed for key in listed] == ["1 of 2", "1 of 2", "1 of 1", "1 of 1", "1 of 1"]
    assert listed[0].place == str(publisher.site.keys / f"root-{listed[0].key_id[:12]}.pem")
    assert listed[1].place is None


@pytest.mark.attack("keys.threshold")
def test_stolen_key_below_the_threshold_is_not_enough(
    publisher: Publisher, host: Host, role_keys: RoleKeys
) -> None:
    outcome = role_keys.add("timestamp", plain_key(), threshold=2)
    assert outcome.signed == ["root", "timestamp"]
    publisher.deploy()
    assert host.version() == "1.0.0"
    thief = publisher.forge()
    thief.timestamp.version += 1
    thief.write("timestamp", keys=thief.keys["timestamp"][:1])
    with pytest.raises(SignatureError, match=r"timestamp.*signed by 1 of the 2 keys"):
        host.refresh()
    publisher.publish("1.1.0")
    assert host.version() == "1.1.0"


def test_unneeded_new_key_leaves_signatures_alone(
    publisher: Publisher, host: Host, role_keys: RoleKeys
) -> None:
    timestamp = (publisher.site.metadata / "timestamp.json").read_bytes()
    assert role_keys.add("timestamp", plain_key()).signed == ["root"]
    assert (publisher.site.metadata / "timestamp.json").read_bytes() == timestamp
    publisher.publish("1.1.0")
    assert host.version() == "1.1.0"


def test_a_key_is_removed_by_the_start_of_its_id(
    publisher: Publisher, host: Host, role_keys: RoleKeys
) -> None:
    role_keys.add("timestamp", plain_key())
    publisher.refresh()
    host.refresh()
    first, second = ids(role_keys, "timestamp")
    outcome = role_keys.remove(first[:6])
    assert outcome.signed == ["root", "timestamp"], "nothing keeps the signature of a key that is gone"
    assert ids(role_keys, "timestamp") == [second]
    publisher.deploy()
    assert host.version() == "1.0.0"


def test_the_last_key_that_is_needed_is_not_removed(publisher: Publisher, role_keys: RoleKeys) -> None:
    (only,) = ids(role_keys, "targets")
    message = rf"{only[:12]}: cannot be removed, because targets would have 0 of the 1 keys .*; add another key first"
    refused(publisher, message, lambda: role_keys.remove(only))
    role_keys.add("targets", plain_key(), threshold=2)
    message = r"would have 1 of the 2 keys that must sign; add another key first, or pass --threshold 1"
    refused(publisher, message, lambda: role_keys.remove(only))
    assert role_keys.remove(only, threshold=1).signed == ["root", "targets", "snapshot", "timestamp"]


def test_which_key_is_meant_must_be_clear(publisher: Publisher, role_keys: RoleKeys) -> None:
    refused(publisher, "xyz: no key id starts with this text", lambda: role_keys.remove("xyz"))
    refused(
        publisher,
        "several key ids start with this text: root [0-9a-f]{12}, targets",
        lambda: role_keys.remove(""),
    )
    (root,) = ids(role_keys, "root")
    refused(publisher, "no key id of targets starts with", lambda: role_keys.remove(root, role="targets"))


@pytest.mark.parametrize(
    ("threshold", "message"), [(2, "would have 1 key and require 2"), (0, "is 0, expected 1 or")]
)
def test_unreachable_threshold_is_refused(
    threshold: int, message: str, publisher: Publisher, role_keys: RoleKeys
) -> None:
    refused(publisher, message, lambda: role_keys.set_threshold("timestamp", threshold))


def test_the_threshold_that_is_in_force_already_changes_nothing(
    publisher: Publisher, role_keys: RoleKeys
) -> None:
    before = tree(publisher.site.directory)
    assert role_keys.set_threshold("timestamp", 1) == Outcome([], [])
    assert tree(publisher.site.directory) == before


def test_key_serves_a_single_role(publisher: Publisher, role_keys: RoleKeys) -> None:
    (pem,) = publisher.site.keys.glob("root-*.pem")
    key = NewKey(load_signer(pem, no_passphrase).public_key)
    refused(publisher, "is already a key of root", lambda: role_keys.add("timestamp", key))


def test_a_role_is_not_given_keys_that_could_not_sign_for_it_now(
    publisher: Publisher, role_keys: RoleKeys
) -> None:
    away = NewKey(plain_key().public)
    message = "contains 1 of the 2 keys required to sign for timestamp"
    refused(publisher, message, lambda: role_keys.add("timestamp", away, threshold=2), KeyFileError)


def test_the_public_part_of_somebodys_key_is_read(tmp_path: Path) -> None:
    path = tmp_path / "alice.pub"
    for public in (ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)):
        path.write_bytes(public.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        assert load_public_key(path).public == SSlibKey.from_crypto(public.public_key())
    for contents in (b"", b"garbage", plain_key().contents or b""):
        path.write_bytes(contents)
        with pytest.raises(
            KeyFileError,
            match=r"alice\.pub: is not a supported public key, expected a public key in PEM form",
        ):
            load_public_key(path)


def test_curve_key_under_two_ids_is_refused(publisher: Publisher, host: Host) -> None:
    """A point may be compressed or not, and PEM may have any line length."""
    signer = CryptoSigner.generate_ecdsa()
    public = signer.public_key._crypto_key()
    point = public.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    header = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200")
    text = base64.b64encode(header + point).decode()
    pem = f"-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n"
    twin = SSlibKey("f" * 64, "ecdsa", "ecdsa-sha2-nistp256", {"public": pem})
    assert twin._crypto_key() == public
    forge = publisher.forge()
    forge.root.add_key(signer.public_key, "timestamp")
    forge.root.add_key(twin, "timestamp")
    forge.write_root()
    with pytest.raises(SignatureError, match="lists one key under two ids"):
        host.refresh()


# --- passphrases --------------------------------------------------------------------------------------------


@pytest.fixture
def sealed(tmp_path: Path, clock: Clock) -> Site:
    """Return a site with encrypted keys."""
    return make_site(tmp_path / "sealed", b"open sesame", None, clock)


def with_passphrase(site: Site, passphrase: bytes) -> RoleKeys:
    return RoleKeys(site, lambda _: passphrase)


def test_with_a_wrong_passphrase_nothing_changes(sealed: Site) -> None:
    before = tree(sealed.directory)
    with pytest.raises(KeyFileError, match="the passphrase is wrong"):
        with_passphrase(sealed, b"open barley").rotate("timestamp", lambda: make_key(b"open barley"))
    assert tree(sealed.directory) == before


def test_the_passphrase_of_all_keys_is_changed_at_once(sealed: Site) -> None:
    changed = with_passphrase(sealed, b"open sesame").change_passphrase(b"open barley")
    assert len(changed) == 4
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in changed)
    refresh_site(sealed, lambda _: b"open barley")
    with pytest.raises(KeyFileError, match="the passphrase is wrong"):
        refresh_site(sealed, lambda _: b"open sesame")
    assert with_passphrase(sealed, b"whatever").change_passphrase(b"open barley") == []


def test_a_change_of_passphrase_that_was_cut_off_is_completed(sealed: Site) -> None:
    first = min(sealed.keys.iterdir())
    first.write_bytes(change_passphrase(first, lambda _: b"open sesame", b"open barley") or b"")
    changed = with_passphrase(sealed, b"open sesame").change_passphrase(b"open barley")
    assert len(changed) == 3
    refresh_site(sealed, lambda _: b"open barley")


def test_wrong_passphrase_of_a_key_changes_no_passphrase(sealed: Site) -> None:
    make_key(b"another").save(sealed.keys, "targets")
    before = tree(sealed.directory)
    with pytest.raises(KeyFileError, match="the passphrase is wrong"):
        with_passphrase(sealed, b"open sesame").change_passphrase(b"open barley")
    assert tree(sealed.directory) == before


def test_encryption_can_be_taken_off_and_put_on(sealed: Site) -> None:
    assert len(with_passphrase(sealed, b"open sesame").change_passphrase(None)) == 4
    assert not any(is_encrypted(path) for path in sealed.keys.iterdir())
    assert RoleKeys(sealed, no_passphrase).change_passphrase(None) == []
    assert len(RoleKeys(sealed, no_passphrase).change_passphrase(b"open sesame")) == 4
    assert all(is_encrypted(path) for path in sealed.keys.iterdir())


# --- tokens and services ------------------------------------------------------------------------------------


class Token:
    """A fake token with numbered ECDSA keys and a PIN, which can be unplugged. SoftHSM is in tests/system."""

    def __init__(self) -> None:
        self.keys = {number: CryptoSigner.generate_ecdsa() for number in (2, 3)}
        self.plugged = True

    def import_(self, number: int, label: str | None, secrets: Any) -> tuple[str, Key]:
        return f"hsm:{number}?label={label or 'publisher'}", self.keys[number].public_key

    def from_priv_key_uri(self, uri: str, public: Key, secrets: Any) -> Signer:
        return _TokenKey(self, int(uri.partition(":")[2].partition("?")[0]), public, secrets)


class _TokenKey(Signer):
    def __init__(self, token: Token, number: int, public: Key, secrets: Any) -> None:
        self._token, self._number, self._public, self._secrets = token, number, public, secrets

    @property
    def public_key(self) -> Key:
        return self._public

    @classmethod
    def from_priv_key_uri(cls, *arguments: Any) -> Signer:
        raise NotImplementedError

    def sign(self, payload: bytes) -> Signature:
        if not self._token.plugged:
            raise ValueError("No PKCS#11 token found")
        if self._secrets("pin") != "1234":
            raise ValueError("PIN incorrect")
        result = self._token.keys[self._number].sign(payload)
        return Signature(self._public.keyid, result.signature)


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> Token:
    made = Token()
    monkeypatch.setattr(signer_of("hsm"), "import_", made.import_)
    monkeypatch.setitem(SIGNER_FOR_URI_SCHEME, "hsm", made)
    return made


def pin(_: object = None) -> bytes:
    return b"1234"


def test_a_key_in_a_token_is_used_by_its_uri(
    token: Token, publisher: Publisher, host: Host, clock: Clock
) -> None:
    role_keys = RoleKeys(publisher.site, pin)
    role_keys.rotate("timestamp", lambda: token_key("hsm:2", pin))
    (path,) = publisher.site.keys.glob("timestamp-*")
    assert path.suffix == ".uri"
    assert path.read_text() == "hsm:2?label=publisher\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert role_keys.held_keys()[-1].place == f"hsm:2?label=publisher ({path})"
    refresh_site(publisher.site, pin)
    publisher.deploy()
    assert host.version() == "1.0.0"
    with pytest.raises(TokenError, match=r"timestamp-.*\.uri: cannot sign: PIN incorrect"):
        refresh_site(publisher.site, lambda _: b"0000")


def test_a_token_that_is_away_matters_only_when_it_is_needed(token: Token, publisher: Publisher) -> None:
    role_keys = RoleKeys(publisher.site, pin)
    role_keys.add("timestamp", token_key("hsm:2", pin))
    token.plugged = False
    refresh_site(publisher.site, pin)
    token.plugged = True
    role_keys.set_threshold("timestamp", 2)
    token.plugged = False
    message = r"timestamp-.*\.uri: cannot sign: No PKCS#11 token found"
    refused(publisher, message, lambda: refresh_site(publisher.site, pin), TokenError)


@pytest.mark.parametrize("role", ["root", "targets", "snapshot"])
def test_absent_token_does_not_block_the_timestamp(
    role: str, token: Token, publisher: Publisher, host: Host, clock: Clock
) -> None:
    role_keys = RoleKeys(publisher.site, pin)
    role_keys.rotate(role, lambda: token_key("hsm:2", pin))
    publisher.deploy()
    host.refresh()
    token.plugged = False
    clock.advance(days=300)
    renewal = refresh_site(publisher.site, pin)
    assert "cannot sign: No PKCS#11 token found" in renewal.due[role]
    assert role not in renewal.signed
    assert renewal.signed[-1] == "timestamp"
    token.plugged = True
    renewal = refresh_site(publisher.site, pin)
    assert role in renewal.signed
    assert renewal.due == {}
    publisher.deploy()
    assert host.version() == "1.0.0"


def test_a_token_that_is_lost_can_be_replaced(token: Token, publisher: Publisher, host: Host) -> None:
    role_keys = RoleKeys(publisher.site, pin)
    role_keys.rotate("timestamp", lambda: token_key("hsm:2", pin))
    publisher.deploy()
    host.refresh()
    token.plugged = False
    outcome = role_keys.rotate("timestamp", plain_key)
    assert [path.suffix for path in outcome.retired] == [".uri"]
    publisher.publish("1.1.0")
    assert host.version() == "1.1.0"


def test_a_root_token_that_is_lost_is_replaced_by_the_others(
    token: Token, publisher: Publisher, host: Host
) -> None:
    role_keys, alice = RoleKeys(publisher.site, pin), plain_key()
    role_keys.add("root", NewKey(alice.public))
    role_keys.rotate("root", lambda: token_key("hsm:2", pin), key=ids(role_keys, "root")[0])
    token.plugged = False
    outcome = role_keys.rotate("root", plain_key, key=ids(role_keys, "root")[1])
    assert outcome.pending[0].startswith("1 more signature by the current root keys: ")
    assert outcome.failures
    assert all("cannot sign: No PKCS#11 token found" in failure for failure in outcome.failures)
    proposal = role_keys.pending()
    assert proposal is not None
    assert alice.signer is not None
    proposal.sign(alice.signer, "alice.pem")
    proposal.save(publisher.site.directory / "signed.json")
    assert role_keys.take_signatures(publisher.site.directory / "signed.json")[1].signed == ["root"]
    publisher.publish("1.1.0")
    assert host.version() == "1.1.0"


def test_a_token_that_holds_another_key_now_is_refused(token: Token, publisher: Publisher) -> None:
    RoleKeys(publisher.site, pin).rotate("timestamp", lambda: token_key("hsm:2", pin))
    token.keys[2] = CryptoSigner.generate_ecdsa()
    message = "signs with another key than [0-9a-f]{64} of the site"
    refused(publisher, message, lambda: refresh_site(publisher.site, pin), TokenError)


@pytest.mark.parametrize(
    ("uri", "module", "name", "extra"),
    [
        ("hsm:2", "_hsm_signer", "PKCS11_IMPORT_ERROR", "hsm"),
        ("awskms:alias/x", "_aws_signer", "AWS_IMPORT_ERROR", "awskms"),
        ("gcpkms:projects/p", "_gcp_signer", "GCP_IMPORT_ERROR", "gcpkms"),
        ("azurekms://v.vault.azure.net/keys/k/1", "_azure_signer", "AZURE_IMPORT_ERROR", "azurekms"),
        ("hv:key/1", "_vault_signer", "VAULT_IMPORT_ERROR", "vault"),
    ],
)
def test_missing_extra_is_named(
    uri: str, module: str, name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer_of(uri.partition(":")[0])
    monkeypatch.setattr(f"securesystemslib.signer.{module}.{name}", "a library is required")
    how = re.escape(how_to_install(extra))
    message = rf"requires a library that is not installed \(a library is required\)\. {how}"
    with pytest.raises(TokenError, match=message) as raised:
        signing_keys.import_key(uri, pin)
    assert raised.value.code is ProblemCode.MISSING_DEPENDENCY
    with pytest.raises(TokenError, match=message):
        signing_keys.open_token(uri, CryptoSigner.generate_ecdsa().public_key, pin)


@pytest.mark.parametrize("uri", ["", "alice.pem", "file2:alice.pem", "sigstore:", "gnupg:0123"])
def test_invalid_key_uri_names_the_expected_form(uri: str) -> None:
    with pytest.raises(TokenError, match="is not the URI of a signing key, expected one of hsm:2"):
        signing_keys.import_key(uri, pin)


def test_each_service_is_asked_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    key = CryptoSigner.generate_ecdsa().public_key
    requested: list[tuple[str, ...]] = []

    def answer(service: str, uri: str) -> Callable[..., tuple[str, Key]]:
        def import_(*names: str) -> tuple[str, Key]:
            requested.append((service, *names))
            return uri, key

        return import_

    monkeypatch.setattr(signer_of("awskms"), "import_", answer("aws", "awskms:alias/x"))
    monkeypatch.setattr(signer_of("gcpkms"), "import_", answer("gcp", "gcpkms:projects/p"))
    newest = "azurekms://v.vault.azure.net/keys/k/7"
    monkeypatch.setattr(signer_of("azurekms"), "import_", answer("azure", newest))
    monkeypatch.setattr(signer_of("hv"), "import_", answer("vault", "hv:web/3"))
    for given, found in (
        ("awskms:alias/x", "awskms:alias/x"),
        ("gcpkms:projects/p", "gcpkms:projects/p"),
        ("azurekms://v.vault.azure.net/keys/k", newest),
        (newest, newest),
        ("hv:web", "hv:web/3"),
    ):
        assert signing_keys.import_key(given, pin) == (found, key)
    assert requested == [
        ("aws", "alias/x"), ("gcp", "projects/p"), ("azure", "v", "k"), ("azure", "v", "k"), ("vault", "web"),
    ]  # fmt: skip
    with pytest.raises(TokenError, match="hv:web/2: has a newer version, 3"):
        signing_keys.import_key("hv:web/2", pin)


# --- crashes and concurrent readers -------------------------------------------------------------------------


@pytest.mark.everything
@pytest.mark.parametrize("role", ["root", "targets", "timestamp"])
@pytest.mark.representatives(1)
def test_a_replacement_that_is_killed_leaves_the_old_or_the_new(
    role: str, publisher: Publisher, new_host: NewHost, role_keys: RoleKeys, survives: Survives, sweep: Sweep
) -> None:
    host = new_host(publisher.site.public)

    def is_killed_at(moment: int) -> bool:
        # The 16 bins, signed by the keys of the targets, behave alike.
        if survives(moment * (3 if role == "targets" else 1), lambda: role_keys.rotate(role, plain_key)):
            return False
        assert host.version() == "1.0.0"
        assert verify_site(publisher.site)
        role_keys.rotate(role, plain_key)  # the next command resumes and removes leftovers
        in_use = {key.place for key in role_keys.held_keys()}
        assert {str(path) for path in publisher.site.keys.glob("*.pem")} == in_use
        assert host.version() == "1.0.0"
        return True

    assert sweep(is_killed_at) >= 8


@pytest.mark.everything
def test_after_the_loss_of_a_key_too_a_kill_is_no_harm(
    publisher: Publisher, host: Host, role_keys: RoleKeys, survives: Survives
) -> None:
    """No metadata can be valid under both roots here. So either all files are written or none."""
    moment, cut_off, survived = 0, 0, False
    while not survived:
        (lost,) = publisher.site.keys.glob("targets-*.pem")
        lost.unlink()
        survived = survives(moment, lambda: role_keys.rotate("targets", plain_key))
        if (publisher.site.directory / "unfinished.json").exists():
            cut_off += 1
            with pytest.raises(
                PublishError, match="a change of keys was interrupted; `puller site refresh` completes it"
            ):
                publisher.site.roles()
            publisher.refresh()
        elif not survived:
            role_keys.rotate("targets", plain_key)
        publisher.deploy()
        assert host.version() == "1.0.0"
        moment += 1 if moment < 5 else 7  # skips most of the 16 bins
    assert cut_off >= 4


def test_anchor_for_new_hosts_follows_a_killed_change(publisher: Publisher, role_keys: RoleKeys) -> None:
    """A host that is provisioned with an older root would still trust the revoked keys."""
    before = publisher.site.anchor.read_bytes()
    role_keys.rotate("root", plain_key)
    publisher.site.anchor.write_bytes(before)
    publisher.refresh()
    assert publisher.site.anchor.read_bytes() == (publisher.served / "metadata/2.root.json").read_bytes()


def test_restored_site_continues_from_the_web_server(
    publisher: Publisher, host: Host, role_keys: RoleKeys, tmp_path: Path
) -> None:
    site = publisher.site.directory
    copy = shutil.copytree(site, tmp_path / "copy")
    role_keys.rotate("root", plain_key)
    publisher.publish("1.1.0")
    assert host.version() == "1.1.0"
    for part in ("public", "root.json"):
        remove = shutil.rmtree if (site / part).is_dir() else os.unlink
        remove(site / part)
    shutil.copytree(publisher.served, site / "public")
    shutil.copyfile(copy / "root.json", site / "root.json")
    publisher.publish("1.2.0")
    assert host.version() == "1.2.0"
    assert (site / "root.json").read_bytes() == (publisher.served / "metadata/2.root.json").read_bytes()


@pytest.mark.everything
def test_concurrent_copy_gets_a_valid_site(
    publisher: Publisher,
    new_host: NewHost,
    role_keys: RoleKeys,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old key also signs the new metadata, which are thus valid under the old root. The new root comes last."""
    copies: list[Path] = []
    rename = os.rename

    def copying(*arguments: Any, **options: Any) -> None:
        copies.append(Path(shutil.copytree(publisher.site.public, tmp_path / f"copy{len(copies)}")))
        rename(*arguments, **options)

    anchor = publisher.site.anchor.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", copying)
        role_keys.rotate("targets", plain_key)
    assert len(copies) >= 6
    for number, copy in enumerate(copies):
        host = new_host(copy, name=f"host{number}")
        host.anchor = anchor
        assert host.fetch()


def test_a_record_that_is_damaged_is_named(publisher: Publisher) -> None:
    (publisher.site.directory / "unfinished.json").write_bytes(b"{")
    with pytest.raises(
        Exception, match=r"unfinished\.json: is damaged .* restore public/metadata from a copy"
    ):
        publisher.refresh()


def test_concurrent_root_changes_are_refused(publisher: Publisher, role_keys: RoleKeys) -> None:
    outcome: list[Outcome] = []
    with (
        publisher.site.locked(),
        pytest.raises(PublishError, match="is in use by another process that publishes"),
    ):
        outcome.append(role_keys.renew())
    assert outcome == []


# --- bins -----------------------------------------------------------------------------------------------------


def test_added_key_signs_bins_alone(publisher: Publisher, host: Host, role_keys: RoleKeys) -> None:
    """Adding a key signs only the root. The next signed targets list the key."""
    host.refresh()
    (old,) = publisher.site.keys.glob("targets-*.pem")
    assert role_keys.add("targets", plain_key()).signed == ["root"]
    old.rename(old.with_suffix(".away"))
    publisher.publish("1.1.0")
    assert host.version() == "1.1.0"
    published = publisher.site.published()
    assert published.targets.version == 2
    assert sorted(of_bin.version for of_bin in published.bins())[-3:] == [1, 3, 3]
    assert verify_site(publisher.site)


def test_replaced_targets_key_signs_all_bins_again(
    publisher: Publisher, host: Host, role_keys: RoleKeys
) -> None:
    host.refresh()
    outcome = role_keys.rotate("targets", plain_key)
    assert outcome.signed == ["root", "targets", "snapshot", "timestamp"]
    root = publisher.site.root()
    (new,) = root.roles["targets"].keyids
    published = publisher.site.published()
    for of_bin in published.bins():
        assert of_bin.version >= 2
    for document in published.documents.values():
        if document.signed.type == "targets":  # also for hosts that know only the old root
            assert len(document.signatures) == 2
            assert new in document.signatures
    publisher.deploy()
    assert host.version() == "1.0.0"


def test_a_threshold_of_the_targets_is_that_of_the_bins(
    publisher: Publisher, host: Host, role_keys: RoleKeys
) -> None:
    host.refresh()
    role_keys.add("targets", plain_key(), threshold=2)
    publisher.publish("1.1.0")
    published = publisher.site.published()
    assert published.targets.delegations is not None
    assert published.targets.delegations.succinct_roles is not None
    for of_bin in published.bins():
        assert of_bin.version >= 2
    assert host.version() == "1.1.0"
    (item, _) = publisher.site.keys.glob("targets-*.pem")
    item.unlink()
    with pytest.raises(KeyFileError, match="contains 1 of the 2 keys required to sign for targets"):
        publisher.publish("1.2.0")
    role_keys.set_threshold("targets", 1)
    publisher.publish("1.2.0")
    assert host.version() == "1.2.0"
