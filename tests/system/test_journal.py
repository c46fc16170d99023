"""The journal of a booted machine: fields of the entries that real runs write."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from puller.reporting.sinks import MessageId

if TYPE_CHECKING:
    from tests.support.machines import Machine
    from tests.support.nginx import Nginx
    from tests.support.stories import Publisher

pytestmark = [pytest.mark.booted, pytest.mark.root, pytest.mark.nginx]

MANIFEST = """\
resources:
  - file:
      - defaults: {owner: root, group: root, mode: "0644"}
      - /etc/app: {ensure: directory, mode: "0755"}
      - /etc/app/app.conf: {content: "version = 1\\n", require: [file#/etc/app]}
      - /etc/app/token: {content: "c4n4ry-first", sensitive: true, require: [file#/etc/app/app.conf]}
  - exec:
      - no-good:
          command: sh -c 'printf "first\\nPULLER_STATE=stable\\n"; head -c 300000 /dev/zero | tr "\\\\0" x; exit 3'
      - after: {command: "true", require: [exec#no-good]}
"""


@pytest.fixture
def host(debian: Machine, nginx: Nginx, publisher: Publisher) -> Machine:
    publisher.publish("1.0.0", MANIFEST)
    etc = debian.root / "etc/puller"
    etc.mkdir()
    (etc / "config.yaml").write_text(f"site: {nginx.url}\nbundles: [{{name: web}}]\nhttp: {{retries: 0}}\n")
    shutil.copyfile(publisher.site.anchor, etc / "root.json")
    debian.run("puller", "install-units")
    debian.run("systemctl", "daemon-reload")
    return debian


def entries(host: Machine, *matches: str) -> list[dict[str, Any]]:
    host.run("journalctl", "--sync")
    lines = host.run("journalctl", "--output=json", "--all", *matches).stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_journal_finds_the_failed_resource_and_its_run(host: Machine) -> None:
    host.run("systemctl", "start", "puller.service", check=False)
    report = json.loads((host.root / "var/lib/puller/last-run.json").read_bytes())
    assert report["exit_status"] == 6

    (failed,) = entries(host, "PULLER_STATE=failed")
    assert failed["PULLER_RESOURCE"] == "exec#no-good"
    assert (failed["PULLER_BUNDLE"], failed["PULLER_RUN"]) == ("web", report["run"])
    assert (failed["MESSAGE_ID"], failed["PRIORITY"]) == (MessageId.RESOURCE_FAILED, "3")
    assert failed["_SYSTEMD_UNIT"] == "puller.service"
    assert failed["MESSAGE"].startswith("exec#no-good failed ")
    assert entries(host, "PULLER_STATE=stable") == []

    changed = entries(host, "PULLER_STATE=changed")
    names = ["file#/etc/app", "file#/etc/app/app.conf", "file#/etc/app/token"]
    assert [entry["PULLER_RESOURCE"] for entry in changed] == names
    (ended,) = entries(host, f"MESSAGE_ID={MessageId.RUN_ENDED}")
    assert (ended["PULLER_RUN"], ended["PULLER_EXIT"]) == (report["run"], "6")
    skipped = entries(host, "PULLER_STATE=skipped", "-p", "err")
    assert [entry["PULLER_RESOURCE"] for entry in skipped] == ["exec#after"]
    own = entries(host, "-t", "puller", "_SYSTEMD_UNIT=puller.service")
    assert {entry["_TRANSPORT"] for entry in own} == {"journal"}
    assert {entry["PULLER_RUN"] for entry in own} == {report["run"]}
    assert "c4n4ry" not in host.run("journalctl", "--output=verbose", "--all").stdout


def test_all_of_many_changes_at_once_arrive_with_their_fields(host: Machine, publisher: Publisher) -> None:
    files = "".join(f"      - /etc/app/{number}: {{content: x}}\n" for number in range(2000))
    publisher.publish("2.0.0", MANIFEST.partition("      - /etc/app/app.conf")[0] + files)
    host.run("systemctl", "start", "puller.service")
    assert len(entries(host, "PULLER_STATE=changed")) == 2001
    own = [entry for entry in host.journal("puller.service") if entry["SYSLOG_IDENTIFIER"] == "puller"]
    assert {entry["_TRANSPORT"] for entry in own} == {"journal"}


def test_machine_with_a_broken_journal_keeps_its_lines(host: Machine) -> None:
    """The journal's socket is removed, as on a nearly full or half broken machine. Standard error still works."""
    drop_in = host.root / "etc/systemd/system/puller.service.d/no-socket.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nInaccessiblePaths=/run/systemd/journal/socket\n")
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", "puller.service", check=False)
    host.run("journalctl", "--sync")
    own = [entry for entry in host.journal("puller.service") if entry["SYSLOG_IDENTIFIER"] == "puller"]
    assert {entry["_TRANSPORT"] for entry in own} == {"stdout"}
    output = [entry["MESSAGE"] for entry in own]
    assert sum("the journal rejects entries with fields" in message for message in output) == 1
    assert sum(message.startswith("exec#no-good failed ") for message in output) == 1
    assert entries(host, "PULLER_STATE=failed") == []
