"""The arguments of Ansible's modules, and the properties that receive them.

``docs/from-ansible.md`` has a generated table. ``PULLER_WRITE_DOCS=1`` writes it. Its sources are the rows of
``modules.yaml``, and ``tests/cases/ansible_arguments.yaml`` for modules that a function maps.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from puller.authoring.importing.ansible.ansible_importer import import_ansible
from puller.authoring.importing.ansible.tasks import table
from puller.authoring.importing.draft import Resource
from puller.resources.registry import find_type

PAGE = Path(__file__).parents[4] / "docs/from-ansible.md"
CASES: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[3] / "cases/ansible_arguments.yaml").read_text()
)
MODULES: dict[str, dict[str, Any]] = table()["modules"]
RENAMED = {
    "masked": "enable",
    "purge": "ensure",
    "update": "ensure",
    "append": "membership",
    "update_password": "password",
}
"""Properties that a function derives from a value of the row."""
HEAD = "| module | resource type | argument → property |\n| --- | --- | --- |\n"


def pairs_of_row(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield argument and property for each argument that a row maps."""
    yield from ((name, "name") for name in row["name"])
    for argument, rule in row["arguments"].items():
        if isinstance(rule, str) and rule != "ignore":
            yield argument, rule
        elif isinstance(rule, dict) and "to" in rule:
            yield argument, RENAMED.get(str(rule["to"]), str(rule["to"]))


def pairs_of_command(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield argument and property for each field of the commands in a row."""
    templates = [template for state in row["command"].values() for template in state.values()]
    for field in dict.fromkeys(re.findall(r"{(\w+)(?::plain)?}", " ".join(templates))):
        yield field, "command"


def cell(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the arguments of a module with their properties. Equal names are written once."""
    properties: dict[str, list[str]] = {}
    for argument, name in pairs:
        arguments = properties.setdefault(name, [])
        if argument not in arguments:
            arguments.append(argument)
    texts = []
    for name, arguments in properties.items():
        before = " ".join(f"`{argument}`" for argument in arguments)
        after = "the name" if name == "name" else f"`{name}`"
        texts.append(before if before == after else f"{before} → {after}")
    return ", ".join(texts)


def table_rows() -> Iterator[tuple[str, str, str]]:
    """Yield module, type and arguments for each mapped module. Modules with equal rows are joined."""
    joined: dict[tuple[str, str], list[str]] = {}
    for module, row in MODULES.items():
        cases = [case for name, case in CASES.items() if name.partition(" ")[0] == module]
        kinds: list[tuple[str, list[tuple[str, str]]]] = []
        if "type" in row:
            kinds = [(row["type"], list(pairs_of_row(row)))]
        elif "command" in row:
            kinds = [("exec", list(pairs_of_command(row)))]
        for case in cases:
            kinds.append((case["type"], [(name, value[1]) for name, value in case["arguments"].items()]))
        for kind, pairs in kinds:
            joined.setdefault((kind, cell(pairs)), []).append(module)
    for (kind, cells), modules in sorted(joined.items(), key=lambda item: item[1][0]):
        yield ", ".join(f"`{module}`" for module in dict.fromkeys(modules)), f"`{kind}`", cells


def test_the_page_has_the_table_of_arguments() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(HEAD)
    expected = HEAD + "".join(f"| {' | '.join(row)} |\n" for row in table_rows())
    if "PULLER_WRITE_DOCS" in os.environ:
        PAGE.write_text(before + expected + "\n" + rest[rest.index("##") :])
        text = PAGE.read_text()
    assert expected + "\n" in text


def test_each_function_has_a_case() -> None:
    functions = {name for name, row in MODULES.items() if "function" in row and "type" not in row}
    assert {name.partition(" ")[0] for name in CASES} == functions


def test_rows_name_properties_of_their_type() -> None:
    for module, row in MODULES.items():
        if "type" in row:
            kind = find_type(row["type"])
            assert kind is not None, module
            known = {field.encode_name for field in msgspec.structs.fields(kind.properties_type)}
            assert {name.partition(".")[0] for _, name in pairs_of_row(row)} <= known, module


def resource_of(directory: Path, module: str, arguments: Mapping[str, Any], kind: str) -> Resource:
    """Return the first resource of a type in the draft of one task."""
    for name in ("files/a", "files/b", "templates/a.j2", "templates/b.j2"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("x")
    (directory / "tasks").mkdir(exist_ok=True)
    (directory / "tasks/main.yml").write_text(json.dumps([{module: arguments}]))
    resources = import_ansible(directory, "role").manifests["manifest.yaml"].resources
    return next(resource for resource in resources if resource.type == kind and not resource.disabled)


@pytest.mark.parametrize("name", CASES)
def test_each_argument_changes_its_property(name: str, tmp_path: Path) -> None:
    case, module = CASES[name], name.partition(" ")[0]
    base = resource_of(tmp_path, module, case["with"], case["type"])
    for argument, (value, target) in case["arguments"].items():
        changed = resource_of(tmp_path, module, {**case["with"], argument: value}, case["type"])
        first, second = (
            item.name if target == "name" else item.properties.get(target) for item in (base, changed)
        )
        assert first != second, f"{argument} does not change {target}"
