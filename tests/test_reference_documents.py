"""The generated reference pages agree with ``--help`` and with the structs of the configuration."""

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_reference_pages_are_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the pages with ``python packaging/documents/reference.py``."""
    monkeypatch.syspath_prepend(ROOT / "packaging/documents")
    reference = import_module("reference")
    for name, text in reference.pages().items():
        written = (ROOT / "docs" / name).read_text()
        assert written == text, f"docs/{name} is old: run python packaging/documents/reference.py"
