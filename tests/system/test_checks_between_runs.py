"""``puller check`` under its timer repairs manual damage, unless the host is held. Checks use real servers."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bundles.publisher.lifecycle import make_site
from bundles.publisher.publication import publish_bundle
from foundation.times import Duration
from puller.checks.kinds import HealthCheck, Http, Process, Tcp, Unix
from puller.engine.conditions import check_health
from puller.reporting.report import Health, HealthResult
from puller.system.local import LocalSystem
from tests.simulators.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.machines import Machine

UNIT = """\
[Service]
ExecStart=/usr/bin/sleep infinity
[Install]
WantedBy=multi-user.target
"""
MANIFEST = """\
resources:
  - file:
      - /etc/systemd/system/greeter.service: {source: greeter.service, owner: root, group: root, mode: "0644"}
  - service:
      - greeter:
          ensure: running
          enable: true
          subscribe: [file#/etc/systemd/system/greeter.service]
          health_checks:
            - {name: up, service: {unit: greeter, enabled: true}, tries: 3}
            - {name: no other, service: {unit: no-such-unit, active: false}}
"""
CONFIGURATION = """\
site: /srv/site
bundles: [{name: greeter}]
trust_anchor: /srv/root.json
"""
OFTEN = """\
[Timer]
OnBootSec=
OnActiveSec=
OnUnitInactiveSec=
OnActiveSec=1s
OnUnitInactiveSec=1s
RandomizedDelaySec=0
AccuracySec=100ms
"""


def publish(directory: Path, disk: Path) -> None:
    site = make_site(directory / "site", None)
    source = directory / "source"
    source.mkdir()
    (source / "greeter.service").write_text(UNIT)
    (source / "manifest.yaml").write_text(MANIFEST)
    publish_bundle(site, source, lambda key: b"", name="greeter", version="1.0.0")
    shutil.copytree(site.public, disk / "srv/site")
    shutil.copy(site.anchor, disk / "srv/root.json")
    (disk / "etc/puller").mkdir()
    (disk / "etc/puller/config.yaml").write_text(CONFIGURATION)


@pytest.mark.booted
@pytest.mark.root
def test_manually_stopped_service_runs_again(debian: Machine, tmp_path: Path) -> None:
    from tests.support.machines import wait_until

    def is_active() -> bool:
        return debian.run("systemctl", "is-active", "greeter", check=False).stdout.strip() == "active"

    def check(*options: str) -> tuple[int, str]:
        done = debian.run("puller", "check", *options, check=False)
        return done.returncode, done.stdout

    publish(tmp_path, debian.root)
    debian.run("puller", "install-units")
    debian.run("systemctl", "daemon-reload")
    assert check()[0] == 3  # no bundle is enforced yet
    debian.run("puller", "run")
    status, output = check()
    assert (status, output[:33]) == (0, "PULLER OK - 2 checks OK | time=0."), output

    # Repairs are off by default.
    assert (
        debian.run("systemctl", "is-enabled", "puller-check.timer", check=False).stdout.strip() == "disabled"
    )
    debian.run("systemctl", "stop", "greeter")
    status, output = check()
    assert status == 2
    assert (
        "greeter.service is inactive (dead), expected active" in output
        or "greeter is inactive (dead)" in output
    )
    assert not is_active()

    # No repairs while an operator has disabled runs.
    drop_in = debian.root / "etc/systemd/system/puller-check.timer.d/often.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(OFTEN)
    debian.run("puller", "disable", "--reason", "migration")
    debian.run("systemctl", "daemon-reload")
    debian.run("systemctl", "enable", "--now", "puller-check.timer")

    def journal() -> str:
        debian.run("journalctl", "--sync")
        return debian.run("journalctl", "-u", "puller-check", "-o", "cat", "--no-pager").stdout

    wait_until(lambda: journal().count("no run was made: disabled") >= 2, "it was asked twice", 60, journal)
    assert not is_active()

    debian.run("puller", "enable")
    wait_until(is_active, "the service runs again", 60, journal)
    wait_until(lambda: "a run was made, which changed 1 resource" in journal(), "it is said", 60, journal)
    wait_until(lambda: "PULLER OK - 2 checks OK |" in journal(), "all is in order", 60, journal)
    debian.run("systemctl", "stop", "puller-check.timer")

    # Damage outside the manifest, which no run repairs.
    debian.run("systemd-run", "--unit=no-such-unit", "sleep", "600")
    status, output = check("--run")
    assert status == 2, output
    assert "no-such-unit is active (running), expected inactive" in output
    assert "a run was made, which changed nothing (exit status 4)" in output


# --- real servers -------------------------------------------------------------------------------------------

TLS = """\
server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {identity};
    ssl_certificate_key {identity};
    root {root};
    location /down {{ return 503; }}
    location /old {{ return 301 /page.json; }}
    location /slow {{ limit_rate 10; }}
}}
"""


def asked(timeout: float = 20.0, **kind: Any) -> HealthResult:
    return check_health(HealthCheck(timeout=Duration(timeout), **kind), LocalSystem())


@pytest.mark.nginx
def test_nginx_with_tls(tmp_path: Path) -> None:
    from tests.support.nginx import NGINX, Nginx

    authority = Authority(tmp_path)
    identity = authority.identity("127.0.0.1", timedelta(days=20))
    root, work = tmp_path / "www", tmp_path / "nginx"
    (root / "slow").mkdir(parents=True)
    work.mkdir()
    (root / "page.json").write_text('{"state": "up"}')
    (root / "slow/page").write_bytes(b"x" * 10_000)
    server = Nginx(root, work)
    user = "user root;" if os.geteuid() == 0 else ""
    block = TLS.format(port=server.port, identity=identity, root=root)
    (work / "nginx.conf").write_text(NGINX.format(user=user, work=work, server=block))
    server.start()

    def https(path: str, timeout: float = 20.0, **additional: Any) -> HealthResult:
        url = f"https://127.0.0.1:{server.port}{path}"
        return asked(timeout, http=Http(url=url, ca_bundle=str(authority.bundle), **additional))

    try:
        assert https("/page.json", contains="up", certificate_days=10).status is Health.OK
        assert https("/page.json", method="HEAD", status=200).status is Health.OK
        assert https("/old", redirects=2, contains="up").status is Health.OK
        assert "the status is 301" in https("/old").output
        assert "the status is 503" in https("/down").output
        assert "the status is 404" in https("/none").output
        assert "valid for 20.0 days, expected 60" in https("/page.json", certificate_days=60).output
        assert https("/slow/page", 1.0).status is Health.UNKNOWN
        own = asked(http=Http(url=f"https://127.0.0.1:{server.port}/page.json"))
        assert "the certificate is not valid" in own.output
        plain = asked(http=Http(url=f"http://127.0.0.1:{server.port}/"))
        assert "the status is 400" in plain.output
        assert asked(process=Process(pidfile=str(work / "pid"), name="nginx")).status is Health.OK
    finally:
        server.stop()
    assert "accepts no connection" in https("/page.json").output


@pytest.fixture
def postgres() -> Iterator[tuple[Path, int]]:
    """Yield the directory of a private PostgreSQL and its port."""
    places = [f"{os.environ['PATH']}", *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    program = shutil.which("postgres", path=":".join(places))
    initdb = shutil.which("initdb", path=":".join(places))
    assert program, "PostgreSQL is not installed (Debian: apt-get install postgresql)"
    assert initdb
    directory = Path(tempfile.mkdtemp(prefix="puller-postgres-"))
    user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    if user:
        os.chown(directory, pwd.getpwnam(user).pw_uid, -1)
    data = directory / "data"
    as_user: dict[str, Any] = {
        "user": user,
        "cwd": directory,
        "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"},
    }
    subprocess.run(
        [initdb, "-D", data, "-U", "postgres", "-A", "trust", "-N"],
        check=True,
        capture_output=True,
        **as_user,
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [
        "-D",
        str(data),
        "-p",
        str(port),
        "-k",
        str(directory),
        "-c",
        "listen_addresses=127.0.0.1",
        "-F",
    ]
    with subprocess.Popen([program, *options], stderr=subprocess.DEVNULL, **as_user) as process:
        try:
            yield directory, port
        finally:
            process.send_signal(2)
            process.wait(60)
            shutil.rmtree(directory)


@pytest.mark.nginx
def test_postgresql_by_tcp_and_by_its_socket(postgres: tuple[Path, int]) -> None:
    directory, port = postgres
    path = str(directory / f".s.PGSQL.{port}")
    ready = HealthCheck(unix=Unix(path=path), tries=100, try_sleep=Duration(0.1))
    assert check_health(ready, LocalSystem()).status is Health.OK
    assert asked(tcp=Tcp(address=f"127.0.0.1:{port}")).status is Health.OK
    running = Process(pidfile=str(directory / "data/postmaster.pid"), name="postgres")
    assert asked(process=running).status is Health.OK
    # The server waits for its client's first message.
    assert not asked(1.0, tcp=Tcp(address=f"127.0.0.1:{port}", greets="hello")).status.in_order
    assert re.search("accepts no connection", asked(unix=Unix(path=f"{path}0")).output)
