"""The figures of docs/sizing.md: web server, fleet store, publisher, bandwidth and disk for 50, 2,000 and 10,000 hosts.

    python tests/benchmarks/bench_sizing.py [HOSTS...] [--repeat 3]

* A real publisher publishes a site with the bundles of examples/configurations. nginx serves it, and logs requests and
  bytes with HTTP headers. A real host makes runs without news, and runs with a new release of its bundle.
* The reports of the fleet are simulated documents in the format of hosts. Import, status and pages are real commands.
* Each figure is the lowest of the repetitions, because other processes only add time. Commands are separate processes.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.bench_idle import LOG, server_time
from tests.simulators import fleet as simulated
from tests.support.nginx import Nginx

ROOT = Path(__file__).parents[2]
INTERVAL = 1800
"""Seconds between two runs of a host."""

# A small process starts the command: the peak memory of a child includes the size of its large parent.
_WITHIN = """
import os, subprocess, sys, time
began = time.monotonic()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Cost(NamedTuple):
    """Seconds, seconds of a processor, and MB of memory."""

    seconds: float
    processor: float
    memory: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s, {self.processor:.2f} s of a processor, {self.memory:.0f} MB"


class Traffic(NamedTuple):
    """Requests, and sent and received bytes, of one run of a host. ``server`` is nginx's processor time in seconds."""

    requests: float
    sent: float
    received: float
    server: float


def puller(*words: str | Path) -> Cost:
    """Run a command that must succeed, and return its cost."""
    command = [sys.executable, "-c", _WITHIN, sys.executable, "-m", "puller", *map(str, words)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stderr}")
    return Cost(*map(float, done.stdout.split()))


def lowest(costs: list[Cost]) -> Cost:
    """Return the lowest value of each kind."""
    return Cost(*map(min, zip(*costs, strict=True)))


