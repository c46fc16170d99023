"""Secrets for named hosts: files that SOPS encrypted, in every place of data, on three hosts with SSH keys."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hiera.errors import EnvelopeError, RecipientError
from hiera.sops.identities import Identities, new_identity
from hiera.sops.writing import Readers, decrypt, encrypt, with_recipients
from tests.support.ssh_keys import make_ssh_key
from tests.support.stories import Host

if TYPE_CHECKING:
    from tests.support.stories import Execute, Publisher, WebServer

TREE = """\
version: 5
hierarchy:
  - {name: secrets, path: secrets.yaml}
  - {name: common, path: common.yaml}
"""
MANIFEST = """\
resources:
  - file:
      - "{{ facts.machine }}": {ensure: directory, owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0755"}
      - "{{ facts.machine }}/token":
          content: "{{ hiera('token', 'none') }} {{ lookup('data.more', 'none') }}"
          owner: "{{ facts.uid }}"
          group: "{{ facts.gid }}"
          mode: "0600"
"""
PLAIN = "token: s3cret-of-web\nport: 8443\n"
SECRET = "s3cret-of-web"


class Hosts:
    """Three hosts with SSH host keys."""

    def __init__(self, directory: Path, web: WebServer, publisher: Publisher, execute: Execute) -> None:
        anchor = publisher.site.directory / "root.json"
        self.recipients: dict[str, str] = {}
        self.keys: dict[str, Identities] = {}
        self.hosts: dict[str, Host] = {}
        for name in ("web1", "web2", "db1"):
            host = Host(directory / name, anchor, web.url, execute)
            path = directory / name / "ssh_host_ed25519_key"
            self.recipients[name] = make_ssh_key(path)
            self.keys[name] = Identities((str(path),))
            host.configure(host_name=f"{name}.example.com", age_identities=[str(path)])
            self.hosts[name] = host

    def readers(self, *names: str) -> Readers:
        return Readers({self.recipients[name]: f"{name}.example.com" for name in names})


@pytest.fixture
def hosts(tmp_path: Path, web: WebServer, publisher: Publisher, execute: Execute) -> Hosts:
    return Hosts(tmp_path / "hosts", web, publisher, execute)


def publish(publisher: Publisher, version: str, text: str, tree: str = TREE) -> None:
    files = {"hiera.yaml": tree, "data/secrets.yaml": text, "data/common.yaml": "port: 80\n"}
    publisher.publish(version, MANIFEST, files={path: data.encode() for path, data in files.items()})


def token(host: Host) -> str:
    return (host.machine / "token").read_text().split()[0]


def all_files(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]


@pytest.mark.attack("sops.other-host", "sops.gone")
def test_two_of_three_hosts_read_a_secret_of_a_bundle(
    hosts: Hosts, publisher: Publisher, tmp_path: Path
) -> None:
    text = encrypt(PLAIN, "secrets.yaml", hosts.readers("web1", "web2"))
    publish(publisher, "1.0.0", text)
    for name in ("web1", "web2"):
        outcome = hosts.hosts[name].run()
        assert outcome.status == 0, outcome.output
        assert token(hosts.hosts[name]) == SECRET
        assert SECRET not in outcome.output
        assert not any(SECRET.encode() in data for data in all_files(hosts.hosts[name].state))

    # The third host names the recipients, and changes nothing.
    other = hosts.hosts["db1"]
    outcome = other.run()
    assert outcome.status == 13
    assert "unreadable-secret" in other.problem_codes()
    assert "encrypted for web1.example.com, web2.example.com, not for this key" in outcome.output
    assert not other.machine.exists()

    # Root of the third host has all files of the site, and all its own files.
    public = [*all_files(publisher.site.public), *all_files(other.state)]
    assert not any(SECRET.encode() in data for data in public)
    with pytest.raises(RecipientError):
        decrypt(text, "secrets.yaml", hosts.keys["db1"])

    # A host that has gone does not read the next secret, even with the key of the file that it had.
    new = with_recipients(text, "secrets.yaml", hosts.readers("web1"), hosts.keys["web1"])
    publish(publisher, "1.1.0", new)
    assert hosts.hosts["web1"].run().status == 0
    gone = hosts.hosts["web2"].run()
    assert gone.status == 13
    assert "encrypted for web1.example.com, not for this key" in gone.output
    old_key = decrypt(text, "secrets.yaml", hosts.keys["web2"]).key
    assert decrypt(new, "secrets.yaml", hosts.keys["web1"]).key != old_key


@pytest.mark.attack("sops.other-host", "sops.gone")
def test_named_readers_follow_the_fleet(
    hosts: Hosts, publisher: Publisher, tmp_path: Path, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author encrypts by recipients.yaml. Root of the third host tries everything that the site contains."""
    identity, author = new_identity()
    monkeypatch.setenv("SOPS_AGE_KEY", identity)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PULLER_FLEET_STORE", raising=False)
    secret = tmp_path / "site-repository/web/data/secrets.yaml"
    secret.parent.mkdir(parents=True)

    def write_recipients(bundles: dict[str, str]) -> None:
        entries = {
            name: {"recipient": hosts.recipients[name], "bundles": [bundle]}
            for name, bundle in bundles.items()
        }
        rules = [{"path": "web/**", "readers": ["person=alice", "bundle=web"]}]
        value = {"people": {"alice": author}, "hosts": entries, "files": rules}
        (tmp_path / "site-repository/recipients.yaml").write_text(json.dumps(value))

    write_recipients({"web1": "web", "web2": "web", "db1": "db"})
    secret.write_text(PLAIN)
    assert execute("secrets", "encrypt", str(secret))[0] == 0
    before = secret.read_text()
    publish(publisher, "1.0.0", before)
    for name in ("web1", "web2"):
        assert hosts.hosts[name].run().status == 0
        assert token(hosts.hosts[name]) == SECRET

    # Root of the third host: each key that it has or finds, and files that it forges from those of the site.
    other, key = hosts.hosts["db1"], hosts.keys["db1"]
    assert other.run().status == 13
    keys = [path for path in (tmp_path / "hosts/db1").rglob("*") if path.is_file()]
    keys += [path for path in publisher.site.public.rglob("*") if path.is_file()]
    for path in keys:
        with pytest.raises(EnvelopeError):
            decrypt(before, "secrets.yaml", Identities((str(path),)))
    own = encrypt("a: 1\n", "own.yaml", hosts.readers("db1"))
    (mine,) = re.findall(r"enc: \|\n(.*?-----END AGE ENCRYPTED FILE-----\n)", own, re.DOTALL)
    forged = re.sub(
        r"(enc: \|\n).*?-----END AGE ENCRYPTED FILE-----\n", rf"\g<1>{mine}", before, flags=re.DOTALL
    )
    renamed = before.replace(hosts.recipients["web2"], hosts.recipients["db1"])
    for text in (forged, renamed):
        assert text != before
        with pytest.raises(EnvelopeError):
            decrypt(text, "secrets.yaml", key)

    # A host goes. The author learns which values it knows, changes them, and publishes.
    write_recipients({"web1": "web", "db1": "db"})
    status, output = execute("secrets", "rekey", str(secret))
    assert status == 0
    assert output.endswith(f"  {secret} (web2)\n    token\n    port\n")
    publish(publisher, "1.1.0", secret.read_text())
    assert hosts.hosts["web1"].run().status == 0
    assert hosts.hosts["web2"].run().status == 13
    with pytest.raises(RecipientError):
        decrypt(secret.read_text(), "secrets.yaml", hosts.keys["web2"])
    assert execute("secrets", "rekey", str(secret)) == (0, "1 file unchanged\n")


def test_optional_level_for_others_is_skipped(hosts: Hosts, publisher: Publisher) -> None:
    tree = TREE.replace("path: secrets.yaml", "path: secrets.yaml, optional: true")
    publish(publisher, "1.0.0", encrypt(PLAIN, "secrets.yaml", hosts.readers("web1")), tree)
    assert hosts.hosts["web1"].run().status == 0
    assert hosts.hosts["db1"].run().status == 0
    assert token(hosts.hosts["web1"]) == SECRET
    assert token(hosts.hosts["db1"]) == "none"


def test_a_changed_file_is_rejected_with_its_place(hosts: Hosts, publisher: Publisher) -> None:
    tree = TREE.replace("path: secrets.yaml", "path: secrets.yaml, optional: true")
    text = encrypt(PLAIN, "secrets.yaml", hosts.readers("web1"))
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("port:")]
    publish(publisher, "1.0.0", "".join(lines), tree)
    outcome = hosts.hosts["web1"].run()
    assert outcome.status == 13
    assert "secrets.yaml: the values do not match the MAC" in outcome.output


