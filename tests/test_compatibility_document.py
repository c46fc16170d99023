"""``docs/compatibility.md``: the named interfaces exist, and deprecations have a section of the changelog."""

import re
import tomllib
from pathlib import Path
from typing import Any

from puller.resources import registry

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/compatibility.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)[2:]


def test_each_stable_interface_links_to_its_reference() -> None:
    assert len(ROWS) >= 15
    assert [name for name, _, _ in ROWS if "](" not in name] == []


def test_documented_entry_points_are_those_of_the_registry() -> None:
    (row,) = [stable for name, stable, _ in ROWS if "adding-a-type.md" in name]
    assert set(re.findall(r"`(puller\.\w+)`", row)) == {registry.TYPES, registry.PROVIDERS}


def test_changelog_has_a_section_for_deprecations() -> None:
    settings: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = [kind["name"] for kind in settings["type"]]
    for name in re.findall(r"below\s+\*(\w+)\*", PAGE):
        assert name in kinds
    assert "*Deprecated*" in PAGE
