"""``docs/preview.md``: its example prints the shown output."""

import re
from pathlib import Path

import pytest

from puller.exit_status import ExitStatus
from tests.support.stories import execute_here

PAGE = (Path(__file__).parents[1] / "docs/preview.md").read_text()
TEMPLATE = "workers = {{ data.workers }}\n"


def block(name: str) -> str:
    match = re.search(rf"<!-- {re.escape(name)} -->\n```\w*\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None, f"docs/preview.md has no block {name}"
    return match[1]


def test_documented_example_gives_the_shown_preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, template in (("old", TEMPLATE), ("new", TEMPLATE + "address = {{ facts.networking.ip }}\n")):
        Path(name).mkdir()
        Path(name, "manifest.yaml").write_text(block(f"{name}/manifest.yaml"))
        Path(name, "app.conf.j2").write_text(template)
    Path("fleet.yaml").write_text(block("fleet.yaml"))
    command = "puller preview new --from old --facts fleet.yaml"
    status, output = execute_here(*command.split()[1:])
    assert (status, output) == (ExitStatus.FAILED, block(command))
