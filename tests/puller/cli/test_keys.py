"""``puller keys``: the key of a host for encrypted files, and its recipient in reports and the fleet's store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hiera.sops.identities import recipients_of
from tests.puller.fleet.conftest import ago
from tests.simulators import fleet
from tests.support.ssh_keys import make_ssh_key

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host, Publisher


@pytest.fixture
def age(host: Host, tmp_path: Path) -> Path:
    """Configure a host with the files of both kinds of keys, and return the missing key of age."""
    path = tmp_path / "etc/puller/keys/age.txt"
    host.configure(age_identities=[str(path), str(tmp_path / "ssh_host_ed25519_key")])
    return path


def test_init_makes_a_private_key_once(host: Host, age: Path) -> None:
    status, output = host.puller("keys", "show")
    assert status == 78
    assert "this host has no key for encrypted files" in output
    assert "`puller keys init` creates one" in output
    status, output = host.puller("keys", "init")
    assert status == 0, output
    recipient = recipients_of(str(age))[0]
    assert output == f"{recipient}\nidentity: {age} (a key of age, created now)\n"
    assert age.stat().st_mode & 0o7777 == 0o600
    assert age.parent.stat().st_mode & 0o7777 == 0o700
    assert os.listdir(age.parent) == ["age.txt"]
    before = age.read_bytes()
    for words in (("init",), ("init", "--age"), ("show",)):
        assert host.puller("keys", *words) == (0, f"{recipient}\nidentity: {age} (a key of age)\n")
    assert age.read_bytes() == before


def test_ssh_host_key_is_enough(host: Host, age: Path, tmp_path: Path) -> None:
    ssh = tmp_path / "ssh_host_ed25519_key"
    recipient = make_ssh_key(ssh)
    for words in (("init",), ("show",)):
        assert host.puller("keys", *words) == (0, f"{recipient}\nidentity: {ssh} (an SSH key)\n")
    assert not age.exists()
    status, output = host.puller("keys", "init", "--age", "--format", "json")
    assert status == 0
    described = json.loads(output)
    assert described == {
        "recipient": recipients_of(str(age))[0],
        "identity": str(age),
        "kind": "age",
        "created": True,
    }


def test_damaged_key_is_never_replaced(host: Host, age: Path, tmp_path: Path) -> None:
    age.parent.mkdir(parents=True)
    age.write_text("damaged\n")
    for words in (("init",), ("init", "--age"), ("show",)):
        status, output = host.puller("keys", *words)
        assert status != 0
        assert "contains neither a key of age nor an SSH key" in output
    assert age.read_text() == "damaged\n"
    age.unlink()
    make_ssh_key(tmp_path / "other")
    make_ssh_key(tmp_path / "ssh_host_ed25519_key")
    shutil.copy(tmp_path / "other.pub", tmp_path / "ssh_host_ed25519_key.pub")
    status, output = host.puller("keys", "show")
    assert status != 0
    assert "ssh_host_ed25519_key.pub is the public part of another key" in output


def test_link_at_the_key_is_not_followed(host: Host, age: Path, tmp_path: Path) -> None:
    age.parent.mkdir(parents=True)
    age.symlink_to(tmp_path / "elsewhere")
    status, output = host.puller("keys", "init")
    assert status == 64
    assert "cannot be created: file exists" in output
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.root
def test_ordinary_user_gets_a_clear_error(host: Host, age: Path, tmp_path: Path) -> None:
    assert host.puller("keys", "init")[0] == 0
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == 0 and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o011)
    host.configuration.chmod(0o644)
    command = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-m", "puller", "keys"]
    for words in (["show"], ["init"]):
        done = subprocess.run(
            [*command, *words, "--config", str(host.configuration)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 64, done.stderr
        assert "cannot be read: permission denied" in done.stderr
        assert "use root, or --as-user" in done.stderr


def test_report_carries_the_recipient_into_the_store(
    host: Host, publisher: Publisher, age: Path, tmp_path: Path, execute: Execute
) -> None:
    publisher.publish("1.0.0")
    host.configure(reports={"to": [{"directory": str(tmp_path / "reports")}]})
    (tmp_path / "reports").mkdir()
    store = str(tmp_path / "fleet.db")
    assert host.run().status == 0
    assert execute("fleet", "import", str(tmp_path / "reports"), "--store", store)[0] == 0
    status, output = execute("fleet", "recipients", "--store", store)
    assert (status, "web01.example.com  none reported" in output) == (0, True)
    assert host.puller("keys", "init")[0] == 0
    assert host.run().status == 0
    assert execute("fleet", "import", str(tmp_path / "reports"), "--store", store)[0] == 0
    status, output = execute("fleet", "recipients", "--store", store)
    assert output == f"host               recipient\nweb01.example.com  {recipients_of(str(age))[0]}\n"
    status, output = execute("fleet", "page", "--store", store, "--to", str(tmp_path / "pages"))
    assert status == 0, output
    assert recipients_of(str(age))[0] in (tmp_path / "pages/hosts/web01.example.com.html").read_text()


def test_damaged_key_does_not_stop_reports(
    host: Host, publisher: Publisher, age: Path, tmp_path: Path
) -> None:
    publisher.publish("1.0.0")
    host.configure(reports={"to": [{"directory": str(tmp_path / "reports")}]})
    (tmp_path / "reports").mkdir()
    age.parent.mkdir(parents=True)
    age.write_text("damaged\n")
    outcome = host.run()
    assert outcome.status == 0
    assert "the report has no recipient of this host" in outcome.output
    assert list((tmp_path / "reports").rglob("*.json.gz"))


def test_recipients_of_a_fleet_are_listed_for_programs(tmp_path: Path, execute: Execute) -> None:
    now: datetime = fleet.now()
    (tmp_path / "reports").mkdir()
    fleet.deliver(
        tmp_path / "reports",
        [
            fleet.sent("web1", ago(now, 5), recipient="age1x", facts={"role": "web"}),
            fleet.sent("old1", ago(now, 5), facts={"role": "web"}),
            fleet.sent("db1", ago(now, 5), recipient="age1y", facts={"role": "db"}),
        ],
    )
    store = str(tmp_path / "fleet.db")
    assert execute("fleet", "import", str(tmp_path / "reports"), "--store", store)[0] == 0
    options = ("--store", store, "--where", "role=web", "--bundle", "web")
    status, output = execute("fleet", "recipients", *options, "--format", "json")
    assert status == 0
    web1 = {"recipient": "age1x", "bundles": ["web"], "facts": {"role": "web"}}
    assert json.loads(output) == {"web1": web1}
    status, output = execute("fleet", "recipients", *options, "-o", str(tmp_path / "hosts.yaml"))
    assert output == f"{tmp_path}/hosts.yaml: recipients of 1 host, 1 host without a recipient\n"
    line = json.dumps(web1, sort_keys=True)
    assert (tmp_path / "hosts.yaml").read_text() == f'"web1": {line}\n'


def test_report_with_an_invalid_recipient_is_refused(tmp_path: Path, execute: Execute) -> None:
    (tmp_path / "reports").mkdir()
    bad = fleet.sent("web1", ago(fleet.now(), 5), recipient="age1x\nhosts: {}")
    fleet.deliver(tmp_path / "reports", [bad])
    status, output = execute(
        "fleet", "import", str(tmp_path / "reports"), "--store", str(tmp_path / "fleet.db")
    )
    assert status == 4
    assert "has an invalid recipient of encrypted files" in output
