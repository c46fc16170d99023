"""The commands of the documents on bare machines: an installation, a site, an application with five releases.

The machine is a freshly booted Debian 13, and with ``--thorough`` a Debian 12, too. It has a clone and the packages
that the README lists.
The application is an archive with its version in its name, a configuration from a template, a unit with a drop-in, and
a health check with `curl`. The third of five releases fails its check with 404, the fourth adds the first drop-in of
the unit, and the fifth removes it. Then `puller site back` runs. After each step, `puller status`, the journal, the
disk and the application must agree.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import socket
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

ROOT = Path(__file__).parents[2]
DOCUMENTS = "".join(
    (ROOT / name).read_text() for name in ("README.md", "docs/installing.md", "docs/pushing.md")
)
PACKAGES = ("ca-certificates", "nginx-light")
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
STATUS_GIVEN_UP = 7

SERVE = """\
#!/usr/bin/python3
import configparser, http.server, os, socket

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(ANSWER)
        self.end_headers()
        self.wfile.write(f"VERSION {os.environ.get('COLOUR', 'plain')} {greeting}\\n".encode())

settings = configparser.ConfigParser()
settings.read("/etc/app/app.conf")
greeting = settings["app"]["greeting"]
server = http.server.HTTPServer(("127.0.0.1", settings["app"].getint("port")), Handler)
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
    manager.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
server.serve_forever()
"""
UNIT = """\
[Service]
Type=notify
ExecStart=/opt/app/bin/serve
[Install]
WantedBy=multi-user.target
"""
DROP_IN = """\
[Service]
Environment=COLOUR=green
"""
MANIFEST = """\
data: {port: PORT, greeting: hello, checksum: CHECKSUM}
resources:
  - package:
      - curl: {}
  - file:
      - defaults: {owner: root, group: root, mode: "0644"}
      - /etc/app: {ensure: directory, mode: "0755"}
      - /etc/app/app.conf: {template: templates/app.conf.j2}
      - /etc/systemd/system/app.service: {source: files/app.service}
      - /etc/systemd/system/app.service.d: {ensure: directory, mode: "0755"}
      - /etc/systemd/system/app.service.d/colour.conf: {DROP_IN}
  - archive:
      - /var/cache/app-VERSION.tar.gz:
          url: http://127.0.0.1:WEB/releases/app-VERSION.tar.gz
          checksum: "{{ data.checksum }}"
          extract_parent: /opt/app
          creates: /opt/app/bin/serve
          cleanup: true
          owner: root
          group: root
  - service:
      - app:
          ensure: running
          enable: true
          subscribe:
            - file#/etc/app/app.conf
            - file#/etc/systemd/system/app.service
            - file#/etc/systemd/system/app.service.d/colour.conf
            - archive#/var/cache/app-VERSION.tar.gz
          health_checks:
            - {name: web, command: "curl -fsS http://127.0.0.1:PORT/health"}
"""
TEMPLATE = """\
[app]
port = {{ data.port }}
greeting = {{ data.greeting }} from {{ facts.os.distro.codename }}
"""
CONFIGURATION = """\
site: http://127.0.0.1:WEB/
bundles:
  - name: app
"""


def readme(beginning: str) -> str:
    """Return the first command of the documents with this beginning, without its comment."""
    lines = (line.strip() for line in DOCUMENTS.splitlines() if line.startswith(f"    {beginning}"))
    return re.sub(r"\s+#.*", "", next(lines))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Use Debian 13. The gate runs the README's other commands under Debian 12, on which it needs to run."""
    if "bare_debian" in metafunc.fixturenames:
        names = ("trixie", "bookworm") if metafunc.config.option.thorough else ("trixie",)
        metafunc.parametrize("bare_debian", names, indirect=True)


@pytest.fixture
def bare_debian(
    request: pytest.FixtureRequest, bare_tree: Callable[[str], Path]
) -> Iterator[tuple[str, Path]]:
    """Return the disk of a bare Debian with a web server and a clone in /root/puller, and its release's name."""
    from tests.support.machines import copied, install, run_checked

    with copied(bare_tree(request.param)) as root:
        install(root, *PACKAGES)
        shutil.copyfile(
            AUTHORITIES, f"{root}{AUTHORITIES}"
        )  # this machine may need a proxy to reach the index
        run_checked("git", "clone", "--quiet", "--no-hardlinks", ROOT, root / "root/puller")
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        yield request.param, root


