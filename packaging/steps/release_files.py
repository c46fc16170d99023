"""The files of a release, as a function of its commit. ``packaging/release`` and ``packaging/verify-release`` share it.

  puller_agent-1.0.0-py3-none-any.whl, puller_agent-1.0.0.tar.gz    wheel and source distribution
  puller_agent-1.0.0.cdx.json                                       bill of materials (CycloneDX) of the locks
  release-notes.md                                                  the section of CHANGELOG.md
  *.deb, *.rpm, puller-1.0.0-*.tar.gz, and their *.cdx.json         packages of packaging/build
  SHA256SUMS, SHA256SUMS.sig                                        hashes of all files, and their signature

* All files except the signature depend only on the commit. Their date is the date of the commit.
* They are built in a clone of the commit with the tools of ``packaging/requirements-build.lock``. Neither uncommitted
  changes nor installed tools of the machine have an effect.
* ssh-keygen signs. A signature with an Ed25519 key has no date, so the same key gives the same bytes on every day.
"""

import hashlib
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from steps.failure import BuildFailed, run

SUMS = "SHA256SUMS"
SIGNATURE = f"{SUMS}.sig"
NAMESPACE = "puller-release"
"""Namespace of signatures, so that a signature for another purpose is not valid for a release."""
NOTES = "release-notes.md"
FORMATS = {"bookworm": ("deb", "rpm", "directory"), "trixie": ("deb", "directory")}
"""Packages by release of Debian. The rpm needs the Python of Debian 12."""

_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_ASSIGNMENT = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._+~-]*)")


def parse_version(text: str) -> str:
    """Return a version of three numbers. Raises ``BuildFailed``."""
    if _VERSION.fullmatch(text) is None:
        raise BuildFailed(f"version {text!r}: expected three numbers with dots, such as 1.0.0")
    return text


def version_in(text: str) -> str:
    """Return the version in the text of ``puller/version.py``. Raises ``BuildFailed``."""
    if (version := _ASSIGNMENT.search(text)) is None:
        raise BuildFailed("puller/version.py: __version__ is missing")
    return version[1]


def with_version(text: str, version: str) -> str:
    """Return the text of ``puller/version.py`` with another version."""
    return _ASSIGNMENT.sub(f'__version__ = "{version}"', text)


def section_of(changelog: str, version: str) -> str:
    """Return the section of a version in the changelog, without its heading. Raises ``BuildFailed``."""
    pattern = rf"^## {re.escape(version)} - .*\n(?P<text>(?:(?!^## ).*\n?)*)"
    if (section := re.search(pattern, changelog, re.MULTILINE)) is None:
        raise BuildFailed(f"CHANGELOG.md: the section of version {version} is missing")
    return section["text"].strip() + "\n"


def git(repository: Path, *words: str | Path, environment: dict[str, str] | None = None) -> str:
    """Return the output of git in a repository, also if it belongs to another user. Raises ``BuildFailed``."""
    command = ("git", "-c", "safe.directory=*", "-C", repository, *words)
    return run(*command, environment=environment).strip()


@dataclass(frozen=True)
class Workshop:
    """A clone of the commit of a release in ``clone``, and the build tools in ``tools``."""

    clone: Path
    tools: Path
    version: str
    epoch: int
    """Time of the commit, in seconds since 1970."""

    def run(self, *command: str | Path, show_progress: bool = False) -> str:
        """Run a command with an environment that does not depend on date, user or locale. Raises ``BuildFailed``."""
        fixed = {
            "SOURCE_DATE_EPOCH": str(self.epoch),
            "PYTHONHASHSEED": "0",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        words = ("env", f"--chdir={self.clone}", *command)
        return run(*words, environment=os.environ | fixed, show_progress=show_progress)


def prepare(repository: Path, commit: str, work: Path, tools: Path | None) -> Workshop:
    """Clone a commit into ``work``, and install its locked build tools. Raises ``BuildFailed``.

    ``tools`` is a directory that keeps the tools for the next run. Tools of another lock are replaced.
    """
    clone = work / "clone"
    run("git", "-c", "safe.directory=*", "clone", "--quiet", "--no-checkout", repository.resolve(), clone)
    git(clone, "checkout", "--quiet", "--detach", commit)
    version = version_in((clone / "puller/version.py").read_text(encoding="utf-8"))
    epoch = int(git(clone, "log", "-1", "--format=%ct"))
    kept = (tools or work / "tools").resolve()  # commands run in the clone
    return Workshop(clone, _install_tools(clone, kept), version, epoch)


def _install_tools(clone: Path, directory: Path) -> Path:
    lock = clone / "packaging/requirements-build.lock"
    digest, complete = sha256(lock), directory / "complete"
    if not complete.exists() or complete.read_text(encoding="utf-8") != digest:
        shutil.rmtree(directory, ignore_errors=True)
        run(sys.executable, "-m", "venv", directory)
        hashed = ("--only-binary=:all:", "--require-hashes", "--requirement", lock)
        run(directory / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *hashed)
        complete.write_text(digest, encoding="utf-8")
    return directory / "bin"


def build_distributions(workshop: Workshop, output: Path) -> None:
    """Write wheel, source distribution, bill of materials and release notes. Raises ``BuildFailed``."""
    python = workshop.tools / "python"
    for target in ("wheel", "sdist"):
        workshop.run(python, "-m", "hatchling", "build", "--target", target, "--directory", output)
    materials = output / f"puller_agent-{workshop.version}.cdx.json"
    reproducible = ("--output-reproducible", "--output-format", "JSON", "--spec-version", "1.6")
    sources = ("--pyproject", "pyproject.toml", "packaging/requirements.lock")
    workshop.run(
        workshop.tools / "cyclonedx-py", "requirements", *reproducible, "--output-file", materials, *sources
    )
    changelog = (workshop.clone / "CHANGELOG.md").read_text(encoding="utf-8")
    (output / NOTES).write_text(section_of(changelog, workshop.version), encoding="utf-8")


def build_packages(workshop: Workshop, release: str, output: Path, trees: Path | None) -> None:
    """Write the packages for a release of Debian. ``trees`` keeps the tree. Raises ``BuildFailed``."""
    if trees:
        trees.mkdir(parents=True, exist_ok=True)
    keep = ("--tree", trees.resolve() / release) if trees else ()
    command = (sys.executable, "packaging/build", *FORMATS[release], "--release", release)
    workshop.run(*command, "--output", output, *keep, show_progress=True)
    for path in output.glob("*.sha256"):
        path.unlink()  # SHA256SUMS has all hashes


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hashes_of(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a release, by name, without the files of hashes and signature."""
    names = sorted(path.name for path in directory.iterdir() if path.name not in (SUMS, SIGNATURE))
    return {name: sha256(directory / name) for name in names}


def format_sums(hashes: dict[str, str]) -> str:
    """Return the text of ``SHA256SUMS``, as ``sha256sum`` writes it."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(hashes.items()))


def parse_sums(text: str) -> dict[str, str]:
    """Return hashes by name. Raises ``BuildFailed`` for a line that is not a hash with a plain file name."""
    result: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if (entry := _LINE.fullmatch(line)) is None or entry[2] in result:
            raise BuildFailed(
                f"{SUMS}:{number}: expected one SHA-256 and a new file name, got {line[:100]!r}"
            )
        result[entry[2]] = entry[1]
    if not result:
        raise BuildFailed(f"{SUMS}: the list is empty")
    return result
