"""Files that SOPS encrypted: what is read, what is rejected, and what an editor gets."""

import base64
import json
import os
import re
from collections.abc import Callable
from hashlib import sha512
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from foundation.problems import DependsOn, Problem
from hiera import parsing
from hiera.errors import DocumentError, EnvelopeError, HieraError, RecipientError
from hiera.sops.format import Metadata, Rule
from hiera.sops.identities import (
    OPAQUE,
    Identities,
    Opaque,
    PublishedKey,
    find_published,
    new_identity,
    recipients_of,
    wrapped,
)
from hiera.sops.reading import opened, opened_document
from hiera.sops.writing import Readers, decrypt, encrypt, secret_paths, with_recipients
from hiera.values import Decrypted, Secret, revealed
from tests.support.ssh_keys import make_ssh_key, ssh_key_text

VALUES = """\
# how to use it
db:
  password: "hunter 2"   # of 2025
  port: 5432
  ratio: 0.5
  tls: true
  missing: ~
  certificate: |
    -----BEGIN

    -----END
  folded: >-
    a b
    c
list:
  - one
  - {a: 1, b: "x: y"}
  - |
    item
    of a list
empty: ""
"""

Key = Callable[[str], tuple[Identities, str]]


@pytest.fixture
def key(tmp_path: Path) -> Key:
    """Return ``key(name)``, which makes an identity and returns it with its recipient."""

    def make(name: str) -> tuple[Identities, str]:
        identity, recipient = new_identity()
        path = tmp_path / f"{name}.txt"
        path.write_text(f"# created by a test\n{identity}\n")
        return Identities((str(path),)), recipient

    return make


def read(text: str, identities: Identities) -> Any:
    return revealed(opened(parsing.load_yaml(text, "data.yaml"), text, "data.yaml", identities))


# --- Values ---------------------------------------------------------------------------------


def test_values_of_all_types_are_read_as_secrets(key: Key) -> None:
    identities, recipient = key("web")
    text = encrypt(VALUES, "data.yaml", Readers({recipient: ""}))
    assert "hunter" not in text
    assert "2025" not in text
    value = opened(parsing.load_yaml(text, "data.yaml"), text, "data.yaml", identities)
    assert revealed(value) == parsing.load_yaml(VALUES, "data.yaml")
    assert isinstance(value["db"]["port"], Secret)
    assert "hunter" not in repr(value)


def test_json_is_read_in_any_encoding_of_its_numbers(key: Key) -> None:
    identities, recipient = key("web")
    plain = '{"port": 5, "list": [1.5, 1e3, true, null, "\\u00e9"], "open_unencrypted": 1e3}'
    text = encrypt(plain, "data.json", Readers({recipient: ""}))
    assert read(text, identities) == {
        "port": 5,
        "list": [1.5, 1000, True, None, "é"],
        "open_unencrypted": 1000.0,
    }


OPEN = """\
a_unencrypted: 2026-01-02
b_unencrypted: [0644, yes, 1e3, 1.50, .5, "5", 1_000, 0x1F, True, ~, 2026-01-02T03:04:05Z]
"""
OF_GO = [b"2026-01-02T00:00:00Z", b"420", b"yes", b"1000", b"1.5", b"0.5", b"5", b"1000", b"31", b"True"]


def test_mac_is_made_of_values_as_go_writes_them(key: Key) -> None:
    """The MAC of a file by SOPS: SHA-512 of the values in capitals, sealed with the time of the change."""
    identities, recipient = key("web")
    file_key, modified = bytes(range(32)), "2026-01-02T03:04:05Z"
    digest = sha512(b"".join([*OF_GO, b"2026-01-02T03:04:05Z"])).hexdigest().upper()
    mac = sealed(file_key, digest.encode(), modified)
    enc = wrapped(file_key, recipient)
    metadata = {"age": [{"recipient": recipient, "enc": enc}], "lastmodified": modified, "mac": mac}
    assert read(f"{OPEN}sops: {json.dumps(metadata)}\n", identities)["a_unencrypted"] == "2026-01-02"


