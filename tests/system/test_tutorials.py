"""The tutorials on booted machines with Debian 12 and 13, command by command.

The machines have Puller from its wheel, or from packages: a repository of ``packaging/repository`` on a web server, and
the line of docs/installing.md that installs from it. There, every command must succeed. The outputs are those of the
wheel, because a package has its units in another directory.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.machines import HOSTNAME, copied, install, powered_on, remove_tree, run_checked, run_in
from tests.support.tutorials import follow
from tests.system.test_agent_packages import ROOT, Releases, releases
from tests.system.test_package_repositories import make_key

if TYPE_CHECKING:
    from tests.support.machines import Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]
__all__ = ["releases"]  # a fixture

DOCS = Path(__file__).parents[2] / "docs"
HOSTS = ("web01", "web02", "web03")


MACHINES = ("trixie", "bookworm from packages")
"""Each release and each way to install once. ``--thorough`` combines them: a machine takes minutes."""
OTHER_MACHINES = ("bookworm", "trixie from packages")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "tree" in metafunc.fixturenames:
        names = MACHINES + (OTHER_MACHINES if metafunc.config.option.thorough else ())
        metafunc.parametrize("tree", names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def tree(
    request: pytest.FixtureRequest,
    make_tree: Callable[..., Path],
    releases: Releases,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Path]:
    """Debian 12 or 13 for all tutorials and workers. Its build takes most of the time of these tests."""
    codename, _, packages = request.param.partition(" ")
    if not packages:
        yield make_tree("nginx-light", codename=codename, extra="fleet")
        return
    built = releases[codename]
    with copied(built.bare) as root:
        install_packages(root, built.first, tmp_path_factory.mktemp("repository"))
        yield root


def install_packages(root: Path, packages: Path, scratch: Path) -> None:
    """Install Puller in a bare tree, as docs/installing.md describes, from a repository with these packages."""
    page = (DOCS / "installing.md").read_text()
    (line,) = re.findall(r"^    (curl -fsSo /etc/apt/.* apt install puller)$", page, re.MULTILINE)
    address = "https://puller.example.com/packages"
    assert address in line
    www = scratch / "www"
    www.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(www))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.MonkeyPatch.context() as monkeypatch:
            key = make_key(scratch, monkeypatch, "packages")
            debs = sorted(packages.glob("*.deb"))
            script = ROOT / "packaging/repository"
            run_checked(sys.executable, script, www, *debs, "--url", url, "--key", key)
        install(root, "ca-certificates", "curl", "nginx-light", "python3")
        run_in(root, "bash", "-ec", line.replace(address, url).replace("apt install", "apt install --yes"))
        install(root, "puller-fleet")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    (root / "etc/apt/sources.list.d/puller.sources").unlink()  # its web server has ended
    (root / "etc/hostname").write_text(f"{HOSTNAME}\n")
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {HOSTNAME}\n")
    (root / "etc/machine-id").write_text("")


def is_packaged(root: Path) -> bool:
    return (root / "usr/lib/puller").exists()


ALONE = "--private-network"
"""The service of the quick start needs its port."""


@pytest.fixture
def machine(tree: Path) -> Iterator[Machine]:
    with copied(tree) as root:
        (root / "etc/nginx/sites-enabled/default").unlink()
        with powered_on(root, ALONE) as machine:
            yield machine


def test_the_ten_lines_of_the_readme_work(machine: Machine) -> None:
    section = (DOCS.parent / "README.md").read_text().split("\n## Ten lines\n")[1].split("\n## ")[0]
    commands = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    assert len(commands) == 10
    environment = ("env", "HOME=/root", "PULLER_PASSPHRASE=correct horse battery staple")
    done = machine.run(*environment, "bash", "-ec", "\n".join(["cd /root", *commands]))
    assert "web 1.0.0 is enforced" in done.stdout


@pytest.mark.sample(1)
def test_the_quick_start_works_as_shown(machine: Machine) -> None:
    follow(DOCS / "quick-start.md", {"": [machine]}, compare=not is_packaged(machine.root))


@contextlib.contextmanager
def network() -> Iterator[Path]:
    """Yield a new network namespace, in which only loopback is up. All machines of the fleet share it."""
    name = f"puller-fleet-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield Path("/run/netns", name)
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@contextlib.contextmanager
def fleet(tree: Path) -> Iterator[tuple[Machine, list[Machine]]]:
    """Boot ``control`` and the hosts. ``/hosts/NAME`` of ``control`` is ``/etc/puller`` of a host, instead of scp."""
    shared = Path(tempfile.mkdtemp(prefix="puller-hosts-"))
    with contextlib.ExitStack() as stack:
        stack.callback(remove_tree, shared)
        namespace = stack.enter_context(network())
        machines = []
        for name in ("control", *HOSTS):
            root = stack.enter_context(copied(tree))
            (root / "etc/nginx/sites-enabled/default").unlink()
            (root / "etc/hostname").write_text(f"{name}\n")
            addresses = f"127.0.0.1 localhost puller.example.com\n127.0.1.1 {name}.example.com {name}\n"
            (root / "etc/hosts").write_text(addresses)
            (shared / name).mkdir(mode=0o755)
            bind = f"{shared}:/hosts" if name == "control" else f"{shared / name}:/etc/puller"
            options = (f"--network-namespace-path={namespace}", f"--hostname={name}", f"--bind={bind}")
            machines.append(stack.enter_context(powered_on(root, *options)))
        yield machines[0], machines[1:]


def with_shared_directory(text: str) -> str:
    return text.replace("scp -q site/root.json root@$host:/etc/puller/", "cp site/root.json /hosts/$host/")


@pytest.mark.sample(1)
def test_the_first_fleet_works_as_shown(tree: Path) -> None:
    assert shutil.which("ip"), "ip is not installed (Debian: apt-get install iproute2)"
    with fleet(tree) as (control, hosts):
        groups = {"control": [control], "web": hosts}
        follow(DOCS / "first-fleet.md", groups, with_shared_directory, compare=not is_packaged(tree))
