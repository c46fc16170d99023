"""Examples on the pages of edits produce the documented files."""

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

PAGES = Path(__file__).parents[4] / "docs" / "resources"
FENCED = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("name", ["line", "block", "setting"])
def test_documented_example_gives_the_documented_result(
    name: str, apply: Callable[..., Any], place: Path
) -> None:
    section = (PAGES / f"{name}.md").read_text().split("\n## ")[0]
    (_, manifest), *texts = FENCED.findall(section)
    path = place / "file"
    resources: dict[str, Any] = {}
    for entry in yaml.safe_load(textwrap.dedent(manifest))["resources"]:
        ((kind, items),) = entry.items()
        defaults: dict[str, Any] = next((item["defaults"] for item in items if "defaults" in item), {})
        for item in items:
            ((title, properties),) = item.items()
            if title != "defaults":
                provided = {**defaults, **properties, "path": str(path)}
                resources[f"{kind}#{title}"] = {
                    **provided,
                    **({"validate": "test -s {}"} if "validate" in provided else {}),
                }
    (_, before), (_, after) = texts
    path.write_text(before)
    for expected in ("changed", "stable"):
        events = apply(resources)
        assert {str(event.state) for event in events.values()} == {expected}, events
        assert path.read_text() == after
