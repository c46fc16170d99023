"""The configurations of ``examples/configurations`` on freshly booted Debians, applied twice each.

The second run must find everything in sync. Only values that an operator would set differ from the examples: free
ports, large packages, parameters that a container cannot change, and files on foreign servers.

``pytest --everything -n0 -s tests/system/test_configurations.py`` prints the CPU time of each second run.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import resource
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
            before = seconds_of_children()
            done = self.apply(name, data or {}, *options, *extra)
            seconds = seconds_of_children() - before
            output = (
                f"{name} {extra}: exit {done.returncode}\n{done.stdout}{done.stderr}\n{self.machine.say()}"
            )
            assert done.returncode == status, output
            assert " failed" not in done.stdout, output
        print(f"{name}: second run: {seconds:.1f} s of CPU. {done.stdout.splitlines()[-1]}")

    def says(self, command: str) -> str:
        return self.machine.run("sh", "-c", command).stdout


def seconds_of_children() -> float:
    """Return the CPU time of all ended processes that this process started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.fixture
def configured(debian_tree: Path, copied: Copied) -> Iterator[Configured]:
    """A machine on this machine's network, to install packages."""
    from tests.support.machines import powered_on

    with copied(debian_tree) as disk:
        keep_the_clock(disk)
        do_not_sync(disk)
        with powered_on(disk) as machine:
            machine.run("apt-get", "update")
            machine.run("apt-get", "-qq", "install", "curl")
            yield Configured(machine)


ARCHIVES = (
    "containerd cron docker.io fonts-dejavu haproxy htop libsasl2-modules logrotate memcached nano"
    " nftables postfix postgresql-15 sudo systemd-timesyncd tmux"
)


@pytest.fixture(scope="module")
def unconnected(debian_tree: Path, copied: Copied) -> Iterator[Configured]:
    """A machine with its own network, firewall and parameters, which installs packages from its own disk."""
    from tests.support.machines import powered_on

    with copied(debian_tree) as disk:
        keep_the_clock(disk)
        do_not_sync(disk)
        run_in(disk, "apt-get", "update")
        run_in(disk, "apt-get", "-qq", "install", "curl", "procps")
        keep = "APT::Keep-Downloaded-Packages=true"
        run_in(disk, "apt-get", "-qq", "install", "--download-only", "-o", keep, *ARCHIVES.split())
        make_local_source(disk)
        with powered_on(disk, "--private-network") as machine:
            yield Configured(machine)


@pytest.fixture
def isolated(debian_tree: Path, copied: Copied, debian_with: Made) -> Any:
    """A machine with its own network, firewall and parameters. Its packages are installed before."""

    @contextlib.contextmanager
    def of_12(*packages: str) -> Iterator[Path]:
        with copied(debian_tree) as disk:
            do_not_sync(disk)
            run_in(disk, "apt-get", "update")
            run_in(disk, "apt-get", "-qq", "install", *packages)
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


def do_not_sync(disk: Path) -> None:
    """Let dpkg skip its syncs, because the disk is discarded."""
    (disk / "etc/dpkg/dpkg.cfg.d/sync").write_text("force-unsafe-io\n")


def make_local_source(disk: Path) -> None:
    """Make a repository of all packages in apt's cache. It becomes the only one of the disk."""
    repository = disk / "srv/packages"
    repository.mkdir()
    for package in disk.glob("var/cache/apt/archives/*.deb"):
        package.rename(repository / package.name)
    for pattern in ("etc/apt/sources.list*", "var/lib/apt/lists", "var/cache/apt/*.bin"):
        for path in disk.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    index_of(repository)
    (disk / "etc/apt/sources.list").write_text("deb [trusted=yes] file:/srv/packages ./\n")
    run_in(disk, "apt-get", "update")


def index_of(repository: Path) -> str:
    """Write the index of a flat repository, and return it."""
    from tests.support.machines import run_checked

    index = ""
    for package in sorted(repository.glob("*.deb")):
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        index += run_checked("dpkg-deb", "--field", package).stdout
        index += f"Filename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest}\n\n"
    (repository / "Packages").write_text(index)
    return index


def run_in(disk: Path, *command: str) -> None:
    """Run a command in a tree that is not booted, on this machine's network."""
    from tests.support.machines import run_checked

    inside = ("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", f"--directory={disk}")
    run_checked(*inside, "--setenv=DEBIAN_FRONTEND=noninteractive", *command)


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


def serve_release(machine: Machine, name: str, path: str, programs: dict[str, str]) -> dict[str, Any]:
    """Serve an archive of programs from the machine itself. Return its site, and its checksum."""
    tree = machine.root / "srv/www" / name
    tree.mkdir(parents=True)
    for program, text in programs.items():
        (tree / program).write_text(text)
        (tree / program).chmod(0o755)
    archive = machine.root / "srv/www" / path
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tree, name)
    port = free()
    machine.run(
        "systemd-run", "python3", "-m", "http.server", "--directory=/srv/www", "--bind=127.0.0.1", str(port)
    )
    return {
        "site": f"http://127.0.0.1:{port}",
        "checksum": hashlib.sha256(archive.read_bytes()).hexdigest(),
    }


def test_an_agent_out_of_an_archive(configured: Configured) -> None:
    machine, name = configured.machine, "node_exporter-9.9.9.linux-amd64"
    programs = {"node_exporter": "#!/bin/sh\nexec sleep infinity\n"}
    served = serve_release(machine, name, f"v9.9.9/{name}.tar.gz", programs)
    data = {"version": "9.9.9", "site": served["site"], "checksums": {"amd64": served["checksum"]}}
    configured.assert_keeps("node-exporter", data)
    assert machine.show("node_exporter", "ActiveState", "User") == {
        "ActiveState": "active",
        "User": "node-exp",
    }
    assert configured.says("getent passwd node-exp | cut -d: -f6,7") == "/:/usr/sbin/nologin\n"
    configured.assert_keeps("ntp-tree")


