"""A thousand users, a thousand lines, sysctls and mounts in sync: Puller compared with Ansible and Puppet.

    /usr/bin/python3 tests/benchmarks/bench_types.py [--runs 1] [users] [lines] [sysctls] [mounts]

* All contenders run in a Debian that this script makes with mmdebstrap, with Debian's own Ansible and Puppet. Its
  network and mounts are in their own namespaces. This needs root and some minutes, most of them Ansible's.
* The contenders take turns in one tree, which Puller has brought in sync. A sample counts only if its run ended with 0
  and changed nothing.
* strace counts processes in a separate run, as successful `execve` calls. The first is the tool itself.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PUPPET = "puppet-agent,puppet-module-puppetlabs-stdlib,puppet-module-puppetlabs-mount-core"
INCLUDE = f"python3,mount,ansible,{PUPPET},strace,procps"
MODULES = "/usr/share/puppet/modules"
USERS, LINES, FILES, SYSCTLS, MOUNTS = 1000, 1000, 10, 500, 100

Resources = list[tuple[str, dict[str, Any]]]


class Workload:
    """Resources in the language of each tool, if the tool supports them."""

    def __init__(self, name: str, ours: str, entries: Resources, ansible: str, puppet: str) -> None:
        self.name = name
        self.ours = ours
        self.entries = entries
        self.ansible = ansible
        self.puppet = puppet

    def manifest(self) -> str:
        entries = "".join(
            f"      - {json.dumps(name)}: {json.dumps(found)}\n" for name, found in self.entries
        )
        return f"resources:\n  - {self.ours}:\n{entries}"

    def playbook(self) -> str:
        items = [{"name": name, **properties} for name, properties in self.entries]
        task = {"loop": items, **json.loads(self.ansible)}
        return json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}])

    def site(self) -> str:
        return "".join(self.puppet.format(name=name, **values) for name, values in self.entries)


def workloads(keys: dict[str, str]) -> list[Workload]:
    users: Resources = [
        (f"user{number:04}", {"uid": 20000 + number, "home": f"/srv/user{number:04}", "shell": "/bin/sh"})
        for number in range(USERS)
    ]
    lines: Resources = [
        (
            f"line {number}",
            {"path": f"/etc/bench/{number % FILES}.conf", "line": f"option{number} = {number}"},
        )
        for number in range(LINES)
    ]
    sysctls: Resources = [(key, {"value": value}) for key, value in keys.items()]
    mounts: Resources = [
        (f"/srv/mount{number:03}", {"device": "tmpfs", "type": "tmpfs", "options": ["size=1m", "nodev"]})
        for number in range(MOUNTS)
    ]
    return [
        Workload(
            "users",
            "user",
            [(name, {**found, "manage_home": False}) for name, found in users],
            '{"ansible.builtin.user": {"name": "{{ item.name }}", "uid": "{{ item.uid }}", "home": "{{ item.home }}",'
            ' "shell": "{{ item.shell }}", "create_home": false}}',
            "user {{ '{name}': uid => {uid}, home => '{home}', shell => '{shell}' }}\n",
        ),
        Workload(
            "lines",
            "line",
            lines,
            '{"ansible.builtin.lineinfile": {"path": "{{ item.path }}", "line": "{{ item.line }}"}}',
            "file_line {{ '{name}': path => '{path}', line => '{line}' }}\n",
        ),
        Workload(
            "sysctls",
            "sysctl",
            sysctls,
            '{"ansible.posix.sysctl": {"name": "{{ item.name }}", "value": "{{ item.value }}", "reload": false,'
            ' "sysctl_file": "/etc/sysctl.d/90-puller.conf"}}',
            "",
        ),
        Workload(
            "mounts",
            "mount",
            mounts,
            '{"ansible.posix.mount": {"path": "{{ item.name }}", "src": "tmpfs", "fstype": "tmpfs",'
            ' "opts": "size=1m,nodev", "state": "mounted"}}',
            "mount {{ '{name}': ensure => mounted, device => 'tmpfs', fstype => 'tmpfs', options => 'size=1m,nodev',"
            " dump => 0, pass => 0 }}\n",
        ),
    ]


class Tree:
    """A Debian, and the namespaces to enter it."""

    def __init__(self, root: Path, holder: int, puller: str) -> None:
        self.root = root
        self._inside = ["nsenter", f"--target={holder}", "--mount", "--net", "chroot", str(root)]
        self._puller = puller

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}
        done = subprocess.run(
            [*self._inside, *command],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=3600,
        )
        if check and done.returncode:
            sys.exit(
                f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
            )
        return done

    def commands(self, workload: Workload) -> dict[str, list[str]]:
        directory = f"/srv/bench/{workload.name}"
        state = ["--vardir", f"{directory}/var", "--confdir", f"{directory}/etc"]
        result = {
            "puller": [self._puller, "apply", directory, "--state-directory", f"{directory}/state"],
            "ansible": ["ansible-playbook", "-i", "localhost,", "-c", "local", f"{directory}/playbook.json"],
            "puppet": ["puppet", "apply", *state, f"--modulepath={MODULES}", f"{directory}/site.pp"],
        }
        return result if workload.puppet else {name: result[name] for name in ("puller", "ansible")}

    def write(self, workload: Workload) -> None:
        directory = self.root / "srv/bench" / workload.name
        directory.mkdir(parents=True)
        (directory / "manifest.yaml").write_text(workload.manifest())
        (directory / "playbook.json").write_text(workload.playbook())
        (directory / "site.pp").write_text(workload.site())


def main() -> None:
    # If the environment forbids Python to store bytecode, each start would compile again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("what", nargs="*", default=["users", "lines", "sysctls", "mounts"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="puller-bench-") as scratch, tree(Path(scratch)) as debian:
        for workload in workloads(parameters(debian)):
            if workload.name in options.what:
                debian.write(workload)
                prepare(debian, workload)
                compare(debian, workload, options.runs)


def prepare(debian: Tree, workload: Workload) -> None:
    """Let Puller bring all resources in sync."""
    (debian.root / "etc/bench").mkdir(exist_ok=True)
    for number in range(FILES):
        (debian.root / f"etc/bench/{number}.conf").touch()
    debian.run(*debian.commands(workload)["puller"])


def compare(debian: Tree, workload: Workload, runs: int) -> None:
    commands = debian.commands(workload)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            started = time.perf_counter()
            output = debian.run(*command).stdout
            times[name].append(time.perf_counter() - started)
            require_no_change(name, output)
    print(f"{len(workload.entries)} {workload.name}, in order, {runs} runs in turn", flush=True)
    for name, command in commands.items():
        pairs = zip(times["puller"], times[name], strict=True)
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        seconds, count = statistics.median(times[name]), processes(debian, command)
        print(
            f"  {name:8} {seconds:8.3f} s  {count:6} processes  puller / {name}: {ratio:.4f}",
            flush=True,
        )


def require_no_change(name: str, output: str) -> None:
    changed = re.findall(r"changed=(\d+)|(\d+) changed", output)
    if any(int(item or other) for item, other in changed) or "created" in output:
        sys.exit(f"{name} changes something:\n{output[-2000:]}")


def processes(debian: Tree, command: list[str]) -> int:
    debian.run("strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=execve", "-o", "/strace.log", *command)
    return len(re.findall(r"execve\(.*\) = 0$", (debian.root / "strace.log").read_text(), re.MULTILINE))


def parameters(debian: Tree) -> dict[str, str]:
    """Return up to 500 kernel parameters of the tree's network, with their current values."""
    result = {}
    for line in debian.run("sysctl", "-a", "--pattern", r"^net\.").stdout.splitlines():
        key, _, value = line.partition(" = ")
        if value and "stable_secret" not in key:
            result[key] = value
    return dict(list(result.items())[:SYSCTLS])


