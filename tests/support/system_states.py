"""The state of a booted machine as texts by name, to compare two machines."""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.machines import Machine, copied, powered_on

IGNORED: Final = re.compile(
    r"/(dev|proc|sys|run|tmp|ansible|puller|playbook|draft|repository)(/|$)"  # of the kernel, or mounted for the run
    r"|/var/(log|cache|tmp|backups)(/|$)"  # runtime state
    r"|/var/lib/(apt|dpkg|ucf|systemd|puller|private|pam|machines|polkit-1)(/|$)"
    r"|/root/(\.ansible|\.cache)(/|$)|/etc/puller(/|$)"  # state of the two programs
    r"|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$"  # compared as accounts
    r"|/etc/(machine-id|ld\.so\.cache|\.pwd\.lock|\.updated|mtab)$|/var/\.updated$|/__pycache__(/|$)"
    r"|/etc/ssh/ssh_host_|/etc/ssl/(certs|private)/ssl-cert-snakeoil|/var/lib/(random-seed|dbus)"  # random content
    r"|\.(dpkg|ucf)-dist$"  # a package's own version of a file, which depends on the order of file and package
    r"|\.(pid|lock|db|rdb|tdb|sqlite3)$"  # contents with the time, a process or a random key
)
"""Paths that differ between two runs of the same program."""


KINDS: Final = ("files", "packages", "units", "accounts")
"""The kinds of objects that two systems must share."""


class System(NamedTuple):
    """The state of a system: texts by name, for each kind of object."""

    files: dict[str, str]
    packages: dict[str, str]
    units: dict[str, str]
    accounts: dict[str, str]
    texts: dict[str, str]
    """The contents of files in ``/etc``, which explain a difference."""


def names_of(root: Path, file: str) -> dict[int, str]:
    """Return the names in ``/etc/passwd`` or ``/etc/group`` by number."""
    rows = [line.split(":") for line in (root / "etc" / file).read_text().splitlines()]
    return {int(row[2]): row[0] for row in rows if len(row) > 2}


def files_of(root: Path) -> dict[str, str]:
    """Return type, owner, group, mode and content of each path that the programs can change."""
    users, groups = names_of(root, "passwd"), names_of(root, "group")
    result = {}
    for directory, folders, files in os.walk(root):
        inner = directory[len(str(root)) :]
        folders[:] = [name for name in folders if not IGNORED.match(f"{inner}/{name}")]
        for name in [*folders, *files]:
            path = f"{inner}/{name}"
            if IGNORED.search(path):
                continue
            status = os.lstat(root / path.lstrip("/"))
            owner = f"{users.get(status.st_uid, status.st_uid)}:{groups.get(status.st_gid, status.st_gid)}"
            result[path] = f"{owner} {stat.filemode(status.st_mode)} {_content(root, path, status)}"
    return result


def _content(root: Path, path: str, status: os.stat_result) -> str:
    file = root / path.lstrip("/")
    if stat.S_ISLNK(status.st_mode):
        return f"-> {os.readlink(file)}"
    if not stat.S_ISREG(status.st_mode):
        return ""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def state_of(machine: Machine) -> System:
    """Return the state of a booted machine."""
    query = machine.run("dpkg-query", "-W", "-f=${db:Status-Abbrev}${Package} ${Version}\n").stdout
    packages = {line[3:].split()[0]: line for line in query.splitlines() if line[:1] != "r"}
    units = {}
    for line in machine.run(
        "systemctl", "list-unit-files", "--no-legend", "--no-pager", "--plain"
    ).stdout.splitlines():
        unit, state, *_ = line.split()
        units[unit] = state
    active = machine.run(
        *("systemctl", "list-units", "--all", "--no-legend", "--no-pager", "--plain"),
        "--type=service,timer,socket",
    )
    for line in active.stdout.splitlines():
        unit, _, state, *_ = line.split()
        if unit.endswith((".service", ".socket", ".timer")) and "@" not in unit and unit in units:
            units[unit] += f" {'active' if state in ('active', 'reloading') else state}"
    return System(
        files_of(machine.root), packages, units, accounts_of(machine.root), texts_of(machine.root / "etc")
    )


def texts_of(directory: Path) -> dict[str, str]:
    """Return the contents of the small text files below a directory, by path from its parent."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return {
        f"/{path.relative_to(directory.parent)}": path.read_text(errors="replace")
        for path in files
        if path.stat().st_size < 1 << 16
    }


def accounts_of(root: Path) -> dict[str, str]:
    """Return users and groups without the numbers that the system chose, and without salts of passwords."""
    result, groups = {}, names_of(root, "group")
    for file in ("passwd", "shadow", "group"):
        for line in (root / "etc" / file).read_text().splitlines():
            name, *fields = line.split(":")
            if file == "passwd":
                fields[1:3] = [groups.get(int(fields[2]), fields[2])]
            elif file == "shadow":
                fields = [fields[0], *fields[2:7]]  # the date of the change is the date of the run
            else:
                fields = [",".join(sorted(fields[2].split(",")))]
            result[f"{file} {name}"] = ":".join(fields)
    return result


class Applied(NamedTuple):
    """The system after a program ran on it twice, with the output and exit status of each run."""

    system: System
    runs: list[tuple[int, str]]


def apply_twice(tree: Path, binds: Mapping[str, Path], *command: str) -> Applied:
    """Boot a copy of the tree without a network, run a command twice, and return the resulting state."""
    options = [f"--bind-ro={source}:{target}" for target, source in binds.items()]
    with copied(tree) as root, powered_on(root, "--private-network", *options) as machine:
        runs = []
        for _ in range(2):
            done = machine.run("env", "--chdir=/", *command, check=False, timeout=1800)
            runs.append((done.returncode, done.stdout + done.stderr))
        return Applied(state_of(machine), runs)


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each name whose texts differ."""
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            yield f"{name}: draft {ours.get(name, 'absent')}, Ansible {theirs.get(name, 'absent')}"