def test_site_and_host_documents_are_decrypted(
    hosts: Hosts, publisher: Publisher, web: WebServer, tmp_path: Path
) -> None:
    publish(publisher, "1.0.0", "port: 80\n")
    host = hosts.hosts["web1"]
    document = "hierarchy: {order: [all]}\ndata: {more: from-the-site}\noverrides: {all: {other: 1}}\n"
    site = encrypt(document, "site.yaml", hosts.readers("web1"))
    (tmp_path / "site.yaml").write_text(site)
    host.configure(data=str(tmp_path / "site.yaml"))
    assert host.run().status == 0
    assert (host.machine / "token").read_text() == "none from-the-site"
    assert not any(b"from-the-site" in data for data in all_files(host.state))

    own = encrypt(document.replace("the-site", "the-host"), "data.yaml", hosts.readers("web1"))
    (tmp_path / "hosts/web1/data.yaml").write_text(own)
    assert host.run().status == 0
    assert (host.machine / "token").read_text() == "none from-the-host"

    # Another host: its own data are an error, and those of the site are skipped only if optional.
    other = hosts.hosts["db1"]
    (tmp_path / "hosts/db1/data.yaml").write_text(own)
    outcome = other.run()
    assert outcome.status == 78
    assert "encrypted for web1.example.com" in outcome.output
    optional = encrypt(f"optional: true\n{document}", "data.yaml", hosts.readers("web1"))
    (tmp_path / "hosts/db1/data.yaml").write_text(optional)
    (tmp_path / "site.yaml").write_text(optional)
    other.configure(data=str(tmp_path / "site.yaml"))
    outcome = other.run()
    assert outcome.status == 0, outcome.output
    assert (other.machine / "token").read_text() == "none none"


