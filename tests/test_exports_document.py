"""``docs/exports.md``: its manifests, configuration and commands, on three web servers and a load balancer."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from puller.values.export_types import LONGEST_TEXT, MOST, MOST_ITEMS, TYPES
from tests.support.stories import Host

if TYPE_CHECKING:
    from tests.support.stories import Execute, Publisher, WebServer

PAGE = (Path(__file__).parents[1] / "docs/exports.md").read_text()
COMMANDS = re.findall(r"^\$ puller (.*)$", PAGE, re.MULTILINE)


def example(path: str) -> str:
    """Return the example that begins with a comment with this path, without the comment."""
    match = re.search(rf"^    # {re.escape(path)}\n((?:    .*\n|\n(?=    [^#]))+)", PAGE, re.MULTILINE)
    assert match, path
    return textwrap.dedent(match[1])


class Scene:
    def __init__(self, directory: Path, publisher: Publisher, web: WebServer, execute: Execute) -> None:
        self.directory, self.publisher, self.execute = directory, publisher, execute
        (directory / "reports").mkdir()
        os.symlink(publisher.site.directory, "site")
        self.hosts = {name: self._host(name, web.url, "web") for name in ("w1", "w2", "w3")}
        self.balancer = self._host("lb", web.url, "balancer")
        of_balancer = yaml.safe_load(example("/etc/puller/config.yaml of the load balancer"))
        self.balancer.configure(**of_balancer)

    def _host(self, name: str, url: str, bundle: str) -> Host:
        host = Host(self.directory / name, self.publisher.site.anchor, url, self.execute)
        reports = {"to": [str(self.directory / "reports")]}
        host.configure(host_name=name, bundles=[{"name": bundle}], reports=reports)
        facts = self.directory / name / "facts.d" / "net.json"
        facts.write_text(json.dumps({"networking": {"ip": f"192.0.2.{name[-1]}", "fqdn": name}}))
        host.machine.mkdir(parents=True)
        (host.machine / "serves").touch()
        return host

    def publish(self, version: str) -> None:
        """Publish the page's bundles, with paths of a test instead of paths of a machine."""
        for name in ("web", "balancer"):
            text = example(f"{name}/manifest.yaml")
            text = re.sub(r"/srv/www|/etc/haproxy", "{{ facts.machine }}", text)
            text = text.replace("owner: root", 'owner: "{{ facts.uid }}"').replace(
                "group: root", 'group: "{{ facts.gid }}"'
            )
            text = re.sub(r"(?m)^( *- )(\{\{ facts.machine \}\}[^:]*):", r'\1"\2":', text)
            files = {}
            if name == "balancer":
                files["templates/haproxy.cfg.j2"] = example("balancer/templates/haproxy.cfg.j2").encode()
            self.publisher.publish(version, text, name=name, files=files)

    def commands(self) -> list[str]:
        """Return the commands that the timer runs."""
        printed = []
        for line in COMMANDS[:3]:
            status, output = self.execute(*shlex.split(line.replace("/srv/reports", "reports")))
            assert status == 0, f"{line}: {output}"
            printed.append(output)
        self.publisher.deploy()
        return printed

    def servers(self) -> list[str]:
        text = (self.balancer.machine / "haproxy.cfg").read_text()
        return re.findall(r"server (\S+ \S+) check", text)


@pytest.fixture
def scene(
    tmp_path: Path,
    publisher: Publisher,
    web: WebServer,
    execute: Execute,
    monkeypatch: pytest.MonkeyPatch,
) -> Scene:
    monkeypatch.chdir(tmp_path)
    return Scene(tmp_path, publisher, web, execute)


ALL = ["w1 192.0.2.1:8080", "w2 192.0.2.2:8080", "w3 192.0.2.3:8080"]


@pytest.mark.everything
def test_server_is_removed_and_returns(scene: Scene) -> None:
    assert len(COMMANDS) == 4
    for version in ("1.0.0", "1.1.0"):
        scene.publish(version)
        for host in scene.hosts.values():
            outcome = host.run()
            assert outcome.status == 0, outcome.output
        scene.commands()
        assert scene.balancer.run().status == 0
        assert scene.servers() == ALL

        (scene.hosts["w2"].machine / "serves").unlink()
        assert scene.hosts["w2"].run().status != 0
        scene.commands()
        assert scene.balancer.run().status == 0
        assert scene.servers() == [ALL[0], ALL[2]]

        (scene.hosts["w2"].machine / "serves").touch()
        assert scene.hosts["w2"].run().status == 0
        scene.commands()
        assert scene.balancer.run().status == 0
        assert scene.servers() == ALL

    output = scene.commands()
    assert "as before" in output[1]
    assert "as it was published before" in output[2]
    assert scene.balancer.run().status == 0


def test_targets_are_readable_by_prometheus(scene: Scene) -> None:
    scene.publish("1.0.0")
    for host in scene.hosts.values():
        assert host.run().status == 0
    scene.commands()
    status, output = scene.execute(*shlex.split(COMMANDS[3]))
    assert status == 0, output
    assert json.loads(Path("targets.json").read_text()) == [
        {"labels": {"puller_bundle": "web", "puller_host": line.split()[0]}, "targets": [line.split()[1]]}
        for line in ALL
    ]


@pytest.mark.attack("exports.quoted")
def test_quoted_exports_run_and_inject_nothing(tmp_path: Path, execute: Execute) -> None:
    owned = tmp_path / "owned"
    notes = [
        f"; touch {owned}",
        f"$(touch {owned})",
        f"'; touch {owned}; '",
        f'" `touch {owned}`',
        "a: b # c",
    ]
    hosts = {f"w{number}": {"note": note} for number, note in enumerate(notes, 1)}
    (tmp_path / "exports.yaml").write_text(yaml.safe_dump({"data": {"exports": {"web": hosts}}}))
    made = {}
    for name in ("motd.sh", "motd.json"):
        template = tmp_path / f"{name}.j2"
        template.write_text(example(f"motd/templates/{name}.j2"))
        words = ("--data", str(tmp_path / "exports.yaml"), "-o", str(tmp_path / name))
        status, output = execute("render", str(template), "--engine", "jinja", *words)
        assert status == 0, output
        made[name] = (tmp_path / name).read_text()
    printed = subprocess.run(["sh", "-c", made["motd.sh"]], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [f"{host} {values['note']}" for host, values in hosts.items()]
    assert not owned.exists()
    assert json.loads(made["motd.json"]) == hosts
    assert example("what motd.sh.j2 makes of it").replace("/tmp/owned", str(owned)) in made["motd.sh"]


def test_the_tables_are_those_of_the_code() -> None:
    words = re.findall(r"^\| ((?:`[a-z0-9]+`(?:, )?)+) \| (?!is)", PAGE, re.MULTILINE)
    assert {word for line in words for word in re.findall("[a-z0-9]+", line)} == set(TYPES)
    for number in (f"{LONGEST_TEXT:,}", f"at most {MOST} values", f"at most {MOST_ITEMS} of"):
        assert number in PAGE
