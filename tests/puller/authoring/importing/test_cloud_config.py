"""`puller import cloud-config`: the keys of a file, and their resources."""

import base64
import gzip
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import CliRunner

from hiera.parsing import load_yaml
from puller.authoring.importing.cloud_config import import_cloud_config
from puller.authoring.importing.draft import Draft, Outcome
from puller.cli.command_table import cli
from puller.errors import SourceError


def draft_of(tmp_path: Path, text: str) -> Draft:
    file = tmp_path / "user-data"
    file.write_text(f"#cloud-config\n{dedent(text)}")
    return import_cloud_config(file, "user-data")


def resources_of(draft: Draft) -> dict[str, Any]:
    manifest = load_yaml(draft.all_files()["manifest.yaml"], "manifest.yaml")
    result = {}
    for group in manifest["resources"]:
        for kind, entries in group.items():
            for entry in entries:
                [(name, properties)] = (entry if isinstance(entry, dict) else {entry: None}).items()
                result[f"{kind}#{name}"] = properties or {}
    return result


OWNED = {"owner": "root", "group": "root"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("packages: [nginx, [curl, '7.88']]", {"package#nginx": {}, "package#curl": {"ensure": "7.88"}}),
        ("groups: [ops, {dev: [ann]}]", {"group#ops": {}, "group#dev": {"members": ["ann"]}}),
        (
            "users: [{name: ann, groups: 'sudo, adm', shell: /bin/bash, ssh_authorized_keys: [ssh-ed25519 A]}]",
            {
                "user#ann": {
                    "shell": "/bin/bash",
                    "groups": ["sudo", "adm"],
                    "locked": True,
                    "authorized_keys": ["ssh-ed25519 A"],
                }
            },
        ),
        (
            "users: [{name: ann, sudo: 'ALL=(ALL) ALL', lock_passwd: false}]",
            {
                "user#ann": {},
                "file#/etc/sudoers.d/90-cloud-init-users": {
                    "content": "ann ALL=(ALL) ALL\n",
                    **OWNED,
                    "mode": "0440",
                    "validate": "visudo -cf {}",
                },
            },
        ),
        (
            "write_files: [{path: /etc/x, content: \"{{ x }}\\n\", owner: 'www:web', permissions: '0600'}]",
            {"file#/etc/x": {"content": "{{ '{{' }} x }}\n", "owner": "www", "group": "web", "mode": "0600"}},
        ),
        (
            "timezone: Europe/Madrid",
            {"timezone#Europe/Madrid": {}},
        ),
        (
            "locale: de_DE.UTF-8",
            {"locale#de_DE.UTF-8": {"variables": ["LANG"]}},
        ),
        ("locale: false", {}),
        ("swap: {filename: /swapfile, size: 2G, maxsize: 4G}", {"swap#/swapfile": {"size": "2G"}}),
        ("swap: {size: 536870912}", {"swap#/swap.img": {"size": "512M"}}),
        (
            "mounts: [[vdb, /srv, ext4, 'noatime', '0', '2']]",
            {"mount#/srv": {"device": "/dev/vdb", "type": "ext4", "options": ["noatime"], "pass": 2}},
        ),
        (
            "runcmd: ['echo hi', [ls, 'a b']]",
            {
                "file#/var/lib/cloud-config-import": {"ensure": "directory", **OWNED, "mode": "0755"},
                "exec#runcmd 1": {
                    "command": "echo hi && touch /var/lib/cloud-config-import/runcmd-1",
                    "provider": "shell",
                    "creates": "/var/lib/cloud-config-import/runcmd-1",
                },
                "exec#runcmd 2": {
                    "command": "ls 'a b' && touch /var/lib/cloud-config-import/runcmd-2",
                    "provider": "shell",
                    "creates": "/var/lib/cloud-config-import/runcmd-2",
                },
            },
        ),
        (
            "apt: {sources: {x.list: {source: 'deb https://x.example $RELEASE main', key: KEY}}}",
            {
                "repository#x": {
                    "url": "https://x.example",
                    "suites": ["{{ facts.os.distro.codename }}"],
                    "components": ["main"],
                    "key": "KEY",
                }
            },
        ),
    ],
)
def test_keys_become_resources(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    assert resources_of(draft_of(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bootcmd: [echo]", "a unit of systemd"),
        ("users: [default]", "the default user depends on the image"),
        ("write_files: [{path: x, content: a}]", "is not absolute"),
        ("write_files: [{path: /x, content: a, append: true}]", "Use a block"),
        ("write_files: [{path: /x, content: '-----BEGIN PRIVATE KEY-----'}]", "can contain secrets"),
        ("write_files: [{path: /x, content: '!', encoding: gzip}]", "invalid gzip data"),
        ("mounts: [[vdb, none, swap]]", "swap is not a mount"),
        ("users: {a: 1}", "not a list"),
        ("users: [[1]]", "another form"),
        ("no_such_key: 1", "the key no_such_key is unsupported"),
    ],
)
def test_other_keys_stay_as_comments(tmp_path: Path, text: str, reason: str) -> None:
    draft = draft_of(tmp_path, text)

    [remark] = draft.remarks
    assert remark.outcome is Outcome.UNMAPPED
    assert reason in remark.reasons[0]
    assert "Not mapped" in draft.all_files()["manifest.yaml"].decode()


def test_passwords_are_left_out_and_listed(tmp_path: Path) -> None:
    draft = draft_of(tmp_path, "users: [{name: ann, hashed_passwd: '$6$topsecret'}]\npassword: topsecret\n")

    assert not [path for path, content in draft.all_files().items() if b"topsecret" in content]
    assert "The password of ann is left out" in draft.report()


def test_encoded_and_long_files_are_copied(tmp_path: Path) -> None:
    data = bytes(range(256))
    encoded = base64.b64encode(gzip.compress(data)).decode()
    lines = "".join(f"line {number}\n" for number in range(30))
    text = f"""
        write_files:
          - {{path: /opt/data, content: {encoded}, encoding: gz+b64}}
          - {{path: /opt/text, content: {lines!r}}}
        """

    files = draft_of(tmp_path, text.replace("'", '"')).all_files()

    assert files["files/opt/data"] == data
    assert files["files/opt/text"].decode() == lines


@pytest.mark.parametrize(
    "text", ["", "#!/bin/sh\n", "Content-Type: multipart/mixed\n", "#include\nhttp://x\n"]
)
def test_other_kinds_of_user_data_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "user-data"
    file.write_text(text)

    with pytest.raises(SourceError, match="expected #cloud-config"):
        import_cloud_config(file, "user-data")


@pytest.mark.parametrize("text", ["a: [\n", "a: 1\na: 2\n", "- a\n", "a: &a [*a]\n"])
def test_invalid_yaml_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceError, match="user-data"):
        draft_of(tmp_path, text)


