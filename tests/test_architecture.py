"""A real run calls the folders in the order that docs/architecture.md describes."""

import re
import sys
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import puller

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

ROOT = Path(__file__).parents[1]
INSTALLED = Path(puller.__file__).parents[1]
"""Directory that the tests import Puller from. It may differ from this tree."""
PAGE = ROOT / "docs/architecture.md"
PATH = re.compile(r"`((?:puller|bundles|hiera|foundation)/[\w/]+(?:\.py)?/?)`")


def steps() -> list[str]:
    """Return the first file or folder of each numbered step of *A run*."""
    section = PAGE.read_text().partition("\n## A run\n")[2].partition("\n## ")[0]
    found = [PATH.search(step) for step in re.findall(r"^\d+\. (.*)$", section, re.MULTILINE)]
    return [match[1] for match in found if match]


def test_all_that_the_page_names_is_there() -> None:
    named = PATH.findall(PAGE.read_text())
    assert len(named) > 40
    assert [name for name in named if not ((ROOT / name).exists() or (ROOT / f"{name}.py").exists())] == []


def test_changes_of_the_page_open_at_most_three_files() -> None:
    section = PAGE.read_text().partition("\n## To change X, open Y\n")[2].partition("\n## ")[0]
    _, _, *rows = re.findall(r"^\|.*$", section, re.MULTILINE)
    assert len(rows) >= 8
    files = {row: [path for path in PATH.findall(row) if path.endswith(".py")] for row in rows}
    assert [row for row, paths in files.items() if not 1 <= len({*paths}) <= 3] == []


def test_a_run_goes_through_the_folders_in_the_order_of_the_page(
    host: "Host", publisher: "Publisher"
) -> None:
    """Compare the first calls into each folder while ``Agent.run`` installs and applies a first bundle."""
    host.configure(reports={"to": [str(host.state.parent)]})
    publisher.publish("1.0.0")
    desired = steps()
    assert len(desired) >= 8
    order: list[str] = []
    begun: list[FrameType] = []

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        file = code.co_filename.removeprefix(f"{INSTALLED}/")
        if (file, code.co_name) == ("puller/run/agent.py", "run"):
            begun.append(frame)
        # Imports and the creation of objects for later steps do not count as steps.
        if begun and event == "call" and code.co_flags & CO_OPTIMIZED and code.co_name[0] not in "<_":
            order.extend(step for step in desired if file.startswith(step) and step not in order)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        assert host.run().status == 0
    finally:
        sys.setprofile(before)
    assert order == desired
