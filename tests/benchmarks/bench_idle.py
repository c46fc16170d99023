"""The cost of a run without news: bytes on the network, processor time of the host and of nginx.

    python tests/benchmarks/bench_idle.py [RUNS] [--tls]

A site behind nginx, a host that follows one bundle of ten files with a health check each, all in sync. nginx counts the
bytes of requests and answers (including headers, excluding TCP and IP). Its processor time is that of its worker, from
``/proc``.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bundles.publisher.lifecycle import make_site
from bundles.publisher.publication import publish_bundle
from tests.simulators.authority import Authority
from tests.support.nginx import Nginx

LOG = "log_format bytes '$request_length $bytes_sent'; access_log {work}/access.log bytes;"


def main(runs: int, *, tls: bool) -> None:
    # If the environment forbids Python to store bytecode, each start would compile again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        site = make_site(directory / "site", None)
        source = directory / "source"
        source.mkdir()
        machine = directory / "machine"
        machine.mkdir()
        owner = f'owner: "{os.geteuid()}", group: "{os.getegid()}", mode: "0644"'
        files = "".join(
            f"      - {path}: {{content: same, health_checks: [{{file: {{path: {path}, contains: same}}}}]}}\n"
            for path in (machine / str(number) for number in range(10))
        )
        (source / "manifest.yaml").write_text(
            f"resources:\n  - file:\n      - defaults: {{{owner}}}\n{files}"
        )
        publish_bundle(site, source, lambda key: b"", name="web", version="1.0.0")
        work = directory / "nginx"
        work.mkdir()
        nginx = Nginx(site.public, work)
        text = (work / "nginx.conf").read_text()
        plain = f"access_log {work}/access.log;"
        assert plain in text
        text = text.replace(plain, LOG.format(work=work))
        http: dict[str, str] = {}
        if tls:
            authority = Authority(directory)
            identity, listen = authority.identity("127.0.0.1"), f"listen 127.0.0.1:{nginx.port}"
            block = f"{listen} ssl; ssl_certificate {identity}; ssl_certificate_key {identity};"
            text = text.replace(f"{listen};", block)
            nginx.url = nginx.url.replace("http:", "https:")
            http = {"ca_bundle": str(authority.bundle)}
        (work / "nginx.conf").write_text(text)
        nginx.start()
        try:
            measure(directory, nginx, site.anchor, runs, http)
        finally:
            nginx.stop()


def measure(directory: Path, nginx: Nginx, anchor: Path, runs: int, http: dict[str, str]) -> None:
    configuration = {
        "site": nginx.url,
        "bundles": [{"name": "web"}],
        "trust_anchor": str(anchor),
        "http": http,
        "state_directory": str(directory / "state"),
        "run_directory": str(directory / "run"),
    }
    (directory / "config.yaml").write_text(json.dumps(configuration))
    command = [
        str(Path(sys.executable).with_name("puller")),
        "run",
        "--config",
        str(directory / "config.yaml"),
    ]
    for _ in range(3):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    time.sleep(0.2)
    log = nginx.work / "access.log"
    lines, busy, own = len(log.read_text().splitlines()), server_time(nginx), own_time()
    began = time.monotonic()
    for _ in range(runs):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    elapsed = (time.monotonic() - began) / runs
    time.sleep(0.2)
    counted = [tuple(map(int, line.split())) for line in log.read_text().splitlines()[lines:]]
    requested, answered = sum(item for item, _ in counted) / runs, sum(other for _, other in counted) / runs
    print(f"requests of a run: {len(counted) / runs:.1f}")
    print(f"bytes of a run: {requested:.0f} asked, {answered:.0f} answered")
    print(
        f"processor time of a run: {(own_time() - own) / runs * 1000:.0f} ms, {elapsed * 1000:.0f} ms in all"
    )
    print(
        f"of these for the process that speaks to the network: {worker_time(command[1:], runs) * 1000:.0f} ms"
    )
    own, check = own_time(), [*command[:1], "check", *command[2:]]
    for _ in range(runs):
        subprocess.run(check, check=True, stdout=subprocess.DEVNULL)
    print(f"processor time of puller check: {(own_time() - own) / runs * 1000:.0f} ms")
    print(f"processor time of nginx for a run: {(server_time(nginx) - busy) / runs * 1000:.2f} ms")


# With this code, the agent accesses the network without a worker.
ALONE = """\
import contextlib
import bundles.confined.current as current
import bundles.confined.network as network
import puller.cli as cli
cli._make_network = network.Network
current.confined = lambda *_, **__: contextlib.nullcontext(network.Network())
"""
MAIN = "from puller.cli import main; main()"


def worker_time(arguments: list[str], runs: int) -> float:
    """Return the median of the additional seconds of a run with a worker, compared with a run without one."""
    differences = []
    for _ in range(runs):
        taken = []
        for code in (MAIN, ALONE + MAIN):
            began = own_time()
            subprocess.run([sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.DEVNULL)
            taken.append(own_time() - began)
        differences.append(taken[0] - taken[1])
    return statistics.median(differences)


def own_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def server_time(nginx: Nginx) -> float:
    """Return the seconds of nginx's only worker."""
    assert nginx.process
    children = Path(f"/proc/{nginx.process.pid}/task/{nginx.process.pid}/children").read_text().split()
    # The scheduler counts nanoseconds. /proc/PID/stat counts hundredths of a second.
    return sum(int(Path(f"/proc/{child}/schedstat").read_text().split()[0]) / 1e9 for child in children)


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--tls"]
    main(int(given[0]) if given else 50, tls="--tls" in sys.argv)
