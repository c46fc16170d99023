"""Nine configurations of ``examples/configurations`` on freshly booted Debians, applied twice each.

The second run must find everything in sync. Only values that an operator would set differ from the examples: free
ports, large packages, and files on foreign servers.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.support.machines import Completed, Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

EXAMPLES = Path(__file__).parents[2] / "examples/configurations"
SOURCES = ("debian", "debian-security")
CHANGED, FAILED = 2, 4
Copied = Callable[[Path], contextlib.AbstractContextManager[Path]]
Made = Callable[..., contextlib.AbstractContextManager[Path]]


class Configured:
    """A machine on which examples are applied."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        shutil.copytree(EXAMPLES, machine.root / "srv/configurations")

    def apply(self, name: str, data: dict[str, Any], *options: str) -> Completed:
        (self.machine.root / "srv/data.yaml").write_text(yaml.safe_dump({"data": data}))
        command = ("puller", "apply", f"/srv/configurations/{name}", "--data", "/srv/data.yaml")
        return self.machine.run(*command, "--detailed-exitcodes", *options, check=False, timeout=900)

    def assert_keeps(self, name: str, data: dict[str, Any] | None = None, *options: str) -> None:
        """Assert that a dry run predicts no failure, that a run makes changes, and that the next run makes none."""
        for status, extra in ((CHANGED, ["--noop"]), (CHANGED, []), (0, [])):
            done = self.apply(name, data or {}, *options, *extra)
            output = (
                f"{name} {extra}: exit {done.returncode}\n{done.stdout}{done.stderr}\n{self.machine.say()}"
            )
            assert done.returncode == status, output
            assert " failed" not in done.stdout, output

    def says(self, command: str) -> str:
        return self.machine.run("sh", "-c", command).stdout


@pytest.fixture
def configured(debian_tree: Path, copied: Copied) -> Iterator[Configured]:
    """A machine on this machine's network, to install packages."""
    from tests.support.machines import powered_on

    with copied(debian_tree) as disk:
        keep_the_clock(disk)
        with powered_on(disk) as machine:
            machine.run("apt-get", "update")
            machine.run("apt-get", "-qq", "install", "curl")
            yield Configured(machine)


@pytest.fixture
def isolated(debian_tree: Path, copied: Copied, debian_with: Made, run_checked: Callable[..., Any]) -> Any:
    """A machine with its own network, firewall and parameters. Its packages are installed before."""

    @contextlib.contextmanager
    def of_12(*packages: str) -> Iterator[Path]:
        with copied(debian_tree) as disk:
            inside = ("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe")
            where = (f"--directory={disk}", "--setenv=DEBIAN_FRONTEND=noninteractive")
            run_checked(*inside, *where, "apt-get", "update")
            run_checked(*inside, *where, "apt-get", "-qq", "install", *packages)
            yield disk

    @contextlib.contextmanager
    def boot(*packages: str, codename: str = "bookworm") -> Iterator[Configured]:
        from tests.support.machines import powered_on

        is_12 = codename == "bookworm"
        with of_12(*packages) if is_12 else debian_with(*packages, codename=codename) as disk:
            keep_the_clock(disk)
            with powered_on(disk, "--private-network") as machine:
                yield Configured(machine)

    return boot


def keep_the_clock(disk: Path) -> None:
    """Replace daemons that would set the clock, which the machine shares with this one."""
    for unit in ("ntpsec", "chrony", "systemd-timesyncd"):
        path = disk / f"etc/systemd/system/{unit}.service.d/clock.conf"
        path.parent.mkdir(parents=True)
        path.write_text(
            "[Unit]\nConditionCapability=\n[Service]\nType=exec\nExecStart=\nExecStart=sleep infinity\n"
        )


def free() -> int:
    from tests.support.nginx import free_port

    return free_port()


