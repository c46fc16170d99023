"""500 packages and 100 services in sync: Puller and `puppet apply`, as ratios and as numbers of processes.

    /usr/bin/python3 tests/benchmarks/bench_resources.py [--runs 5] [packages] [services]

* The packages are those of this machine, which is only read. The services are oneshot test units in a Debian that this
  script makes with mmdebstrap and boots with systemd-nspawn. This needs root and a minute.
* The contenders take turns. A sample counts only if its run ended with 0.
* strace counts processes in a separate run, as successful `execve` calls. The first is the tool itself.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGES = 500
SERVICES = 100
UNIT = """\
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
"""

Command = list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "what", nargs="*", default=["packages", "services"], help="packages, services, or both"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="puller-bench-") as scratch:
        Path(scratch).chmod(0o755)
        puller = install_puller(Path(scratch))
        if "packages" in options.what:
            bench_packages(Path(scratch), puller, options.runs)
        if "services" in options.what:
            bench_services(Path(scratch), puller, options.runs)


def bench_packages(scratch: Path, puller: str, runs: int) -> None:
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n"],
        capture_output=True,
        text=True,
        check=True,
    )
    installed = [line.split()[1] for line in listed.stdout.splitlines() if line.startswith("installed ")]
    names = sorted(set(installed))[:PACKAGES]
    write_manifests(scratch / "packages", "package", names, "ensure: present", "ensure => present")
    compare(f"{len(names)} packages", [], scratch / "packages", puller, runs)


def bench_services(scratch: Path, puller: str, runs: int) -> None:
    names = [f"bench-{number:03}" for number in range(SERVICES)]
    with booted_debian(scratch, names) as inside:
        write_manifests(
            scratch / "services",
            "service",
            names,
            "ensure: running, enable: true",
            "ensure => running, enable => true",
        )
        compare(f"{SERVICES} services", inside, scratch / "services", puller, runs)


def write_manifests(directory: Path, kind: str, names: Sequence[str], ours: str, theirs: str) -> None:
    directory.mkdir()
    lines = "".join(f'      - "{name}": {{{ours}}}\n' for name in names)
    (directory / "manifest.yaml").write_text(f"resources:\n  - {kind}:\n{lines}")
    (directory / "site.pp").write_text("".join(f"{kind} {{ '{name}': {theirs} }}\n" for name in names))


def compare(title: str, inside: Command, directory: Path, puller: str, runs: int) -> None:
    """Alternate the two, print medians and the median of the paired ratios, and count processes."""
    state = ["--vardir", str(directory / "var"), "--confdir", str(directory / "etc")]
    commands = {
        "puller": [*inside, puller, "apply", str(directory), "--state-directory", str(directory / "state")],
        "puppet": [*inside, "puppet", "apply", *state, str(directory / "site.pp")],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            seconds = timed(command)
            if turn:  # the first run of each warms the caches
                times[name].append(seconds)
    ratios = [ours / theirs for ours, theirs in zip(times["puller"], times["puppet"], strict=True)]
    print(f"{title}, in order, {runs} runs in turn")
    for name, command in commands.items():
        print(
            f"  {name:7} {statistics.median(times[name]):7.3f} s  {processes(command, inside, directory)} processes"
        )
    print(f"  puller / puppet: {statistics.median(ratios):.3f}")


def timed(command: Command) -> float:
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return seconds


def processes(command: Command, inside: Command, directory: Path) -> int:
    log = directory / "strace.log"
    traced = [*inside, "strace", "-f", "-qq", "-e", "trace=execve", "-o", str(log), *command[len(inside) :]]
    subprocess.run(traced, capture_output=True, check=False, env=environment())
    return len(re.findall(r"execve\(.*\) = 0$", log.read_text(), re.MULTILINE))


def environment() -> dict[str, str]:
    """Return the environment without this shell's settings for Python: users have bytecode."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/root",
    }


def install_puller(scratch: Path) -> str:
    """Install Puller as users do, under Debian's own Python, whose tree is the same inside and outside."""
    run("/usr/bin/python3", "-m", "venv", str(scratch / "venv"))
    run(str(scratch / "venv/bin/pip"), "install", "--quiet", str(REPOSITORY))
    return str(scratch / "venv/bin/puller")


@contextlib.contextmanager
def booted_debian(scratch: Path, services: Sequence[str]) -> Iterator[Command]:
    """Yield the command prefix to run a command in a Debian with these services running and enabled."""
    tree = scratch / "tree"
    include = "systemd,systemd-sysv,dbus,python3,puppet-agent,strace"
    sources = [
        path
        for path in ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
        if os.path.exists(path)
    ]
    run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={include}", "bookworm", str(tree), *sources)
    for name in services:
        (tree / f"etc/systemd/system/{name}.service").write_text(UNIT)
        wants = tree / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / f"{name}.service").symlink_to(f"/etc/systemd/system/{name}.service")
    container = subprocess.Popen(
        [
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", "--console=pipe"),
            *(f"--directory={tree}", f"--bind={scratch}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        init = wait_for_init(container.pid)
        inside = ["nsenter", "--target", str(init), "--all", "--root", "--wd=/"]
        wait_until_running(inside)
        yield inside
        os.kill(init, signal.SIGKILL)
    finally:
        container.kill()
        container.wait()
        shutil.rmtree(tree, ignore_errors=True)


def wait_for_init(container: int) -> int:
    """Return the child of systemd-nspawn that is process 1 in its own namespace."""
    for _ in range(200):
        for process in Path(f"/proc/{container}/task/{container}/children").read_text().split():
            status = Path(f"/proc/{process}/status").read_text()
            if re.search(r"^NSpid:\s+\d+\s+1$", status, re.MULTILINE):
                return int(process)
        time.sleep(0.1)
    sys.exit("the container has no init after 20 s")


def wait_until_running(inside: Command) -> None:
    for _ in range(120):
        done = subprocess.run(
            [*inside, "systemctl", "is-system-running"], capture_output=True, text=True, check=False
        )
        if done.stdout.strip() in ("running", "degraded"):
            return
        time.sleep(0.5)
    sys.exit("the container has not booted after 60 s")


def run(*command: str) -> None:
    subprocess.run(
        command, check=True, env={**environment(), **{k: v for k, v in os.environ.items() if "PIP" in k}}
    )


if __name__ == "__main__":
    main()