DAMAGED: dict[str, tuple[Callable[[str], str], str]] = {
    "the metadata are removed": (
        lambda text: text.partition("sops:\n")[0],
        "is encrypted by SOPS, but the file has no metadata (key sops)",
    ),
    "the metadata are text": (
        lambda text: text.partition("sops:\n")[0] + "sops: none\n",
        "sops is not a mapping with the metadata of SOPS",
    ),
    "the MAC is removed": (
        lambda text: re.sub(r"    mac: .*\n", "", text),
        "the metadata of SOPS have no mac or lastmodified",
    ),
    "the metadata have another name": (
        lambda text: text.replace("sops:\n", "x_sops:\n"),
        "is encrypted by SOPS, but the file has no metadata (key sops)",
    ),
}


@pytest.mark.attack("sops.damaged")
@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_metadata_never_yield_ciphertext(
    hosts: Hosts, publisher: Publisher, tmp_path: Path, execute: Execute, damage: str
) -> None:
    """In every place of data. Lint, which has no key, finds the damage too."""
    change, message = DAMAGED[damage]
    tree = TREE.replace("path: secrets.yaml", "path: secrets.yaml, optional: true")
    host, key = hosts.hosts["web1"], str(tmp_path / "hosts/web1/ssh_host_ed25519_key")
    document = "optional: true\ndata: {more: hidden}\noverrides: {all: {other: 1}}\n"
    damaged = change(encrypt(document, "data.yaml", hosts.readers("web1")))

    publish(publisher, "1.0.0", change(encrypt(PLAIN, "secrets.yaml", hosts.readers("web1"))), tree)
    outcome = host.run()
    assert outcome.status == 13
    assert message in outcome.output
    assert "unreadable-secret" in host.problem_codes()

    publish(publisher, "1.0.1", "port: 80\n")
    host.configure(data=str(tmp_path / "site.yaml"))
    (tmp_path / "site.yaml").write_text(damaged)
    outcome = host.run()
    assert outcome.status == 13  # as for any unusable site data, the host goes on without them
    assert message in outcome.output
    assert (host.machine / "token").read_text() == "none none"
    host.configure(data=[])
    (tmp_path / "hosts/web1/data.yaml").write_text(damaged)
    outcome = host.run()
    assert outcome.status == 78
    assert message in outcome.output

    (tmp_path / "libraries/base").mkdir(parents=True)
    (tmp_path / "libraries/base/library.yaml").touch()
    (tmp_path / "libraries/base/data.yaml").write_text(damaged)
    (tmp_path / "web").mkdir()
    manifest = "libraries: {base: ../libraries/base}\nresources: [exec: [a: {command: '{{ data.more }}'}]]\n"
    (tmp_path / "web/manifest.yaml").write_text(manifest)
    for words in (
        ("explain", "more", str(tmp_path / "web"), "--identity", key),
        ("lint", str(tmp_path / "web")),
        ("hiera", "lookup", "more", str(tmp_path / "site.yaml"), "--identity", key),
        ("site", "data", str(publisher.site.directory), str(tmp_path / "site.yaml")),
    ):
        status, output = execute(*words)
        assert status != 0, words
        assert message in output, words


