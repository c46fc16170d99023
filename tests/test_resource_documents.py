"""The pages of ``docs/resources/`` document every property, and every example is a valid manifest."""

import re
from pathlib import Path

import msgspec
import pytest

from foundation.times import Duration
from puller.bundle_paths import BundleFiles
from puller.checks.kinds import HealthCheck
from puller.engine.manifest_schema import manifest_schema
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.resources.base import Properties
from puller.resources.registry import find_type
from tests.support.rows import each_row

PAGES = Path(__file__).parents[1] / "docs" / "resources"
NAMES = sorted(page.stem for page in PAGES.glob("*.md"))
TYPES = [name for name in NAMES if name != "common"]
FACTS = {"os": {"family": "Debian"}, "networking": {"hostname": "web01"}}


def properties_in(name: str) -> set[str]:
    """Return the first cells of the table below *Properties*, or of the first table of the page."""
    text = (PAGES / f"{name}.md").read_text()
    table = (
        text.split("## Properties\n")[1].split("\n## ")[0]
        if "## Properties\n" in text
        else text.split("\n\n")[1]
    )
    return {match for row in table.splitlines() for match in re.findall(r"^\| `(\w+)` \|", row)}


@each_row("name", TYPES)
def test_the_page_of_a_type_lists_its_properties_and_no_others(name: str) -> None:
    result = find_type(name)
    assert result is not None
    own = {field.encode_name for field in msgspec.structs.fields(result.properties_type)}
    common = {field.encode_name for field in msgspec.structs.fields(Properties)}
    assert properties_in(name) - {"ensure", "name", "provider"} == own - common


def test_the_common_page_lists_the_properties_of_every_type() -> None:
    assert properties_in("common") == {field.encode_name for field in msgspec.structs.fields(Properties)}


def rows_below(header: str) -> list[tuple[str, str]]:
    """Return the first cell and the rest of each row of the common page's table with this header."""
    table = (PAGES / "common.md").read_text().split(f"| {header} |")[1].split("\n\n")[0]
    return re.findall(r"^\| `(.+?)` \| (.*) \|$", table, re.MULTILINE)


def test_path_means_the_documented_file(tmp_path: Path) -> None:
    """The row for libraries is in docs/libraries.md."""
    for name in ("roles/web/vhost.j2", "roles/base.yaml", "templates/vhost.j2"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    files = BundleFiles.of(tmp_path).at(str(tmp_path / "roles/web"))
    rows = [row for row in rows_below("written in `roles/web/main.yaml`") if not row[0].startswith("common:")]
    assert len(rows) == 3
    for written, meaning in rows:
        assert files.find(written) == str(tmp_path / meaning.split("`")[1])


def test_common_page_lists_health_check_keys_and_defaults() -> None:
    meanings = dict(rows_below("key of a check"))
    fields = {field.encode_name: field for field in msgspec.structs.fields(HealthCheck)}
    assert set(meanings) == set(fields)
    defaults = {"tries": "1", "try_sleep": "1s", "timeout": "60s"}
    for name, value in defaults.items():
        assert fields[name].default == Duration.parse(int(value) if value.isdigit() else value)
        assert meanings[name].endswith(f"by default {value}")


def test_common_page_lists_manifest_keys() -> None:
    listed = {name for names, _ in rows_below("key of a manifest") for name in names.split("`, `")}
    known = set(manifest_schema()["properties"])
    assert listed == known - {"data", "hierarchy", "overrides", "ccm"}


def test_the_overview_leads_to_every_page() -> None:
    text = (PAGES.parent / "resource-types.md").read_text()
    assert set(re.findall(r"\(resources/(\w+)\.md\)", text)) == set(NAMES)


EXAMPLES = [
    (name, number, example)
    for name in NAMES
    for number, example in enumerate(
        re.findall(r"```yaml\n(.*?)```", (PAGES / f"{name}.md").read_text(), re.DOTALL)
    )
]


def test_every_page_has_an_example() -> None:
    assert {name for name, _, _ in EXAMPLES} == set(NAMES)


@pytest.mark.parametrize(("name", "number", "example"), EXAMPLES)
def test_an_example_is_a_valid_manifest(tmp_path: Path, name: str, number: int, example: str) -> None:
    for _, _, other in (found for found in EXAMPLES if found[0] == name):
        if named := re.match(r"# ([a-z./]+)\n", other):  # other examples of the page apply this one
            (tmp_path / named[1]).parent.mkdir(exist_ok=True)
            (tmp_path / named[1]).write_text(other)
    tops = [other for of, _, other in EXAMPLES if of == name and not other.startswith("# ")]
    if named := re.match(r"# ([a-z./]+)\n", example):
        example = next(other for other in tops if named[1] in other)  # load the example as a child manifest
    (tmp_path / "manifest.yaml").write_text(example)
    manifest = load_manifest(tmp_path / "manifest.yaml", f"{name}.md[{number}]", Inputs(FACTS, {}))
    assert manifest.declarations
    assert not [declaration.failure for declaration in manifest.declarations if declaration.failure]


RECIPES = re.findall(r"```yaml\n(.*?)```", (PAGES.parent / "recipes.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_a_valid_manifest(tmp_path: Path, recipe: str) -> None:
    """``tests/system/test_recipes.py`` runs the recipes with the real programs."""
    (tmp_path / "manifest.yaml").write_text(recipe)
    manifest = load_manifest(tmp_path / "manifest.yaml", "recipes.md", Inputs(FACTS, {}))
    assert not [declaration.failure for declaration in manifest.declarations if declaration.failure]
