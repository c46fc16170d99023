"""The instructions of the Dockerfile, executed in trees of Debian, give the command that the image starts.

No container engine is needed: a stage is a tree, and systemd-nspawn runs its commands. The tree of the base is the
minimal Debian of mmdebstrap, which has the packages of the official image.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.machines import copied, make_wheel, remove_tree, run_checked, sources

pytestmark = [pytest.mark.packages, pytest.mark.root, pytest.mark.everything]

ROOT = Path(__file__).parents[2]


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = "\n".join(
        line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")
    )
    lines = (line.partition(" ") for line in text.replace("\\\n", " ").splitlines() if line)
    return [(name, arguments.strip()) for name, _, arguments in lines]


@dataclass
class Stage:
    """A stage of the build: a tree, and the settings for its commands."""

    tree: Any
    context: Path
    others: dict[str, Stage]
    directory: str = "/"
    user: str = "0"
    variables: dict[str, str] = field(default_factory=dict)
    entry_point: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def execute(self, name: str, arguments: str) -> None:
        """Execute an instruction other than FROM."""
        if name == "RUN":
            self.run("/bin/sh", "-c", arguments)
        elif name == "COPY":
            self.copy(*arguments.split())
        elif name == "WORKDIR":
            self.directory = arguments
            (self.tree.root / arguments.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "ENV":
            self.variables |= dict(word.split("=", 1) for word in arguments.split())
        elif name == "USER":
            self.user = arguments
        elif name == "ENTRYPOINT":
            self.entry_point = json.loads(arguments)
        elif name == "CMD":
            self.command = json.loads(arguments)
        else:
            raise AssertionError(f"unknown instruction {name}")

    def run(self, *command: str) -> str:
        """Return the output of a command in the tree, as the user of the stage."""
        # The settings of this machine for pip are mounts, on which the certificates of the tree cannot be installed.
        tree = self.tree if "pip install" in command[-1] else replace(self.tree, settings={})
        as_user = ("setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--")
        inside = ("env", f"--chdir={self.directory}", *(as_user if self.user != "0" else ()), *command)
        output: str = tree.run(*inside, mounts={}, variables=self.variables)
        return output

    def copy(self, *words: str) -> None:
        """Copy files of the context, or of the stage in ``--from=NAME``."""
        *names, target = (word for word in words if not word.startswith("--from="))
        stages = [self.others[word.removeprefix("--from=")] for word in words if word.startswith("--from=")]
        source = stages[0].tree.root if stages else self.context
        place = self.tree.root / Path(self.directory, target).relative_to("/")
        for name in names:
            paths = sorted(source.glob(name.lstrip("/")))
            assert paths, f"COPY {name}: the pattern matches no file"
            for path in paths:
                run_checked("cp", "--archive", path, place)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """The files that .dockerignore leaves for the build."""
    directory = tmp_path / "context"
    (directory / "packaging").mkdir(parents=True)
    for path in (ROOT / "packaging").glob("requirements*.lock"):
        shutil.copy(path, directory / "packaging")
    make_wheel(directory / "dist")
    (wheel,) = (directory / "dist").glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    wheel.with_name(f"{wheel.name}.sha256").write_text(f"{digest}  {wheel.name}\n")
    return directory


@pytest.fixture
def base() -> Iterator[Path]:
    """A minimal Debian on disk, in which the first stage is built."""
    with tempfile.TemporaryDirectory(prefix="puller-base-") as scratch, sources("trixie") as lists:
        root = Path(scratch, "root")
        run_checked("mmdebstrap", "--quiet", "--variant=minbase", "trixie", root, *lists)
        shutil.copytree("/etc/apt/apt.conf.d", root / "etc/apt/apt.conf.d", dirs_exist_ok=True)
        yield root
        remove_tree(root)


@pytest.fixture
def image(base: Path, context: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """The last stage of the Dockerfile after its instructions."""
    monkeypatch.syspath_prepend(ROOT / "packaging")
    from steps.debian_tree import open_tree

    stages: dict[str, Stage] = {}
    with contextlib.ExitStack() as stack:
        for name, arguments in instructions():
            if name == "FROM":
                origin, _, alias = arguments.replace(" AS ", " ").partition(" ")
                root = stack.enter_context(copied(stages[origin].tree.root)) if origin in stages else base
                stage = Stage(open_tree(root, "trixie"), context, dict(stages))
                stages[alias] = stage
            else:
                stage.execute(name, arguments)
        yield stage


def test_instructions_give_a_working_command(image: Stage) -> None:
    command = image.entry_point
    assert "Usage: puller" in image.run(*command, *image.command)
    work = image.tree.root / "work"
    os.chown(work, int(image.user), int(image.user))
    image.variables["PULLER_PASSPHRASE"] = "correct-horse"
    image.run(*command, "site", "init", "site")
    image.run("mkdir", "reports")
    image.run(*command, "fleet", "import", "reports", "--store", "fleet.db")
    image.run(*command, "fleet", "page", "--store", "fleet.db", "--to", "pages")
    assert (work / "pages/index.html").stat().st_uid == int(image.user)
    image.run("/opt/puller/bin/python3", "-B", "-c", "import boto3")
    assert not list((image.tree.root / "opt/puller").rglob("__pycache__"))