UNUSABLE = "age.txt: contains neither a key of age nor an SSH key"


def test_unusable_key_beside_a_usable_one_is_a_warning(
    hosts: Hosts, publisher: Publisher, tmp_path: Path, execute: Execute
) -> None:
    """In a run, its report, and in every command that reads keys."""
    host, key, bad = hosts.hosts["web1"], tmp_path / "hosts/web1/ssh_host_ed25519_key", tmp_path / "age.txt"
    bad.write_text("damaged\n")
    (tmp_path / "reports").mkdir()
    reports = {"to": [{"directory": str(tmp_path / "reports")}]}
    host.configure(age_identities=[str(bad), str(key)], reports=reports)
    publish(publisher, "1.0.0", encrypt(PLAIN, "secrets.yaml", hosts.readers("web1")))
    for _ in range(2):
        outcome = host.run()
        assert outcome.status == 0, outcome.output
        assert outcome.output.count(UNUSABLE) == 1
        assert host.problem_codes() == {"unreadable-secret"}
    assert token(host) == SECRET
    (path, *_) = sorted((tmp_path / "reports").rglob("*.json.gz"))
    assert json.loads(gzip.decompress(path.read_bytes()))["recipient"] == hosts.recipients["web1"]

    config = ("--config", str(host.configuration))
    status, output = execute("keys", "show", *config)
    assert (status, output.splitlines()[1:]) == (
        0,
        [hosts.recipients["web1"], f"identity: {key} (an SSH key)"],
    )
    assert UNUSABLE in output.splitlines()[0]
    assert execute("keys", "init", *config)[0] == 0
    assert execute("explain", "token", *config)[1].count(UNUSABLE) == 1
    assert bad.read_text() == "damaged\n"
    status, output = execute("config", "check", *config)
    assert (status, f"{UNUSABLE}\n" in output) == (0, True)
    status, output = execute("config", "check", *config, "--format", "json")
    (problem,) = json.loads(output)["problems"]
    assert (status, UNUSABLE in problem["message"]) == (0, True)
    _, output = execute("doctor", *config, "--format", "json")
    (verdict,) = [
        each["verdict"] for each in json.loads(output)["checks"] if each["subject"].startswith("age_")
    ]
    assert verdict == ("warning" if os.geteuid() == 0 else "unknown")

    # Without the other key, each of these is an error that names the file.
    key.unlink()
    Path(f"{key}.pub").unlink()
    outcome = host.run()
    assert outcome.status == 13
    assert f"no usable key opens it: {bad}: contains neither" in outcome.output
    assert execute("keys", "show", *config)[0] != 0
    status, output = execute("config", "check", *config)
    assert (status, UNUSABLE in output) == (78, True)
    _, output = execute("doctor", *config, "--format", "json")
    (verdict,) = [
        each["verdict"] for each in json.loads(output)["checks"] if each["subject"].startswith("age_")
    ]
    assert verdict == ("problem" if os.geteuid() == 0 else "unknown")


