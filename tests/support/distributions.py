"""Other distributions with types, installed beside Puller, and Puller with them on its path."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def install(directory: Path, pyproject: Mapping[str, Any], files: Mapping[str, str]) -> Path:
    """Write files and metadata to a directory as an installer does. Return the directory."""
    project = pyproject["project"]
    about = directory / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir(parents=True)
    for name, text in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    (about / "entry_points.txt").write_text(_entry_points(project["entry-points"]))
    return directory


def _entry_points(groups: Mapping[str, Mapping[str, str]]) -> str:
    sections = (
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in points.items())])
        for group, points in groups.items()
    )
    return "\n\n".join(sections) + "\n"


def run_installed(
    installed: Path, *arguments: str, directory: Path, before: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run ``puller`` with the distribution on its path. ``before`` are words of a program that starts it."""
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [*before, sys.executable, "-W", "error", "-m", "puller", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