@contextlib.contextmanager
def tree(scratch: Path) -> Iterator[Tree]:
    root = scratch / "debian"
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=apt", f"--include={INCLUDE}", "bookworm", str(root), *sources()],
        check=True,
    )
    puller = install_puller(scratch)
    setting_up = f"""
        mount --make-rprivate / &&
        mount --bind {root} {root} && mount -t proc proc {root}/proc && mount -t tmpfs tmpfs {root}/dev/shm &&
        mkdir -p {root}{scratch}/venv && mount --bind {scratch}/venv {root}{scratch}/venv &&
        echo ready; exec sleep infinity
    """
    holder = subprocess.Popen(
        ["unshare", "--mount", "--net", "sh", "-c", setting_up], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        yield Tree(root, holder.pid, puller)
    finally:
        holder.kill()
        holder.wait()


def sources() -> list[str]:
    """Return this machine's own package sources: it may only reach a mirror."""
    return [str(path) for path in (Path("/etc/apt/sources.list.d/debian.sources"),) if path.exists()]


def install_puller(scratch: Path) -> str:
    """Install Puller as users do, under Debian's own Python."""
    subprocess.run(["/usr/bin/python3", "-m", "venv", str(scratch / "venv")], check=True)
    subprocess.run([scratch / "venv/bin/pip", "install", "--quiet", str(REPOSITORY)], check=True)
    return str(scratch / "venv/bin/puller")


if __name__ == "__main__":
    main()
