"""A site that is years old: bytes for its hosts, its disk usage, and the publisher's time and memory.

    .venv/bin/python tests/benchmarks/bench_site.py [--bundles 1000] [--versions 30] [--releases 1058]

* The publisher's own code writes a site with this number of bundles and versions in one signed edition. The result
  equals separate publications: every version is an archive with its files one by one.
* *Another bundle is released*: requests and bytes of a host that follows three bundles. The bytes include the headers
  of answers from a web server on loopback. The same is measured for a bundle in a bin that the host reads.
* *Disk*: a site of 23 bundles, after ``--releases`` consecutive publications, and after half of them.
* Each command runs in a separate process, as for a publisher: seconds of processor, and memory. Publishing lints the
  bundle first, so the figures of `puller lint` are shown for comparison.
"""

import argparse
import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bundles.archive.pack import BuiltBundle, build_bundle
from bundles.client.client import TrustClient
from bundles.format.index import Archive, Artifact, Digest, History, Index, index_path
from bundles.format.release import Release
from bundles.format.site_targets import BIN_BITS, bin_of
from bundles.publisher.lifecycle import make_site
from bundles.publisher.publication import publish_bundle
from bundles.publisher.published import Record
from bundles.publisher.site import NewArchive, Site
from bundles.transport.mirror import open_mirrors

# A small process starts the command: the peak memory of a child includes the size of its large parent.
_WITHIN = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""

FOLLOWED = ("bundle0001", "bundle0002", "bundle0003")
MIB = 1024 * 1024


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description="A site that has lived for years.")
    parser.add_argument("--bundles", type=int, default=1000)
    parser.add_argument("--versions", type=int, default=30)
    parser.add_argument("--releases", type=int, default=1058)
    provided = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="puller-bench-") as scratch:
        site = filled(Path(scratch), provided.bundles, provided.versions)
        print(f"a site of {provided.bundles} bundles, {provided.bundles * provided.versions} releases")
        print_bytes(site, Path(scratch), provided.bundles)
        print_commands(site, Path(scratch))
        print_disk(Path(scratch), provided.releases)


@contextlib.contextmanager
def unsynced() -> Iterator[None]:
    """Skip the syncs to disk: each of thirty thousand archives would wait twice."""
    fsync, os.fsync = os.fsync, lambda fd: None
    try:
        yield
    finally:
        os.fsync = fsync


@unsynced()
def filled(directory: Path, bundles: int, versions: int) -> Site:
    """Return a site with all versions of all bundles."""
    site = make_site(directory / "site", None)
    records, new = [], []
    for name in (f"bundle{number:04}" for number in range(bundles)):
        record = Record(Index(name), History(name))
        for number in range(versions):
            version = f"1.{number}.0"
            built = packed(directory, name, version)
            artifact = artifact_of(name, version, built)
            new.append(NewArchive(artifact.archive, built.path, is_ours=True))
            now = datetime.now(UTC)
            record = record.with_version(version, artifact, now)
            record = record.with_statement("stable", Release(name, version), now)
        records.append(record)
    with site.locked():
        site.announce(site.edition(no_passphrase), records, new)
    return site


def packed(directory: Path, name: str, version: str) -> BuiltBundle:
    """Return a bundle of one small file."""
    source = directory / "sources" / name
    source.mkdir(parents=True, exist_ok=True)
    (source / "manifest.yaml").write_text("resources: []\n")
    (source / "text").write_text(f"{name} {version}\n")
    output = directory / "packed" / name / f"{name}-{version}.tar.gz"
    output.parent.mkdir(parents=True, exist_ok=True)
    return build_bundle(source, output, name=name, version=version)


def artifact_of(name: str, version: str, built: BuiltBundle) -> Artifact:
    """Return the files of a version as named by the index."""
    described = built.description.to_bytes()
    description = Digest(len(described), hashlib.sha256(described).hexdigest())
    return Artifact(Archive.of(name, version, Digest(built.size, built.sha256)), description)


def no_passphrase(key: Path) -> bytes:
    """Raise ``ValueError``: the keys are not encrypted."""
    raise ValueError(f"{key} is not encrypted")


# --- bytes of a host ----------------------------------------------------------------------------------------


