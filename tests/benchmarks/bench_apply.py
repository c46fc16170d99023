"""The second run of Puller and of its peers over the same managed files: time, memory, ratios.

    /usr/bin/python3 tests/benchmarks/bench_apply.py [--sizes 200,2000,10000] [--runs 5] [--peers cf-agent,puppet]

* Every contender manages its own copy of the same N files: one resource a file, with owner, group, mode, and a content
  that contains a fact and a value from data.
* The contenders take turns (A B C A B C), so that a busy moment of the machine affects all of them.
* A sample counts only if its run succeeded and changed nothing, and all copies are equal byte for byte.
* Puller is installed as users install it, under the Python that runs this script: in its own environment, compiled,
  without test tools.
* All keys, states and reports are in the temporary directory, too. Nothing else on the machine is changed.

`puller apply DIRECTORY` is compared with `cf-agent -f POLICY`: both read and check their input. `puller run` with its
HTTP refresh, from nginx on loopback, is compared with plain `cf-agent` on a previously validated policy.
"""

import argparse
import contextlib
import grp
import os
import pwd
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

OWNER = pwd.getpwuid(os.getuid()).pw_name
GROUP = grp.getgrgid(os.getgid()).gr_name
PORT = 8080

REPOSITORY = Path(__file__).parents[2]

Command = list[str]
Measure = Literal["wall", "processor", "peak"]
MEASURES: tuple[Measure, ...] = ("wall", "processor", "peak")


@dataclass(frozen=True)
class Sample:
    """One run: seconds of wall clock, seconds of processor (user and system), KiB of the largest process."""

    wall: float
    processor: float
    peak: int


@dataclass
class Contender:
    """A tool, its command, and the directory of files that the command manages."""

    name: str
    command: Command
    files: Path
    samples: list[Sample] = field(default_factory=list)

    def values(self, what: Measure) -> list[float]:
        return [getattr(sample, what) for sample in self.samples]


@dataclass(frozen=True)
class Target:
    """A goal: at most ``ratio`` of the peer's ``what`` at this size."""

    size: int
    tool: str
    peer: str
    what: Measure
    ratio: float


TARGETS = (
    Target(200, "puller apply", "cf-agent -f", "processor", 0.75),
    Target(10_000, "puller apply", "cf-agent -f", "processor", 0.15),
    Target(10_000, "puller apply", "cf-agent -f", "peak", 2.0),
    Target(200, "puller run", "cf-agent", "processor", 1.3),
)


# --- the same files in three languages ----------------------------------------------------------------------


def write_manifest(path: Path, files: Path, size: int) -> None:
    with path.open("w") as out:
        out.write(f"data:\n  port: {PORT}\nresources:\n  - file:\n")
        out.write(f'      - defaults: {{ensure: present, owner: {OWNER}, group: {GROUP}, mode: "0644"}}\n')
        for number in range(size):
            out.write(
                f"      - {files}/file-{number}.conf:\n          content: |\n            # file {number}\n"
            )
            out.write("            host = {{ lookup('facts.networking.hostname') }}\n")
            out.write("            port = {{ lookup('data.port') }}\n")


def write_policy(path: Path, files: Path, size: int) -> None:
    with path.open("w") as out:
        out.write('body common control { bundlesequence => { "main" }; }\nbundle agent main\n{\n')
        out.write(f'vars:\n  "port" string => "{PORT}";\nfiles:\n')
        for number in range(size):
            out.write(f'  "{files}/file-{number}.conf"\n    create => "true",\n    perms => settled,\n')
            out.write(f'    content => "# file {number}\nhost = $(sys.uqhost)\nport = $(port)\n";\n')
        out.write('}\nbody perms settled\n{\n  mode => "0644";\n  rxdirs => "false";\n')
        out.write(f'  owners => {{ "{OWNER}" }};\n  groups => {{ "{GROUP}" }};\n}}\n')
    path.chmod(0o600)  # cf-agent rejects a policy that others can write


def write_puppet_manifest(path: Path, files: Path, size: int) -> None:
    with path.open("w") as out:
        out.write(f"$port = {PORT}\n")
        for number in range(size):
            out.write(f"file {{ '{files}/file-{number}.conf':\n  ensure => file,\n")
            out.write(f"  owner => '{OWNER}',\n  group => '{GROUP}',\n  mode => '0644',\n")
            out.write(f'  content => "# file {number}\\n')
            out.write("host = ${facts['networking']['hostname']}\\nport = ${port}\\n\",\n}\n")


# --- contenders: prepare a private directory, return the command of a run -----------------------------------


@dataclass(frozen=True)
class Surroundings:
    """Objects that contenders share: the command ``puller``, and the processes to stop after the measurement."""

    puller: str
    stack: contextlib.ExitStack


def puller_apply(work: Path, size: int, around: Surroundings) -> Contender:
    files, bundle = make_directory(work / "files"), make_directory(work / "bench")
    write_manifest(bundle / "manifest.yaml", files, size)
    command = [around.puller, "apply", str(bundle), "--state-directory", str(work / "state")]
    return Contender("puller apply", command, files)


