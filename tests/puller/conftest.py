"""Fixture that loads manifests from text, as ``puller apply`` does."""

import textwrap
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from puller.data.sources import DataSource, Origin
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from puller.values.common_properties import Reference

Load = Callable[..., Manifest]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return ``load(text, facts=…, sources=…)``: it loads ``web/manifest.yaml`` below a temporary directory."""

    def build(
        text: str,
        *,
        facts: Mapping[str, Any] | None = None,
        sources: tuple[Mapping[str, Any], ...] = (),
        known: Collection[Reference] = (),
    ) -> Manifest:
        path = tmp_path / "manifest.yaml"
        path.write_text(textwrap.dedent(text))
        provided = tuple(DataSource(Origin.HOST, "data.yaml", data) for data in sources)
        return load_manifest(path, "web/manifest.yaml", Inputs(facts or {}, {}, provided), known)

    return build