def free_ports(count: int) -> list[int]:
    """Return unused ports of loopback. The machine shares this machine's network."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports


class Story:
    """A machine that publishes, serves and applies bundles, all by the README's commands."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.web, self.port = free_ports(2)

    def type_in(self, command: str, timeout: float = 300, check: bool = True) -> Completed:
        """Type a line into a shell in the clone, with this machine's settings for pip."""
        passed = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT_"))}
        passed |= {"PULLER_PASSPHRASE": "correct horse battery staple"}
        words = [f"{name}={value}" for name, value in passed.items()]
        shell = ("env", *words, "bash", "-c", f"cd /root/puller && {command}")
        return self.machine.run(*shell, timeout=timeout, check=check)

    def install(self) -> None:
        self.type_in("apt-get update && apt-get install -y --no-install-recommends git python3-venv")
        self.type_in(readme("python3 -m venv /opt/puller && "), timeout=600)
        self.type_in(readme("/opt/puller/bin/pip install --no-deps ."), timeout=600)
        self.type_in(readme("ln -s /opt/puller/bin/puller"))

    def serve(self) -> None:
        """Start nginx with the README's server block."""
        from tests.support.nginx import documented_server

        self.type_in("mkdir -p /srv/www/puller/releases && rm /etc/nginx/sites-enabled/*")
        block = documented_server(self.web, Path("/srv/www/puller"))
        (self.machine.root / "etc/nginx/sites-enabled/puller").write_text(block)
        self.type_in("systemctl restart nginx")

    def set_up_host(self) -> None:
        self.type_in(readme("puller site init"))
        self.type_in(f"{readme('mkdir -p /etc/puller')} && cp site/root.json /etc/puller/root.json")
        self._write("etc/puller/config.yaml", CONFIGURATION.replace("WEB", str(self.web)))
        self.type_in(readme("puller install-units"))
        self.type_in("systemctl daemon-reload")

    def publish(self, version: str, answer: int = 200, drop_in: bool = False) -> None:
        """Publish a release of the application and the bundle that installs it."""
        built = pack_application(version, answer)
        (self.machine.root / f"srv/www/puller/releases/app-{version}.tar.gz").write_bytes(built)
        text = (
            MANIFEST.replace("VERSION", version).replace("PORT", str(self.port)).replace("WEB", str(self.web))
        )
        text = text.replace("CHECKSUM", hashlib.sha256(built).hexdigest())
        text = text.replace("{DROP_IN}", "{source: files/colour.conf}" if drop_in else "{ensure: absent}")
        self._write("root/puller/app/manifest.yaml", text)
        self._write("root/puller/app/templates/app.conf.j2", TEMPLATE)
        self._write("root/puller/app/files/app.service", UNIT)
        self._write("root/puller/app/files/colour.conf", DROP_IN)
        line = readme("puller site publish site web").replace(" web ", " app ")
        line = re.sub(r"--version \S+", f"--version {version}", line)
        self.type_in(line)
        self.deploy()

    def deploy(self) -> None:
        self.type_in(readme("puller site push site").replace("www:", ""))

    def run(self) -> int:
        """Run the timer's service once and return its exit status."""
        self.machine.run("systemctl", "start", "puller.service", check=False, timeout=300)
        self.machine.run("systemctl", "reset-failed", "puller.service", check=False)
        report = (self.machine.root / "var/lib/puller/last-run.json").read_bytes()
        status: int = json.loads(report)["exit_status"]
        return status

    def status(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.type_in("puller status --format json").stdout)
        return result

    def assert_enforces(self, version: str, colour: str = "plain") -> None:
        """Assert that ``puller status``, the journal, the disk and the application agree, and that all is in sync."""
        said_before = len(self.journal())
        status = self.run()
        output = "\n".join(self.journal()[said_before:])
        assert status == self.status()["last_run"]["exit_status"], output
        assert self.states() == {"stable"}, output
        assert self.status()["bundles"][0]["enforced"] == version
        assert f"app {version}: " in output
        assert f'"{version} ' in (self.machine.root / "opt/app/bin/serve").read_text()
        answer = self.type_in(f"curl -fsS http://127.0.0.1:{self.port}/health").stdout
        assert answer.startswith(f"{version} {colour} hello from "), answer

    def states(self) -> set[str]:
        """Return the states of all resources in the last run."""
        report = json.loads((self.machine.root / "var/lib/puller/last-run.json").read_bytes())
        states = ("stable", "changed", "refreshed", "failed", "skipped")
        return {state for bundle in report["bundles"] for state in states if bundle["summary"][state]}

    def journal(self) -> list[str]:
        """Return the journal lines of the service."""
        return [str(entry["MESSAGE"]) for entry in self.machine.journal("puller.service")]

    def _write(self, path: str, text: str) -> None:
        target = self.machine.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def pack_application(version: str, answer: int) -> bytes:
    """Create the application's archive."""
    program = SERVE.replace("VERSION", version).replace("ANSWER", str(answer)).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("bin/serve")
        member.size, member.mode = len(program), 0o755
        archive.addfile(member, io.BytesIO(program))
    return packed.getvalue()


def test_application_survives_its_releases_and_rollback(
    bare_debian: tuple[str, Path],
) -> None:
    from tests.support.machines import powered_on

    codename, root = bare_debian
    with powered_on(root) as machine:
        story = Story(machine)
        story.install()
        story.serve()
        story.set_up_host()

        story.publish("1.0.0")
        assert story.run() == 0, "\n".join(story.journal())
        assert codename in story.type_in(f"curl -fsS http://127.0.0.1:{story.port}/").stdout
        story.assert_enforces("1.0.0")

        story.publish("1.1.0")
        assert story.run() == 0, "\n".join(story.journal())
        story.assert_enforces("1.1.0")

        story.publish("1.2.0", answer=404)
        assert story.run() == STATUS_GIVEN_UP, "\n".join(story.journal())
        expected = r"1\.2\.0 is given up: service#app: health check web: exit status 22: curl: \(22\) The requested URL"
        assert re.search(expected, "\n".join(story.journal()))
        assert "app 1.2.0" in story.type_in("puller quarantine list").stdout
        story.assert_enforces("1.1.0")

        story.publish("1.3.0", drop_in=True)
        assert story.run() == 0, "\n".join(story.journal())
        story.assert_enforces("1.3.0", "green")

        story.publish("1.4.0")
        assert story.run() == 0, "\n".join(story.journal())
        story.assert_enforces("1.4.0")

        story.type_in("puller site back site app --version 1.3.0")
        story.deploy()
        assert story.run() == 0, "\n".join(story.journal())
        story.assert_enforces("1.3.0", "green")

        story.type_in("systemctl enable --now puller.timer")
        assert machine.show("puller.timer", "ActiveState")["ActiveState"] == "active"
