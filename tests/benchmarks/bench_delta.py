"""Bytes for a host when little of a large bundle changes: by files, by the archive, and by patches.

    .venv/bin/python tests/benchmarks/bench_delta.py [--host DIRECTORY]
    .venv/bin/python tests/benchmarks/bench_delta.py --history VERSION VERSION ...

* Without ``--history``: a bundle of 3,090 files, 100 MB, in which one byte changes. ``puller site publish`` publishes
  both versions, ``puller run`` follows them, and a server counts the sent bytes, including headers. ``--host`` is a
  directory of a file system without other writers, such as XFS or Btrfs: the used space is measured there, so that
  shared blocks count once.
* With ``--history``: the directories of consecutive versions, each published, and the cost of each step for a host with
  the previous version. *patch* is ``zstd --patch-from`` at level 19, from the tar of the previous version to the tar of
  the next version, as a publisher would create it for that one step.
"""

import argparse
import functools
import gzip
import hashlib
import http.server
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PULLER = (sys.executable, "-m", "puller")
FILES, SIZE = 3090, 100_000_000
TARGET = 250_000
"""Bytes for a host when one byte changes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--history", type=Path, nargs="+", metavar="VERSION", help="directories")
    parser.add_argument("--host", type=Path, metavar="DIRECTORY", help="where the host keeps its state")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="puller-bench") as scratch:
        if arguments.history:
            compare(arguments.history, Path(scratch))
        else:
            follow(Path(scratch), arguments.host)


# --- One byte of a large bundle -------------------------------------------------------------------------------


def follow(scratch: Path, apart: Path | None) -> None:
    """Follow two versions like a user's host. The host is on the file system of ``apart``."""
    source, site, host = scratch / "source", scratch / "site", (apart or scratch) / "host"
    size = functools.partial(taken, apart, taken(apart, 0)) if apart else lambda: used(host / "state/bundles")
    make(source)
    puller("site", "init", site, "--no-passphrase")
    publish(site, source, "1.0.0")
    configuration = configure(host, site)
    print(f"{'':<28}{'requests':>9}{'bytes':>14}{'seconds':>9}{'site, MB':>10}{'host, MB':>10}")
    with serving(site / "public", host) as server:
        report("first version", server, configuration, site, size)
        changed = next(
            path for path in sorted(source.rglob("*")) if path.is_file() and path.stat().st_size > 9
        )
        changed.write_bytes(b"\xff" + changed.read_bytes()[1:])
        publish(site, source, "1.0.1")
        sent = report("one byte changed", server, configuration, site, size)
        report("nothing changed", server, configuration, site, size)
    print(f"one byte changed: {sent} bytes, at most {TARGET}: {'reached' if sent <= TARGET else 'missed'}")


