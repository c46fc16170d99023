"""The repository of docs/composing.md on its three kinds of machines, published by one command.

Runs on freshly booted Debians with real packages. Each has a copy of the site, as from a USB drive. Only values that an
operator would set differ from the example: the names of the machines, and free ports.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

EXAMPLE = Path(__file__).parents[2] / "examples/site"
CHANGED = 2

Execute = Callable[..., tuple[int, str]]
Copied = Callable[[Path], contextlib.AbstractContextManager[Path]]


class Repository:
    """A copy of the example, and its site."""

    def __init__(self, directory: Path, execute: Execute) -> None:
        self.directory, self.site = directory / "repository", directory / "site"
        self._execute = execute
        shutil.copytree(EXAMPLE, self.directory)
        self._puller("site", "init", str(self.site), "--no-passphrase")

    def publish(self) -> str:
        """Return the output of ``puller site publish site bundles/* --version auto``."""
        bundles = sorted(map(str, self.directory.glob("bundles/*")))
        return self._puller("site", "publish", str(self.site), *bundles, "--version", "auto")

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.directory / name
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))

    def deploy(self, disk: Path) -> None:
        shutil.rmtree(disk / "srv/site", ignore_errors=True)
        shutil.copytree(self.site / "public", disk / "srv/site")

    def _puller(self, *words: str) -> str:
        status, output = self._execute(*words)
        assert status == 0, output
        return output


class Kept:
    """A machine with a role."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def run(self, *options: str) -> Completed:
        return self.machine.run("puller", "run", "--detailed-exitcodes", *options, check=False, timeout=300)

    def assert_runs(self, *statuses: int) -> None:
        for status in statuses:
            done = self.run()
            assert done.returncode == status, done.stdout + done.stderr + self.machine.say()

    def says(self, command: str) -> str:
        return self.machine.run("sh", "-c", command).stdout


@pytest.fixture
def repository(tmp_path: Path, execute: Execute) -> Repository:
    """The repository, published from its first commit on."""
    made = Repository(tmp_path, execute)
    assert made.publish().startswith("base 1.0.0 (new)\nshop 1.0.0 (new)\n")
    return made


@pytest.fixture
def booted(debian_tree: Path, copied: Copied, repository: Repository) -> Any:
    """A machine with its own role, bundles and data, before its first run."""

    @contextlib.contextmanager
    def boot(role: str, bundles: list[str], data: dict[str, Any]) -> Iterator[Kept]:
        from tests.support.machines import powered_on

        with copied(debian_tree) as disk:
            name = f"{role}01.example.com"
            configuration = {"site": "/srv/site", "bundles": [{"name": bundle} for bundle in bundles]}
            files = {
                "etc/hostname": f"{name}\n",
                "etc/hosts": f"127.0.0.1 localhost {name}\n",
                "etc/puller/config.yaml": yaml.safe_dump(configuration),
                "etc/puller/data.yaml": yaml.safe_dump({"data": data}),
                "etc/puller/facts.d/site.yaml": f"role: {role}\n",
            }
            for path, text in files.items():
                (disk / path).parent.mkdir(parents=True, exist_ok=True)
                (disk / path).write_text(text)
            shutil.copy(repository.site / "root.json", disk / "etc/puller/root.json")
            repository.deploy(disk)
            with powered_on(disk) as machine:
                machine.run("apt-get", "update")
                yield Kept(machine)

    return boot


def ports(count: int) -> list[int]:
    from tests.support.nginx import free_port

    return [free_port() for _ in range(count)]


def test_a_web_server_has_the_sites_of_another_team(booted: Any, repository: Repository) -> None:
    web, status, ssh = ports(3)
    data = {"shop": {"listen": str(web)}, "nginx": {"status": f"127.0.0.1:{status}"}, "ssh": {"port": ssh}}
    with booted("web", ["base", "shop"], data) as host:
        predicted = host.run("--noop")
        assert (predicted.returncode, "failed" in predicted.stdout) == (CHANGED, False), predicted.stdout
        host.assert_runs(CHANGED, 0)
        fetch = f"curl -fsS -H 'Host: shop.example.com' http://127.0.0.1:{web}/"
        assert "<h1>The shop</h1>" in host.says(fetch)
        assert "Active connections" in host.says(f"curl -fsS http://127.0.0.1:{status}/")
        repository.edit(
            "bundles/shop/manifest.yaml",
            "sale.example.com: {title: Winter sale}",
            "new.example.com: {title: New}",
        )
        assert "base unchanged (1.0.0)\nshop 1.0.1 " in repository.publish()
        repository.deploy(host.machine.root)
        host.assert_runs(CHANGED, 0)
        assert "<h1>New</h1>" in host.says(fetch.replace("shop.", "new."))
        enforced = json.loads(host.says("puller status --format json"))["bundles"]
        assert [bundle["enforced"] for bundle in enforced] == ["1.0.0", "1.0.1"]


def test_a_database_host_has_its_databases(booted: Any) -> None:
    ssh, port = ports(2)
    with booted("db", ["base"], {"ssh": {"port": ssh}, "postgresql": {"settings": {"port": port}}}) as host:
        host.assert_runs(CHANGED, 0)
        psql = f"cd / && runuser -u postgres -- psql -p {port} -At"
        assert "stock|shop|" in host.says(f"{psql} -l")
        assert host.says(f"{psql} -c 'show max_connections'") == "200\n"


def test_people_log_in_to_a_machine_of_theirs(booted: Any) -> None:
    (ssh,) = ports(1)
    with booted("login", ["base"], {"ssh": {"port": ssh}}) as host:
        host.assert_runs(CHANGED, 0)
        assert "staff" in host.says("id -nG joe")
        assert "allowgroups root\nallowgroups sudo\nallowgroups staff\n" in host.says("sshd -T")
        assert "ann@laptop" in host.says("cat /etc/ssh/authorized_keys.d/ann")
        assert host.says("cat /etc/motd") == "This is login01.example.com, role: login.\n"
        (host.machine.root / "run").mkdir(exist_ok=True)
        host.says("touch /run/reboot-required")
        host.assert_runs(CHANGED, 0)
        assert "Restart required.\n" in host.says("cat /etc/motd")
