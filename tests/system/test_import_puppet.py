"""`puller import puppet`: modules that Puppet 7 applies to one machine, and their drafts on a second one."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.local_packages import SOURCE, add_packages
from tests.support.machines import REPOSITORY, powered_on

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.support.machines import Machine

pytestmark = [pytest.mark.booted, pytest.mark.root]

CASES = REPOSITORY / "tests/cases/puppet"

MODULES = ("accounts", "daemon", "fragments", "system", "webserver")

INITIAL = f"""
set -eu
echo '{SOURCE.strip()}' > /etc/apt/sources.list.d/local.list
apt-get -qq update -o Dir::Etc::sourcelist=/etc/apt/sources.list.d/local.list -o Dir::Etc::sourceparts=-
"""

LOOK = r"""
import grp, hashlib, json, os, pwd, stat, subprocess

def run(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout

def name(read, number):
    try:
        return read(number)[0]
    except KeyError:
        return str(number)

def entry(path):
    status = os.lstat(path)
    owner, group = name(pwd.getpwuid, status.st_uid), name(grp.getgrgid, status.st_gid)
    kind, mode, content = stat.S_IFMT(status.st_mode), f"{stat.S_IMODE(status.st_mode):04o}", ""
    if stat.S_ISREG(kind):
        content = open(path, "rb").read().decode(errors="replace")
    elif stat.S_ISLNK(kind):
        mode, content = "", os.readlink(path)
    return [oct(kind), owner, group, mode, content]

files = {}
for start in ("/etc", "/home", "/srv", "/usr/local", "/var/lib/daemon"):
    for directory, directories, names in os.walk(start):
        for path in [directory, *(os.path.join(directory, item) for item in [*directories, *names])]:
            files[path] = entry(path)
units = ("daemon.service", "fstrim.timer", "cron.service")
states = {unit: [run("systemctl", verb, unit) for verb in ("is-enabled", "is-active")] for unit in units}
packages = run("dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Abbrev}${Version}\n").splitlines()
jobs = []
for user in sorted(os.listdir("/var/spool/cron/crontabs")):
    for line in run("crontab", "-u", user, "-l").splitlines():
        if line and not line.startswith("#"):
            fields = line.split(None, 1 if line.startswith("@") else 5)
            jobs.append(" ".join([*fields[:-1], user, fields[-1]]))
for path in sorted(os.listdir("/etc/cron.d")):
    text = open("/etc/cron.d/" + path).read()
    if path not in ("e2scrub_all", ".placeholder"):
        jobs += [" ".join(line.split()) for line in text.splitlines() if line.startswith(tuple("0123456789*@"))]
ttl = open("/proc/sys/net/ipv4/ip_default_ttl").read()
print(json.dumps({"files": files, "units": states, "packages": packages, "jobs": sorted(jobs), "ttl": ttl}))
"""

IGNORED = re.compile(
    r"/etc/(?:cron\.d(?:/.*)?|puppet(?:/.*)?|(?:passwd|group|shadow|gshadow|subuid|subgid)-|\.pwd\.lock|machine-id)"
    r"|/srv/packages/.*"
)
"""Files of the tools, and of the test itself. Jobs are compared apart, because the draft has them in another file."""

LINES = ("/etc/hosts", "/.ssh/authorized_keys")
"""Files with a comment of Puppet, which it also writes with other white space."""


def seen(machine: Machine) -> dict[str, Any]:
    """Return the state of a machine."""
    state: dict[str, Any] = json.loads(machine.run("python3", "-c", LOOK).stdout)
    state["files"] = {path: item for path, item in state["files"].items() if not IGNORED.fullmatch(path)}
    for path, item in state["files"].items():
        if path.endswith(LINES):
            item[4] = [line.split() for line in item[4].splitlines() if line and not line.startswith("#")]
    return state


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of two states that differ."""
    result: dict[str, Any] = {}
    for kind in ours:
        if isinstance(ours[kind], dict):
            keys = ours[kind].keys() | theirs[kind].keys()
            pairs = {key: (ours[kind].get(key), theirs[kind].get(key)) for key in sorted(keys)}
            result |= {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
        elif ours[kind] != theirs[kind]:
            result[kind] = (ours[kind], theirs[kind])
    return result


def change_interval(path: Path) -> None:
    """Change a value of Hiera, which the configuration of the daemon contains."""
    text = path.read_text()
    path.write_text(text.replace("interval: 30", "interval: 60"))


def test_drafts_of_modules_have_the_result_of_puppet(
    debian_with_imports: Callable[[], AbstractContextManager[Path]],
    execute: Callable[..., tuple[int, str]],
    tmp_path: Path,
) -> None:
    for name in MODULES:
        status, output = execute("import", "puppet", str(CASES / name), str(tmp_path / name))
        assert status == 0
        assert " 0 errors, 0 warnings" in output
    expected = list(states_with_puppet(debian_with_imports))
    for place, (ours, theirs) in enumerate(
        zip(states_with_puller(debian_with_imports, tmp_path), expected, strict=True)
    ):
        different = differences(ours, theirs)
        assert not different, f"state {place}: {json.dumps(different, indent=1)}"
    assert differences(expected[0], expected[1])
    assert expected[2]["files"]["/var/lib/daemon/starts"][4] == "interval = 30\ninterval = 60\n"


def states_with_puppet(debian: Callable[[], AbstractContextManager[Path]]) -> list[dict[str, Any]]:
    """Return the states before Puppet, after it, and after a change of data."""
    classes = " ".join(f"include {name}" for name in MODULES)
    modules = "--modulepath=/root/modules:/usr/share/puppet/modules"
    command = f"cd /root && exec puppet apply --color=false --detailed-exitcodes {modules} -e '{classes}'"
    with debian() as root:
        add_packages(root, "tool", "tree")
        shutil.copytree(CASES, root / "root/modules")
        with powered_on(root, "--private-network") as machine:
            machine.run("sh", "-c", INITIAL)
            states = [seen(machine)]
            for _ in range(2):
                done = machine.run("sh", "-c", command, check=False)
                assert done.returncode == 2, done.stdout + done.stderr  # with changes, without failures
                states.append(seen(machine))
                change_interval(root / "root/modules/daemon/data/common.yaml")
            machine.cut_power()
    return states


def states_with_puller(
    debian: Callable[[], AbstractContextManager[Path]], drafts: Path
) -> list[dict[str, Any]]:
    """Return the states before Puller, after it, and after a change of data."""
    with debian() as root:
        add_packages(root, "tool", "tree")
        shutil.copytree(drafts, root / "root/drafts")
        with powered_on(root, "--private-network") as machine:
            machine.run("sh", "-c", INITIAL)
            states = [seen(machine)]
            for _ in range(2):
                for name in MODULES:
                    done = machine.run("puller", "apply", f"/root/drafts/{name}", "--verbose", check=False)
                    assert done.returncode == 0, done.stdout + done.stderr
                states.append(seen(machine))
                change_interval(root / "root/drafts/daemon/data/common.yaml")
            for name in MODULES:
                again = machine.run("puller", "apply", f"/root/drafts/{name}")
                assert " 0 changed" in again.stdout, again.stdout
            machine.cut_power()
    return states
