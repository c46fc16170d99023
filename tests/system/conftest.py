"""Real surroundings for system tests: the installed command, a Debian that boots, a wheel installed in it.

* Every wait has a limit, and what the other side printed is in the failure's message.
* Whatever a fixture starts or makes is gone after it, also when a test fails or pytest is killed.
"""

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
HOSTNAME = "web01.example.com"
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,ca-certificates"
PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}  # of Debian 12 and 13

Completed = subprocess.CompletedProcess[str]


def run_checked(*command: str | Path, timeout: float = 900, **options: Any) -> Completed:
    """Run to the end; a non-zero status raises with everything that was printed."""
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
        **options,
    )
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-8000:]}")
    return done


def wait_until(
    condition: Callable[[], object], what: str, timeout: float, say: Callable[[], str] = str
) -> None:
    """Poll until ``condition`` holds; after ``timeout`` seconds fail with ``what``, and what ``say`` says."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}\n{say()}")
        time.sleep(0.1)


@pytest.fixture(name="run_checked", scope="session")
def run_checked_fixture() -> Callable[..., Completed]:
    return run_checked


@pytest.fixture(name="wait_until", scope="session")
def wait_until_fixture() -> Callable[..., None]:
    return wait_until


@pytest.fixture(scope="session")
def puller() -> str:
    """Path of the installed command: the one beside the running Python, as in the README."""
    command = Path(sys.executable).with_name("puller")
    assert command.exists(), f"{command}: not installed; run pip install '.[test]' first"
    return str(command)


# --- nginx, set up as the README says -----------------------------------------------------------------------

NGINX = """
{user}
daemon off;
worker_processes 1;
pid {work}/pid;
error_log {work}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log {work}/access.log;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    {server}
}}
"""


def readme_server(port: int, root: Path) -> str:
    """The server block of the README, on another address and for another directory."""
    found = re.search(
        r"^```nginx\n(.*?)^```", (REPOSITORY / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert found, "README.md has no nginx block"
    block, listens = re.subn(r"\blisten [^;]+;", f"listen 127.0.0.1:{port};", found[1])
    block, roots = re.subn(r"\broot [^;]+;", f"root {root};", block)
    assert (listens, roots) == (1, 1), found[1]
    return block


class Nginx:
    """nginx on loopback: ``url`` stays the same while it is stopped and started again."""

    def __init__(self, root: Path, work: Path) -> None:
        self.root, self.work = root, work
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # pytest's directories are private, and nginx started by root would serve as another user.
        user = "user root;" if os.geteuid() == 0 else ""
        configuration = NGINX.format(user=user, work=work, server=readme_server(self.port, root))
        (work / "nginx.conf").write_text(configuration)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, "nginx is not installed (Debian: apt-get install nginx-light)"
        log = self.work / "error.log"
        command = [program, "-p", str(self.work), "-e", str(log), "-c", str(self.work / "nginx.conf")]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        wait_until(self.answers, "nginx answers", 60, log.read_text)

    def stop(self) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def requests(self) -> list[str]:
        """What was asked for, oldest first: method and path of each request."""
        return re.findall(r'"([A-Z]+ \S+) [^"]+"', "\n".join(self.log()))

    def log(self) -> list[str]:
        """The lines of the access log."""
        return logged(self.port if self.process else None, self.work / "access.log")


def logged(port: int | None, log: Path) -> list[str]:
    """The lines of an access log, with all that was answered; ``port`` is that of a running nginx.

    An answer is sent before it is logged; but when nginx, which has one worker here, answers the next, it has been.
    """
    if port:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /.logged HTTP/1.0\r\n\r\n")
            while connection.recv(4096):
                pass
    return [line for line in log.read_text().splitlines() if "/.logged" not in line]


def free_port() -> int:
    """One that stays free while nginx is stopped: below those that the system gives to clients."""
    from tests.conftest import listening

    with listening(lambda port: socket.create_server(("127.0.0.1", port))) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Nginx]:
    """nginx, serving ``root``, which is still empty."""
    root, work = tmp_path / "www", tmp_path / "nginx"
    root.mkdir()
    work.mkdir()
    server = Nginx(root, work)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def web(nginx: Nginx) -> Nginx:
    """What the publisher deploys to and the host pulls from."""
    return nginx


@pytest.fixture
def execute(puller: str) -> Callable[..., tuple[int, str]]:
    """The installed command, in a process of its own."""

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
    """The built wheel and all that it depends on, for the Python of Debian 12."""
    directory = tmp_path_factory.mktemp("wheels")
    run_checked(
        sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", directory, REPOSITORY
    )
    add_dependencies(directory, "bookworm")
    yield directory
    shutil.rmtree(directory)


def add_dependencies(wheels: Path, codename: str) -> None:
    """All that the built wheel depends on, for the Python of this release of Debian."""
    run_checked(
        sys.executable, "-m", "pip", "--quiet", "download", "--only-binary=:all:",
        "--python-version", PYTHONS[codename], "--dest", wheels, *wheels.glob("puller-*.whl"), timeout=600,
    )  # fmt: skip


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


@contextlib.contextmanager
def shared(directory: Path, locks: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """A directory that one worker makes while the others wait, and that goes with the last that uses it.

    Who comes and who goes does so alone, by the lock ``turn``; who uses it holds a part of the lock ``use``.
    """
    with (
        (locks / f"{directory.name}.turn").open("w") as turn,
        (locks / f"{directory.name}.use").open("w") as use,
    ):
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not directory.exists():
            unfinished = directory.with_suffix(".unfinished")
            make(unfinished)
            unfinished.rename(directory)
        fcntl.flock(use, fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield directory
        fcntl.flock(turn, fcntl.LOCK_EX)
        with contextlib.suppress(BlockingIOError):  # somebody else uses it
            fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(directory)


def make_debian(tree: Path, wheels: Path, *more: str, codename: str = "bookworm") -> None:
    packages = ",".join((PACKAGES, *more))
    with sources(codename) as lists:
        run_checked(
            "mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", codename, tree, *lists
        )
    shutil.copytree(wheels, tree / "wheels")
    shutil.copytree("/etc/apt/apt.conf.d", tree / "etc/apt/apt.conf.d", dirs_exist_ok=True)
    inside = ("chroot", tree, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
    run_checked(*inside, "python3", "-m", "venv", "/opt/puller")
    run_checked(
        *inside, "/opt/puller/bin/pip", "install", "--quiet", "--no-index", "--find-links=/wheels", "puller"
    )
    (tree / "usr/local/bin/puller").symlink_to("/opt/puller/bin/puller")
    shutil.rmtree(tree / "wheels")
    (tree / "etc/hostname").write_text(f"{HOSTNAME}\n")
    (tree / "etc/hosts").write_text(f"127.0.0.1 localhost {HOSTNAME}\n")
    (tree / "etc/machine-id").write_text("")  # so that the first boot makes one


@contextlib.contextmanager
def sources(codename: str) -> Iterator[list[Path]]:
    """This machine's own package sources (it may reach only a mirror), turned to a release of Debian; or none."""
    own = platform.freedesktop_os_release().get("VERSION_CODENAME")
    paths = map(Path, ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"))
    with tempfile.TemporaryDirectory(prefix="puller-sources-") as directory:
        turned = []
        for path in (path for path in paths if own in PYTHONS and path.exists()):
            turned.append(Path(directory, path.name))
            turned[-1].write_text(path.read_text().replace(own or "", codename))
        yield turned


def remove_tree(directory: Path) -> None:
    """Delete a tree, but never through something that is still mounted below it."""
    with open("/proc/self/mountinfo") as mounts:
        below = [line.split()[4] for line in mounts if line.split()[4].startswith(f"{directory}/")]
    for point in reversed(below):
        run_checked("umount", "--lazy", point)
    shutil.rmtree(directory)


@dataclass(frozen=True)
class Machine:
    """A booted Debian: ``init`` is its first process, as we count them; ``root`` is where its disk lies."""

    root: Path
    init: int
    log: Path

    def run(self, *command: str, timeout: float = 300, check: bool = True) -> Completed:
        """Run inside, in all of its namespaces and with its own environment."""
        inside = ("nsenter", "--target", str(self.init), "--all", "--root", "--wd=/")
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
        }
        done = subprocess.run(
            [*inside, *command],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
            check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def journal(self, unit: str) -> list[dict[str, Any]]:
        """The unit's entries, oldest first, as journalctl's JSON gives them."""
        self.run("journalctl", "--sync")
        lines = self.run("journalctl", "--output=json", "--all", "--unit", unit).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Properties of a unit, as `systemctl show` names them."""
        names = ",".join(properties)
        lines = self.run("systemctl", "show", "--property", names, unit).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)

    def cut_power(self) -> None:
        """As a power cut does: nothing gets to finish."""
        os.kill(self.init, signal.SIGKILL)

    def say(self) -> str:
        """What a failure needs: units that failed, the end of the journal, the console."""
        failed = self.run("systemctl", "--failed", "--no-pager", check=False).stdout
        journal = self.run("journalctl", "--no-pager", "--lines=60", check=False).stdout
        return f"{failed}\n{journal}\n{self.log.read_text(errors='replace')}"


@pytest.fixture
def debian_disk(debian_tree: Path) -> Iterator[Path]:
    """A fresh disk for each test."""
    with copied(debian_tree) as root:
        yield root


@contextlib.contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """A copy on disk, and not in memory where other tests have their files: some hundred megabytes."""
    directory = Path(tempfile.mkdtemp(prefix="puller-machine-"))
    directory.chmod(0o755)  # it becomes the parent of what everybody in there may read
    root = directory / "root"
    try:
        run_checked("cp", "--archive", "--reflink=auto", tree, root)
        yield root
    finally:
        remove_tree(directory)


@pytest.fixture(scope="session")
def debian_with(wheels: Path) -> Callable[..., contextlib.AbstractContextManager[Path]]:
    """``debian_with("nginx-light", …)``: a Debian on disk with Puller and these packages, as long as it is used."""

    @contextlib.contextmanager
    def make(*packages: str, codename: str = "bookworm") -> Iterator[Path]:
        directory = Path(tempfile.mkdtemp(prefix="puller-machine-"))
        directory.chmod(0o755)
        try:
            add_dependencies(wheels, codename)
            make_debian(directory / "root", wheels, *packages, codename=codename)
            yield directory / "root"
        finally:
            remove_tree(directory)

    return make


@pytest.fixture(name="copied", scope="session")
def copied_fixture() -> Callable[[Path], contextlib.AbstractContextManager[Path]]:
    return copied


@pytest.fixture
def debian(debian_disk: Path) -> Iterator[Machine]:
    """A fresh machine for each test, on this machine's network: a server on loopback is in reach."""
    with powered_on(debian_disk) as machine:
        yield machine


@contextlib.contextmanager
def powered_on(root: Path, *options: str) -> Iterator[Machine]:
    """Boot what is on a disk, and wait until it is up; ``options`` are those of systemd-nspawn."""
    log = root.with_name("console.log")
    with boot(root, log, *options) as init:
        machine = Machine(root, init, log)
        wait_until(lambda: is_up(machine), "the machine has booted", 300, machine.say)
        yield machine


def is_up(machine: Machine) -> bool:
    return machine.run("systemctl", "is-system-running", check=False).stdout.strip() in (
        "running",
        "degraded",
    )


@contextlib.contextmanager
def boot(root: Path, log: Path, *options: str) -> Iterator[int]:
    """Boot a tree, give the process id of its init; power it off afterwards, if need be by force."""
    command = [
        # Should pytest be killed, the container goes with it.
        "setpriv", "--pdeathsig", "KILL",
        "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", "--console=pipe",
        f"--directory={root}", *options,
    ]  # fmt: skip
    with log.open("wb") as output:
        container = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until(lambda: find_init(container.pid), "the container has an init", 120, log.read_text)
        init = find_init(container.pid)
        assert init
        yield init
        with contextlib.suppress(ProcessLookupError):  # a test has cut the power
            os.kill(init, signal.SIGRTMIN + 4)  # systemd's "power off"
        with contextlib.suppress(subprocess.TimeoutExpired):
            container.wait(15)
    finally:
        if (init := find_init(container.pid)) is not None:
            os.kill(init, signal.SIGKILL)  # the kernel ends everything else in its process namespace
        with contextlib.suppress(ProcessLookupError):
            container.kill()
        container.wait(60)


def find_init(container: int) -> int | None:
    """The child of systemd-nspawn that is process 1 in a namespace of its own."""
    with contextlib.suppress(FileNotFoundError):
        for child in Path(f"/proc/{container}/task/{container}/children").read_text().split():
            status = Path(f"/proc/{child}/status").read_text()
            if re.search(r"^Name:\tsystemd$", status, re.M) and re.search(r"^NSpid:.*\t1$", status, re.M):
                return int(child)
    return None
