"""The JSON Schemas are valid and accept every manifest and request in the documents."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hiera import parsing
from puller.engine.ensure import REQUEST
from puller.engine.manifest_schema import manifest_schema, request_schema
from puller.resources.registry import find_type, type_names
from tests.support.rows import each_row

jsonschema: Any = pytest.importorskip("jsonschema", reason="the schemas are validated by jsonschema")

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = [
    (f"{page.stem}-{number}", example)
    for page in sorted([*DOCS.glob("resources/*.md"), DOCS / "data.md", DOCS / "libraries.md"])
    for number, example in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL))
]


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


@pytest.mark.representatives(1)
@pytest.mark.parametrize("schema", [manifest_schema(), request_schema()], ids=["manifest", "request"])
def test_a_schema_is_one(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    defined = {f"#/$defs/{name}" for name in schema["$defs"]}
    referred = re.findall(r'"\$ref": "(#/\$defs/[^/"]+)', json.dumps(schema))
    assert set(referred) <= defined


@each_row(("name", "example"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_every_example_of_the_documents_is_valid(name: str, example: str) -> None:
    if "/library.yaml" not in example:  # the only document in the pages that is not a manifest
        assert problems(manifest_schema(), parsing.load_yaml(example, name)) == []


def test_the_request_of_the_documents_is_valid() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", (DOCS / "shell.md").read_text(), re.DOTALL)
    assert problems(request_schema(), json.loads(example)) == []


@each_row("name", type_names())
def test_every_property_is_in_the_schema_and_described(name: str) -> None:
    result = find_type(name)
    assert result is not None
    definition = manifest_schema()["$defs"][result.properties_type.__name__]
    names = {field.encode_name for field in msgspec.structs.fields(result.properties_type)}
    assert set(definition["properties"]) == names | set(result.spellings) | {"label"}
    assert [name for name in names if not definition["properties"][name]["description"]] == []


FILE = {"owner": "root", "group": "root", "mode": "0644"}

VALID = [
    {"resources": [{"file": {"name": "/a", **FILE}}]},
    {"resources": [{"file": [{"defaults": FILE}, {"/a": None}, {"/b": {"mode": None}}]}]},
    {"resources": [{"file": [{"/a": {"ensure": "contents", "contents": "x", "permission-mask": "6xx"}}]}]},
    {
        "resources": [
            {"exec": [{"true": {"returns": "{{ data.codes }}", "timeout": 5, "refresh_only": True}}]}
        ]
    },
    {"resources": [{"exec": [{"true": {"returns": ["{{ data.code }}"]}}]}]},
    {"ccm": {"resources": []}, "data": {"x": 1}, "overrides": {"a": {}}, "hierarchy": {"merge": "deep"}},
    {"resources_template": "resources.jet", "fail_on_error": True},
    {"libraries": {"common": "../common", "base-2": "../base"}, "resources": []},
    {"libraries": None, "ccm": {"resources": []}},
    {"resources_template": "resources.jet", "resources": []},
    {"resources": [{"package": [{"for": "name in data.packages", "{{ name }}": None}]}]},
    {"resources": [{"file": [{"/{{ a }}": {"ensure": "absent"}, "for": ["b in data.b", "a, c in b"]}]}]},
    {"resources": [{"exec": {"name": "echo {{ x }}", "for": "x in [1, 2]"}}]},
    {"resources": [{"package": ["nginx", "{{ data.name }}", {"curl": {"ensure": "latest"}}]}]},
    {"resources": [{"file": [{"defaults": FILE}, "/a", "/b"]}]},
]

INVALID = [
    {"libraries": {"Common": "../common"}, "resources": []},
    {"libraries": {"common": None}, "resources": []},
    {"libraries": ["common"], "resources": []},
    {"resource": []},
    {"resources": {}},
    {"resources": [{"fiel": {"name": "/a"}}]},
    {"resources": [{"file": {"name": "/a"}, "exec": {"name": "b"}}]},
    {"resources": [{"file": {"ensure": "absent"}}]},
    {"resources": [{"file": []}]},
    {"resources": [{"file": [{"/a": {"mode": 644}}]}]},
    {"resources": [{"file": [{"/a": {"mode": "0888"}}]}]},
    {"resources": [{"file": [{"/a": {"modes": "0644"}}]}]},
    {"resources": [{"exec": [{"true": {"returns": "0"}}]}]},
    {"resources": [{"exec": [{"true": {"require": ["file"]}}]}]},
    {"resources": [{"exec": [{"true": {"control": {"when": "x"}}}]}]},
    {"hierarchy": {"merge": "deepest"}, "resources": []},
    {"resources": [{"package": [{"for": "name in data.packages"}]}]},
    {"resources": [{"package": [{"a": None, "b": None}]}]},
    {"resources": [{"package": [{"for": "name in data.packages", "a": None, "b": None}]}]},
    {"resources": [{"package": [{"for": "name in data.packages", "defaults": {}}]}]},
    {"resources": [{"package": [{"for": "data.packages", "a": None}]}]},
    {"resources": [{"package": [{"for": [], "a": None}]}]},
    {"resources": [{"package": [{"a": {"for": "name in data.packages"}}]}]},
    {"resources": [{"package": {"name": "a", "for": 1}}]},
    {"resources": [{"package": "nginx"}]},
    {"resources": [{"package": ["defaults"]}]},
    {"resources": [{"package": ["for", 1]}]},
]


@each_row("manifest", VALID, ids=str)
def test_accepted_manifests_are_valid_by_schema(manifest: dict[str, Any]) -> None:
    assert problems(manifest_schema(), manifest) == []


@each_row("manifest", INVALID, ids=str)
def test_broken_manifests_are_invalid_by_schema(manifest: dict[str, Any]) -> None:
    assert problems(manifest_schema(), manifest)


@each_row(
    ("change", "valid"),
    [
        ({}, True),
        ({"properties": [{"true": {}}]}, True),
        ({"protocol": "x"}, False),
        ({"type": "exek"}, False),
        ({"type": "file"}, False),
        ({"more": 1}, False),
        ({"properties": {"cwd": "/"}}, False),
        ({"properties": {"name": "{{ x }}", "for": "x in [1]"}}, False),
        ({"properties": [{"{{ x }}": {}, "for": "x in [1]"}]}, False),
    ],
)
def test_a_request_has_the_properties_of_its_type(change: dict[str, Any], valid: bool) -> None:
    request = {"protocol": REQUEST, "type": "exec", "properties": {"name": "true", "returns": [0]}, **change}
    assert (problems(request_schema(), request) == []) is valid