def size_of(directory: Path) -> int:
    """Return the bytes of all files in a directory, as the disk allocates them."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))


class Bench:
    """A publisher with a site behind nginx, and a host, in a temporary directory."""

    def __init__(self, scratch: Path, repeat: int) -> None:
        self.scratch, self.repeat = scratch, repeat
        self.site, self.sources = scratch / "site", scratch / "bundles"
        self.version = 0

    def publisher(self) -> None:
        """Publish all examples, then one of them again and again."""
        examples = ROOT / "examples/configurations"
        names = [path.name for path in sorted(examples.iterdir()) if (path / "manifest.yaml").exists()]
        for name in names:
            shutil.copytree(examples / name, self.sources / name)
        self._write_bundle()
        puller("site", "init", self.site, "--no-passphrase")
        all_sources = [*sorted(self.sources.iterdir())]
        first = puller("site", "publish", self.site, *all_sources, "--version", "auto")
        print(f"publisher, {len(all_sources)} bundles at once: {first}")
        print(f"publisher, one bundle: {lowest([self.publish() for _ in range(self.repeat)])}")
        refresh = [puller("site", "refresh", self.site) for _ in range(self.repeat)]
        print(f"publisher, refresh: {lowest(refresh)}")
        print(f"publisher, disk of the site: {size_of(self.site) / 1e6:.1f} MB")

    def _write_bundle(self) -> None:
        source = self.sources / "sizing"
        (source / "files").mkdir(parents=True, exist_ok=True)
        (source / "files/large").write_bytes(os.urandom(100_000))
        owner = f'owner: "{os.geteuid()}", group: "{os.getegid()}", mode: "0644"'
        machine = self.scratch / "machine"
        machine.mkdir(exist_ok=True)
        files = "".join(
            f"      - {machine}/{number}: {{content: '{self.version}'}}\n" for number in range(20)
        )
        large = f"      - {machine}/large: {{source: files/large}}\n"
        text = f"resources:\n  - file:\n      - defaults: {{{owner}}}\n{files}{large}"
        (source / "manifest.yaml").write_text(text)

    def publish(self) -> Cost:
        """Publish a new version of the bundle of the host: 20 changed files, and one with 100 kB of new content."""
        self.version += 1
        self._write_bundle()
        return puller(
            "site", "publish", self.site, self.sources / "sizing", "--version", f"2.{self.version}.0"
        )

    def host(self) -> tuple[Traffic, Traffic]:
        """Return the traffic of a run without news, and of a run with a release."""
        with self._nginx() as nginx:
            directory = self.scratch / "host"
            settings = {
                "site": nginx.url,
                "bundles": [{"name": "sizing", "trial": {"duration": "0s"}}],
                "trust_anchor": str(self.site / "root.json"),
                "reports": {"to": [str(self.scratch / "inbox")]},
                "state_directory": str(directory / "state"),
                "run_directory": str(directory / "run"),
            }
            directory.mkdir()
            (self.scratch / "inbox").mkdir()
            (directory / "config.yaml").write_text(json.dumps(settings))
            run = ("run", "--config", directory / "config.yaml")
            puller(*run)
            print(f"host, disk after the first run: {size_of(directory / 'state') / 1e6:.2f} MB")
            news = [self._traffic(nginx, run, release=True) for _ in range(max(self.repeat, 5))]
            idle = [self._traffic(nginx, run, release=False) for _ in range(max(self.repeat, 5))]
            cost = lowest([puller(*run) for _ in range(self.repeat)])
            print(f"host, run without news: {cost}")
            for _ in range(20):
                puller(*run)
            print(f"host, disk after {self.version} releases: {size_of(directory / 'state') / 1e6:.2f} MB")
            reports = [path.stat().st_size for path in (self.scratch / "inbox").rglob("*.gz")]
            print(f"host, report: {min(reports)} to {max(reports)} bytes")
            return Traffic(*map(min, zip(*idle, strict=True))), Traffic(*map(min, zip(*news, strict=True)))

    @contextmanager
    def _nginx(self) -> Iterator[Nginx]:
        work = self.scratch / "nginx"
        work.mkdir()
        nginx = Nginx(self.site / "public", work)
        text = (work / "nginx.conf").read_text()
        plain = f"access_log {work}/access.log;"
        assert plain in text
        (work / "nginx.conf").write_text(text.replace(plain, LOG.format(work=work)))
        nginx.start()
        try:
            yield nginx
        finally:
            nginx.stop()

    def _traffic(self, nginx: Nginx, run: tuple[str | Path, ...], *, release: bool) -> Traffic:
        if release:
            self.publish()
        log = nginx.work / "access.log"
        lines, busy = len(log.read_text().splitlines()), server_time(nginx)
        puller(*run)
        entries = [tuple(map(int, line.split())) for line in log.read_text().splitlines()[lines:]]
        sent, received = (sum(values) for values in zip(*entries, strict=True))
        return Traffic(len(entries), sent, received, server_time(nginx) - busy)

    def fleet(self, count: int) -> None:
        """Print the cost of the store and the pages for a number of hosts."""
        hosts, now = simulated.names(count), simulated.now()
        place = self.scratch / f"fleet-{count}"
        place.mkdir()
        reports, store = place / "reports", place / "fleet.db"
        reports.mkdir()

        def arrive(minutes: float) -> None:
            at = now - timedelta(minutes=minutes)
            simulated.deliver(reports, (simulated.sent(host, at) for host in hosts))

        arrive(30)
        print(
            f"store, import of the first {count:,} reports: {puller('fleet', 'import', reports, '--store', store)}"
        )
        following = []
        for number in range(self.repeat):
            arrive(20 - number)
            following.append(puller("fleet", "import", reports, "--store", store))
        print(f"store, import of the next {count:,} reports: {lowest(following)}")
        status = [puller("fleet", "status", "--store", store) for _ in range(self.repeat)]
        print(f"store, status: {lowest(status)}")
        pages = [
            puller("fleet", "page", "--store", store, "--to", place / f"p{n}") for n in range(self.repeat)
        ]
        print(f"store, all pages: {lowest(pages)}")
        print(f"store, disk: {sum(path.stat().st_size for path in place.glob('fleet.db*')) / 1e6:.1f} MB")
        print(f"store, disk of the pages: {size_of(place / 'p0') / 1e6:.1f} MB")
        shutil.rmtree(place)


def print_traffic(name: str, traffic: Traffic, seconds: float, hosts: list[int]) -> None:
    """Print the traffic of a run, and of fleets whose hosts run once in this time."""
    each = f"{traffic.requests:.0f} requests, {traffic.sent:.0f} bytes sent, {traffic.received:.0f} received"
    print(f"{name}: {each}, {traffic.server * 1000:.2f} ms of nginx")
    for count in hosts:
        rate, total = count / seconds, count * (traffic.sent + traffic.received)
        print(
            f"  {count:,} hosts in {seconds:.0f} s: {rate * traffic.requests:.2f} requests a second, "
            f"{total * 8 / seconds / 1000:.1f} kbit/s, {total / 1e6:.2f} MB, "
            f"{rate * traffic.server * 100:.3f} % of a core"
        )


def main() -> None:
    """Measure and print all figures."""
    parser = argparse.ArgumentParser(description="The figures of docs/sizing.md.")
    parser.add_argument("hosts", type=int, nargs="*", default=[50, 2_000, 10_000])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with open("/proc/cpuinfo") as file:
        model = next(
            (line.partition(":")[2].strip() for line in file if line.startswith("model name")), "unknown"
        )
    python = platform.python_version()
    print(f"{datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} processors ({model}), Python {python}")
    with tempfile.TemporaryDirectory(prefix="puller-bench-") as scratch:
        bench = Bench(Path(scratch), options.repeat)
        bench.publisher()
        idle, news = bench.host()
        print_traffic("web server, run without news", idle, INTERVAL, options.hosts)
        print_traffic("web server, run with a release", news, INTERVAL, options.hosts)
        for count in options.hosts:
            bench.fleet(count)


if __name__ == "__main__":
    main()
