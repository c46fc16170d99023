"""Real environments for system tests: the installed command, a bootable Debian, a wheel installed in it.

* Every wait has a limit, and failure messages contain the output of the other side.
* Fixtures remove all that they start or create, also if a test fails or pytest is killed.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.machines import (
    REPOSITORY,
    Completed,
    Machine,
    add_dependencies,
    copied,
    make_debian,
    powered_on,
    remove_tree,
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
    assert command.exists(), f"{command}: not installed; first run: pip install '.[test]'"
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
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The built wheel and all its dependencies, for the Python of Debian 12."""
    directory = tmp_path_factory.mktemp("wheels")
    run_checked(
        sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", directory, REPOSITORY
    )
    add_dependencies(directory, "bookworm")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def debian_tree(
    testrun_uid: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """A minimal Debian 12 on disk, to be copied, with Puller in /opt/puller under the system's Python."""
    own = tmp_path_factory.getbasetemp()
    of_all_workers = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    directory = Path(tempfile.gettempdir(), f"puller-debian-{testrun_uid}")
    with shared(
        directory, of_all_workers, lambda tree: make_debian(tree, request.getfixturevalue("wheels"))
    ) as tree:
        yield tree


@pytest.fixture
def debian_disk(debian_tree: Path) -> Iterator[Path]:
    """A fresh disk for each test."""
    with copied(debian_tree) as root:
        yield root


@pytest.fixture(scope="session")
def debian_with(wheels: Path) -> Callable[..., contextlib.AbstractContextManager[Path]]:
    """Return ``debian_with("nginx-light", …)``: a Debian on disk with Puller and these packages, removed after use.

    ``extra`` is an extra of Puller, such as ``fleet``.
    """

    @contextlib.contextmanager
    def make(*packages: str, codename: str = "bookworm", extra: str = "") -> Iterator[Path]:
        directory = Path(tempfile.mkdtemp(prefix="puller-machine-"))
        directory.chmod(0o755)
        try:
            add_dependencies(wheels, codename, extra)
            make_debian(directory / "root", wheels, *packages, codename=codename, extra=extra)
            yield directory / "root"
        finally:
            remove_tree(directory)

    return make


@pytest.fixture(name="copied", scope="session")
def copied_fixture() -> Callable[[Path], contextlib.AbstractContextManager[Path]]:
    return copied


@pytest.fixture
def debian(debian_disk: Path) -> Iterator[Machine]:
    """A fresh machine for each test, on this machine's network: it can reach servers on loopback."""
    with powered_on(debian_disk) as machine:
        yield machine
