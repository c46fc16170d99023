"""Loops in ``docs/resources/common.md``, and lists of resources as templates in ``docs/templates.md``."""

import re
from pathlib import Path

import pytest

from puller.cli import main
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str, section: str) -> list[str]:
    text = (DOCS / page).read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)


def test_a_list_of_resources_renders_as_its_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, template, shown = blocks("templates.md", "Generate resources")
    (tmp_path / "web" / "templates").mkdir(parents=True)
    (tmp_path / "web" / "manifest.yaml").write_text(manifest)
    (tmp_path / "web" / "templates" / "users.j2").write_text(template)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["render", "web", "--source", "--no-system-facts"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == shown


def test_documented_loops_give_their_result(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(blocks("resources/common.md", "Loops")[0])
    manifest = load_manifest(tmp_path / "manifest.yaml", "web/manifest.yaml", Inputs({}, {}))
    assert [str(declaration) for declaration in manifest.declarations] == [
        "package#nginx",
        "package#curl",
        "file#/etc/nginx/sites-enabled/shop.conf",
        "file#/etc/nginx/sites-enabled/blog.conf",
        "file#/etc/nginx/aliases/store",
        "file#/etc/nginx/aliases/basket",
        "file#/etc/nginx/aliases/news",
        "exec#systemctl reload nginx",
    ]
    output = manifest.declarations[2]
    page = (DOCS / "resources" / "common.md").read_text()
    assert f"`{output.where}: {output.item}`" in page
