"""The pictures in the documents are those of the tests, and the documents use them."""

import importlib.machinery
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/output.md"


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    path = str(ROOT / "packaging/pictures")
    loader = importlib.machinery.SourceFileLoader("pictures", path)
    spec = importlib.util.spec_from_loader("pictures", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_pictures_of_documents_are_up_to_date(pictures: ModuleType) -> None:
    """After a change of the output, run `packaging/pictures`."""
    expected: dict[Path, str] = pictures.pictures()
    assert {path: path.read_text(encoding="utf-8") for path in expected} == expected


def test_pictures_are_valid_and_have_a_title(pictures: ModuleType) -> None:
    for text in pictures.pictures().values():
        root = ElementTree.fromstring(text)
        assert root.attrib["aria-label"].startswith("puller ")


def test_long_lines_break_like_a_terminal(pictures: ModuleType) -> None:
    first, second = pictures.wrapped("\x1b[31m" + "a" * 81 + "\x1b[0m")
    assert (len(first), second) == (80, [("a", "31")])


def test_page_of_output_shows_existing_pictures() -> None:
    names = re.findall(r"\]\((pictures/[a-z-]+\.svg)\)", PAGE.read_text(encoding="utf-8"))
    assert len(names) >= 6
    assert all((ROOT / "docs" / name).exists() for name in names)
