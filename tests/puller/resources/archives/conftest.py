"""What every story of an archive has."""

from pathlib import Path

import pytest

from puller.resources.archives import archive_receipts


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where receipts are kept: below the test's own directory, not below that of this user."""
    monkeypatch.setattr(archive_receipts, "default_directory", lambda: tmp_path / "state")
    return tmp_path / "state"
