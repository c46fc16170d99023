"""Apply Ansible roles with ansible-core and with the draft of `puller import ansible`, and compare the two systems.

    python tests/benchmarks/compare_applied_roles.py ROLE... --tree DIRECTORY --ansible VENV [--inputs DIRECTORY]

``ROLE`` is a directory with a role. ``--tree`` is a Debian with systemd, Python and python3-apt. Each run boots a copy
of it without a network, so its package sources must be local. ``--ansible`` is an environment with ansible-core. Both
programs run with the Python of the tree, which needs the minor version of this one.

``--inputs`` has optional files for a role: ``ROLE.yaml`` with variables for both sides, and ``ROLE.patch`` with the
lines of the draft that you edit, for ``patch -p1``. The program counts the added and the removed lines.

The output has the result of both programs and their differences: files with content, owner, group and mode, links,
packages, enabled and active units, users and groups. A second run of the draft must change nothing. The exit status is
1 if a role has a difference.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from puller.authoring.importing.ansible.importer import import_ansible
from puller.authoring.importing.ansible.manifest_data import MANAGED
from puller.authoring.importing.draft import Draft, Outcome, write_draft
from tests.support.machines import REPOSITORY, Machine, copied, powered_on

IGNORED: Final = re.compile(
    r"/(dev|proc|sys|run|tmp|ansible|puller|playbook|draft|repository)(/|$)"  # of the kernel, or mounted for the run
    r"|/var/(log|cache|tmp|backups)(/|$)"  # runtime state
    r"|/var/lib/(apt|dpkg|ucf|systemd|puller|private|pam|machines|polkit-1)(/|$)"
    r"|/root/(\.ansible|\.cache)(/|$)|/etc/puller(/|$)"  # state of the two programs
    r"|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$"  # compared as accounts
    r"|/etc/(machine-id|ld\.so\.cache|\.pwd\.lock|\.updated|mtab)$|/var/\.updated$|/__pycache__(/|$)"
    r"|/etc/ssh/ssh_host_|/etc/ssl/(certs|private)/ssl-cert-snakeoil|/var/lib/(random-seed|dbus)"  # random content
    r"|/(aliases\.db|dump\.rdb)$|\.(pid|lock)$"  # contents with the time or a process
)
"""Paths that differ between two runs of the same program."""


class System(NamedTuple):
    """The state of a system: texts by name, for each kind of object."""

    files: dict[str, str]
    packages: dict[str, str]
    units: dict[str, str]
    accounts: dict[str, str]
    texts: dict[str, str]
    """The contents of files in ``/etc``, which explain a difference."""


class Applied(NamedTuple):
    """The system after a program ran on it twice, with the output and exit status of each run."""

    system: System
    runs: list[tuple[int, str]]


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


def apply_twice(tree: Path, binds: Mapping[str, Path], *command: str) -> Applied:
    """Boot a copy of the tree without a network, run a command twice, and return the resulting state."""
    options = [f"--bind-ro={source}:{target}" for target, source in binds.items()]
    with copied(tree) as root, powered_on(root, "--private-network", *options) as machine:
        runs = []
        for _ in range(2):
            done = machine.run("env", "--chdir=/", *command, check=False, timeout=1800)
            runs.append((done.returncode, done.stdout + done.stderr))
        return Applied(state_of(machine), runs)


def playbook_of(role: Path, inputs: Path | None, target: Path) -> None:
    """Write a repository with the role, its variables, an inventory and a playbook."""
    shutil.copytree(role, target / "roles" / role.name, ignore=shutil.ignore_patterns(".git"))
    (target / "site.yml").write_text(f"- hosts: all\n  roles: [{role.name}]\n")
    (target / "hosts").write_text("web01.example.com ansible_connection=local\n")
    (target / "group_vars").mkdir()
    if inputs is not None and (inputs / f"{role.name}.yaml").is_file():
        shutil.copy(inputs / f"{role.name}.yaml", target / "group_vars/all.yml")


def edit(draft: Path, patch: Path) -> tuple[int, int]:
    """Apply a patch to a draft. Return the number of added and removed lines."""
    subprocess.run(["patch", "-p1", "--quiet", f"--input={patch}"], cwd=draft, check=True)
    lines = patch.read_text().splitlines()
    return (
        sum(line.startswith("+") and not line.startswith("+++") for line in lines),
        sum(line.startswith("-") and not line.startswith("---") for line in lines),
    )


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each name whose texts differ."""
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            yield f"{name}: draft {ours.get(name, 'absent')}, Ansible {theirs.get(name, 'absent')}"