def puller_run(work: Path, size: int, around: Surroundings) -> Contender:
    """Set up the agent as a timer starts it, on a site without news."""
    files, bundle = make_directory(work / "files"), make_directory(work / "bench")
    write_manifest(bundle / "manifest.yaml", files, size)
    site = work / "site"
    check(around.puller, "site", "init", str(site), "--no-passphrase")
    check(around.puller, "site", "publish", str(site), str(bundle), "--version", "1.0.0")
    url = around.stack.enter_context(nginx(site / "public", make_directory(work / "nginx")))
    own = {
        name: str(work / name)
        for name in (
            "host_data",
            "host_data_directory",
            "facts_directory",
            "state_directory",
            "run_directory",
        )
    }
    settings = {"site": url, "bundles": "[{name: bench}]", "trust_anchor": str(site / "root.json"), **own}
    (work / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    return Contender("puller run", [around.puller, "run", "--config", str(work / "config.yaml")], files)


def install_puller(directory: Path) -> str:
    """Install Puller in a new environment and return the path of the command."""
    check(sys.executable, "-m", "venv", str(directory))
    check(str(directory / "bin/pip"), "install", "-qq", str(REPOSITORY))
    return str(directory / "bin/puller")


def check(*command: str) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=600)


@contextlib.contextmanager
def nginx(root: Path, work: Path) -> Iterator[str]:
    """Yield the URL of an nginx that serves ``root`` on loopback until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    user = "user root;" if os.geteuid() == 0 else ""
    paths = "".join(
        f"{name}_temp_path {work}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (work / "nginx.conf").write_text(
        f"{user} daemon off; pid {work}/pid; error_log {work}/error.log; events {{}}\n"
        f"http {{ access_log off; {paths} server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
    )
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
    with subprocess.Popen(
        [program, "-p", str(work), "-e", f"{work}/error.log", "-c", f"{work}/nginx.conf"]
    ) as server:
        wait_for_port(port)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def wait_for_port(port: int) -> None:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nginx does not answer at port {port}")


def puppet(work: Path, size: int, around: Surroundings) -> Contender:
    files = make_directory(work / "files")
    write_puppet_manifest(work / "site.pp", files, size)
    own = [
        f"--{name}={make_directory(work / name)}"
        for name in ("confdir", "vardir", "logdir", "rundir", "publicdir")
    ]
    return Contender("puppet apply", ["puppet", "apply", *own, str(work / "site.pp")], files)


def cf_agent(work: Path, size: int, around: Surroundings) -> Contender:
    """Set up the agent as it runs on a host, with a validated policy in its work directory."""
    files = make_directory(work / "files")
    state = make_work_directory(work)
    write_policy(make_directory(state / "inputs") / "promises.cf", files, size)
    # -K: without it the second run would skip every promise as just kept.
    return Contender("cf-agent", ["cf-agent", "-K", "-w", str(state)], files)


def cf_agent_file(work: Path, size: int, around: Surroundings) -> Contender:
    """Set up the agent with a policy file on the command line, which each run validates."""
    files = make_directory(work / "files")
    state = make_work_directory(work)
    write_policy(work / "policy.cf", files, size)
    return Contender(
        "cf-agent -f", ["cf-agent", "-K", "-w", str(state), "-f", str(work / "policy.cf")], files
    )


def make_work_directory(work: Path) -> Path:
    """Create a work directory for cf-agent: private, with keys, and with the tools where it looks for them."""
    state = make_directory(work / "state", 0o700)
    (state / "bin").symlink_to(os.path.dirname(shutil.which("cf-promises") or "/usr/bin/cf-promises"))
    environment = {**os.environ, "CFENGINE_TEST_OVERRIDE_WORKDIR": str(state)}
    subprocess.run(["cf-key"], env=environment, stdout=subprocess.DEVNULL, check=True, timeout=60)
    return state


def make_directory(path: Path, mode: int = 0o755) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    return path


CONTENDERS: dict[str, tuple[Callable[[Path, int, Surroundings], Contender], ...]] = {
    "puller": (puller_apply, puller_run),
    "cf-agent": (cf_agent_file, cf_agent),
    "puppet": (puppet,),
}


# --- measuring ----------------------------------------------------------------------------------------------


def measure(command: Command, log: Path) -> Sample:
    """Run once. Raises ``CalledProcessError`` with the end of the output if the run fails.

    wait4 counts the command and every process it waited for. The peak is that of the largest process. A new process
    inherits the peak of this script, which hides lower peaks, so this script must stay small.
    """
    with log.open("wb") as output:
        files = [(os.POSIX_SPAWN_DUP2, output.fileno(), 1), (os.POSIX_SPAWN_DUP2, output.fileno(), 2)]
        start = time.perf_counter()
        child = os.posix_spawnp(command[0], command, os.environ, file_actions=files)
        _, status, usage = os.wait4(child, 0)
        wall = time.perf_counter() - start
    if code := os.waitstatus_to_exitcode(status):
        raise subprocess.CalledProcessError(code, command, log.read_bytes()[-2000:])
    return Sample(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)


def fingerprint(files: Path) -> list[tuple[str, int, int, int]]:
    """Return name, inode, change time and size of each file, which show any write or attribute change."""
    with os.scandir(files) as entries:
        return sorted(
            (entry.name, (stat := entry.stat()).st_ino, stat.st_ctime_ns, stat.st_size) for entry in entries
        )


def contents(files: Path) -> Iterator[tuple[str, bytes]]:
    return ((name, (files / name).read_bytes()) for name in sorted(os.listdir(files)))


def converge(contenders: list[Contender], size: int, log: Path) -> None:
    """Run each contender once to write the files, and again to fill caches. All copies must then be equal."""
    for contender in contenders:
        measure(contender.command, log)
        measure(contender.command, log)
        if len(os.listdir(contender.files)) != size:
            raise SystemExit(
                f"{contender.name}: {len(os.listdir(contender.files))} files written, expected {size}"
            )
    first = contenders[0]
    for other in contenders[1:]:
        for (name, expected), (_, result) in zip(contents(first.files), contents(other.files), strict=True):
            if expected != result:
                raise SystemExit(f"{name}: {other.name} wrote {result!r}, {first.name} wrote {expected!r}")


def compare(contenders: list[Contender], runs: int, log: Path) -> None:
    for _ in range(runs):
        for contender in contenders:
            before = fingerprint(contender.files)
            contender.samples.append(measure(contender.command, log))
            if fingerprint(contender.files) != before:
                raise SystemExit(f"{contender.name}: the second run changed files")


# --- the table ----------------------------------------------------------------------------------------------


def paired_ratio(tool: Contender, peer: Contender, what: Measure) -> float:
    """Return the median of the quotients of paired runs, which a slow minute of the machine hardly changes."""
    pairs = zip(tool.values(what), peer.values(what), strict=True)
    return statistics.median(ours / theirs for ours, theirs in pairs)


def print_table(contenders: list[Contender], size: int) -> None:
    print(f"\n{size} files, second run")
    print(f"  {'':14}{'wall ms':>10}{'cpu ms':>10}{'peak MiB':>10}")
    for contender in contenders:
        wall, processor, peak = (statistics.median(contender.values(what)) for what in MEASURES)
        print(f"  {contender.name:14}{wall * 1000:10.1f}{processor * 1000:10.1f}{peak / 1024:10.1f}")


def print_ratios(contenders: list[Contender], size: int) -> bool:
    """Print each of Puller's rows against each peer's. Return ``False`` if a target of this size is missed."""
    reached = True
    for tool in (contender for contender in contenders if contender.name.startswith("puller")):
        for peer in (contender for contender in contenders if not contender.name.startswith("puller")):
            ratios = {what: paired_ratio(tool, peer, what) for what in MEASURES}
            print(
                f"  {tool.name} / {peer.name}: " + ", ".join(f"{what} {r:.2f}" for what, r in ratios.items())
            )
            for target in TARGETS:
                if (target.size, target.tool, target.peer) == (size, tool.name, peer.name):
                    good = ratios[target.what] <= target.ratio
                    reached &= good
                    print(
                        f"    target: {target.what} at most {target.ratio} {'reached' if good else 'MISSED'}"
                    )
    return reached


# --- the command --------------------------------------------------------------------------------------------


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="200,2000,10000", help="numbers of files, separated by commas")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each contender")
    parser.add_argument("--peers", default="cf-agent,puppet", help="cf-agent, puppet, both, or empty")
    return parser.parse_args()


def bench(size: int, runs: int, peers: Sequence[str], puller: str) -> bool:
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="puller-bench-")))
        make = [function for tool in ("puller", *peers) for function in CONTENDERS[tool]]
        around = Surroundings(puller, stack)
        contenders = [
            function(make_directory(work / str(number)), size, around) for number, function in enumerate(make)
        ]
        converge(contenders, size, work / "log")
        compare(contenders, runs, work / "log")
    print_table(contenders, size)
    return print_ratios(contenders, size)


def main() -> None:
    arguments = parse_arguments()
    # If the environment forbids Python to store bytecode, each start would compile again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    peers = [peer for peer in arguments.peers.split(",") if peer]
    for tool in ("nginx", *peers):
        if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin"):
            raise SystemExit(
                f"{tool}: not installed (Debian: apt-get install nginx-light cfengine3 puppet-agent)"
            )
    with tempfile.TemporaryDirectory(prefix="puller-bench-") as directory:
        puller = install_puller(Path(directory))
        print(f"Python {sys.version.split()[0]}, medians and ratios of {arguments.runs} rounds")
        results = [bench(int(size), arguments.runs, peers, puller) for size in arguments.sizes.split(",")]
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nPeaks below {own:.0f} MiB, this script's own, would not show.")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
