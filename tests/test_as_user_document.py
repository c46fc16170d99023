"""The page about agents of ordinary users: its examples work as described, and its tables are complete."""

import re
from pathlib import Path

import pytest
import yaml

from puller.config.configuration import load_configuration
from puller.manifest.as_user_rules import WANTS_ROOT
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs

PAGE = (Path(__file__).parents[1] / "docs/as-user.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_configuration_is_a_valid_one(tmp_path: Path) -> None:
    (text,) = [example for example in EXAMPLES if "site:" in example]
    (tmp_path / "config.yaml").write_text(text)
    assert [choice.name for choice in load_configuration(tmp_path / "config.yaml").bundles] == ["desktop"]


@pytest.mark.parametrize("as_user", [None, True])
def test_manifest_works_for_authors_and_user_agents(tmp_path: Path, as_user: bool | None) -> None:
    (text,) = [example for example in EXAMPLES if "resources:" in example]
    (tmp_path / "manifest.yaml").write_text(text)
    inputs = Inputs({}, {"HOME": "/home/alice"}, as_user=as_user)
    manifest = load_manifest(tmp_path / "manifest.yaml", "manifest.yaml", inputs)
    assert [declaration.failure for declaration in manifest.declarations] == ["", ""]
    names = [declaration.properties.name for declaration in manifest.declarations]
    assert names == ["/home/alice/.config/greeting", "greeter"]
    assert yaml.safe_load(text)["as_user"] is True


def test_table_of_refused_types_is_complete() -> None:
    table = PAGE.split("| rejected | reason |")[1].split("\n\n")[0]
    assert set(WANTS_ROOT) - set(re.findall(r"`(\w+)`", table)) == set()