ALERTMANAGER = """\
#!/usr/bin/python3
import http.server, signal, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

signal.signal(signal.SIGHUP, lambda *_: None)
port = int(next(word for word in sys.argv if "listen-address" in word).rpartition(":")[2])
http.server.HTTPServer(("127.0.0.1", port), Answer).serve_forever()
"""
AMTOOL = """\
#!/bin/sh
test "$1" = check-config && grep --quiet '^route:' "$2" && ! grep --quiet forbidden "$2"
"""
KUBELET = """\
[Service]
EnvironmentFile=/etc/default/kubelet
ExecStart=sh -c 'test "$KUBELET_EXTRA_ARGS" && exec sleep infinity'
[Install]
WantedBy=multi-user.target
"""


def make_cluster_repository(machine: Machine, directory: str, version: str) -> str:
    """Make a signed repository of a cluster's packages on the machine, and return the path of its key.

    Debian lacks these packages.
    """
    from tests.system.test_repositories_apt import signer

    repository, tree = machine.root / directory, machine.root / "srv/tree"
    repository.mkdir(parents=True)
    for name in ("cri-tools", "kubeadm", "kubectl", "kubelet"):
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
            "Maintainer: Nobody <nobody@example.com>\nDescription: for a test\n"
        )
        if name == "kubelet":
            (tree / "usr/lib/systemd/system").mkdir(parents=True)
            (tree / "usr/lib/systemd/system/kubelet.service").write_text(KUBELET)
        machine.run("dpkg-deb", "--build", "--root-owner-group", "/srv/tree", f"/{directory}/{name}.deb")
        shutil.rmtree(tree)
    index = index_of(repository)
    digest = hashlib.sha256(index.encode()).hexdigest()
    release = f"Date: Sun, 22 Nov 2026 17:00:00 UTC\nSHA256:\n {digest} {len(index)} Packages\n"
    with signer() as key:
        (repository / "InRelease").write_bytes(key.sign(release))
        (machine.root / "srv/mirror/key.asc").write_bytes(key.public())
    return "/srv/mirror/key.asc"


def test_services_of_other_tools_configurations(unconnected: Configured) -> None:
    configured, machine = unconnected, unconnected.machine
    configured.assert_keeps("postgresql")
    query = "cd / && runuser -u postgres -- psql --no-align --tuples-only --command"
    assert "shop|shop\n" in configured.says(f"{query} 'select datname, datdba::regrole from pg_database'")
    assert configured.says(f"{query} 'show shared_buffers'") == "256MB\n"

    configured.assert_keeps("postfix")
    assert configured.says("postconf -h relayhost") == "[smtp.example.com]:587\n"
    assert (
        configured.says("postmap -q example.net texthash:/etc/postfix/transport") == "smtp:[mx.example.net]\n"
    )

    configured.assert_keeps("haproxy")
    assert configured.says("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1/ || true") == "503"
    configured.assert_keeps("memcached")
    assert machine.show("memcached-pages", "ActiveState") == {"ActiveState": "active"}
    assert machine.show("memcached", "LoadState") == {"LoadState": "masked"}
    configured.assert_keeps("log-rotation")
    assert (
        configured.says("logrotate --debug /etc/logrotate.conf 2>&1 | grep -c 'rotating pattern: /srv/shop'")
        == "1\n"
    )

    name = "alertmanager-9.9.9.linux-amd64"
    served = serve_release(machine, name, f"{name}.tar.gz", {"alertmanager": ALERTMANAGER, "amtool": AMTOOL})
    release = {"version": "9.9.9", "url": f"{served['site']}/{name}.tar.gz", "checksum": served["checksum"]}
    configured.assert_keeps("alertmanager", release)
    broken = {**release, "receivers": {"forbidden": {"email": "ops@example.com"}}}
    assert configured.apply("alertmanager", broken).returncode == FAILED
    assert "forbidden" not in configured.says("cat /etc/alertmanager/alertmanager.yml")


def test_containers_networks_and_personal_machines(unconnected: Configured) -> None:
    configured, machine = unconnected, unconnected.machine
    configured.assert_keeps("firewall", {"gateway": True})
    rules = configured.says("nft list ruleset")
    assert 'ip saddr 192.0.2.0/24 tcp dport 9100 accept comment "metrics"' in rules

    key = make_cluster_repository(machine, "srv/mirror/kubernetes/v1.31", "1.31.2-1.1")
    configured.assert_keeps("kubernetes-node", {"key": key})
    assert configured.says("apt-mark showhold").split() == ["kubeadm", "kubectl", "kubelet"]
    assert machine.show("kubelet", "ActiveState") == {"ActiveState": "active"}

    configured.assert_keeps("docker")
    assert configured.says("docker info --format '{{.LiveRestoreEnabled}}'") == "true\n"
    assert configured.says("getent group docker | cut -d: -f4") == "deploy\n"

    configured.assert_keeps("first-boot")
    assert configured.says("readlink /etc/localtime") == "/usr/share/zoneinfo/Europe/Berlin\n"
    assert configured.says("cat /etc/app/key") == "not a key\n"
    personal = {"packages": ["tmux"], "applications": []}
    configured.says("mkdir /var/lib/ansible-pull")
    configured.assert_keeps("workstation", personal)
    assert configured.says("stat -c %U /home/ann/.config/tmux/tmux.conf") == "ann\n"


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
@pytest.mark.sample(1)
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