def test_machines_that_serve(configured: Configured) -> None:
    web, proxied, ssh = (str(free()) for _ in range(3))
    configured.assert_keeps("ntp")
    assert configured.says("readlink /etc/localtime") == "/usr/share/zoneinfo/Etc/UTC\n"

    vhosts = {"shop": {"listen": web}, "blog": {"listen": proxied}}
    configured.says("mkdir -p /srv/www/shop && echo open > /srv/www/shop/index.html")
    configured.assert_keeps("nginx", {"vhosts": vhosts})
    assert configured.says(f"curl -fsS -H 'Host: shop.example.com' http://127.0.0.1:{web}/") == "open\n"
    started = configured.machine.show("nginx", "ActiveEnterTimestampMonotonic")
    broken = configured.apply("nginx", {"vhosts": vhosts, "keepalive_timeout": "soon"})
    assert broken.returncode == FAILED
    assert '"keepalive_timeout" directive invalid value' in broken.stdout
    assert "soon" not in configured.says("cat /etc/nginx/nginx.conf")
    assert configured.apply("nginx", {"vhosts": {**vhosts, "blog": {"listen": web}}}).returncode == CHANGED
    assert configured.machine.show("nginx", "ActiveEnterTimestampMonotonic") == started, "it was reloaded"

    configured.assert_keeps("local-users")
    assert configured.says("id -nG ann").split() == ["ann", "adm", "sudo", "wheel"]
    assert configured.says("stat -c '%U %a' /home/ann/.ssh/authorized_keys") == "ann 600\n"
    configured.assert_keeps("security", {"sshd": {"Port": ssh}})
    assert f"port {ssh}\n" in configured.says("sshd -T")
    assert "(ALL) NOPASSWD: ALL\n" in configured.says("grep ^deploy /etc/sudoers")


def test_an_agent_out_of_an_archive(configured: Configured) -> None:
    machine, name = configured.machine, "node_exporter-9.9.9.linux-amd64"
    program = machine.root / "srv/www" / name / "node_exporter"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexec sleep infinity\n")
    program.chmod(0o755)
    archive = machine.root / f"srv/www/v9.9.9/{name}.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(program.parent, name)
    port = free()
    machine.run(
        "systemd-run", "python3", "-m", "http.server", "--directory=/srv/www", "--bind=127.0.0.1", str(port)
    )
    data = {
        "version": "9.9.9",
        "site": f"http://127.0.0.1:{port}",
        "checksums": {"amd64": hashlib.sha256(archive.read_bytes()).hexdigest()},
    }
    configured.assert_keeps("node-exporter", data)
    assert machine.show("node_exporter", "ActiveState", "User") == {
        "ActiveState": "active",
        "User": "node-exp",
    }
    assert configured.says("getent passwd node-exp | cut -d: -f6,7") == "/:/usr/sbin/nologin\n"
    configured.assert_keeps("ntp-tree")


PARAMETERS = yaml.safe_load((EXAMPLES / "os-hardening/sysctl.yaml").read_text())["data"]["parameters"]


def parameters_of(configured: Configured) -> dict[str, Any]:
    """Return the current values of parameters that a container cannot change, or cannot even see."""
    result = {}
    for key in PARAMETERS:
        path = "/proc/sys/" + key.replace(".", "/")
        done = configured.machine.run("sh", "-c", f"cat {path}; [ -w {path} ]", check=False)
        if done.returncode:
            result[key] = done.stdout.strip() or None
    return result


@pytest.mark.parametrize("codename", ["bookworm", "trixie"], ids=["Debian 12", "Debian 13"])
def test_a_hardened_machine(isolated: Any, codename: str) -> None:
    packages = ("openssh-server", "libpam-pwquality", "nano")
    with isolated(*packages, codename=codename) as configured:
        harden(configured)


