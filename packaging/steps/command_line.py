"""Command line of ``packaging/build``: the packages, the release, the commit and the output directory."""

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from steps import debian_package, directory, rpm_package
from steps.additions import ADDITIONS
from steps.agent import Agent, build_agent
from steps.debian_tree import RELEASES, make_tree, open_tree
from steps.failure import BuildFailed
from steps.source import check_out

FORMATS = ("deb", "rpm", "directory")
PACKAGES = ("puller", *(addition.name for addition in ADDITIONS))

_DESCRIPTION = """\
Build packages of Puller from a commit, in a Debian tree that holds nothing else. The same commit gives the same bytes.

  deb        Debian packages for the release: puller, puller-fleet and puller-s3
  rpm        the same packages for systems of the Red Hat family with the Python of that release
  directory  a tar.gz to unpack anywhere, for machines with that Python

Beside each package, the command writes its bill of materials (CycloneDX) and the SHA-256 of both. It needs root, git,
mmdebstrap and systemd-nspawn. The settings of this machine for apt and pip (sources, indexes, proxies, authorities) are
valid in the tree, too. All downloads for Puller are compared with the hashes of the lock files in packaging/.
"""


def main() -> None:
    """Run the command line. Exits with 1 and a message if a package cannot be built."""
    options = make_parser().parse_args()
    try:
        _build(options)
    except BuildFailed as error:
        sys.exit(f"packaging/build: {error}")
    except OSError as error:
        sys.exit(f"packaging/build: {error.filename or 'this machine'}: {error.strerror or error}")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="packaging/build", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("formats", nargs="+", choices=FORMATS, metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("--release", choices=RELEASES, default="bookworm", help="of Debian (bookworm)")
    parser.add_argument(
        "--package",
        action="append",
        choices=PACKAGES,
        help="build only this package; repeat the option for several (all). The directory always has puller only",
    )
    parser.add_argument("--commit", default="HEAD", help="what is built (HEAD)")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="directory of the packages (dist)")
    parser.add_argument("--tree", type=Path, help="build in this tree, made if it is not there, and keep it")
    return parser


def _build(options: argparse.Namespace) -> None:
    if os.geteuid() != 0:
        raise BuildFailed("only root can make a Debian tree and work in it")
    os.umask(0o022)
    options.output.mkdir(parents=True, exist_ok=True)
    progress = Progress()
    with tempfile.TemporaryDirectory(prefix="puller-packages-") as scratch:
        os.chmod(scratch, 0o755)  # noqa: S103  the tree is below it
        work = Path(scratch)
        progress.report(f"checking out {options.commit}")
        source = check_out(Path(__file__).parents[2], options.commit, work / "source")
        progress.report(f"preparing the tree of Debian {RELEASES[options.release].number}")
        tree = open_tree(options.tree or make_tree(options.release, work / "tree"), options.release)
        progress.report(f"installing Puller {source.version} and its locked dependencies")
        packages = tuple(options.package or PACKAGES)
        agent = build_agent(source, tree, work, [each for each in ADDITIONS if each.name in packages])
        jobs = [job for name in dict.fromkeys(options.formats) for job in _jobs(name, packages)]
        for path in _pack(jobs, agent, work, progress):
            print(path.name, flush=True)
            _publish(path, options.output)
    progress.report("complete")


@dataclass(frozen=True)
class _Job:
    """One package to build. ``build`` gets the agent and a directory that does not exist yet."""

    package: str
    format: str
    build: Callable[[Agent, Path], Path]


def _jobs(name: str, packages: Container[str]) -> Iterator[_Job]:
    """Yield the selected packages of a format. ``directory`` has a single package."""
    if name == "directory":
        yield _Job("puller", name, directory.build)
        return
    form = debian_package if name == "deb" else rpm_package
    if "puller" in packages:
        yield _Job("puller", name, form.build)
    for addition in ADDITIONS:
        if addition.name in packages:
            yield _Job(addition.name, name, partial(form.build_addition, addition))


def _pack(jobs: list[_Job], agent: Agent, work: Path, progress: "Progress") -> Iterator[Path]:
    """Yield each package and its bill of materials in the order of the jobs. Packs on two processors."""

    def pack(job: _Job) -> Path:
        progress.report(f"packing {job.package} ({job.format})")
        return job.build(agent, work / f"{job.format}-{job.package}")

    with ThreadPoolExecutor(max_workers=2) as pool:
        for job, package in zip(jobs, pool.map(pack, jobs), strict=True):
            yield package
            materials = package.with_name(f"{package.name}.cdx.json")
            materials.write_bytes(agent.materials(job.package))
            yield materials


class Progress:
    """Reports of steps on standard error. Standard output has the names of the packages only."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def report(self, step: str) -> None:
        """Print a step that begins, with the seconds since the start."""
        seconds = time.monotonic() - self._start
        # One write: two threads would print between the text and the end of the line.
        sys.stderr.write(f"packaging/build: {seconds:3.0f} s: {step}\n")
        sys.stderr.flush()


def _publish(path: Path, output: Path) -> None:
    """Write a file atomically, and its checksum beside it."""
    content = path.read_bytes()
    sums = f"{hashlib.sha256(content).hexdigest()}  {path.name}\n".encode()
    for name, written in ((path.name, content), (f"{path.name}.sha256", sums)):
        unfinished = output / f".{name}.unfinished"
        unfinished.write_bytes(written)
        unfinished.replace(output / name)
