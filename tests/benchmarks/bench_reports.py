"""The reports of a host with very many resources in sync: bytes that each run writes, and bytes kept.

    .venv/bin/python tests/benchmarks/bench_reports.py [--size 100000] [--runs 5]

* One bundle declares many absent files, so that all are in sync from the first run.
* ``puller run`` follows a site that is a directory. The first run lists its resources. Each later run is *without
  news*.
* *kept* is the size of ``runs/`` in the state directory after all runs, *sent* the size of the received reports.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PULLER = (sys.executable, "-m", "puller")
TARGET = 100_000
"""Bytes of the report of a run without news."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    # If the environment forbids Python to store bytecode, each start would compile again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="puller-bench") as scratch:
        bench(Path(scratch), arguments.size, arguments.runs)


def bench(scratch: Path, size: int, runs: int) -> None:
    configuration = follow(scratch, size)
    state = scratch / "state"
    sizes = []
    for _ in range(runs):
        run("run", "--config", str(configuration))
        newest = max((state / "runs").glob("*.json"), key=lambda path: path.name)
        sizes.append(newest.stat().st_size)
    retained = sum(path.stat().st_size for path in (state / "runs").rglob("*") if path.is_file())
    sent = sum(path.stat().st_size for path in (scratch / "sent").rglob("*") if path.is_file()) / runs
    print(f"{size} resources in order, {runs} runs")
    print(f"  report of the first run    {sizes[0]:>12,} bytes")
    reached = "reached" if max(sizes[1:]) <= TARGET else "MISSED"
    print(f"  of a run without news      {max(sizes[1:]):>12,} bytes   target: at most {TARGET:,} {reached}")
    print(f"  sent of each run, packed   {sent:>12,.0f} bytes")
    print(f"  kept of all runs           {retained:>12,} bytes")


def follow(scratch: Path, size: int) -> Path:
    """Write the configuration of a host that follows a new site with such a bundle."""
    source, site = scratch / "source", scratch / "site"
    source.mkdir()
    names = "".join(f"      - {scratch}/absent/{number}: {{ensure: absent}}\n" for number in range(size))
    (source / "manifest.yaml").write_text(f"resources:\n  - file:\n{names}")
    run("site", "init", str(site), "--no-passphrase")
    run("site", "publish", str(site), str(source), "--name", "web", "--version", "1.0.0")
    (scratch / "sent").mkdir(mode=0o755)
    own = {
        name: scratch / name.removesuffix("_directory")
        for name in (
            "host_data",
            "host_data_directory",
            "facts_directory",
            "state_directory",
            "run_directory",
        )
    }
    settings = {
        "site": site / "public",
        "trust_anchor": site / "root.json",
        **own,
        "bundles": "[{name: web}]",
    }
    configuration = scratch / "config.yaml"
    configuration.write_text(
        "".join(f"{key}: {value}\n" for key, value in settings.items())
        + f"reports: {{to: [{scratch}/sent]}}\n"
    )
    return configuration


def run(*arguments: str) -> None:
    done = subprocess.run((*PULLER, *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"puller {' '.join(arguments)}: {done.returncode}\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    main()