@pytest.mark.everything
def test_commands_warn_about_an_unusable_key_once(hosts: Hosts, tmp_path: Path, execute: Execute) -> None:
    key, bad = tmp_path / "hosts/web1/ssh_host_ed25519_key", tmp_path / "age.txt"
    bad.write_text("damaged\n")
    identities = ("--identity", str(bad), "--identity", str(key))
    (tmp_path / "site.yaml").write_text(encrypt("data: {more: x}\n", "site.yaml", hosts.readers("web1")))
    bundle = tmp_path / "web"
    (bundle / "data").mkdir(parents=True)
    (bundle / "hiera.yaml").write_text(TREE)
    (bundle / "data/secrets.yaml").write_text(encrypt(PLAIN, "secrets.yaml", hosts.readers("web1")))
    (bundle / "manifest.yaml").write_text(
        "resources: [exec: [a: {command: 'true', stdin: \"{{ hiera('token') }}\"}]]\n"
    )
    document = ("--data", str(tmp_path / "site.yaml"))
    for words in (
        ("render", str(bundle), *identities),
        ("explain", "token", str(bundle), *identities),
        ("apply", str(bundle), "--noop", *identities),
        ("ensure", "file", str(tmp_path / "x"), "absent", *document, *identities),
        ("hiera", "lookup", "token", str(bundle), *identities),
        ("hiera", "lookup", "more", str(tmp_path / "site.yaml"), *identities),
        ("hiera", "resolve", str(bundle), *identities),
        ("secrets", "decrypt", str(tmp_path / "site.yaml"), *identities),
    ):
        status, output = execute(*words)
        assert status == 0, (words, output)
        assert output.count(UNUSABLE) == 1, (words, output)


def test_encrypted_value_of_a_manifest_is_rejected(tmp_path: Path, execute: Execute) -> None:
    (tmp_path / "manifest.yaml").write_text(
        "data:\n  password: ENC[AES256_GCM,data:YQ==,iv:YQ==,tag:YQ==,type:str]\nresources: []\n"
    )
    for words in (("lint",), ("render", "--no-system-facts"), ("apply", "--noop")):
        status, output = execute(*words, str(tmp_path / "manifest.yaml"))
        assert status != 0
        assert "manifest.yaml:2" in output
        assert "is encrypted by SOPS, and values of a manifest are never decrypted" in output


def test_text_about_encrypted_values_is_plain(
    hosts: Hosts, publisher: Publisher, tmp_path: Path, execute: Execute
) -> None:
    """A comment or a sentence may quote a ciphertext, and data may have a key with the name sops."""
    publish(publisher, "1.0.0", "# ENC[AES256_GCM,data:x]\ntoken: see ENC[AES256_GCM,data:x]\nsops: {a: 1}\n")
    host = hosts.hosts["db1"]
    assert host.run().status == 0
    assert (host.machine / "token").read_text() == "see ENC[AES256_GCM,data:x] none"


def test_lint_and_preview_need_no_key(
    hosts: Hosts, publisher: Publisher, tmp_path: Path, execute: Execute
) -> None:
    bundle = tmp_path / "web"
    (bundle / "data").mkdir(parents=True)
    (bundle / "hiera.yaml").write_text(TREE)
    (bundle / "manifest.yaml").write_text(
        "resources: [exec: [show: {command: /bin/true, environment: [\"TOKEN={{ hiera('token') }}\"]}]]\n"
    )
    text = encrypt(PLAIN, "secrets.yaml", hosts.readers("web1"))
    (bundle / "data/secrets.yaml").write_text(text)
    status, output = execute("lint", str(bundle))
    assert status == 0, output
    assert SECRET not in output
    status, output = execute("render", str(bundle), "--no-system-facts")
    assert status != 0
    assert "encrypted for web1.example.com" in output
    key = str(tmp_path / "hosts/web1/ssh_host_ed25519_key")
    status, output = execute("render", str(bundle), "--no-system-facts", "--identity", key)
    assert status == 0, output
    assert SECRET not in output


def test_library_document_is_decrypted(hosts: Hosts, tmp_path: Path, execute: Execute) -> None:
    text = encrypt("data: {more: from-the-library}\n", "data.yaml", hosts.readers("web1"))
    (tmp_path / "libraries/base").mkdir(parents=True)
    (tmp_path / "libraries/base/library.yaml").touch()
    (tmp_path / "libraries/base/data.yaml").write_text(text)
    (tmp_path / "web").mkdir()
    show = "resources: [exec: [show: {command: /bin/true, stdin: '{{ data.more }}'}]]\n"
    manifest = f"libraries: {{base: ../libraries/base}}\n{show}"
    (tmp_path / "web/manifest.yaml").write_text(manifest)
    key = str(tmp_path / "hosts/web1/ssh_host_ed25519_key")
    status, output = execute("explain", "more", str(tmp_path / "web"), "--identity", key)
    assert status == 0, output
    assert "from-the-library" not in output
    status, output = execute("explain", "more", str(tmp_path / "web"))
    assert status != 0
    assert "encrypted for web1.example.com" in output
