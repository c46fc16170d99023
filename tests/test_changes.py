"""Fragments in ``changes/`` and the changelog: each change is a file, and a release joins the files to a section."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.plain_english import Sentence, split
from tests.support.rows import each_row

ROOT = Path(__file__).parents[1]
SETTINGS: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
KINDS = [kind["directory"] for kind in SETTINGS["type"]]
FRAGMENTS = sorted(path for path in (ROOT / "changes").iterdir() if path.name != "template.md")
NAME = re.compile(rf"[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(KINDS)})\.md")
MAXIMUM = 600
SECTION = re.compile(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d{2}-\d{2})$", re.MULTILINE)


def problems(name: str, text: str) -> list[str]:
    """Return the reasons why a fragment is not accepted."""
    hard = {kind for sentence in split(text) for kind in Sentence(name, name, sentence).constructions}
    checks = {
        f"the name is not NAME.KIND.md, with a KIND of {', '.join(KINDS)}": NAME.fullmatch(name) is None,
        "the text is empty": not text.strip(),
        "the text begins with a bullet": text.startswith(("*", "- ")),
        "the text does not end with a full stop": not text.rstrip().endswith("."),
        "the text has several paragraphs": "\n\n" in text.strip(),
        f"the text has more than {MAXIMUM} characters": len(text) > MAXIMUM,
        f"hard constructions: {', '.join(sorted(hard))}": len(hard) > 1,
    }
    return [problem for problem, applies in checks.items() if applies]


def towncrier(directory: Path, *words: str) -> str:
    command = (
        sys.executable,
        "-m",
        "towncrier",
        "build",
        "--version",
        "9.0.0",
        "--date",
        "2030-01-02",
        *words,
    )
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fragments_are_well_formed() -> None:
    result = {path.name: problems(path.name, path.read_text(encoding="utf-8")) for path in FRAGMENTS}
    assert {name: lines for name, lines in result.items() if lines} == {}


@each_row(
    ("name", "text", "expected"),
    [
        ("a.fixed.md", "Correct it.\n", ""),
        ("a.improved.md", "Correct it.\n", "the name is not"),
        ("A b.fixed.md", "Correct it.\n", "the name is not"),
        ("a.fixed.md", "\n", "empty"),
        ("a.fixed.md", "* Correct it.\n", "bullet"),
        ("a.fixed.md", "Correct it\n", "full stop"),
        ("a.fixed.md", "Correct it.\n\nAnd more.\n", "paragraphs"),
        ("a.fixed.md", f"{'Correct it. ' * 60}\n", "characters"),
        ("a.fixed.md", "The index says what is left; nobody may read it.\n", "hard constructions"),
    ],
)
def test_malformed_fragments_are_refused(name: str, text: str, expected: str) -> None:
    assert expected in "; ".join(problems(name, text))
    assert bool(problems(name, text)) is bool(expected)


def test_changelog_has_dated_versions_in_order() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    head, marker, body = text.partition(SETTINGS["start_string"])
    assert marker, "the place of new versions"
    assert body.lstrip().startswith("## "), "describe a change in a file in changes/, not in CHANGELOG.md"
    assert "\n* " not in head, "describe a change in a file in changes/, not in CHANGELOG.md"
    versions = [tuple(map(int, number.split("."))) for number, _ in SECTION.findall(body)]
    assert len(versions) == len(re.findall("^## ", body, re.MULTILINE)) > 0
    assert versions == sorted(versions, reverse=True)
    kinds = [kind["name"] for kind in SETTINGS["type"]]
    assert set(re.findall("^### (.*)$", body, re.MULTILINE)) <= set(kinds)


@pytest.mark.everything  # needs towncrier, of the extra check
def test_release_joins_fragments_to_a_section(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "changes").mkdir()
    shutil.copy(ROOT / "changes/template.md", tmp_path / "changes")
    (tmp_path / "changes/second.fixed.md").write_text("Close\nthe file.\n")
    (tmp_path / "changes/first.added.md").write_text("Add `a`.\n")
    (tmp_path / "changes/long.added.md").write_text(f"{'word ' * 30}end.\n")
    added = f"* Add `a`.\n* {' '.join(['word'] * 27)}\n  word word word end.\n"
    section = f"## 9.0.0 - 2030-01-02\n\n### Added\n\n{added}\n### Fixed\n\n* Close the file.\n\n## "
    assert section.removesuffix("\n## ") in towncrier(tmp_path, "--draft")
    towncrier(tmp_path, "--yes")
    assert f"{SETTINGS['start_string']}\n{section}" in (tmp_path / "CHANGELOG.md").read_text()
    assert [path.name for path in (tmp_path / "changes").iterdir()] == ["template.md"]
