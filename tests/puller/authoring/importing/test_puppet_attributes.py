"""The attributes of Puppet on the page for its users: each one is mapped, and the page lists it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from puller.authoring.importing.draft import Draft
from puller.authoring.importing.puppet.puppet_importer import import_puppet
from puller.authoring.importing.puppet.scopes import table
from tests.support.rows import each_row

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs/from-puppet.md"
TYPES: dict[str, Any] = yaml.safe_load((ROOT / "tests/cases/puppet_attributes.yaml").read_text())
PAIRS = [(name, attribute) for name, row in TYPES.items() for attribute in row["attributes"]]


def draft_with(directory: Path, name: str, attributes: dict[str, Any]) -> Draft:
    """Return the draft of a class with one declaration."""
    body = ", ".join(f"{key} => {json.dumps(value)}" for key, value in attributes.items())
    module = directory / "web"
    (module / "manifests").mkdir(parents=True)
    (module / "files").mkdir()
    (module / "files/a").write_text("a")
    title = json.dumps(TYPES[name]["title"])
    (module / "manifests/init.pp").write_text(f"class web {{ {name} {{ {title}: {body} }} }}")
    return import_puppet(module, "web")


@pytest.mark.parametrize(("name", "attribute"), PAIRS)
def test_attribute_becomes_its_property(name: str, attribute: str, tmp_path: Path) -> None:
    value, target = TYPES[name]["attributes"][attribute]
    needed = {key: item for key, item in TYPES[name]["with"].items() if key != attribute}
    if name == "file" and attribute == "target":
        needed = {"ensure": "link"}

    resources = [
        resource
        for path, manifest in draft_with(tmp_path, name, {**needed, attribute: value}).manifests.items()
        for resource in manifest.resources
        if path != "manifest.yaml"
    ]

    assert resources
    assert not any(resource.disabled for resource in resources)
    assert any(target in resource.properties for resource in resources)


@each_row("name", [name for name in TYPES if "attributes" in table()["types"][name]])
def test_page_has_all_attributes_of_the_table(name: str) -> None:
    targets = {
        attribute: target["to"] if isinstance(target, dict) else target
        for attribute, target in table()["types"][name]["attributes"].items()
        if target != "ignore" and not (isinstance(target, dict) and "remark" in target)
    }
    same = {"ensure", "provider", "name", "user", "val", "replace_all_matches_not_matching_line"}

    listed = {attribute: target for attribute, (_, target) in TYPES[name]["attributes"].items()}

    assert {key: item for key, item in targets.items() if key not in same} == {
        key: item for key, item in listed.items() if key in targets and key not in same
    }


def test_page_lists_each_attribute_with_its_property() -> None:
    lines = ["| Puppet type | attributes, with another name of the property |", "| --- | --- |"]
    for name, row in TYPES.items():
        entries = [
            f"`{attribute}`" if attribute == target else f"`{attribute}` → `{target}`"
            for attribute, (_, target) in row["attributes"].items()
        ]
        lines.append(f"| `{name}` | {', '.join(entries)} |")
    before, _, rest = PAGE.read_text().partition("## Attributes\n\n")
    introduction, _, after = rest.partition("| Puppet type |")
    current, _, end = f"| Puppet type |{after}".partition("\n\n")
    if os.environ.get("PULLER_WRITE_DOCS"):
        PAGE.write_text(f"{before}## Attributes\n\n{introduction}" + "\n".join(lines) + f"\n\n{end}")
    else:
        assert current.splitlines() == lines