def harden(configured: Configured) -> None:
    machine, ssh = configured.machine, free()
    machine.run("useradd", "--create-home", "--password", "$6$salt$hash", "ann")
    (machine.root / "home/ann/.rhosts").write_text("+\n")
    hardened = {"ssh": {"ports": [ssh]}}
    configured.assert_keeps("ssh-hardening", hardened)
    parameters = {"parameters": parameters_of(configured)}
    configured.assert_keeps("os-hardening", parameters)
    assert configured.says("stat -c %a /home/ann /etc/cron.daily") == "700\n700\n"
    assert not (machine.root / "home/ann/.rhosts").exists()
    assert (
        configured.says("chage -l ann | grep ^Maximum")
        == "Maximum number of days between password change\t\t: 60\n"
    )
    assert "-rwxr-xr-x" in configured.says("ls -l /usr/bin/chsh")
    assert "hidepid" in configured.says("grep ' /proc ' /proc/mounts")
    assert machine.show("ssh.socket", "LoadState") == {"LoadState": "masked"}

    before = configured.says("cat /etc/ssh/sshd_config")
    wrong = configured.apply("ssh-hardening", {"ssh": {"ports": [ssh], "custom": ["PermitRootLogon no"]}})
    assert wrong.returncode == FAILED
    assert "Bad configuration option: PermitRootLogon" in wrong.stdout
    assert configured.says("cat /etc/ssh/sshd_config") == before
    assert configured.says("ls -A /etc/ssh | grep -c new || true") == "0\n"

    assert configured.apply("os-hardening", parameters).returncode == 0
    timed = "python3 -c 'import resource,subprocess,sys; subprocess.run(sys.argv[1:], check=True);"
    timed += " print(sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]))'"
    command = "puller apply /srv/configurations/os-hardening --data /srv/data.yaml"
    seconds = configured.says(f"{timed} {command}").splitlines()[-1]
    print(f"no-change run of os-hardening: {float(seconds):.3f} s of CPU")


def test_a_login_machine_of_a_group(isolated: Any) -> None:
    packages = "bc curl less tree acct cron nftables git krb5-user libpam-krb5 libnss-ldapd ldap-utils locales rsyslog"
    with isolated(
        *packages.split(), "zsh", "tcsh", "openssh-server", "sudo", "chrony", "pwgen", "units"
    ) as configured:
        log_in(configured)


def log_in(configured: Configured) -> None:
    machine = configured.machine
    repository = machine.root / "srv/utilities"
    machine.run("git", "init", "-q", "-b", "main", "/srv/utilities")
    (repository / "how").write_text("#!/bin/sh\n")
    commit = ("git", "-C", "/srv/utilities", "-c", "user.name=n", "-c", "user.email=n@example.com")
    machine.run(*commit, "add", "how")
    machine.run(*commit, "commit", "-qm", "First")
    (machine.root / "etc/puller/facts.d").mkdir(parents=True, exist_ok=True)
    (machine.root / "etc/puller/facts.d/node.yaml").write_text("node_type: staffvm\ncluster: none\n")
    data = {
        "owner": "ann",
        "utilities": "file:///srv/utilities",
        "parameters": {"kernel.unprivileged_bpf_disabled": None, "kernel.printk": None},
        "sources": dict.fromkeys(SOURCES),  # this network does not reach them
        "wanted": ["bc", "curl", "less", "tree"],
        "names": ["pwgen", "units"],
    }
    configured.assert_keeps("staff-vm", data)
    assert configured.says("readlink -e /usr/local/bin/how") == "/opt/share/utilities/how\n"
    assert configured.says("id -nG ann").split() == ["ann", "adm", "sudo"]
    assert "tcp dport 22 accept" in configured.says("nft list ruleset")
    text = configured.says("cat /etc/ssh/sshd_config")
    assert text.index("GSSAPIAuthentication yes") < text.index("Match Group sudo")
    machine.run(*commit, "commit", "-q", "--allow-empty", "-m", "Second")
    assert configured.apply("staff-vm", data).returncode == CHANGED
    assert re.search(r"^LANG=.?en_US.UTF-8", configured.says("cat /etc/default/locale"), re.MULTILINE)
    yaml.safe_load(configured.says("cd / && puller state user ann"))
