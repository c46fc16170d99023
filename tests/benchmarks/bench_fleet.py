"""A fleet of 10,000 simulated hosts: imported reports, `puller fleet status`, a preview, and pages.

    python tests/benchmarks/bench_fleet.py [HOSTS] [STORE]

STORE is a new SQLite file by default, or the SQLAlchemy URL of an empty database. Every step is a separate process,
whose time, processor time and memory are printed. The steps import the first report of each host, the next report
without changes, a report after a release to all hosts that failed on a third, and no new reports.
"""

import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.simulators import fleet as simulated


def main() -> None:
    # If the environment forbids Python to store bytecode, each start would compile again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory(prefix="puller-bench-") as scratch:
        place = Path(scratch)
        store = sys.argv[2] if len(sys.argv) > 2 else str(place / "fleet.db")
        bench(count, place / "reports", store)
        if "://" not in store:
            size = sum(file.stat().st_size for file in place.glob("fleet.db*"))
            print(f"the store on disk: {size / 1e6:.0f} MB")


def bench(count: int, reports: Path, store: str) -> None:
    hosts, now = simulated.names(count), simulated.now()
    reports.mkdir()
    steps = {
        "the first report of each host": (15, {}),
        "the next one, nothing happened": (10, {}),
        "a release, which fails on a third": (5, {"version": "2.0.0"}),
        "nothing new": (0, None),
    }
    for name, (minutes, provided) in steps.items():
        if provided is not None:
            at = now - timedelta(minutes=minutes)
            simulated.deliver(
                reports, (_sent(number, host, at, provided) for number, host in enumerate(hosts))
            )
        seconds = measured(f"import, {name}", "fleet", "import", str(reports), "--store", store)
        if provided is not None:
            print(f"    {count / seconds:.0f} documents a second")
    measured("status", "fleet", "status", "--store", store)
    measured("status --failed", "fleet", "status", "--failed", "--store", store)
    measured("status --where", "fleet", "status", "--where", "os.release.major=12", "--store", store)
    for name in ("page, all anew", "page, no host has sent"):
        measured(name, "fleet", "page", "--to", str(reports.parent / "pages"), "--store", store)
    old, new = (_bundle(reports.parent / version) for version in ("old", "new"))
    measured("preview", "preview", new, "--from", old, "--fleet", store, status=2)


def _bundle(directory: Path) -> str:
    directory.mkdir()
    content = f"'{directory.name} {{{{ facts.os.name }}}}'"
    options = f"{{owner: root, group: root, mode: '0644', content: {content}}}"
    (directory / "manifest.yaml").write_text(f"resources:\n  - file:\n      - /etc/x: {options}\n")
    return str(directory)


def _sent(number: int, host: str, at: Any, provided: dict[str, Any]) -> Any:
    if provided and number % 3 == 0:
        provided = {
            **provided,
            "failed": {"service#web": f"web.service on {host} failed with pid {10_000 + number}"},
        }
    elif provided:
        provided = {**provided, "changed": {"file#/etc/web.conf": "content differs"}}
    return simulated.sent(host, at, **provided)


def measured(name: str, *arguments: str, status: int = 0) -> float:
    """Run a command that must end with ``status``, and return its seconds."""
    began = time.monotonic()
    command = [sys.executable, "-m", "puller", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, ended, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(ended)
    if process.returncode != status:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}")
    processor = used.ru_utime + used.ru_stime
    print(f"{name}: {seconds:.2f} s, {processor:.2f} s of a processor, {used.ru_maxrss / 1024:.0f} MB")
    return seconds


if __name__ == "__main__":
    main()
