"""Packing and publishing: seconds of processor, memory and bytes, compared with the system's tar and gzip.

    .venv/bin/python tests/benchmarks/bench_pack.py [--megabytes 500] [--text DIRECTORY]

* *noise*: one incompressible file. *text*: the Python files of this Python, or those of ``--text``. *both*: the two
  together.
* ``puller site publish`` includes all steps: packed, checked, signed, and laid out in a new site.
* ``tar | gzip`` and ``tar | gzip -9`` only write the archive. *sha256, stored* is the minimum for any publication:
  every file is read and hashed once, and written once to a gzip file without compression.
* Processor time is user and system of all processes. Memory is that of the largest process.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

PULLER = (sys.executable, "-m", "puller")
LEAST = """
import gzip, hashlib, pathlib, sys
with gzip.open(sys.argv[2], "wb", compresslevel=0) as stream:
    for path in pathlib.Path(sys.argv[1]).rglob("*"):
        if path.is_file():
            digest = hashlib.sha256()
            with open(path, "rb") as file:
                while piece := file.read(262144):
                    digest.update(piece)
                    stream.write(piece)
"""
TARGET = ("noise", "puller site publish", 4.0)
"""Seconds of processor for 500 MB."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=500, help="of noise")
    parser.add_argument("--text", type=Path, default=Path(sysconfig.get_paths()["stdlib"]))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="puller-bench") as scratch:
        print(f"{'files':<7}{'what':<22}{'seconds':>9}{'cpu':>8}{'MiB':>7}{'in':>14}{'out':>14}{'%':>7}")
        for what in ("noise", "text", "both"):
            source = Path(scratch, what)
            _make(source, arguments.text, arguments.megabytes * 1_000_000, what)
            _measure_all(what, source, Path(scratch))
            shutil.rmtree(source)


def _make(source: Path, text: Path, noise: int, description: str) -> None:
    source.mkdir()
    (source / "manifest.yaml").write_text("resources: []\n")
    if description != "text":
        with open(source / "noise", "wb") as stream:
            for start in range(0, noise, 1_000_000):
                stream.write(os.urandom(min(1_000_000, noise - start)))
    if description != "noise":
        for path in sorted(text.rglob("*.py")):
            # Python's tests use names that no bundle may have.
            if path.is_file() and path.name.isascii() and "test" not in path.parts:
                target = source / "text" / path.relative_to(text)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


def _measure_all(description: str, source: Path, scratch: Path) -> None:
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    site, archive = scratch / "site", scratch / "peer.tar.gz"
    subprocess.run([*PULLER, "site", "init", site, "--no-passphrase"], check=True, stdout=subprocess.DEVNULL)
    publish: list[str | Path] = [*PULLER, "site", "publish", site, source]
    publish += ["--name", "bench", "--version", "1.0.0"]
    tar = f"tar -C {source} --sort=name -c . | gzip"
    commands: dict[str, tuple[list[str | Path], Path]] = {
        "puller site publish": (publish, site / "public/targets/bench"),
        "sha256, stored": ([sys.executable, "-c", LEAST, source, archive], archive),
        "tar | gzip": (["sh", "-c", f"{tar} > {archive}"], archive),
        "tar | gzip -9": (["sh", "-c", f"{tar} -9 > {archive}"], archive),
    }
    for name, (command, output) in commands.items():
        _measure(description, name, command, output, size)
    shutil.rmtree(site)
    archive.unlink()


def _measure(description: str, name: str, command: list[str | Path], output: Path, size: int) -> None:
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{name}: exit status {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    written = sum(path.stat().st_size for path in (output.rglob("*") if output.is_dir() else [output]))
    line = f"{description:<7}{name:<22}{time.perf_counter() - start:>9.2f}{used:>8.2f}{usage.ru_maxrss // 1024:>7}"
    promised = f"  at most {TARGET[2]} for 500 MB" if (description, name) == TARGET[:2] else ""
    print(f"{line}{size:>14,}{written:>14,}{100 * written / size:>7.1f}{promised}", flush=True)


if __name__ == "__main__":
    main()
