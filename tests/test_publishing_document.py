"""``docs/publishing.md``: its session, run as printed, and its table of versions."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bundles.publisher.published import next_version
from tests.support.rows import each_row

PAGE = (Path(__file__).parents[1] / "docs/publishing.md").read_text()
(SESSION,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
(DOCUMENT,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
VERSIONS = re.findall(
    r"^\| (\S+) \| (\S+) \|$", PAGE.split("## The next version")[1].split("\n## ")[0], re.MULTILINE
)

_PULLER = 'puller() { "$PYTHON" -m puller "$@"; }\n'


@pytest.fixture
def _repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create the prerequisites of the page."""
    monkeypatch.chdir(tmp_path)
    for name in ("db", "web"):
        (tmp_path / "bundles" / name / "files").mkdir(parents=True)
        (tmp_path / "bundles" / name / "manifest.yaml").write_text("resources: []\n")
        (tmp_path / "bundles" / name / "files/motd").write_text("Hello.\n")
    typed("puller site init site --no-passphrase")


def typed(line: str) -> str:
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        ["sh", "-c", _PULLER + line], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), line
    return done.stdout


@pytest.mark.usefixtures("_repository")
@pytest.mark.everything
def test_documented_session_equals_the_output() -> None:
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", SESSION, re.MULTILINE)
    assert len(steps) == 5
    assert [(line, typed(line)) for line, _ in steps] == steps
    Path("bundles/web/files/motd").write_text("Welcome back.\n")
    result = json.loads(typed("puller site publish site bundles/web --version auto --noop --format json"))
    shown = json.loads(DOCUMENT)
    for document in (result, shown):
        (bundle,) = document["bundles"]
        assert isinstance(bundle.pop("sha256"), str)
        assert isinstance(bundle.pop("size"), int)
    assert result == shown


@each_row(("newest", "following"), [row for row in VERSIONS if row[0] != "---"])
def test_table_of_versions_equals_the_computed_one(newest: str, following: str) -> None:
    assert next_version([] if newest == "none" else [newest]) == following


def test_the_table_of_versions_is_found() -> None:
    assert ("none", "1.0.0") in VERSIONS
