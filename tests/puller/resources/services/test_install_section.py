"""The ``[Install]`` section of units: which files are read, and how often."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from puller.resources.services.unit_links import InstallSections
from puller.system.local import LocalSystem


class Counting(LocalSystem):
    """This machine, with a record of the paths read."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def read(self, path: str, looked_at: os.stat_result | None = None) -> bytes:
        self.paths.append(path)
        return super().read(path, looked_at)


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    """Create two directories of units. The first one has precedence."""
    for name in ("etc", "lib"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool.service").write_text(f"[Install]\nWantedBy={name}.target\n")
    return [tmp_path / "etc", tmp_path / "lib"]


@pytest.mark.parametrize("is_known", [True, False])
def test_only_the_first_unit_file_is_read(directories: list[Path], *, is_known: bool) -> None:
    """Every run reads this file for every enabled service."""
    system = Counting()
    fragment = f"{directories[0]}/tool.service"
    sections = InstallSections(system, [*map(str, directories)])
    assert sections.of("tool.service", fragment if is_known else "").starters == ["etc.target"]
    assert system.paths == [fragment]


def test_drop_ins_add_to_the_unit_file(directories: list[Path]) -> None:
    drop_ins = directories[1] / "tool.service.d"
    drop_ins.mkdir()
    (drop_ins / "more.conf").write_text("[Install]\nAlias=other.service\n")
    install = InstallSections(LocalSystem(), [*map(str, directories)]).of("tool.service")
    assert (install.starters, install.aliases) == (["etc.target"], ("other.service",))