def compare(role: Path, options: argparse.Namespace) -> bool:
    """Apply one role both ways, and print the result. Return whether the systems are equal."""
    tree, python = options.tree.resolve(), "/usr/bin/python3"
    ansible = next(options.ansible.resolve().glob("lib/python3*/site-packages"))
    with tempfile.TemporaryDirectory(prefix="puller-roles-") as directory:
        source, target = (
            Path(directory, "playbook"),
            options.keep / role.name if options.keep else Path(directory, "draft"),
        )
        playbook_of(role, options.inputs, source)
        draft: Draft = import_ansible(source, role.name)
        write_draft(draft, target)
        patch = options.inputs / f"{role.name}.patch" if options.inputs else None
        added, removed = edit(target, patch) if patch and patch.is_file() else (0, 0)
        theirs = apply_twice(
            *(tree, {"/ansible": ansible, "/playbook": source}, "PYTHONPATH=/ansible", "LANG=C.UTF-8"),
            *("ANSIBLE_DEPRECATION_WARNINGS=0", python, "-m", "ansible", "playbook", "/playbook/site.yml"),
            *("--inventory=/playbook/hosts", "--extra-vars", json.dumps({"ansible_managed": MANAGED})),
        )
        libraries = Path(sysconfig.get_paths()["purelib"])
        ours = apply_twice(
            *(tree, {"/puller": libraries, "/repository": REPOSITORY, "/draft": target}),
            *(
                "PYTHONPATH=/repository:/puller",
                "PYTHONDONTWRITEBYTECODE=1",
                python,
                "-m",
                "puller",
                "apply",
                "/draft",
            ),
        )
    counts = ", ".join(
        f"{sum(remark.outcome is outcome for remark in draft.remarks)} {outcome}" for outcome in Outcome
    )
    print(f"{role.name}: {counts}, edited lines: {added} added, {removed} removed")
    expected = (0, 0)
    for name, applied in (("Ansible", theirs), ("draft", ours)):
        statuses = tuple(status for status, _ in applied.runs)
        print(f"  {name}: exit statuses {statuses}, {len(applied.system.files)} paths")
        if statuses != expected or options.verbose:
            print(
                *(f"    {line}" for _, text in applied.runs for line in text.splitlines()[-options.lines :]),
                sep="\n",
            )
    equal = True
    for kind in ("files", "packages", "units", "accounts"):
        lines = list(differences(getattr(ours.system, kind), getattr(theirs.system, kind)))
        equal = equal and not lines
        print(f"  {kind}: {'equal' if not lines else f'{len(lines)} differences'}")
        for line in lines[: options.lines]:
            print(f"    {line}")
            name = line.partition(": ")[0]
            texts = [applied.system.texts.get(name, "").splitlines() for applied in (theirs, ours)]
            for change in difflib.unified_diff(texts[0], texts[1], "Ansible", "draft", lineterm="", n=0):
                print(f"      {change}")
    return equal


def main() -> int:
    """Compare each role. Return 1 if a role has a difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("roles", type=Path, nargs="+", metavar="ROLE")
    parser.add_argument("--tree", type=Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--ansible", type=Path, required=True, metavar="VENV")
    parser.add_argument("--inputs", type=Path, metavar="DIRECTORY")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep the drafts here")
    parser.add_argument("--lines", type=int, default=40, help="maximum lines of a list")
    parser.add_argument("--verbose", action="store_true", help="print the output of both programs")
    options = parser.parse_args()
    results = [compare(role.resolve(), options) for role in options.roles]
    print(f"{sum(results)} of {len(results)} roles are equal")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
