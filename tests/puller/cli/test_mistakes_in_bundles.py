"""Typical mistakes in bundles, with the message of each (``tests/cases/mistakes_in_bundles.yaml``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.cli import _status

CASES: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[2] / "cases/mistakes_in_bundles.yaml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", CASES, ids=[case["mistake"] for case in CASES])
def test_a_mistake_is_reported_with_its_message(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web/manifest.yaml").write_text(case["manifest"], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    status = _status(case["command"].split())[0]
    first_line = capsys.readouterr().out.splitlines()[0]
    assert (status, first_line) == (case["status"], case["message"])


def test_there_are_forty_mistakes() -> None:
    assert len({case["mistake"] for case in CASES}) >= 40
