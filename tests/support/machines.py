"""A Debian tree with Puller, and systemd-nspawn to boot it.

* Every wait has a limit, and its failure message contains the output of the machine.
* Everything that starts here ends with the test, also if the test fails or pytest is killed.
"""

import contextlib
import fcntl
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.processes import MEMORY, has_room

REPOSITORY = Path(__file__).parents[2]


HOSTNAME = "web01.example.com"


PACKAGES = ("python3", "python3-venv", "ca-certificates")
"""Packages that Puller needs, beside those of a bare Debian."""


PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}  # of Debian 12 and 13


Completed = subprocess.CompletedProcess[str]


SharedTree = Callable[[str, Callable[[Path], None]], Path]
"""The fixture ``shared_tree``: returns a directory with this name, made by this function once in a run."""


def run_checked(*command: str | Path, timeout: float = 900, **options: Any) -> Completed:
    """Run a command to its end. Raise with its output if its status is not zero."""
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
    condition: Callable[[], object], description: str, timeout: float, say: Callable[[], str] = str
) -> None:
    """Poll until ``condition`` holds. After ``timeout`` seconds fail with ``description`` and the output of ``say``."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {description}\n{say()}")
        time.sleep(0.1)


def add_dependencies(wheels: Path, codename: str, extra: str = "") -> None:
    """Download the dependencies of the built wheel, and of an extra, for the Python of this Debian release."""
    (wheel,) = wheels.glob("puller_agent-*.whl")
    run_checked(
        sys.executable, "-m", "pip", "--quiet", "download", "--only-binary=:all:",
        "--python-version", PYTHONS[codename], "--dest", wheels, f"{wheel}[{extra}]" if extra else wheel, timeout=600,
    )  # fmt: skip


def mounts(*directories: Path) -> list[str]:
    """Return the mounts of this machine, without those of other tests, in temporary directories.

    Mounts of trials and below ``directories`` are included.
    """
    temporary = (f"{MEMORY}/", f"{tempfile.gettempdir()}/")

    def is_of_another(line: str) -> bool:
        point = line.split()[4]
        is_own = "puller-trial" in line or point.startswith(tuple(map(str, directories)))
        return point.startswith(temporary) and not is_own

    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if not is_of_another(line)]


@contextlib.contextmanager
def shared(directory: Path, locks: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Yield a shared directory: one worker makes it while the others wait, and its last user removes it.

    The lock ``turn`` serializes entering and leaving. Each user holds a shared lock ``use``.
    """
    with (
        (locks / f"{directory.name}.turn").open("w") as turn,
        (locks / f"{directory.name}.use").open("w") as use,
    ):
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not directory.exists():
            unfinished = directory.with_name(f"{directory.name}.unfinished")
            make(unfinished)
            unfinished.rename(directory)
        fcntl.flock(use, fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield directory
        fcntl.flock(turn, fcntl.LOCK_EX)
        with contextlib.suppress(BlockingIOError):  # another worker uses it
            fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(directory)


def make_wheel(directory: Path) -> None:
    """Build the wheel of Puller in a new directory."""
    wheel = ("wheel", "--no-deps", "--wheel-dir", directory, REPOSITORY)
    run_checked(sys.executable, "-m", "pip", "--quiet", *wheel)


def make_bare(tree: Path, codename: str) -> None:
    """Make a minimal Debian that can boot, with this machine's settings for apt and the lists of its packages."""
    with sources(codename) as lists:
        included = "--include=systemd,systemd-sysv,dbus"
        run_checked("mmdebstrap", "--quiet", "--variant=minbase", included, codename, tree, *lists)
    shutil.copytree("/etc/apt/apt.conf.d", tree / "etc/apt/apt.conf.d", dirs_exist_ok=True)
    run_in(tree, "apt-get", "update", "--quiet")
    (tree / "etc/machine-id").write_text("")  # the first boot creates it


def make_debian(tree: Path, bare: Path, built: Path, codename: str) -> None:
    """Make a Debian with Puller: a copy of a bare tree with the wheel in the directory ``built``."""
    copy_tree(bare, tree)
    install(tree, *PACKAGES)
    run_in(tree, "python3", "-m", "venv", "/opt/puller")
    add_puller(tree, built, codename)
    (tree / "usr/local/bin/puller").symlink_to("/opt/puller/bin/puller")
    (tree / "etc/hostname").write_text(f"{HOSTNAME}\n")
    (tree / "etc/hosts").write_text(f"127.0.0.1 localhost {HOSTNAME}\n")
    forget_lists(tree)


def extend_debian(
    tree: Path, debian: Path, built: Path, *additional: str, codename: str, extra: str = ""
) -> None:
    """Make a copy of a Debian with Puller, with more packages, and with the libraries of an extra."""
    copy_tree(debian, tree)
    if additional:
        run_in(tree, "apt-get", "update", "--quiet")
        install(tree, *additional)
        forget_lists(tree)
    if extra:
        add_puller(tree, built, codename, extra)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a Debian, without its data where the file system can share them."""
    run_checked("cp", "--archive", "--reflink=auto", source, target)


def add_puller(tree: Path, built: Path, codename: str, extra: str = "") -> None:
    """Install the wheel in the directory ``built``, and the libraries of an extra, in /opt/puller of a tree."""
    wheels = shutil.copytree(built, tree / "wheels")
    add_dependencies(wheels, codename, extra)
    name = f"puller-agent[{extra}]" if extra else "puller-agent"
    run_in(tree, "/opt/puller/bin/pip", "install", "--quiet", "--no-index", "--find-links=/wheels", name)
    shutil.rmtree(wheels)


def forget_lists(tree: Path) -> None:
    """Remove the package lists and packages that apt downloaded: a fresh Debian has none."""
    run_in(tree, "apt-get", "clean")
    for path in (tree / "var/lib/apt/lists").iterdir():
        if path.is_file():
            path.unlink()


def run_in(root: Path, *command: str) -> str:
    """Return the output of a command in a tree that is not booted."""
    inside = (
        "systemd-nspawn",
        "--quiet",
        "--register=no",
        "--keep-unit",
        "--pipe",
        "--as-pid2",
        f"--directory={root}",
    )
    done = run_checked(*inside, "--setenv=DEBIAN_FRONTEND=noninteractive", "--", *command)
    return re.sub("(?m)^Attempted to remove disk file system.*\n?", "", done.stdout)


def install(root: Path, *packages: str) -> None:
    """Install Debian packages in a tree that is not booted, from its package lists."""
    run_in(root, "apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *packages)


@contextlib.contextmanager
def sources(codename: str) -> Iterator[list[Path]]:
    """Yield this machine's package sources for a release of Debian, or none. It may reach only a mirror."""
    own = platform.freedesktop_os_release().get("VERSION_CODENAME")
    paths = map(Path, ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"))
    with tempfile.TemporaryDirectory(prefix="puller-sources-") as directory:
        turned = []
        for path in (path for path in paths if own in PYTHONS and path.exists()):
            turned.append(Path(directory, path.name))
            turned[-1].write_text(path.read_text().replace(own or "", codename))
        yield turned


def remove_tree(directory: Path) -> None:
    """Delete a tree, but never through a mount below it."""
    with open("/proc/self/mountinfo") as mounts:
        below = [line.split()[4] for line in mounts if line.split()[4].startswith(f"{directory}/")]
    for point in reversed(below):
        run_checked("umount", "--lazy", point)
    shutil.rmtree(directory)


@dataclass(frozen=True)
class Machine:
    """A booted Debian. ``init`` is its first process, in our process namespace. ``root`` is its disk."""

    root: Path
    init: int
    log: Path

    def run(self, *command: str, timeout: float = 300, check: bool = True) -> Completed:
        """Run a command inside, in all namespaces and with the machine's environment."""
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
        """Return the entries of a unit from journalctl's JSON, oldest first."""
        self.run("journalctl", "--sync")
        lines = self.run("journalctl", "--output=json", "--all", "--unit", unit).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Return properties of a unit, named as in `systemctl show`."""
        names = ",".join(properties)
        lines = self.run("systemctl", "show", "--property", names, unit).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)

    def cut_power(self) -> None:
        """Kill the machine like a power cut: no process can finish its work."""
        os.kill(self.init, signal.SIGKILL)

    def say(self) -> str:
        """Return failed units, the end of the journal and the console, for failure messages."""
        failed = self.run("systemctl", "--failed", "--no-pager", check=False).stdout
        journal = self.run("journalctl", "--no-pager", "--lines=60", check=False).stdout
        return f"{failed}\n{journal}\n{self.log.read_text(errors='replace')}"


@contextlib.contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """Yield a writable copy of a tree: an overlay that stores only the changes.

    A full copy of a Debian would write and delete 16,000 files. The changes are in memory if there is room, because
    dpkg and journald sync often. ``redirect_dir`` allows renames of directories of the tree, as on a disk.
    """
    memory = MEMORY if "TMPDIR" not in os.environ and has_room(MEMORY) else None
    directory = Path(tempfile.mkdtemp(prefix="puller-machine-", dir=memory))
    directory.chmod(0o755)  # users in the machine need access to this parent
    root, changes, work = (directory / name for name in ("root", "changes", "work"))
    try:
        for path in (root, changes, work):
            path.mkdir()
        shutil.copystat(tree, changes)  # becomes the mode of the root directory
        layers = f"lowerdir={tree},upperdir={changes},workdir={work}"
        options = f"{layers},redirect_dir=on,xino=on"
        run_checked("mount", "-t", "overlay", "-o", options, "overlay", root)
        yield root
    finally:
        remove_tree(directory)


@contextlib.contextmanager
def powered_on(root: Path, *options: str) -> Iterator[Machine]:
    """Boot a disk, and yield the machine when it is up. ``options`` are options of systemd-nspawn."""
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
    """Boot a tree and yield the process ID of its init. Then power it off, by force if necessary."""
    with own_groups("puller-machine") as groups, _booted(root, log, groups, *options) as init:
        yield init


@contextlib.contextmanager
def own_groups(name: str) -> Iterator[list[Path]]:
    """Yield new control groups for a container, one in each hierarchy that systemd uses.

    In one group, the systemds of several containers would remove the groups of each other's services.
    """
    hierarchies = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")
    groups = [
        Path(tempfile.mkdtemp(prefix=f"{name}-", dir=hierarchy))
        for hierarchy in hierarchies
        if Path(hierarchy, "cgroup.procs").exists()
    ]
    try:
        yield groups
    finally:
        wait_until(lambda: all(map(is_group_removed, groups)), "the processes of the container end", 60)


def is_group_removed(group: Path) -> bool:
    """Remove a control group with its subgroups. Return ``False`` while one of its processes is still ending."""
    for directory, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    return not group.exists()


@contextlib.contextmanager
def _booted(root: Path, log: Path, groups: list[Path], *options: str) -> Iterator[int]:
    enter = "".join(f"echo $$ > {shlex.quote(str(group / 'cgroup.procs'))} && " for group in groups)
    command = [
        "sh", "-c", f'{enter} exec "$@"', "-",
        # If pytest is killed, the container ends, too.
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
        with contextlib.suppress(ProcessLookupError):  # a test may have cut the power
            os.kill(init, signal.SIGRTMIN + 4)  # systemd's "power off"
        with contextlib.suppress(subprocess.TimeoutExpired):
            container.wait(15)
    finally:
        if (init := find_init(container.pid)) is not None:
            os.kill(init, signal.SIGKILL)  # the kernel ends all other processes of its namespace
        with contextlib.suppress(ProcessLookupError):
            container.kill()
        container.wait(60)


def find_init(container: int) -> int | None:
    """Return the child of systemd-nspawn that is process 1 in its own namespace."""
    with contextlib.suppress(FileNotFoundError):
        for child in Path(f"/proc/{container}/task/{container}/children").read_text().split():
            status = Path(f"/proc/{child}/status").read_text()
            if re.search(r"^Name:\tsystemd$", status, re.M) and re.search(r"^NSpid:.*\t1$", status, re.M):
                return int(child)
    return None
