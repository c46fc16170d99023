"""The page for users of CCM and TinyCM: its manifests are valid, and lint reports what the page shows."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hiera import parsing
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs

PAGE = (Path(__file__).parents[1] / "docs/from-ccm.md").read_text()
MANIFESTS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
FACTS = {"host": {"info": {"platformFamily": "debian"}}}


@pytest.mark.parametrize("text", MANIFESTS, ids=range(len(MANIFESTS)))
def test_every_manifest_of_the_page_is_valid(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.yaml").write_text(text)
    manifest = load_manifest(tmp_path / "manifest.yaml", "manifest.yaml", Inputs(FACTS, {}))
    assert not [failure for declaration in manifest.declarations for failure in declaration.failures]


def test_first_manifest_has_the_names_of_the_override(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(MANIFESTS[0])
    manifest = load_manifest(tmp_path / "manifest.yaml", "manifest.yaml", Inputs(FACTS, {}))
    assert [str(declaration.reference) for declaration in manifest.declarations] == [
        "package#apache2",
        "file#/etc/httpd/conf.d/listen.conf",
        "service#apache2",
    ]


def test_lint_reports_the_line_of_the_page(
    execute: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "httpd.yaml").write_text(MANIFESTS[0])
    (line,) = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    assert line in execute("lint", "httpd.yaml")[1].splitlines()


def test_replaced_manifest_has_no_errors(execute: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """The steps of the page: replace the expressions, and move the keys of ``ccm`` to the top."""
    text = re.sub(r"\$\{ (.*?) \}", r"{{ \1 }}", MANIFESTS[0])
    value = parsing.load_yaml(text, "")
    assert value["ccm"].keys() == {"resources"}
    section = re.search(r"ccm:\n((?:  .*\n)+)", text)
    assert section is not None
    moved = re.sub("(?m)^  ", "", section[1])
    (tmp_path / "manifest.yaml").write_text(text.replace(section[0], moved))
    status, output = execute("lint", str(tmp_path))
    assert status == 0, output
