"""``hiera.yaml``: valid and invalid files with their messages. Versions 3 and 4 where still supported."""

from typing import Any

import pytest

from hiera.errors import ConfigError, DocumentError, HieraError
from hiera.tree.hiera_yaml import load_config
from hiera.tree.locations import Texts
from hiera.tree.schema import ENVIRONMENT, GLOBAL, MODULE, Config
from tests.support.rows import each_row

PATH = "/env/hiera.yaml"


def load(text: str, place: str = ENVIRONMENT) -> Config | None:
    return load_config(PATH, Texts({PATH: text}), place, lambda _: None)


def problems(text: str, place: str = ENVIRONMENT) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text, place)
    return str(caught.value).replace(f"The Lookup Configuration at '{PATH}' has wrong type, ", "")


def test_missing_settings_have_defaults() -> None:
    loaded = load("version: 5")
    assert loaded is not None
    (level,) = loaded.levels
    assert (level.name, level.function, level.datadir, level.places) == (
        *("Common", "yaml_data", "/env/data", ("common.yaml",)),
    )


def test_level_settings_override_defaults() -> None:
    text = """
        version: 5
        defaults: {datadir: other, data_hash: yaml_data, options: {a: 1}}
        hierarchy:
          - {name: one, path: x.yaml}
          - {name: two, globs: [a, b], datadir: /abs, lookup_key: f, options: {b: 2}}
    """
    loaded = load(text)
    assert loaded is not None
    first, two = loaded.levels
    assert (first.kind, first.function, first.datadir, first.location, first.options) == (
        *("data_hash", "yaml_data", "/env/other", "path", {"a": 1}),
    )
    assert (two.kind, two.function, two.datadir, two.places, two.options) == (
        *("lookup_key", "f", "/abs", ("a", "b"), {"b": 2}),
    )


def test_all_problems_of_the_shape_are_told_at_once() -> None:
    text = (
        "{version: 5, hierarchy: [{path: 3, bogus: 1}, 7], plan_hierarchy: 1, extra: 2, defaults: {path: x}}"
    )
    assert problems(text).splitlines() == [
        "entry 'defaults' unrecognized key 'path'",
        "entry 'hierarchy' index 0 expects a value for key 'name'",
        "entry 'hierarchy' index 0 entry 'path' expects a String value, got Integer",
        "entry 'hierarchy' index 0 unrecognized key 'bogus'",
        "entry 'hierarchy' index 1 expects a Struct value, got Integer",
        "entry 'plan_hierarchy' expects an Array value, got Integer",
        "unrecognized key 'extra'",
    ]


@each_row(
    ("level", "problem"),
    [
        ("paths: []", "entry 'paths' expects size to be at least 1, got 0"),
        ("paths: [1]", "entry 'paths' index 0 expects a String value, got Integer"),
        ("mapped_paths: [a, b]", "entry 'mapped_paths' expects size to be 3, got 2"),
        ("options: 3", "entry 'options' expects a Hash value, got Integer"),
        ("options: {a: {1: 2}}", "entry 'options' entry 'a' expects a Data value, got Hash"),
        ("options: {_a: 1}", "entry 'options' key of entry '_a' expects a match for Pattern["),
        ('path: ""', "entry 'path' expects a String[1] value, got String"),
        ("path: ", "entry 'path' expects a String value, got Undef"),
    ],
)
def test_the_shape_of_a_level(level: str, problem: str) -> None:
    text = f"version: 5\nhierarchy:\n  - name: x\n    {level}\n"
    assert problems(text).startswith(f"entry 'hierarchy' index 0 {problem}")


