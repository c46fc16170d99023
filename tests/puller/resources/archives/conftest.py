"""Fixtures that all tests of archives share."""

from pathlib import Path

import pytest

from puller.resources.archives import archive_receipts


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep receipts below the directory of the test, and return that directory."""
    monkeypatch.setattr(archive_receipts, "default_directory", lambda: tmp_path / "state")
    return tmp_path / "state"