def make(source: Path) -> None:
    """Write files, a quarter of which is noise: they compress to a third."""
    source.mkdir(parents=True)
    (source / "manifest.yaml").write_text("resources: []\n")
    noise = random.Random(15)
    words = [noise.randbytes(4).hex() for _ in range(200)]
    size = SIZE // FILES
    for number in range(FILES - 1):
        text = " ".join(noise.choices(words, k=size * 3 // 4 // 9)).encode()
        path = source / f"files/{number % 40:02}/module-{number:04}.dat"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text + noise.randbytes(size - len(text)))


def configure(host: Path, site: Path) -> Path:
    """Write the configuration of a host, except for the address of the site."""
    host.mkdir()
    shutil.copyfile(site / "root.json", host / "root.json")
    return host / "config.yaml"


@contextmanager
def serving(root: Path, host: Path) -> Iterator[Any]:
    """Yield a counting web server, with the host configured for it."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Counting, directory=str(root))
    )
    server.daemon_threads = True
    server.requests = server.sent = 0  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {
        "site": f"http://127.0.0.1:{server.server_port}",
        "bundles": [{"name": "bench"}],
        "trust_anchor": str(host / "root.json"),
        "state_directory": str(host / "state"),
        "run_directory": str(host / "run"),
    }
    (host / "config.yaml").write_text(json.dumps(settings))
    yield server
    server.shutdown()


class Counting(http.server.SimpleHTTPRequestHandler):
    """Counts requests and the bytes of answers."""

    protocol_version = "HTTP/1.1"
    server: Any

    def setup(self) -> None:
        super().setup()
        write = self.wfile.write

        def counted(data: Any) -> int:
            self.server.sent += len(data)
            return write(data)

        self.wfile.write = counted  # type: ignore[method-assign]

    def do_GET(self) -> None:
        self.server.requests += 1
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def report(what: str, server: Any, configuration: Path, site: Path, size: Callable[[], int]) -> int:
    """Run once, print the figures, and return the bytes sent."""
    server.requests = server.sent = 0
    start = time.perf_counter()
    puller("run", "--config", configuration)
    seconds = time.perf_counter() - start
    disks = [used(site / "public") / 1e6, size() / 1e6]
    print(f"{what:<28}{server.requests:>9}{server.sent:>14}{seconds:>9.2f}{disks[0]:>10.1f}{disks[1]:>10.1f}")
    return int(server.sent)


def used(directory: Path) -> int:
    """Return the bytes on the disk. Shared blocks (reflink) count for each file."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))


def taken(directory: Path, before: int) -> int:
    """Return the bytes of a file system in use, beyond ``before``."""
    os.sync()
    disk = os.statvfs(directory)
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize - before


def puller(*words: str | Path) -> str:
    return subprocess.run([*PULLER, *words], check=True, capture_output=True, text=True).stdout


def publish(site: Path, source: Path, version: str) -> None:
    puller("site", "publish", site, source, "--name", "bench", "--version", version)


# --- Real histories -------------------------------------------------------------------------------------------


def compare(versions: list[Path], scratch: Path) -> None:
    """Print the cost of each step by each method."""
    site = scratch / "site"
    puller("site", "init", site, "--no-passphrase")
    before: tuple[Path, set[str]] | None = None
    print(f"{'version':<44}{'files':>7}{'archive':>11}{'by files':>11}{'asked':>7}{'patch':>11}{'s':>7}")
    total = [0, 0, 0]
    for number, directory in enumerate(versions):
        source, tar = scratch / f"source-{number}", scratch / f"{number}.tar"
        copied(directory, source)
        publish(site, source, f"1.0.{number}")
        subprocess.run(["tar", "-C", source, "--sort=name", "--mtime=@0", "-cf", tar, "."], check=True)
        files, archive = published(site, f"1.0.{number}")
        if before is not None:
            names = sorted(files - before[1])
            fetched = sum(place(site, name).stat().st_size for name in names)
            patch, seconds = patched(before[0], tar, scratch / "patch")
            total = [sum(pair) for pair in zip(total, (archive, fetched, patch), strict=True)]
            print(
                f"{directory.name[:43]:<44}{len(files):>7}{archive:>11}{fetched:>11}{len(names):>7}"
                f"{patch:>11}{seconds:>7.1f}"
            )
        before = tar, files
    print(f"{'all steps':<51}{total[0]:>11}{total[1]:>11}{'':>7}{total[2]:>11}")


def copied(directory: Path, source: Path) -> None:
    """Copy the files of ``directory`` that a bundle may contain."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink() and re.fullmatch(r"[ -~]+", path.name):
            target = source / path.relative_to(directory)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    (source / "manifest.yaml").write_text("resources: []\n")


def published(site: Path, version: str) -> tuple[set[str], int]:
    """Return SHA-256 of each file of a version and of its description, and the bytes of its archive."""
    (index,) = sorted(site.glob("public/targets/bench/*.index.json"), key=os.path.getmtime)[-1:]
    release = json.loads(index.read_bytes())["releases"][version]
    sha256 = release["description"]["sha256"]
    description = gzip.decompress(place(site, sha256).read_bytes())
    assert hashlib.sha256(description).hexdigest() == sha256
    names = {entry["sha256"] for entry in json.loads(description)["files"].values()}
    return {sha256, *names}, release["archive"]["length"]


def place(site: Path, sha256: str) -> Path:
    return site / f"public/targets/files/{sha256[:2]}/{sha256}.gz"


def patched(before: Path, after: Path, output: Path) -> tuple[int, float]:
    """Create a patch and return its bytes and its seconds of processor time."""
    start = os.times()
    options = ["-q", "-f", "-19", "--long=31", f"--patch-from={before}"]
    subprocess.run(["zstd", *options, after, "-o", output], check=True, stderr=subprocess.DEVNULL)
    end = os.times()
    took = end.children_user + end.children_system - start.children_user - start.children_system
    return output.stat().st_size, took


if __name__ == "__main__":
    main()