class CountingHandler(SimpleHTTPRequestHandler):
    """Serves files and adds up the bytes sent."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, int]]

    def setup(self) -> None:
        """Count the written bytes."""
        super().setup()
        write = self.wfile.write

        def counted(data: Any) -> int:
            self.asked.append((self.path if hasattr(self, "path") else "", len(data)))
            return int(write(data))

        self.wfile.write = counted  # type: ignore[method-assign]

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def served(directory: Path) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield the URL of a web server and a list of sent paths and bytes."""
    requested: list[tuple[str, int]] = []
    handler = type("Handler", (CountingHandler,), {"asked": requested})
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *arguments: handler(*arguments, directory=str(directory))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requested
    finally:
        server.shutdown()


def print_bytes(site: Site, scratch: Path, bundles: int) -> None:
    """Print the bytes of a first refresh, and of refreshes after the release of another bundle."""
    names = [f"bundle{number:04}" for number in range(bundles)]
    own_bins = {bin_of(index_path(name), BIN_BITS) for name in FOLLOWED}
    beside = next(name for name in names[5:] if bin_of(index_path(name), BIN_BITS) not in own_bins)
    within = next(name for name in names[5:] if bin_of(index_path(name), BIN_BITS) in own_bins)
    with served(site.public) as (url, requested):
        print(f"  a first refresh, three bundles       {refreshed(site, scratch, url, requested)}")
        release(site, scratch, beside)
        print(f"  another bundle is released           {refreshed(site, scratch, url, requested)}")
        release(site, scratch, within)
        print(f"  another bundle in a bin of the host  {refreshed(site, scratch, url, requested)}")
        release(site, scratch, FOLLOWED[0])
        print(f"  one of its bundles is released       {refreshed(site, scratch, url, requested)}")
        print(f"  nothing                              {refreshed(site, scratch, url, requested)}")


def refreshed(site: Site, scratch: Path, url: str, asked: list[tuple[str, int]]) -> str:
    """Return the cost of the host's next refresh."""
    asked.clear()
    TrustClient(scratch / "host", site.anchor, open_mirrors([url]), FOLLOWED).refresh()
    paths = dict.fromkeys(path for path, _ in asked)
    return f"{sum(size for _, size in asked):>8} bytes in {len(paths)} requests"


def release(site: Site, scratch: Path, name: str) -> None:
    """Publish another version of a bundle."""
    source = scratch / "sources" / name
    (source / "text").write_text(f"{name}, changed at {datetime.now(UTC)}\n")
    publish_bundle(site, source, no_passphrase, version="auto")


# --- the publisher ------------------------------------------------------------------------------------------


def print_commands(site: Site, scratch: Path) -> None:
    """Print seconds of processor and memory of each command."""
    source = scratch / "sources" / "bundle0007"
    (source / "text").write_text("changed once more\n")
    for arguments in (
        ("lint", str(source)),
        ("site", "publish", str(site.directory), str(source), "--version", "auto"),
        ("site", "refresh", str(site.directory)),
        ("site", "list", str(site.directory)),
        ("site", "verify", str(site.directory)),
    ):
        seconds, peak = measured([sys.executable, "-m", "puller", *arguments])
        name = " ".join(argument for argument in arguments[:2] if argument.isalpha())
        print(f"  puller {name:<29} {seconds:>6.2f} s of processor, {peak / 1024:>5.0f} MiB")


def measured(command: Sequence[str]) -> tuple[float, int]:
    """Return seconds of processor and KiB of a process. Exits if the process fails."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHIN, *command], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}")
    seconds, peak = done.stdout.splitlines()[-1].split()
    return float(seconds), int(peak)


def print_disk(scratch: Path, releases: int) -> None:
    """Print the disk usage of a site after half of its publications, and after all."""
    site = make_site(scratch / "growing", None)
    for number in range(releases):
        name, version = f"grows{number % 23:02}", f"1.{number // 23}.0"
        source = packed(scratch, name, version).path
        publish_bundle(site, source, no_passphrase)
        if number + 1 in (releases // 2, releases):
            print(f"  disk after {number + 1} releases: {disk_of(site)}")


def disk_of(site: Site) -> str:
    """Return the bytes of a site by kind of file."""
    kinds = {"archives": "targets/*/*.tar.gz", "indexes and histories": "targets/*/*.json"}
    kinds["metadata"] = "metadata/*"
    sizes = {
        kind: sum(path.stat().st_size for path in site.public.glob(pattern))
        for kind, pattern in kinds.items()
    }
    pieces = ", ".join(f"{kind} {size / MIB:.1f} MiB" for kind, size in sizes.items())
    return f"{sum(sizes.values()) / MIB:.1f} MiB ({pieces})"


if __name__ == "__main__":
    main()
