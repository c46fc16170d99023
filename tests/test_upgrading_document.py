"""``docs/upgrading.md``: its commands do what it shows, and its tables tell what the launcher and the run do."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Execute

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/upgrading.md").read_text()
(CONSOLE,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_page_show_what_it_says(
    execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in set(re.findall(r"puller_\S+\.deb", CONSOLE)):
        (tmp_path / name).write_bytes(b"!<arch>\n")
    typed = re.findall(r"^\$ puller (.*)\n((?:(?!\$ ).*\n)*)", CONSOLE, re.MULTILINE)
    assert len(typed) == 3
    for command, shown in typed:
        status, output = execute(*shlex.split(command))
        assert (status, re.sub(r", in [\d.]+ s$", "", output, flags=re.MULTILINE)) == (0, shown), command


def test_what_it_tells_of_the_launcher_is_in_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "packaging")
    from steps.launcher import script

    launcher, arrange = script(ROOT, "puller"), script(ROOT, "arrange")
    for told in (
        "/usr/lib/puller",
        "/var/lib/puller-launcher",
        "is used in its place",
        "does not start",
        "126",
    ):
        assert told in PAGE
        assert told in launcher
    assert "for at most 60 seconds" in PAGE
    assert "timeout --kill-after=5 60 " in launcher
    assert "1 CURRENT BEFORE" in PAGE
    assert "1 CURRENT BEFORE" in arrange
