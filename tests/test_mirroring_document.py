"""``docs/mirroring.md``: its command copies a site, and its options and samples agree with the code."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundles.publisher.web_server import serving

if TYPE_CHECKING:
    from tests.support.stories import Execute

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/mirroring.md").read_text()
(COMMAND,) = re.findall(r"^```console\n\$ puller (.*)\n```", PAGE, re.MULTILINE)


def test_the_command_copies_a_site(
    new_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execute: Execute
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(new_site, "site")
    Path("web").mkdir()
    Path("web/manifest.yaml").write_text("resources: []\n")
    assert execute("site", "publish", "site", "web", "--version", "1.0.0")[0] == 0
    shutil.copy("site/public/metadata/1.root.json", "root.json")
    with serving(Path("site/public")) as url:
        line = COMMAND.replace("https://www.example.org/puller", url).replace("/srv/copy", "copy")
        assert execute(*shlex.split(line))[0] == 0
    assert sorted(path.name for path in Path("copy").iterdir()) == sorted(
        re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE)
    )


def test_the_options_are_those_of_the_command(execute: Execute) -> None:
    output = execute("site", "mirror", "--help")[1]
    options = re.findall(r"`(--[a-z-]+)", PAGE.split("| option |")[1].split("\n\n")[0])
    assert [option for option in options if option not in output] == []


def test_sample_unit_runs_the_documented_command() -> None:
    unit = (ROOT / "systemd/puller-mirror.service").read_text()
    assert "ExecStart=@PULLER@ site mirror ${SITE} /var/lib/puller-mirror $OPTIONS\n" in unit
    assert "'SITE=" in PAGE
    assert "'OPTIONS=" in PAGE
    assert (ROOT / "systemd/puller-mirror.timer").exists()
