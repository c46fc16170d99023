"""The distribution of ``examples/types``, installed beside Puller."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.distributions import install, run_installed

ROOT = Path(__file__).parents[2] / "examples/types"


class SiteTypes:
    """Puller with the types. ``before`` are words of a program that starts it, in a namespace for example."""

    def __init__(self, installed: Path, directory: Path, before: tuple[str, ...]) -> None:
        self._installed, self._before = installed, before
        self.directory = directory
        self.output = ""

    def run(self, *arguments: str) -> int:
        """Run a command, and return its exit status."""
        ended = run_installed(self._installed, *arguments, directory=self.directory, before=self._before)
        self.output = ended.stdout + ended.stderr
        assert "Traceback" not in self.output, self.output
        return ended.returncode

    def apply(self, *resources: dict[str, object], noop: bool = False) -> int:
        """Apply resources, and return the exit status."""
        text = yaml.safe_dump({"resources": list(resources)}, sort_keys=False)
        (self.directory / "manifest.yaml").write_text(text)
        options = ["--noop"] if noop else []
        return self.run("apply", "manifest.yaml", "--state-directory", "state", "-v", "--diff", *options)

    def converge(self, *resources: dict[str, object]) -> None:
        """Apply resources: in a dry run, for real, and again. The second run changes nothing."""
        assert self.apply(*resources, noop=True) == 0, self.output
        assert self.apply(*resources) == 0, self.output
        assert self.apply(*resources) == 0, self.output
        assert " 0 changed" in self.output or f"{len(resources)} stable" in self.output, self.output


MakeSite = Callable[..., SiteTypes]


@pytest.fixture
def make_site(tmp_path: Path) -> MakeSite:
    """Return ``make_site(before, **places)``. Each of ``places`` replaces a directory of the system in the modules."""

    def make(before: tuple[str, ...] = (), places: dict[str, str] | None = None) -> SiteTypes:
        package = ROOT / "puller_site_types"
        files = {f"{package.name}/{path.name}": path.read_text() for path in package.glob("*.py")}
        for old, new in (places or {}).items():
            assert any(old in text for text in files.values())
            files = {name: text.replace(old, new) for name, text in files.items()}
        installed = install(
            tmp_path / "site-packages", tomllib.loads((ROOT / "pyproject.toml").read_text()), files
        )
        return SiteTypes(installed, tmp_path, before)

    return make
