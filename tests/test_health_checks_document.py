"""docs/health-checks.md: its table is generated from the types, and its examples are valid manifests."""

import inspect
import re
import types
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foundation.times import Duration
from puller.checks import kinds
from puller.checks.gossfile_parser import _OF_NUMBERS, _OF_TEXT, ATTRIBUTES
from puller.engine.manifest_schema import describe_fields
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs
from puller.values.file_mode import FileMode

PAGE = Path(__file__).parents[1] / "docs/health-checks.md"
STRUCTS: list[type[msgspec.Struct]] = [
    kinds.Http,
    kinds.JsonValue,
    kinds.Tcp,
    kinds.Unix,
    kinds.Service,
    kinds.Process,
]
STRUCTS += [kinds.File, kinds.Disk, kinds.Dns]
WORDS = {
    str: "text",
    int: "number",
    float: "number",
    bool: "true or false",
    Duration: "duration",
    FileMode: "mode",
}


def written(kind: Any) -> str:
    """Return a type in the words of the page."""
    if typing.get_origin(kind) is tuple:
        return f"list of {written(typing.get_args(kind)[0])}"
    if typing.get_origin(kind) is typing.Literal:
        return ", ".join(f"`{word}`" for word in typing.get_args(kind))
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        pieces = [written(item) for item in typing.get_args(kind) if item is not type(None)]
        return " or ".join(dict.fromkeys(pieces))
    return "mapping" if issubclass(kind, msgspec.Struct) else WORDS[kind]


def lowered(text: str) -> str:
    """Return a sentence as it stands in a cell."""
    text = text.replace("``", "").rstrip(".")
    return text if text[1:2].isupper() else text[0].lower() + text[1:]


def rows() -> list[str]:
    """Return the rows of the table, from the types."""
    results = []
    for struct in STRUCTS:
        key = "json" if struct is kinds.JsonValue else struct.__name__.lower()
        if struct is not kinds.JsonValue:
            results.append(f"| **`{key}`** | | {lowered(inspect.cleandoc(struct.__doc__ or ''))} |")
        meanings = describe_fields(struct)
        for field in msgspec.structs.fields(struct):
            name = f"http.json.{field.name}" if struct is kinds.JsonValue else f"{key}.{field.name}"
            must = " (required)" if field.required else ""
            results.append(f"| `{name}` | {written(field.type)}{must} | {lowered(meanings[field.name])} |")
    return results


def test_the_table_is_that_of_the_types() -> None:
    table = PAGE.read_text().split("| --- | --- | --- |\n")[1].split("\n\n")[0]
    assert table.splitlines() == rows()


def goss_rows() -> list[str]:
    """Return the table of the kinds of goss."""

    def words(names: frozenset[str]) -> str:
        return ", ".join(f"`{name}`" for name in sorted(names))

    return [
        f"| `{kind}` | {words(compared)} | {words(how)} |" for kind, (_, compared, how) in ATTRIBUTES.items()
    ]


def test_goss_table_matches_the_reader() -> None:
    table = PAGE.read_text().split("## Goss files")[1].split("| --- | --- | --- |\n")[1].split("\n\n")[0]
    assert table.splitlines() == goss_rows()


def test_the_page_names_every_matcher() -> None:
    page = PAGE.read_text().split("## Goss files")[1].split("\n## ")[0]
    for word in ("and", "or", "not", "equal", "have-len", "have-key", *_OF_TEXT, *_OF_NUMBERS):
        assert f"`{word}`" in page


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL))
def test_an_example_is_a_valid_manifest(tmp_path: Path, example: str) -> None:
    (tmp_path / "manifest.yaml").write_text(example)
    manifest = load_manifest(tmp_path / "manifest.yaml", "example", Inputs({"os": {"family": "Debian"}}, {}))
    assert manifest.declarations
    assert not [declaration.failure for declaration in manifest.declarations if declaration.failure]
