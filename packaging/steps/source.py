"""Checkout of a commit of Puller. Packages never contain uncommitted changes."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from steps.failure import BuildFailed, run

_VERSION = re.compile(r'^__version__ = "([0-9]+(?:\.[0-9]+)*)"$', re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """The files of a commit in ``directory``. ``epoch`` is its time, in seconds since 1970."""

    directory: Path
    commit: str
    epoch: int
    version: str


def check_out(repository: Path, commit: str, directory: Path) -> Source:
    """Extract the files of a commit into a new directory.

    Raises ``BuildFailed`` if the commit does not exist or its version is invalid for packages.
    """
    git = ("git", "-c", "safe.directory=*", "-C", repository)
    if run(*git, "status", "--porcelain"):
        print("packaging/build: changes that are not committed are not built", file=sys.stderr)
    result, _, epoch = run(*git, "log", "-1", "--format=%H %ct", commit).strip().partition(" ")
    packed = directory.with_suffix(".tar")
    run(*git, "archive", "--format=tar", f"--output={packed}", result)
    directory.mkdir()
    run("tar", "-xf", packed, "-C", directory)
    text = (directory / "puller/version.py").read_text(encoding="utf-8")
    if (version := _VERSION.search(text)) is None:
        raise BuildFailed("puller/version.py: __version__ is no version of numbers and dots")
    return Source(directory, result, int(epoch), version[1])
