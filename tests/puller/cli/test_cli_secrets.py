"""``puller secrets``: encrypted files of authors, their readers, and the values that former readers know."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hiera import parsing
from hiera.errors import RecipientError
from hiera.sops.identities import Identities, new_identity
from hiera.sops.writing import decrypt
from tests.puller.fleet.conftest import ago
from tests.simulators import fleet
from tests.support.ssh_keys import make_ssh_key

if TYPE_CHECKING:
    from tests.support.stories import Execute

PLAIN = "db:\n  password: hunter2\n  port: 5432\nlist:\n  - one\n"


class Team:
    """An author with a key, three hosts with SSH keys, and ``recipients.yaml`` in a repository."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        identity, self.author = new_identity()
        self.key = directory.parent / "author.txt"
        self.key.write_text(f"{identity}\n")
        self.hosts: dict[str, str] = {}
        self.keys: dict[str, Identities] = {"alice": Identities((str(self.key),))}
        for name in ("web1", "web2", "db1"):
            path = directory.parent / f"{name}.key"
            self.hosts[name] = make_ssh_key(path)
            self.keys[name] = Identities((str(path),))
        self.secret = directory / "bundles/web/data/secrets.yaml"
        self.secret.parent.mkdir(parents=True)
        self.secret.write_text(PLAIN)
        self.write()

    def write(self, hosts: tuple[str, ...] = ("web1", "web2", "db1")) -> None:
        lines = [
            f"  {name}:\n    recipient: {self.hosts[name]}\n    bundles: [{name[:-1].strip()}]\n"
            f"    facts: {{role: {name[:-1]}, os: {{family: Debian}}}}\n"
            for name in hosts
        ]
        text = f"people:\n  alice: {self.author}\nhosts:\n{''.join(lines)}"
        text += 'files:\n  - path: bundles/web/**\n    readers: [person=alice, "bundle=web,facts.os.family=Debian"]\n'
        (self.directory / "recipients.yaml").write_text(text)

    def readers(self, path: Path | None = None) -> set[str]:
        """Return the names of all identities that read a file."""
        result = set()
        for name, identities in self.keys.items():
            try:
                decrypt((path or self.secret).read_text(), "", identities)
                result.add(name)
            except RecipientError:
                pass
        return result


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    made = Team(tmp_path / "repository")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SOPS_AGE_KEY_FILE", str(made.key))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("SOPS_AGE_KEY", "SOPS_CONFIG", "SOPS_EDITOR", "XDG_CONFIG_HOME", "PULLER_FLEET_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(made.directory)
    return made


