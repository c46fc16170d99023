"""Real environments for system tests: the installed command, a bootable Debian, a wheel installed in it.

* Every wait has a limit, and failure messages contain the output of the other side.
* Fixtures remove all that they start or create, also if a test fails or pytest is killed.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.machines import (
    Completed,
    Machine,
    SharedTree,
    copied,
    extend_debian,
    make_bare,
    make_debian,
    make_wheel,
    powered_on,
    run_checked,
    shared,
    wait_until,
)
from tests.support.nginx import Nginx


@pytest.fixture(name="run_checked", scope="session")
def run_checked_fixture() -> Callable[..., Completed]:
    return run_checked


@pytest.fixture(name="wait_until", scope="session")
def wait_until_fixture() -> Callable[..., None]:
    return wait_until


@pytest.fixture(scope="session")
def puller() -> str:
    """Path of the installed command beside the running Python, as in the README."""
    command = Path(sys.executable).with_name("puller")
    assert command.exists(), f"{command}: not installed; first run: pip install '.[test,check]'"
    return str(command)


# --- nginx, set up as in the documents ----------------------------------------------------------------------


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Nginx]:
    """nginx that serves ``root``, which is still empty."""
    root, work = tmp_path / "www", tmp_path / "nginx"
    root.mkdir()
    work.mkdir()
    server = Nginx(root, work)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def web(nginx: Nginx) -> Nginx:
    """Web server that the publisher deploys to and the host pulls from."""
    return nginx


@pytest.fixture
def execute(puller: str) -> Callable[..., tuple[int, str]]:
    """Function that runs the installed command in a separate process."""

    def execute(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [puller, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout

    return execute


# --- a Debian, with Puller installed in it ------------------------------------------------------------------


@pytest.fixture(scope="session")
def shared_tree(testrun_uid: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedTree]:
    """Return ``shared_tree(name, make)``: a directory on disk that all workers share and only copy.

    The first worker makes it with ``make(directory)`` while the others wait, and the last worker removes it.
    """
    own = tmp_path_factory.getbasetemp()
    of_all_workers = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    trees: dict[str, Path] = {}
    with contextlib.ExitStack() as stack:

        def make(name: str, make: Callable[[Path], None]) -> Path:
            if name not in trees:
                directory = Path(tempfile.gettempdir(), f"puller-{name}-{testrun_uid}")
                trees[name] = stack.enter_context(shared(directory, of_all_workers, make))
            return trees[name]

        yield make


@pytest.fixture(scope="session")
def bare_tree(shared_tree: SharedTree) -> Callable[[str], Path]:
    """Return ``bare_tree("trixie")``: a minimal Debian to copy, without Puller. All other trees are made from it."""

    def make(codename: str) -> Path:
        return shared_tree(f"bare-{codename}", lambda tree: make_bare(tree, codename))

    return make


@pytest.fixture(scope="session")
def make_tree(shared_tree: SharedTree, bare_tree: Callable[[str], Path]) -> Callable[..., Path]:
    """Return ``make_tree("nginx-light", …, codename="trixie", extra="fleet")``: a Debian to copy, with Puller.

    Puller is in /opt/puller under the system's Python. ``extra`` is an extra of Puller.
    """

    def make(*packages: str, codename: str = "bookworm", extra: str = "") -> Path:
        bare, built = bare_tree(codename), shared_tree("wheel", make_wheel)
        debian = shared_tree(
            f"debian-{codename}", lambda tree: make_debian(tree, bare, built, codename=codename)
        )
        if not packages and not extra:
            return debian
        words = "-".join((codename, *packages, *extra.split()))
        digest = hashlib.sha256(words.encode()).hexdigest()[:12]  # a file name has at most 255 bytes
        return shared_tree(
            f"debian-{codename}-{digest}",
            lambda tree: extend_debian(tree, debian, built, *packages, codename=codename, extra=extra),
        )

    return make


@pytest.fixture(scope="session")
def debian_tree(make_tree: Callable[..., Path]) -> Path:
    """A minimal Debian 12 on disk, to be copied, with Puller."""
    return make_tree()


@pytest.fixture
def debian_disk(debian_tree: Path) -> Iterator[Path]:
    """A fresh disk for each test."""
    with copied(debian_tree) as root:
        yield root


@pytest.fixture(scope="session")
def debian_with(make_tree: Callable[..., Path]) -> Callable[..., contextlib.AbstractContextManager[Path]]:
    """Return ``debian_with("nginx-light", …)``: a disk with a Debian, Puller and these packages.

    The disk is removed after use.
    """

    @contextlib.contextmanager
    def make(*packages: str, codename: str = "bookworm") -> Iterator[Path]:
        with copied(make_tree(*packages, codename=codename)) as root:
            yield root

    return make


@pytest.fixture(scope="session")
def debian_with_imports(
    debian_with: Callable[..., contextlib.AbstractContextManager[Path]],
) -> Callable[[], contextlib.AbstractContextManager[Path]]:
    """Return a function for a disk with Puppet 7, its modules and cron. All tests of imports share the tree."""
    modules = ("stdlib", "concat", "cron-core", "host-core", "inifile", "sshkeys-core")
    packages = ("cron", "puppet-agent", *(f"puppet-module-puppetlabs-{name}" for name in modules))
    return lambda: debian_with(*packages)


@pytest.fixture(name="copied", scope="session")
def copied_fixture() -> Callable[[Path], contextlib.AbstractContextManager[Path]]:
    return copied


@pytest.fixture
def debian(debian_disk: Path) -> Iterator[Machine]:
    """A fresh machine for each test, on this machine's network: it can reach servers on loopback."""
    with powered_on(debian_disk) as machine:
        yield machine