def sealed(file_key: bytes, plain: bytes, additional: str, kind: str = "str") -> str:
    vector = bytes(32)
    data = AESGCM(file_key).encrypt(vector, plain, additional.encode())
    parts = [base64.b64encode(part).decode() for part in (data[:-16], vector, data[-16:])]
    return f"ENC[AES256_GCM,data:{parts[0]},iv:{parts[1]},tag:{parts[2]},type:{kind}]"


RULES = {
    "unencrypted_suffix": (Rule("unencrypted_suffix", "_open"), {"a", "b.c", "b.d_secret"}),
    "encrypted_suffix": (Rule("encrypted_suffix", "_secret"), {"b.d_secret"}),
    "unencrypted_regex": (Rule("unencrypted_regex", "^a$"), {"b.c", "b.d_secret", "e_open"}),
    "encrypted_regex": (Rule("encrypted_regex", "^b$"), {"b.c", "b.d_secret"}),
}


@pytest.mark.parametrize("mac_only_encrypted", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_a_rule_selects_the_encrypted_values(key: Key, name: str, mac_only_encrypted: bool) -> None:
    identities, recipient = key("web")
    rule, selected = RULES[name]
    plain = "a: 1\nb: {c: 2, d_secret: 3}\ne_open: 4\n"
    readers = Readers({recipient: ""}, rule, mac_only_encrypted)
    text = encrypt(plain, "data.yaml", readers)
    assert {*secret_paths(text, "data.yaml")} == selected
    assert text.count("type:int") == len(selected)
    assert read(text, identities) == parsing.load_yaml(plain, "data.yaml")


def test_changes_of_open_values_count_unless_excluded(key: Key) -> None:
    identities, recipient = key("web")
    for mac_only_encrypted in (False, True):
        readers = Readers({recipient: ""}, None, mac_only_encrypted)
        text = encrypt("a: 1\nb_unencrypted: 2\n", "data.yaml", readers).replace(": 2", ": 3")
        if mac_only_encrypted:
            assert read(text, identities) == {"a": 1, "b_unencrypted": 3}
        else:
            with pytest.raises(EnvelopeError, match="do not match the MAC"):
                read(text, identities)


def test_comments_in_lists_are_no_items(key: Key) -> None:
    """SOPS writes them as items of the type comment, which do not count for the MAC."""
    identities, recipient = key("web")
    text = encrypt("a:\n  # note\n  - x\n  - - y\n", "data.yaml", Readers({recipient: ""}))
    (comment,) = re.findall(r"#(ENC\[[^]]+type:comment\])", text)
    by_sops = text.replace(f"#{comment}", f"- {comment}").replace("  - - ENC", f"  - - {comment}\n    - ENC")
    assert by_sops.count("type:comment") == 2
    value = parsing.load_yaml(by_sops, "data.yaml")
    assert revealed(opened(value, by_sops, "data.yaml", identities)) == {"a": ["x", ["y"]]}
    assert [type(item) for item in opened(value, by_sops, "data.yaml", OPAQUE)["a"]] == [Decrypted, list]
    before = decrypt(by_sops, "data.yaml", identities)
    assert before.text == 'a:\n  # note\n  - x\n  - # note\n    - "y"\n'
    again = encrypt(before.text, "data.yaml", Readers({recipient: ""}), before)
    assert read(again, identities) == {"a": ["x", ["y"]]}
    assert "note" not in again

    # An item that an attacker declares to be a comment is missing in the MAC.
    hidden = re.sub(r"(?m)^(  - ENC.*type:)str", r"\1comment", text)
    assert hidden != text
    with pytest.raises(EnvelopeError, match="do not match the MAC"):
        read(hidden, identities)


UNSUITABLE: dict[str, tuple[str, str]] = {
    "too large a number": ("a: 9223372036854775808\n", "data.yaml:1: a: is too large a number for SOPS"),
    "too large a number of JSON": ('{"a": [9007199254740993]}', "a: is too large a number for SOPS in JSON"),
    "a number as a key": ("a:\n  1: x\n", "data.yaml:2: the key 1 is not text, as SOPS requires"),
    "a date as a key": ("2026-01-02: x\n", "the key 2026-01-02 is not text"),
    "a word of YAML 1.1": ("a: yes\n", "data.yaml:1: a: is a boolean in data files, and text for SOPS"),
    "a float of YAML 1.2": ("a: 1e5\n", "a: is text in data files, and a number for SOPS"),
    "a time of YAML 1.1": ("a: 1:30\n", "a: is a number in data files, and text for SOPS"),
}


@pytest.mark.parametrize("kind", UNSUITABLE)
def test_values_that_encryption_would_change_are_refused(key: Key, kind: str) -> None:
    _, recipient = key("web")
    text, message = UNSUITABLE[kind]
    with pytest.raises(HieraError) as error:
        encrypt(text, "data.yaml", Readers({recipient: ""}))
    assert message in str(error.value)
    assert "; quote" in str(error.value)


def test_open_values_keep_the_types_of_data_files(key: Key) -> None:
    identities, recipient = key("web")
    plain = "a: x\nb_unencrypted: [yes, 1e5, 1:30, 9223372036854775807]\n"
    text = encrypt(plain, "data.yaml", Readers({recipient: ""}))
    assert read(text, identities) == parsing.load_yaml(plain, "data.yaml")


def test_numbers_count_as_go_reads_them(key: Key) -> None:
    """Large integers of JSON are floats for Go, and text that is too large for a float stays text."""
    identities, recipient = key("web")
    file_key, modified = bytes(range(32)), "2026-01-02T03:04:05Z"
    enc = wrapped(file_key, recipient)
    cases = {
        '{"a_unencrypted": 12345678901234567890}': b"12345678901234567000",
        "a_unencrypted: [1e400, 18446744073709551616]\n": b"1e400" + b"18446744073709552000",
    }
    for text, counted in cases.items():
        mac = sealed(file_key, sha512(counted).hexdigest().upper().encode(), modified)
        metadata = {"age": [{"recipient": recipient, "enc": enc}], "lastmodified": modified, "mac": mac}
        is_json = text.startswith("{")
        end = f"sops: {json.dumps(metadata)}\n"
        whole = f'{text[:-1]}, "sops": {json.dumps(metadata)}}}' if is_json else text + end
        assert read(whole, identities) == parsing.load_yaml(text, "")


def test_infinity_and_minus_zero_of_sops(key: Key) -> None:
    identities, recipient = key("web")
    file_key, modified = bytes(range(32)), "2026-01-02T03:04:05Z"
    enc = wrapped(file_key, recipient)

    def whole(plain: bytes) -> str:
        mac = sealed(file_key, sha512(plain).hexdigest().upper().encode(), modified)
        metadata = {"age": [{"recipient": recipient, "enc": enc}], "lastmodified": modified, "mac": mac}
        return f"a: {sealed(file_key, plain, 'a:', 'float')}\nsops: {json.dumps(metadata)}\n"

    assert str(read(whole(b"-0"), identities)) == "{'a': -0.0}"
    with pytest.raises(EnvelopeError, match="a: the decrypted value is not a value of the type float"):
        read(whole(b"+Inf"), identities)


def test_expressions_of_rules_are_those_of_go(key: Key) -> None:
    identities, recipient = key("web")
    rule = Rule("encrypted_regex", r"^(?i:pass)[[:alpha:]]+$|^\w$")
    text = encrypt("PASSword: 1\né: 2\na: 3\n", "data.yaml", Readers({recipient: ""}, rule))
    assert secret_paths(text, "data.yaml") == ["PASSword", "a"]
    assert read(text, identities) == {"PASSword": 1, "é": 2, "a": 3}
    with pytest.raises(EnvelopeError, match="encrypted_regex is not a regular expression"):
        encrypt("a: 1\n", "data.yaml", Readers({recipient: ""}, Rule("encrypted_regex", "(?=a)")))


def test_comment_of_an_ssh_recipient_does_not_count(tmp_path: Path) -> None:
    """SOPS keeps it in the file. A rekey must not take the same key for another reader."""
    recipient = make_ssh_key(tmp_path / "host")
    text = encrypt("a: 1\n", "data.yaml", Readers({recipient: "web1"}))
    by_sops = text.replace(f"recipient: {recipient}", f"recipient: {recipient} root@web1")
    assert by_sops != text
    identities = Identities((str(tmp_path / "host"),))
    assert with_recipients(by_sops, "data.yaml", Readers({recipient: "web1"}), identities) == by_sops


# --- Tampering ------------------------------------------------------------------------------


def swapped(text: str) -> str:
    first, second = re.findall(r"ENC\[[^]]+type:str\]", text)[:2]
    return text.replace(first, "FIRST").replace(second, first).replace("FIRST", second)


TAMPERED: dict[str, tuple[Callable[[str], str], str]] = {
    "two values are swapped": (swapped, "moved from another key"),
    "a value is removed": (lambda text: re.sub(r"b: .*\n", "", text), "do not match the MAC"),
    "a value is plain": (lambda text: re.sub(r"b: .*\n", "b: plain\n", text), "is not encrypted"),
    "a value is repeated": (
        lambda text: re.sub(r"(?m)^(    - .*\n)", r"\1\1", text, count=1),
        "do not match the MAC",
    ),
    "items are reordered": (
        lambda text: re.sub(r"(?m)^(    - .*\n)(    - .*\n)", r"\2\1", text, count=1),
        "do not match the MAC",
    ),
    "the MAC is of another time": (
        lambda text: re.sub(r'lastmodified: "20', 'lastmodified: "19', text),
        "the MAC of the file is damaged",
    ),
    "the MAC is removed": (lambda text: re.sub(r"    mac: .*\n", "    mac: ''\n", text), "no mac"),
    "a tag is shortened": (
        lambda text: re.sub(r"(b: .*,tag:)[^,]+", r"\1AAAA", text),
        "its authentication tag is shortened",
    ),
    "a value has another type": (
        lambda text: re.sub(r"(b: .*,type:)str", r"\1int", text),
        "is not a value of the type int",
    ),
}


@pytest.mark.attack("sops.tampered")
@pytest.mark.parametrize("change", TAMPERED)
def test_changed_file_is_rejected_without_a_value(key: Key, change: str) -> None:
    identities, recipient = key("web")
    text = encrypt("a: first\nb: second\nc:\n    - x1\n    - x2\n", "data.yaml", Readers({recipient: ""}))
    tamper, message = TAMPERED[change]
    tampered = tamper(text)
    assert tampered != text
    with pytest.raises(HieraError, match=message) as error:
        read(tampered, identities)
    assert "first" not in str(error.value)
    assert error.value.location.file == "data.yaml"


def test_ciphertext_that_no_rule_selects_is_rejected(key: Key) -> None:
    """With a MAC of encrypted values only, a changed rule would pass ciphertexts on."""
    identities, recipient = key("web")
    for mac_only_encrypted in (False, True):
        readers = Readers({recipient: ""}, Rule("encrypted_regex", "^a$"), mac_only_encrypted)
        text = encrypt("a: 1\nb: 2\n", "data.yaml", readers).replace('"^a$"', '"^x$"')
        for each in (identities, OPAQUE):
            with pytest.raises(EnvelopeError, match="the rule of the file does not select it"):
                read(text, each)


def test_encrypted_value_is_not_encrypted_again(key: Key) -> None:
    _, recipient = key("web")
    plain = "a: ENC[AES256_GCM,data:YQ==,iv:YQ==,tag:YQ==,type:str]\n"
    with pytest.raises(EnvelopeError, match=r"a: is encrypted by SOPS already"):
        encrypt(plain, "data.yaml", Readers({recipient: ""}))


METADATA: dict[str, tuple[dict[str, Any], str]] = {
    "several key groups": ({"key_groups": [{"age": []}, {"age": []}]}, "several key groups"),
    "a threshold": ({"shamir_threshold": 2}, "several key groups"),
    "a key service": ({"age": [], "kms": [{"arn": "x"}]}, "only for kms"),
    "rules for comments": ({"encrypted_comment_regex": "x"}, "are not supported"),
    "two rules": ({"encrypted_regex": "x", "encrypted_suffix": "y"}, "expected one"),
}


@pytest.mark.parametrize("kind", METADATA)
def test_unsupported_metadata_are_rejected(kind: str) -> None:
    more, message = METADATA[kind]
    metadata = {"age": [{"recipient": "age1", "enc": "x"}], "mac": "x", "lastmodified": "x", **more}
    with pytest.raises(EnvelopeError, match=message):
        Metadata.parse(metadata)


def test_a_single_key_group_is_read(key: Key) -> None:
    identities, recipient = key("web")
    enc = wrapped(bytes(32), recipient)
    group = {"key_groups": [{"age": [{"recipient": recipient, "enc": enc}]}], "mac": "x", "lastmodified": "x"}
    metadata = Metadata.parse(group)
    assert identities.open_key(metadata.sealed, metadata.names) == bytes(32)


@pytest.mark.parametrize(
    "text", ["a: &x 1\nb: *x\n", "a: {b: 1}\nc: {<<: {b: 1}}\n", "a: {b: &x [1]}\nc: *x\n"]
)
def test_aliases_and_merge_keys_are_rejected(key: Key, text: str) -> None:
    _, recipient = key("web")
    with pytest.raises(DocumentError, match="not supported in an encrypted file"):
        encrypt(text, "data.yaml", Readers({recipient: ""}))


# --- Recipients -----------------------------------------------------------------------------


def test_every_recipient_reads_and_no_other_host(key: Key, tmp_path: Path) -> None:
    web, first = key("web")
    _, second = key("db")
    other, third = key("other")
    ssh = tmp_path / "ssh_host_ed25519_key"
    by_ssh = make_ssh_key(ssh)
    text = encrypt(VALUES, "data.yaml", Readers({first: "web1", second: "", by_ssh: "db1"}))
    for identities in (web, Identities((str(ssh),)), Identities((str(tmp_path / "absent"), str(ssh)))):
        assert read(text, identities)["db"]["port"] == 5432
    with pytest.raises(RecipientError) as error:
        read(text, other)
    (problem,) = error.value.problems
    assert problem.depends_on is DependsOn.KEY
    assert "web1" in problem.message
    assert "db1" in problem.message
    assert third in problem.message


def test_missing_keys_are_named(key: Key) -> None:
    _, recipient = key("web")
    text = encrypt("a: 1\n", "data.yaml", Readers({recipient: ""}))
    with pytest.raises(RecipientError, match="no key exists: /nonexistent"):
        read(text, Identities(("/nonexistent",)))


UNUSABLE: dict[str, tuple[str | bytes, str]] = {
    "text": ("hello\n", "contains neither a key of age nor an SSH key"),
    "nothing": ("", "contains neither a key of age nor an SSH key"),
    "a damaged key": ("AGE-SECRET-KEY-1AAAA\n", "contains a damaged key of age"),
    "a key with a passphrase": (
        ssh_key_text("rsa in PEM", passphrase=b"hunter2")[0],
        "has a passphrase, which is not supported",
    ),
    "an encrypted key of age": (
        "-----BEGIN AGE ENCRYPTED FILE-----\n",
        "is encrypted with a passphrase, which is not supported",
    ),
    "a key of a plugin": (
        "AGE-PLUGIN-YUBIKEY-1AAAA\n",
        "contains a key for a plugin of age, which is not supported",
    ),
    "another kind of key": (ssh_key_text("ecdsa")[0], "kind ecdsa-sha2-nistp256, which age cannot use"),
    "a damaged SSH key": ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", "is a damaged SSH key"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_unusable_key_does_not_hide_a_usable_key(key: Key, tmp_path: Path, kind: str) -> None:
    content, message = UNUSABLE[kind]
    bad = tmp_path / "bad"
    bad.write_bytes(content.encode() if isinstance(content, str) else content)
    web, recipient = key("web")
    text = encrypt("optional: true\ndata: {a: 1}\n", "data.yaml", Readers({recipient: "web1"}))
    value = parsing.load_yaml(text, "data.yaml")
    for files in ((str(bad), *web.files), (*web.files, str(bad))):
        both = Identities(files)
        for _ in range(2):
            assert revealed(opened_document(value, text, "data.yaml", both)) == {"data": {"a": 1}}
        (problem,) = both.problems
        assert str(problem).startswith(f"{bad}: ")
        assert message in str(problem)
        assert both.recipients() == [recipient]

    # Without a usable key, the unusable one may be the right one, so an optional file is not skipped.
    other, _ = key("other")
    for identities in (Identities((str(bad),)), Identities((str(bad), *other.files))):
        with pytest.raises(EnvelopeError, match=message) as error:
            opened_document(value, text, "data.yaml", identities)
        assert not isinstance(error.value, RecipientError)
        assert f"encrypted for web1, and no usable key opens it: {bad}: " in str(error.value)
        assert "hello" not in str(error.value)
    with pytest.raises(EnvelopeError, match=message):
        Identities((str(bad),)).recipients()


def test_unusable_line_does_not_hide_a_key_of_its_file(key: Key, tmp_path: Path) -> None:
    web, recipient = key("web")
    both = tmp_path / "keys.txt"
    both.write_text("AGE-PLUGIN-YUBIKEY-1AAAA\n" + Path(web.files[0]).read_text())
    text = encrypt("a: 1\n", "data.yaml", Readers({recipient: ""}))
    identities = Identities((str(both),))
    assert read(text, identities) == {"a": 1}
    assert "a plugin of age" in str(identities.problems[0])


def test_keys_in_the_environment_are_used_and_named(key: Key) -> None:
    web, recipient = key("web")
    other, _ = key("other")
    text = encrypt("a: 1\n", "data.yaml", Readers({recipient: ""}))
    keys = " ".join(Path(each.files[0]).read_text().splitlines()[1] for each in (other, web))
    assert read(text, Identities(texts=(keys,))) == {"a": 1}
    with pytest.raises(EnvelopeError, match="SOPS_AGE_KEY: contains neither a key of age") as error:
        read(text, Identities(texts=("my-secret",)))
    assert "my-secret" not in str(error.value)


def test_unreadable_key_does_not_skip_an_optional_file(key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key may be the right one. A readable key opens the file beside it, without a warning for authors."""
    identities, recipient = key("web")
    text = encrypt("optional: true\ndata: {a: 1}\n", "data.yaml", Readers({recipient: "web1"}))
    unreadable, os_open = "/etc/ssh/unreadable", os.open

    def open_file(path: str, *arguments: Any, **options: Any) -> int:
        if path == unreadable:
            raise PermissionError(13, "Permission denied", path)
        return os_open(path, *arguments, **options)

    monkeypatch.setattr("os.open", open_file)
    value = parsing.load_yaml(text, "data.yaml")
    expected = f"for web1, and no usable key opens it: {unreadable}: cannot be read: Permission denied"
    with pytest.raises(EnvelopeError, match=expected) as error:
        opened_document(value, text, "data.yaml", Identities((unreadable, "/nonexistent")))
    assert not isinstance(error.value, RecipientError)
    both = Identities((unreadable, *identities.files))
    assert opened_document(value, text, "data.yaml", both)
    assert both.problems == []


def never(problem: Problem) -> None:
    raise AssertionError(problem)


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "rsa in PEM"])
def test_ssh_keys_of_a_host_are_read(tmp_path: Path, kind: str) -> None:
    recipient, path = make_ssh_key(tmp_path / "host", kind=kind), str(tmp_path / "host")
    assert recipients_of(path) == [recipient]
    assert find_published([str(tmp_path / "absent"), path], never) == PublishedKey(recipient, path)
    (tmp_path / "host.pub").unlink()
    assert find_published([path], never) == PublishedKey(recipient, path)
    assert find_published([str(tmp_path / "absent")], never) is None
    text = encrypt("a: 1\n", "data.yaml", Readers({recipient: ""}))
    assert read(text, Identities((path,))) == {"a": 1}


def test_published_key_is_the_first_usable_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens the files of this host. A warning names the unusable keys before it."""
    recipient = make_ssh_key(tmp_path / "host")
    (tmp_path / "age.txt").write_text("damaged\n")
    damaged, host = str(tmp_path / "age.txt"), str(tmp_path / "host")
    warnings: list[Problem] = []
    assert find_published([damaged, host], warnings.append) == PublishedKey(recipient, host)
    assert [str(each) for each in warnings] == [
        f"{damaged}: contains neither a key of age nor an SSH key, so another key is used"
    ]
    assert find_published([host, damaged], never) == PublishedKey(recipient, host)
    (tmp_path / "host.pub").write_text("ssh-dss AAAA root@host\n")
    with pytest.raises(EnvelopeError) as error:
        find_published([damaged, host], never)
    assert "contains neither a key of age nor an SSH key" in str(error.value)
    assert "is a key of the kind ssh-dss, which age cannot use" in str(error.value)
    os_stat = os.stat

    def stat(path: Any, **options: Any) -> os.stat_result:
        if path == damaged:
            raise PermissionError(13, "Permission denied", path)
        return os_stat(path, **options)

    monkeypatch.setattr("os.stat", stat)
    with pytest.raises(PermissionError):  # it may be the first usable key
        find_published([damaged, host], never)


def test_new_reader_gets_the_key_and_values_stay(key: Key) -> None:
    web, first = key("web")
    db, second = key("db")
    text = encrypt(VALUES, "data.yaml", Readers({first: "web1"}))
    both = with_recipients(text, "data.yaml", Readers({first: "", second: "db1"}), web)
    assert both.partition("sops:")[0] == text.partition("sops:")[0]
    assert read(both, db) == read(text, web)
    same = Readers({first: "web1", second: "db1"})
    assert with_recipients(both, "data.yaml", same, web) == both


@pytest.mark.attack("sops.gone")
def test_reader_that_leaves_does_not_know_the_new_key(key: Key) -> None:
    web, first = key("web")
    gone, second = key("gone")
    both = encrypt(VALUES, "data.yaml", Readers({first: "web1", second: "gone1"}))
    known = decrypt(both, "data.yaml", gone).key
    left = with_recipients(both, "data.yaml", Readers({first: "web1"}), web)
    assert decrypt(left, "data.yaml", web).key != known
    assert decrypt(left, "data.yaml", web).text == decrypt(both, "data.yaml", web).text
    assert {*re.findall(r"data:[^,]+", left)} & {*re.findall(r"data:[^,]+", both)} == set()
    with pytest.raises(RecipientError):
        read(left, gone)


# --- Editors --------------------------------------------------------------------------------


def test_decrypted_text_keeps_its_layout_and_comments(key: Key) -> None:
    identities, recipient = key("web")
    text = encrypt(VALUES, "data.yaml", Readers({recipient: ""}))
    plain = decrypt(text, "data.yaml", identities).text
    assert parsing.load_yaml(plain, "") == parsing.load_yaml(VALUES, "")
    assert plain.startswith("# how to use it\ndb:\n  password: hunter 2   # of 2025\n")


def test_unchanged_values_keep_their_ciphertext(key: Key) -> None:
    identities, recipient = key("web")
    text = encrypt(VALUES, "data.yaml", Readers({recipient: ""}))
    before = decrypt(text, "data.yaml", identities)
    after = encrypt(before.text.replace("5432", "5433"), "data.yaml", Readers({recipient: ""}), before)
    pairs = zip(text.splitlines(), after.splitlines(), strict=True)
    changed = [old.split(":")[0].strip() for old, new in pairs if old != new]
    assert set(changed) <= {"port", "mac", "lastmodified"}
    assert {"port", "mac"} <= set(changed)


TEXTS = [
    "yes",
    "null",
    "5",
    " x",
    "#",
    "a: b",
    '"',
    "\\",
    "\t",
    "a\nb",
    "a\n\nb\n",
    "a\n\n",
    "\na",
    "é\u2028\x07",
    "{{ x }}",
    "%{x}",
    "- a",
    "2026-01-02",
]


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_survives_an_edit(key: Key, text: str) -> None:
    identities, recipient = key("web")
    plain = f"a: {json.dumps(text)}\nb: [{json.dumps(text)}, 1]\nc:\n  - {json.dumps(text)}\n"
    sealed_text = encrypt(plain, "data.yaml", Readers({recipient: ""}))
    assert read(sealed_text, identities) == {"a": text, "b": [text, 1], "c": [text]}
    again = decrypt(sealed_text, "data.yaml", identities).text
    assert parsing.load_yaml(again, "") == {"a": text, "b": [text, 1], "c": [text]}


# --- Without a key --------------------------------------------------------------------------


def test_opaque_values_have_the_types_of_the_values(key: Key) -> None:
    _, recipient = key("web")
    text = encrypt(VALUES, "data.yaml", Readers({recipient: ""}))
    value = read(text, OPAQUE)
    plain = parsing.load_yaml(VALUES, "")
    assert {name: type(item) for name, item in value["db"].items()} == {
        name: type(item) for name, item in plain["db"].items()
    }
    assert value["db"]["password"].startswith("opaque-")
    assert read(encrypt(VALUES, "data.yaml", Readers({recipient: ""})), OPAQUE) == value
    by_ciphertext = Identities(opaque=Opaque.BY_CIPHERTEXT)
    assert read(encrypt(VALUES, "data.yaml", Readers({recipient: ""})), by_ciphertext) != read(
        text, by_ciphertext
    )


def document(text: str, identities: Identities) -> Any:
    return opened_document(parsing.load_yaml(text, "data.yaml"), text, "data.yaml", identities)


def test_optional_document_for_others_is_skipped(key: Key) -> None:
    web, recipient = key("web")
    other, _ = key("other")
    plain = "optional: true\nhierarchy: {order: [a]}\ndata: {password: x}\noverrides: {a: {b: 1}}\n"
    text = encrypt(plain, "data.yaml", Readers({recipient: ""}))
    assert document(text, other) is None
    assert revealed(document(text, web)) == {
        "hierarchy": {"order": ["a"]},
        "data": {"password": "x"},
        "overrides": {"a": {"b": 1}},
    }
    required = encrypt(plain.replace("true", "false"), "data.yaml", Readers({recipient: ""}))
    with pytest.raises(RecipientError):
        document(required, other)


def test_encrypted_hierarchy_is_rejected(key: Key) -> None:
    web, recipient = key("web")
    text = encrypt("hierarchy: {order: [a]}\ndata: {b: 1}\n", "data.yaml", Readers({recipient: ""}, Rule()))
    for identities in (web, OPAQUE):
        with pytest.raises(EnvelopeError, match="hierarchy is encrypted"):
            document(text, identities)