def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Set an editor, whose program changes ``text``, and sees ``path``."""
    code = f"import os, pathlib, sys\npath = pathlib.Path(sys.argv[1])\ntext = path.read_text()\n{program}\n"
    (tmp_path / "editor.py").write_text(textwrap.dedent(code))
    monkeypatch.setenv("EDITOR", f"{sys.executable} {tmp_path / 'editor.py'}")


# --- encrypt, decrypt ------------------------------------------------------------------------


def test_encrypt_uses_the_rule_of_the_file(team: Team, execute: Execute) -> None:
    team.secret.chmod(0o640)
    status, output = execute("secrets", "encrypt", str(team.secret))
    assert (status, output) == (0, f"{team.secret}: encrypted for 3 readers\n")
    assert "hunter2" not in team.secret.read_text()
    assert team.readers() == {"alice", "web1", "web2"}
    assert team.secret.stat().st_mode & 0o777 == 0o640
    before = team.secret.read_bytes()
    assert execute("secrets", "encrypt", str(team.secret)) == (0, f"{team.secret}: is encrypted already\n")
    assert team.secret.read_bytes() == before
    status, output = execute("secrets", "decrypt", str(team.secret))
    assert (status, parsing.load_yaml(output, "")) == (0, parsing.load_yaml(PLAIN, ""))
    assert team.secret.read_bytes() == before


READERS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "host": (("host=db1",), {"db1"}),
    "hosts by pattern": (("host=web*",), {"web1", "web2"}),
    "bundle": (("bundle=web",), {"web1", "web2"}),
    "role": (("role=db",), {"db1"}),
    "fact": (("facts.os.family=Debian",), {"db1", "web1", "web2"}),
    "several conditions": (("bundle=web,host=*2",), {"web2"}),
    "person": (("person=alice", "host=db1"), {"alice", "db1"}),
}


@pytest.mark.parametrize("kind", READERS)
def test_readers_are_selected_by_name(team: Team, execute: Execute, kind: str) -> None:
    readers, expected = READERS[kind]
    options = [word for reader in readers for word in ("--reader", reader)]
    status, output = execute("secrets", "encrypt", str(team.secret), *options)
    assert status == 0, output
    assert team.readers() == expected
    assert ("you are not among the readers" in output) == ("alice" not in expected)


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        ("host=none", "host=none: selects no host"),
        ("person=bob", "the person is unknown"),
        ("web1", "'web1' is not a reader"),
        ("age1x", "age1x is not a recipient"),
        ("person=alice,host=web1", "has no further conditions"),
    ],
)
def test_unknown_reader_changes_no_file(team: Team, execute: Execute, reader: str, message: str) -> None:
    status, output = execute("secrets", "encrypt", str(team.secret), "--reader", reader)
    assert status == 64
    assert message in output
    assert team.secret.read_text() == PLAIN


def test_one_broken_file_leaves_all_files(team: Team, execute: Execute) -> None:
    broken = team.secret.with_name("z.yaml")
    broken.write_text("a: [\n")
    status, _ = execute("secrets", "encrypt", str(team.secret), str(broken))
    assert status != 0
    assert (team.secret.read_text(), broken.read_text()) == (PLAIN, "a: [\n")


def test_hosts_come_from_the_store(team: Team, tmp_path: Path, execute: Execute) -> None:
    """A recipient in the file overrides that of a report, and a host without a recipient is an error."""
    team.write(("web1",))
    place, store = tmp_path / "reports", str(tmp_path / "fleet.db")
    place.mkdir()
    now = fleet.now()
    reports = {"web1": team.hosts["db1"], "web2": team.hosts["web2"]}
    fleet.deliver(
        place,
        [
            fleet.sent(name, ago(now, 5), recipient=key, facts={"role": "web", "os": {"family": "Debian"}})
            for name, key in reports.items()
        ],
    )
    assert execute("fleet", "import", str(place), "--store", store)[0] == 0
    status, output = execute("secrets", "encrypt", str(team.secret), "--store", store)
    assert status == 0, output
    assert "web1: its reports have another recipient than" in output
    assert team.readers() == {"alice", "web1", "web2"}
    fleet.deliver(place, [fleet.sent("old1", ago(now, 4))])
    assert execute("fleet", "import", str(place), "--store", store)[0] == 0
    options = ("--store", store, "--reader", "host=old1")
    other = team.secret.with_name("other.yaml")
    other.write_text(PLAIN)
    status, output = execute("secrets", "encrypt", str(other), *options)
    assert status == 64
    assert "host=old1: no recipient is known of old1" in output


def test_hosts_may_be_in_a_generated_file(team: Team, execute: Execute) -> None:
    host = {"recipient": team.hosts["web1"], "bundles": ["web"], "facts": {}}
    (team.directory / "hosts.yaml").write_text(f'"web1": {json.dumps(host)}\n')
    (team.directory / "recipients.yaml").write_text(
        "hosts: hosts.yaml\nfiles: [{path: '**/secrets.yaml', readers: [bundle=web]}]\n"
    )
    assert execute("secrets", "encrypt", str(team.secret))[0] == 0
    assert team.readers() == {"web1"}


WRONG: dict[str, tuple[str, str]] = {
    "an unknown key": ("person: {}\n", "recipients.yaml:1: person is not a key of recipients.yaml"),
    "a wrong recipient": (
        "people: {}\nhosts:\n  web1: x\n",
        "recipients.yaml:3: web1: 'x' is not a recipient",
    ),
    "a wrong reader": ("files:\n  - {path: a, readers: [x]}\n", "recipients.yaml:2: 'x' is not a reader"),
    "two rules": (
        "files:\n  - {path: a, readers: [], encrypted_regex: a, encrypted_suffix: b}\n",
        "recipients.yaml:2: has several of",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_recipients_file_is_an_error(team: Team, execute: Execute, kind: str) -> None:
    text, message = WRONG[kind]
    (team.directory / "recipients.yaml").write_text(text)
    status, output = execute("secrets", "encrypt", str(team.secret))
    assert status == 13
    assert message in output
    assert team.secret.read_text() == PLAIN


# --- .sops.yaml ------------------------------------------------------------------------------


def test_creation_rules_of_sops_apply_in_their_order(team: Team, execute: Execute) -> None:
    (team.directory / "recipients.yaml").unlink()
    (team.directory / ".sops.yaml").write_text(
        "creation_rules:\n"
        f"  - {{path_regex: other, age: {team.hosts['db1']}}}\n"
        "  - path_regex: ^bundles/web/.*\\.yaml$\n"
        f"    age: '{team.hosts['web1']} root@web1,{team.author}'\n"
        "    encrypted_regex: ^password$\n"
        "    mac_only_encrypted: true\n"
        f"  - age: [{team.hosts['db1']}]\n"
    )
    status, output = execute("secrets", "encrypt", str(team.secret))
    assert status == 0, output
    assert team.readers() == {"alice", "web1"}
    text = team.secret.read_text()
    assert "port: 5432" in text
    assert "hunter2" not in text
    assert "mac_only_encrypted: true" in text
    last = team.directory / "last.yaml"
    last.write_text("a: 1\n")
    assert execute("secrets", "encrypt", str(last))[0] == 0
    assert team.readers(last) == {"db1"}


SOPS_WRONG: dict[str, tuple[str, str]] = {
    "another kind": ("- {pgp: ABC, age: RECIPIENT}", "creation rule 1: pgp is not supported by Puller"),
    "kinds in a group": (
        "- key_groups: [{age: [RECIPIENT], hc_vault: [x], plugins: [{}]}]",
        "hc_vault and plugins are not supported by Puller",
    ),
    "a kind in a merged group": (
        "- key_groups: [{age: [RECIPIENT], merge: [{kms: [{arn: x}]}]}]",
        "kms is not supported by Puller",
    ),
    "an unknown key": ("- {age: RECIPIENT, later_kind: x}", "later_kind is not supported by Puller"),
    "an unknown expression": ("- {path_regex: '(?=x)', age: RECIPIENT}", "creation rule 1"),
    "several groups": ("- key_groups: [{age: [RECIPIENT]}, {age: [RECIPIENT]}]", "several key groups"),
    "no recipient": ("- {path_regex: secrets}", "has no recipient of age"),
    "a wrong recipient": ("- {age: age1x}", "age1x is not a recipient"),
    "a wrong expression": ("- {path_regex: '(', age: RECIPIENT}", ".sops.yaml:2"),
    "no matching rule": ("- {path_regex: other, age: RECIPIENT}", "no rule selects the file"),
}


@pytest.mark.parametrize("kind", SOPS_WRONG)
def test_unsupported_creation_rule_writes_nothing(team: Team, execute: Execute, kind: str) -> None:
    text, message = SOPS_WRONG[kind]
    (team.directory / "recipients.yaml").unlink()
    rules = f"creation_rules:\n  {text.replace('RECIPIENT', team.author)}\n"
    (team.directory / ".sops.yaml").write_text(rules)
    status, output = execute("secrets", "encrypt", str(team.secret))
    assert status != 0
    assert message in output
    assert team.secret.read_text() == PLAIN


def test_merged_groups_and_lists_with_commas_add_up(team: Team, execute: Execute) -> None:
    (team.directory / "recipients.yaml").unlink()
    group = {"merge": [{"age": [f"{team.author},{team.hosts['web1']}"]}], "age": [team.hosts["db1"]]}
    (team.directory / ".sops.yaml").write_text(json.dumps({"creation_rules": [{"key_groups": [group]}]}))
    assert execute("secrets", "encrypt", str(team.secret))[0] == 0
    assert team.readers() == {"alice", "web1", "db1"}


def test_config_elsewhere_matches_the_absolute_path(
    team: Team, tmp_path: Path, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    (team.directory / "recipients.yaml").unlink()
    rules = [
        {"path_regex": "^bundles/|[.][.]", "age": team.hosts["db1"]},
        {"path_regex": f"^{tmp_path}/repository/bundles/[[:alpha:]]+/data/", "age": team.hosts["web1"]},
    ]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/rules.yaml").write_text(json.dumps({"creation_rules": rules}))
    monkeypatch.setenv("SOPS_CONFIG", str(tmp_path / "elsewhere/rules.yaml"))
    assert execute("secrets", "encrypt", str(team.secret))[0] == 0
    assert team.readers() == {"web1"}


def test_sops_config_without_creation_rules_selects_nothing(team: Team, execute: Execute) -> None:
    (team.directory / "recipients.yaml").unlink()
    for text in ("", "stores: {yaml: {indent: 2}}\n", "creation_rules:\n"):
        (team.directory / ".sops.yaml").write_text(text)
        status, output = execute("secrets", "encrypt", str(team.secret))
        assert (status, "no rule selects the file" in output) == (64, True)


# --- edit ------------------------------------------------------------------------------------


def test_edit_changes_only_the_changed_values(
    team: Team, tmp_path: Path, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute("secrets", "encrypt", str(team.secret))
    before = team.secret.read_text().splitlines()
    editor(
        tmp_path,
        monkeypatch,
        "import resource\n"
        "core = resource.getrlimit(resource.RLIMIT_CORE)[0]\n"
        "modes = f'{oct(path.stat().st_mode)} {oct(path.parent.stat().st_mode)}'\n"
        "open(os.environ['SEEN'], 'w').write(f'{path} {modes} {core}')\n"
        "path.write_text(text.replace('5432', '5433'))",
    )
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    assert execute("secrets", "edit", str(team.secret)) == (0, f"{team.secret}: saved\n")
    pairs = zip(before, team.secret.read_text().splitlines(), strict=True)
    changed = {old.split(":")[0].strip() for old, new in pairs if old != new}
    assert {"port", "mac"} <= changed <= {"port", "mac", "lastmodified"}
    path, *seen = (tmp_path / "seen").read_text().split()
    assert seen == ["0o100600", "0o40700", "0"]
    assert not Path(path).parent.exists()
    assert not list((tmp_path / "state").rglob("*.age"))
    editor(tmp_path, monkeypatch, "pass")
    unchanged = team.secret.read_bytes()
    assert execute("secrets", "edit", str(team.secret)) == (0, f"{team.secret}: unchanged\n")
    assert team.secret.read_bytes() == unchanged
    assert team.readers() == {"alice", "web1", "web2"}


def test_broken_text_is_kept_encrypted_and_resumed(
    team: Team, tmp_path: Path, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute("secrets", "encrypt", str(team.secret))
    before = team.secret.read_bytes()
    editor(tmp_path, monkeypatch, "path.write_text(text + 'token: [n3w-t0ken\\n')")
    status, output = execute("secrets", "edit", str(team.secret))
    assert status != 0
    assert "is not YAML" in output or "secrets.yaml" in output
    assert team.secret.read_bytes() == before
    (draft,) = (tmp_path / "state").rglob("*.age")
    assert draft.stat().st_mode & 0o777 == 0o600
    assert b"n3w-t0ken" not in draft.read_bytes()
    editor(tmp_path, monkeypatch, "path.write_text(text.replace('[n3w', 'n3w'))")
    status, output = execute("secrets", "edit", str(team.secret))
    assert status == 0, output
    assert "resuming the text of an earlier edit" in output
    assert "token: n3w-t0ken" in execute("secrets", "decrypt", str(team.secret))[1]
    assert not draft.exists()


def test_file_changed_during_the_edit_is_kept(
    team: Team, tmp_path: Path, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute("secrets", "encrypt", str(team.secret))
    other = team.secret.read_text() + "# of another author\n"
    editor(
        tmp_path,
        monkeypatch,
        f"pathlib.Path({str(team.secret)!r}).write_text({other!r})\npath.write_text(text + 'a: 1\\n')",
    )
    status, output = execute("secrets", "edit", str(team.secret))
    assert status != 0
    assert "was changed during the edit" in output
    assert team.secret.read_text() == other
    assert list((tmp_path / "state").rglob("*.age"))


def test_editor_that_fails_saves_nothing(
    team: Team, tmp_path: Path, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute("secrets", "encrypt", str(team.secret))
    before = team.secret.read_bytes()
    editor(tmp_path, monkeypatch, "sys.exit(1)")
    status, output = execute("secrets", "edit", str(team.secret))
    assert (status, "the editor returned an error" in output) == (0, True)
    editor(tmp_path, monkeypatch, "path.write_text('a: 1\\n'); sys.exit(1)")
    assert execute("secrets", "edit", str(team.secret))[0] == 64
    assert team.secret.read_bytes() == before
    monkeypatch.setenv("EDITOR", "/nonexistent/editor")
    status, output = execute("secrets", "edit", str(team.secret))
    assert (status, "/nonexistent/editor: cannot be executed" in output) == (64, True)


def test_edit_creates_a_file_for_the_readers_of_its_rule(
    team: Team, tmp_path: Path, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = team.secret.with_name("new.yaml")
    editor(tmp_path, monkeypatch, "path.write_text('token: x\\n')")
    assert execute("secrets", "edit", str(new)) == (0, f"{new}: saved\n")
    assert team.readers(new) == {"alice", "web1", "web2"}
    status, output = execute("secrets", "edit", str(team.secret))
    assert (status, "is not encrypted" in output, "puller secrets encrypt" in output) == (64, True, True)


@pytest.mark.attack("sops.edit")
def test_killed_edit_leaves_no_plain_text(team: Team, tmp_path: Path, execute: Execute) -> None:
    """The editor writes into a pipe when the plain text is there, and waits for ever."""
    execute("secrets", "encrypt", str(team.secret))
    os.mkfifo(tmp_path / "ready")
    (tmp_path / "editor.sh").write_text(f'echo "$1" > {tmp_path}/ready; exec sleep 600\n')
    environment = {**os.environ, "EDITOR": f"/bin/sh {tmp_path}/editor.sh"}
    command = [sys.executable, "-m", "puller", "secrets", "edit", str(team.secret)]
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            path = Path((tmp_path / "ready").read_text().strip())
            assert "hunter2" in path.read_text()
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            wait_until(lambda: not path.parent.exists())
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert "hunter2" not in team.secret.read_text()


def wait_until(holds: Callable[[], bool]) -> None:
    import time

    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# --- rekey -----------------------------------------------------------------------------------


@pytest.mark.attack("sops.gone")
def test_rekey_lists_the_values_that_a_gone_host_knows(team: Team, execute: Execute) -> None:
    execute("secrets", "encrypt", str(team.secret))
    before = team.secret.read_text()
    key = decrypt(before, "", team.keys["web2"]).key
    team.write(("web1", "db1"))
    status, output = execute("secrets", "rekey", "bundles", "--noop")
    assert (status, team.secret.read_text()) == (0, before)
    assert "would be rekeyed" in output
    status, output = execute("secrets", "rekey", "bundles")
    assert status == 0
    assert output == (
        "bundles/web/data/secrets.yaml: rekeyed\n"
        "  - web2\n"
        "Former readers know these values. Change them where they are used:\n"
        "  bundles/web/data/secrets.yaml (web2)\n"
        "    db.password\n    db.port\n    list\n"
    )
    assert team.readers() == {"alice", "web1"}
    assert decrypt(team.secret.read_text(), "", team.keys["web1"]).key != key
    known = {*re.findall(r"data:[^,]+", before)}
    assert known & {*re.findall(r"data:[^,]+", team.secret.read_text())} == set()
    after = team.secret.read_bytes()
    assert execute("secrets", "rekey", "bundles") == (0, "1 file unchanged\n")
    assert team.secret.read_bytes() == after


def test_rekey_adds_and_removes_named_readers(team: Team, execute: Execute) -> None:
    execute("secrets", "encrypt", str(team.secret))
    text = team.secret.read_text()
    status, output = execute("secrets", "rekey", str(team.secret), "--add", "host=db1")
    assert (status, "  + db1\n" in output, "Former readers" in output) == (0, True, False)
    assert team.readers() == {"alice", "web1", "web2", "db1"}
    assert team.secret.read_text().partition("sops:")[0] == text.partition("sops:")[0]
    (team.directory / "recipients.yaml").unlink()  # the name in the file is enough
    status, output = execute("secrets", "rekey", str(team.secret), "--remove", "host=db1", "--format", "json")
    assert status == 0
    (described,) = json.loads(output)
    assert described["removed"] == {team.hosts["db1"]: "db1"}
    assert described["exposed"] == ["db.password", "db.port", "list"]
    assert team.readers() == {"alice", "web1", "web2"}
    status, output = execute("secrets", "rekey", str(team.secret), "--remove", "host=db1")
    assert (status, "selects no reader of these files" in output) == (64, True)
    text = team.secret.read_text()
    assert execute("secrets", "rekey", str(team.secret), "--add", "person=nobody")[0] == 64
    assert team.secret.read_text() == text


def test_rekey_writes_no_file_if_one_fails(team: Team, execute: Execute) -> None:
    execute("secrets", "encrypt", str(team.secret))
    other = team.secret.with_name("other.yaml")
    other.write_text(PLAIN)
    assert execute("secrets", "encrypt", str(other), "--reader", "host=db1")[0] == 0
    team.write(("web1", "db1"))
    before = team.secret.read_bytes(), other.read_bytes()
    status, output = execute("secrets", "rekey", "bundles")
    assert status != 0
    assert "encrypted for db1, not for this key" in output
    assert (team.secret.read_bytes(), other.read_bytes()) == before


def test_new_key_encrypts_all_values_again(team: Team, execute: Execute) -> None:
    execute("secrets", "encrypt", str(team.secret))
    before = team.secret.read_text()
    assert execute("secrets", "rekey", str(team.secret), "--new-key")[0] == 0
    after = team.secret.read_text()
    assert {*re.findall(r"data:[^,]+", before)} & {*re.findall(r"data:[^,]+", after)} == set()
    assert team.readers() == {"alice", "web1", "web2"}


def test_recipients_are_compared_with_the_rule(team: Team, execute: Execute) -> None:
    execute("secrets", "encrypt", str(team.secret), "--reader", "host=db1", "--reader", "host=web1")
    status, output = execute("secrets", "recipients", "bundles")
    assert status == 0
    assert output == "bundles/web/data/secrets.yaml (recipients.yaml):\n- db1\n  web1\n+ alice\n+ web2\n"
    status, output = execute("secrets", "recipients", "bundles", "--format", "json")
    (described,) = json.loads(output)
    assert described["surplus"] == [team.hosts["db1"]]


# --- lint ------------------------------------------------------------------------------------


def test_lint_finds_readers_that_do_not_need_a_file(team: Team, execute: Execute) -> None:
    web = team.directory / "bundles/web"
    (web / "manifest.yaml").write_text("resources: []\n")
    (web / "hiera.yaml").write_text("version: 5\nhierarchy: [{name: secrets, path: secrets.yaml}]\n")
    lint = ("lint", "bundles/web")
    assert execute("secrets", "encrypt", str(team.secret))[0] == 0
    assert "unneeded-reader" not in execute(*lint)[1]
    assert execute("secrets", "rekey", "bundles", "--add", "host=db1")[0] == 0
    team.write(("web1", "db1"))  # web2 has gone
    status, output = execute(*lint)
    message = "can be read by web2 (unknown), db1, which the bundle does not need"
    assert (status, f"bundles/web/data/secrets.yaml: warning: {message}" in output) == (0, True), output
    assert execute("secrets", "rekey", "bundles")[0] == 0
    assert "unneeded-reader" not in execute(*lint)[1]
    (team.directory / "recipients.yaml").write_text("persons: {}\n")
    status, output = execute(*lint)
    assert (status, "persons is not a key of recipients.yaml" in output) == (0, True)
    (team.directory / "recipients.yaml").unlink()
    assert "unneeded-reader" not in execute(*lint)[1]


# --- keys of the author ----------------------------------------------------------------------


def test_keys_of_the_author_are_those_of_sops(
    team: Team, tmp_path: Path, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute("secrets", "encrypt", str(team.secret))
    monkeypatch.delenv("SOPS_AGE_KEY_FILE")
    show = ("secrets", "decrypt", str(team.secret))
    assert execute(*show)[0] != 0
    monkeypatch.setenv("SOPS_AGE_KEY", team.key.read_text())
    assert execute(*show)[0] == 0
    monkeypatch.delenv("SOPS_AGE_KEY")
    keys = tmp_path / ".config/sops/age/keys.txt"
    keys.parent.mkdir(parents=True)
    keys.write_text(team.key.read_text())
    assert execute(*show)[0] == 0
    keys.unlink()
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id_ed25519").write_bytes((tmp_path / "web1.key").read_bytes())
    assert execute(*show)[0] == 0
    (tmp_path / ".ssh/id_ed25519").unlink()
    assert execute(*show, "--identity", str(tmp_path / "web2.key"))[0] == 0
    monkeypatch.setenv("SOPS_AGE_KEY_FILE", "/nonexistent")
    status, output = execute(*show)
    assert (status, "SOPS_AGE_KEY_FILE is /nonexistent, which does not exist" in output) == (64, True)