@each_row(
    ("text", "place", "message"),
    [
        ("version: 6", ENVIRONMENT, "This runtime does not support hiera.yaml version 6"),
        ("version: '5'", ENVIRONMENT, "entry 'version' expects an Integer value, got String"),
        ("version: 5.0", ENVIRONMENT, "entry 'version' expects an Integer value, got Float"),
        ("version: [5]", ENVIRONMENT, "The version is [5], expected 5"),
        ("version: .nan", ENVIRONMENT, "The version is NaN, expected 5"),
        (
            "{version: 5, default_hierarchy: []}",
            ENVIRONMENT,
            "'default_hierarchy' is only allowed in the module layer",
        ),
        (
            "{version: 5, hierarchy: [{name: x, hiera3_backend: f}]}",
            *(MODULE, "'hiera3_backend' is only allowed in the global layer"),
        ),
        (
            "{version: 5, hierarchy: [{name: x, hiera3_backend: yaml}]}",
            GLOBAL,
            'Use "data_hash: yaml_data" instead',
        ),
        (
            "{version: 5, hierarchy: [{name: x, path: a, glob: b}]}",
            *(ENVIRONMENT, "Only one of path, paths, glob, globs, uri, uris, or mapped_paths can be defined"),
        ),
        (
            "{version: 5, hierarchy: [{name: x, data_hash: a, data_dig: b}]}",
            *(
                ENVIRONMENT,
                "Only one of data_hash, lookup_key, data_dig, or hiera3_backend can be defined in hierarchy",
            ),
        ),
        (
            "{version: 5, defaults: {datadir: x}, hierarchy: [{name: x, path: a}]}",
            *(
                ENVIRONMENT,
                "One of data_hash, lookup_key, data_dig, or hiera3_backend must be defined in hierarchy 'x'",
            ),
        ),
        (
            "{version: 5, hierarchy: [{name: x, path: a, options: {uri: b}}]}",
            *(ENVIRONMENT, "Option key 'uri' used in hierarchy 'x' is reserved by Puppet"),
        ),
        ("version: 4", GLOBAL, "hiera.yaml version 4 cannot be used in the global layer"),
        (
            "{version: 4, hierarchy: [{name: x, backend: foo}]}",
            MODULE,
            "No data provider is registered for backend",
        ),
        (
            "hierarchy: [{name: x}]",
            ENVIRONMENT,
            "entry 'hierarchy' variant 0 expects a String value, got Tuple",
        ),
    ],
)
def test_invalid_settings_are_refused(text: str, place: str, message: str) -> None:
    assert message in problems(text, place)


def test_a_name_that_stands_twice_is_told_with_both_lines() -> None:
    text = "version: 5\nhierarchy:\n  - name: X\n    path: a\n  - name: X\n    path: b\n"
    assert problems(text) == (
        f"Hierarchy name 'X' defined more than once. First defined at (line: 3) (file: {PATH}, line: 5)"
    )


@pytest.mark.parametrize("text", ["", "# nothing\n---\n", "- a list", "version: 3", "backends: yaml"])
def test_a_file_of_version_3_is_ignored_below_the_global_layer(text: str) -> None:
    reported: list[str] = []
    assert (
        load_config(PATH, Texts({PATH: text}), MODULE, lambda problem: reported.append(str(problem))) is None
    )
    assert reported[-1] == f"hiera.yaml version 3 found at module root was ignored (file: {PATH})"


def test_version_3_in_the_global_layer_iterates_backends() -> None:
    text = """
        :backends: [json, yaml]
        :json:
          :datadir: "/j/%{environment}"
        :yaml:
          :datadir: /y
          :extension: yml
        :hierarchy: ["%{role}", common]
    """
    loaded = load(text, GLOBAL)
    assert loaded is not None
    assert [(level.datadir, level.function, level.places, level.extension) for level in loaded.levels] == [
        ("/j/%{environment}", "json_data", ("%{role}", "common"), ".json"),
        ("/y", "yaml_data", ("%{role}", "common"), ".yml"),
    ]


def test_version_4_backends_append_their_extensions() -> None:
    text = "{version: 4, datadir: d, hierarchy: [{name: common, backend: yaml}, {name: j, backend: json, path: p/q}]}"
    loaded = load(text)
    assert loaded is not None
    assert [(level.datadir, level.places, level.extension) for level in loaded.levels] == [
        ("/env/d", ("common",), ".yaml"),
        ("/env/d", ("p/q",), ".json"),
    ]


@pytest.mark.parametrize("text", ["version: 5\nhierarchy: [", "version: 2024-01-01", "a: *b"])
def test_a_file_that_cannot_be_read_is_an_error_with_its_name(text: str) -> None:
    with pytest.raises(DocumentError, match=f"Unable to parse \\({PATH}\\): .* at line"):
        load(text)


@each_row("content", ["hierarchy", "defaults", "plan_hierarchy", "default_hierarchy", "version"])
@each_row("value", ["1", "text", "[1]", "{a: 1}", "[[]]", "[{name: {}}]", "true", "{1: 2}"])
def test_nothing_in_it_makes_anything_but_an_error_of_ours(content: str, value: str) -> None:
    provided: dict[str, Any] = {"version": "5", content: value}
    try:
        load("\n".join(f"{name}: {text}" for name, text in provided.items()), MODULE)
    except HieraError as error:
        assert PATH in str(error)