def test_example_of_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[4] / "docs/bootstrap.md").read_text()
    (source,) = re.findall(r"```yml\n(#cloud-config\n# user-data of the draft\n.*?)```", page, re.DOTALL)
    (session,) = re.findall(r"```console\n\$ (puller import cloud-config.*?)```", page, re.DOTALL)
    command, *output = session.splitlines()
    monkeypatch.chdir(tmp_path)
    Path("user-data.yaml").write_text(source)

    result = CliRunner().invoke(cli, command.split()[1:], standalone_mode=False)

    assert result.output.splitlines() == output


@pytest.mark.parametrize(
    ("permissions", "mode"),
    [("0600", "0600"), ("'0600'", "0600"), ("0o640", "0640"), ("755", "0755"), ("'04755'", "4755")],
)
def test_permissions_keep_the_digits_of_the_source(tmp_path: Path, permissions: str, mode: str) -> None:
    draft = draft_of(tmp_path, f"write_files: [{{path: /a, content: x, permissions: {permissions}}}]")

    assert resources_of(draft)["file#/a"]["mode"] == mode


def test_unknown_permissions_are_not_mapped(tmp_path: Path) -> None:
    draft = draft_of(tmp_path, "write_files: [{path: /a, content: x, permissions: 'u=rw'}]")

    assert "expected octal digits" in draft.report()
    assert resources_of(draft) == {}


@pytest.mark.parametrize(
    "entry",
    [
        "write_files: [{path: /a, content: 'DB_PASSWORD=hunter2'}]",
        'write_files: [{path: /a, content: \'{"api_key": "hunter2"}\'}]',
        "write_files: [{path: /a, content: 'url = postgres://app:hunter2@db/app'}]",
        "runcmd: ['MYSQL_PWD=hunter2 mysql -e x']",
    ],
)
def test_files_and_commands_with_secrets_are_left_out(tmp_path: Path, entry: str) -> None:
    draft = draft_of(tmp_path, entry)

    assert not any(b"hunter2" in content for content in draft.all_files().values())
    assert "secret" in draft.report()


def test_comment_about_a_password_is_not_a_secret(tmp_path: Path) -> None:
    draft = draft_of(tmp_path, "write_files: [{path: /a, content: '# password = example'}]")

    assert "file#/a" in resources_of(draft)


def test_damaged_compressed_file_is_not_mapped(tmp_path: Path) -> None:
    damaged = base64.b64encode(gzip.compress(b"x")[:10] + b"\x07\xff\xff\xff").decode()

    draft = draft_of(tmp_path, f"write_files: [{{path: /a, encoding: gz+b64, content: {damaged}}}]")

    assert "invalid gzip data" in draft.report()


def test_files_have_a_common_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puller.authoring.importing.cloud_config.TREE_LIMIT", 3)

    with pytest.raises(SourceError, match="its files have more than 3 bytes"):
        draft_of(tmp_path, "write_files: [{path: /a, content: xx}, {path: /b, content: xx}]")


def test_unprintable_characters_keep_the_draft_readable(tmp_path: Path) -> None:
    file = tmp_path / "user\udcff-data"
    file.write_text('#cloud-config\n"key\\a": 1\npackages: ["{{ a }}"]\n')

    draft = import_cloud_config(file, file.name)

    assert resources_of(draft) == {"package#{{ '{{' }} a }}": {}}


@pytest.mark.parametrize("path", ["/../manifest.yaml", "/../../etc/x", "/a\\0b"])
def test_path_outside_of_the_draft_is_not_mapped(tmp_path: Path, path: str) -> None:
    content = "x\\n" * 30
    draft = draft_of(tmp_path, f'write_files: [{{path: "{path}", content: "{content}"}}]')

    assert set(draft.all_files()) == {"IMPORT.md", "manifest.yaml", "tests/debian-12.yaml"}
    assert "contains .. or unprintable characters" in draft.report()


@pytest.mark.parametrize("value", ["false", "null", "[]", "{}"])
def test_keys_without_an_effect_are_named(tmp_path: Path, value: str) -> None:
    keys = ["apt", "packages", "users", "write_files", "mounts", "manage_etc_hosts", "locale", "runcmd"]

    draft = draft_of(tmp_path, "".join(f"{key}: {value}\n" for key in keys))

    assert {remark.subject for remark in draft.remarks} == set(keys)
