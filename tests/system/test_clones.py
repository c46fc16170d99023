"""The README's demo, as a new user types it: in a fresh clone and environment, without other setup.

It runs under the suitable Pythons of this machine. The README's other command, the tests, is a step of `.ci/run`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from subprocess import CompletedProcess

import pytest

REPOSITORY = Path(__file__).parents[2]
OLDEST = (3, 11)

pytestmark = pytest.mark.clones


def find_pythons() -> dict[str, str]:
    """Return a Python for each suitable minor version on this machine. Debian's own Python comes first."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    of_users = sorted(map(str, pyenv.glob("versions/*/bin/python3")))
    named = [result for minor in range(OLDEST[1], 20) if (result := shutil.which(f"python3.{minor}"))]
    pythons: dict[str, str] = {}
    for path in ("/usr/bin/python3", *of_users, *named):
        if version := find_version(path):
            pythons.setdefault(version, path)
    return pythons


def find_version(python: str) -> str | None:
    """Return a version such as ``3.11``. ``None``: the Python is too old, cannot run, or cannot make environments."""
    ask = "import ensurepip, sys, venv; print(*sys.version_info[:2], sep='.')"
    try:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    except OSError:
        return None
    version = done.stdout.strip()
    if done.returncode or tuple(map(int, version.split("."))) < OLDEST:
        return None
    return version


def readme_command(end: str, python: str) -> str:
    """Return the README's command line with this ending, for this Python."""
    lines = (REPOSITORY / "README.md").read_text().splitlines()
    (line,) = (
        line.strip() for line in lines if line.startswith("    python3 -m venv") and line.endswith(end)
    )
    return line.replace("python3", python, 1)


class Stranger:
    """A new user with a home directory, a fresh clone in it, and this machine's settings for pip."""

    def __init__(self, home: Path, run_checked: Callable[..., CompletedProcess[str]]) -> None:
        self._home = home
        self._run_checked = run_checked
        (home / "tmp").mkdir()
        run_checked("git", "clone", "--quiet", "--no-hardlinks", REPOSITORY, home / "puller")

    def type_in(self, command: str, timeout: float) -> str:
        """Return the output of a command. Fails unless it succeeds."""
        passed_on = {
            name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT_"))
        }
        environment = {
            **passed_on,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self._home),
            "TMPDIR": str(self._home / "tmp"),
            "LANG": "C.UTF-8",
        }
        done = self._run_checked(
            "bash", "-c", command, cwd=self._home / "puller", env=environment, timeout=timeout
        )
        return done.stdout


NewStranger = Callable[[], AbstractContextManager[Stranger]]


@pytest.fixture
def new_stranger(run_checked: Callable[..., CompletedProcess[str]]) -> NewStranger:
    @contextmanager
    def new() -> Iterator[Stranger]:
        with tempfile.TemporaryDirectory(
            prefix="puller-clone-"
        ) as home:  # pytest's own directories are private to its user
            os.chmod(home, 0o755)
            yield Stranger(Path(home), run_checked)

    return new


def test_demo_runs_in_a_fresh_clone(new_stranger: NewStranger, thorough: bool) -> None:
    """Under Debian's own Python and the newest one. Those between run only with ``--thorough``."""
    pythons = find_pythons()
    assert pythons
    first, newest = next(iter(pythons)), max(pythons, key=lambda version: int(version.partition(".")[2]))
    for python in [path for version, path in pythons.items() if thorough or version in (first, newest)]:
        with new_stranger() as stranger:
            output = stranger.type_in(readme_command("puller demo", python), timeout=600)
        assert re.search(r"^All as it should be, in (\S+) s\.$", output, re.MULTILINE), output
        for status in (10, 14):
            assert f"(exit status {status})" in output
