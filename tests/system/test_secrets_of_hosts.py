"""Three booted hosts with SSH host keys, and a bundle with secrets for two of them. Then one of the two goes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support import thief
from tests.support.machines import copied, powered_on

if TYPE_CHECKING:
    from tests.support.machines import Machine
    from tests.support.nginx import Nginx

pytestmark = [pytest.mark.booted, pytest.mark.root, pytest.mark.nginx]

Execute = Callable[..., tuple[int, str]]

NAMES = ("web1", "web2", "db1")
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
TREE = """\
version: 5
hierarchy:
  - {name: secrets, path: secrets.yaml}
  - {name: common, path: common.yaml}
"""
MANIFEST = """\
resources:
  - file:
      - /etc/web: {ensure: directory, owner: root, group: root, mode: "0755"}
      - /etc/web/token: {content: "{{ hiera('token') }}\\n", owner: daemon, group: adm, mode: "0640"}
      - /etc/web/port: {content: "{{ hiera('port') }}\\n", owner: root, group: root, mode: "0644"}
"""
OLD, NEW = "tok3n-of-the-first-release", "tok3n-after-the-host-has-gone"
RULES = """\
people: {{alice: {author}}}
hosts: hosts.yaml
files:
  - {{path: web/**, readers: [person=alice, host=web*]}}
"""


class Story:
    """A publisher with a repository and a key, and three hosts that pull from nginx."""

    def __init__(
        self, directory: Path, execute: Execute, web: Nginx, machines: dict[str, Machine], author: str
    ) -> None:
        self.directory, self.execute, self.web, self.machines = directory, execute, web, machines
        self.bundle = directory / "web"
        self.secret = self.bundle / "data/secrets.yaml"
        self.secret.parent.mkdir(parents=True)
        (self.bundle / "manifest.yaml").write_text(MANIFEST)
        (self.bundle / "hiera.yaml").write_text(TREE)
        (self.bundle / "data/common.yaml").write_text("token: none\nport: 80\n")
        (directory / "recipients.yaml").write_text(RULES.format(author=author))
        (directory / "reports").mkdir()
        self.store = ("--store", str(directory / "fleet.db"))
        self.do("site", "init", str(directory / "site"), "--no-passphrase")
        for name, machine in machines.items():
            self._configure(name, machine)

    def _configure(self, name: str, machine: Machine) -> None:
        settings = {
            "site": self.web.url,
            "bundles": [{"name": "web"}],
            "host_name": f"{name}.example.com",
            "reports": {"to": [{"directory": "/var/spool/reports"}]},
        }
        (machine.root / "var/spool/reports").mkdir()
        (machine.root / "etc/puller").mkdir()
        (machine.root / "etc/puller/config.yaml").write_text(json.dumps(settings))
        shutil.copy(self.directory / "site/root.json", machine.root / "etc/puller/root.json")
        machine.run("ssh-keygen", "-A")
        machine.run("puller", "install-units")
        machine.run("systemctl", "daemon-reload")

    def do(self, *words: str) -> str:
        """Run a command of the publisher, which must succeed, and return its output."""
        status, output = self.execute(*words)
        assert status == 0, output
        return output

    def publish(self, version: str) -> None:
        self.do("site", "publish", str(self.directory / "site"), str(self.bundle), "--version", version)
        shutil.copytree(self.directory / "site/public", self.web.root, dirs_exist_ok=True)

    def run(self, name: str) -> int:
        """Start a run by its unit, and return the exit status. Its output is in the journal."""
        self.machines[name].run("systemctl", "start", "puller.service", check=False)
        return int(self.machines[name].show("puller.service", "ExecMainStatus")["ExecMainStatus"])

    def import_reports(self) -> None:
        """Import the reports of all hosts, and write their recipients into the repository."""
        for machine in self.machines.values():
            shutil.copytree(
                machine.root / "var/spool/reports", self.directory / "reports", dirs_exist_ok=True
            )
        self.do("fleet", "import", str(self.directory / "reports"), *self.store)
        self.write_recipients()

    def write_recipients(self) -> None:
        self.do("fleet", "recipients", *self.store, "-o", str(self.directory / "hosts.yaml"))

    def files(self, name: str) -> list[str]:
        """Return owner, group, mode, times and name of each managed file."""
        look = "find /etc/web -mindepth 1 -printf '%u:%g %m %C@ %T@ %p\\n' | sort -k5"
        return self.machines[name].run("sh", "-c", look).stdout.splitlines()

    def owners(self, name: str) -> list[str]:
        return [" ".join((line.split()[0], line.split()[1], line.split()[4])) for line in self.files(name)]

    def events(self, name: str) -> list[str]:
        """Return the changed resources of the last run."""
        text = (self.machines[name].root / "var/lib/puller/last-run.json").read_text()
        events = [event for bundle in json.loads(text)["bundles"] for event in bundle.get("events", [])]
        return [f"{event['type']}#{event['name']}" for event in events if event["state"] != "stable"]

    def steal(self, name: str) -> dict[str, Any]:
        """Let root of a host try everything that the site and the machine contain."""
        machine = self.machines[name]
        shutil.copytree(self.web.root, machine.root / "srv/site", dirs_exist_ok=True)
        program = machine.root / "usr/local/lib/thief.py"
        shutil.copy(Path(thief.__file__), program)
        done = machine.run("/opt/puller/bin/python", "/usr/local/lib/thief.py", OLD, NEW)
        result: dict[str, Any] = json.loads(done.stdout)
        return result


@pytest.fixture
def story(
    make_tree: Callable[..., Path],
    tmp_path: Path,
    execute: Execute,
    web: Nginx,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Story]:
    from hiera.sops.identities import new_identity

    identity, author = new_identity()
    monkeypatch.setenv("SOPS_AGE_KEY", identity)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PULLER_FLEET_STORE", "SOPS_AGE_KEY_FILE", "SOPS_CONFIG", "SOPS_EDITOR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with booted(make_tree("openssh-client")) as machines:
        yield Story(tmp_path / "repository", execute, web, machines, author)


@contextmanager
def booted(tree: Path) -> Iterator[dict[str, Machine]]:
    """Yield the three machines. All of them are copies of one tree."""
    with ExitStack() as stack:
        machines = {}
        for name in NAMES:
            root = stack.enter_context(copied(tree))
            (root / "etc/hostname").write_text(f"{name}\n")
            machines[name] = stack.enter_context(powered_on(root))
        yield machines


@pytest.mark.attack("sops.other-host", "sops.gone")
@pytest.mark.timeout(900)
def test_only_named_hosts_read_secrets_until_they_go(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Before the first secret, the reports of the hosts carry their recipients.
    story.publish("0.9.0")
    assert [story.run(name) for name in NAMES] == [0, 0, 0], story.machines["db1"].say()
    story.import_reports()
    known = yaml.safe_load((story.directory / "hosts.yaml").read_text())
    shown = {
        f"{name}.example.com": json.loads(machine.run("puller", "keys", "show", "--format", "json").stdout)
        for name, machine in story.machines.items()
    }
    assert {name: key["identity"] for name, key in shown.items()} == dict.fromkeys(shown, HOST_KEY)
    assert {name: host["recipient"] for name, host in known.items()} == {
        name: key["recipient"] for name, key in shown.items()
    }
    assert len({key["recipient"] for key in shown.values()}) == 3

    # Two hosts get the secret, with the declared owner and mode.
    story.secret.write_text(f"token: {OLD}\nport: 8443\n")
    story.do("secrets", "encrypt", str(story.secret))
    story.publish("1.0.0")
    for name in ("web1", "web2"):
        assert story.run(name) == 0, story.machines[name].say()
        assert (story.machines[name].root / "etc/web/token").read_text() == f"{OLD}\n"
        assert story.owners(name) == ["root:root 644 /etc/web/port", "daemon:adm 640 /etc/web/token"]
        before = story.files(name)
        assert (story.run(name), story.files(name), story.events(name)) == (0, before, [])

    # The third host goes on with its release, and names the readers.
    before = story.files("db1")
    assert story.run("db1") == 13
    journal = "\n".join(entry["MESSAGE"] for entry in story.machines["db1"].journal("puller.service"))
    assert "encrypted for alice, web1.example.com, web2.example.com, not for this key: ssh-ed25519" in journal
    assert (story.files("db1"), (story.machines["db1"].root / "etc/web/token").read_text()) == (
        before,
        "none\n",
    )

    # Root of a reader finds the key and the secret by the same search, so the search can find them.
    reader = story.steal("web1")
    assert (reader["opening"], reader["plain"]) == ([HOST_KEY], ["8443", OLD])
    assert reader["places"] == ["/etc/web/token"]
    other = story.steal("db1")
    assert HOST_KEY in other["keys"]
    assert (other["blocks"], other["values"]) == (reader["blocks"], reader["values"])
    assert (other["opening"], other["plain"], other["places"]) == ([], [], [])

    # One host goes: its values are listed, changed and published.
    story.do("fleet", "forget", "web2.example.com", *story.store)
    story.write_recipients()
    output = story.do("secrets", "rekey", str(story.bundle))
    assert output.endswith(
        f"  - web2.example.com\nFormer readers know these values. Change them where they are used:\n"
        f"  {story.secret} (web2.example.com)\n    token\n    port\n"
    )
    assert story.do("secrets", "rekey", str(story.bundle)) == "1 file unchanged\n"
    monkeypatch.setenv("EDITOR", f"sed -i -e s/{OLD}/{NEW}/ -e s/8443/9443/")
    assert story.do("secrets", "edit", str(story.secret)) == f"{story.secret}: saved\n"
    story.publish("1.1.0")
    assert story.run("web1") == 0, story.machines["web1"].say()
    assert (story.machines["web1"].root / "etc/web/token").read_text() == f"{NEW}\n"
    assert story.owners("web1") == ["root:root 644 /etc/web/port", "daemon:adm 640 /etc/web/token"]
    before = story.files("web1")
    assert (story.run("web1"), story.files("web1"), story.events("web1")) == (0, before, [])
    assert [story.run("web2"), story.run("db1")] == [13, 13]

    # The gone host still knows the old values, and no new one. The remaining host reads both.
    gone = story.steal("web2")
    assert (gone["opening"], gone["plain"]) == ([HOST_KEY], ["8443", OLD])
    assert gone["places"] == ["/etc/web/token"]
    remaining = story.steal("web1")
    assert remaining["plain"] == ["8443", "9443", NEW, OLD]
    assert remaining["values"] == gone["values"] == 2 * reader["values"]
    assert remaining["places"] == ["/etc/web/token"]
    other = story.steal("db1")
    assert (other["opening"], other["plain"], other["places"]) == ([], [], [])
