"""The properties of the setting type: errors at load, and messages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foundation.formatting import lines
from puller.errors import ManifestError

Apply = Callable[..., Any]

INI = {"format": "ini", "section": "s", "key": "k", "value": "v"}

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"format": "ini", "key": "k"}, "value is missing; it is required unless ensure is absent"),
    ({"format": "ini", "value": "v"}, "key is missing"),
    ({"key": "k", "value": "v"}, "format is missing, expected one of ini, shell, keyvalue, yaml, toml, json"),
    ({**INI, "format": "xml"}, "format is 'xml', expected one of ini, shell, keyvalue, yaml, toml, json"),
    ({**INI, "value": 80}, "value is a number, expected text; quote it, as '80'"),
    ({**INI, "value": True}, "value is a boolean, expected text; quote it, as 'true'"),
    ({**INI, "value": None}, "value is "),
    ({**INI, "value": ["a"]}, "value is "),
    ({**INI, "value": "a\nb"}, "value "),
    ({**INI, "key": ["a", "b"]}, "key "),
    ({**INI, "format": "yaml"}, "section is only for ini, and format is yaml"),
    (
        {"format": "json", "key": "k", "value": 1, "separator": ":"},
        "separator is only for ini and keyvalue, and format is json",
    ),
    ({"format": "shell", "key": "k", "value": "a\nb"}, "value "),
    (
        {"format": "json", "key": "k", "value": 1, "continuation": "none"},
        "continuation is only for ini and keyvalue, and format is json",
    ),
    ({**INI, "continuation": "tab"}, "continuation is 'tab', expected one of none, indent, backslash"),
    ({"format": "toml", "key": "k", "value": None}, "value is null"),
]


@pytest.mark.parametrize(("properties", "said"), WRONG)
def test_invalid_properties_are_refused_at_load(
    apply: Apply, place: Path, properties: dict[str, Any], said: str
) -> None:
    with pytest.raises(ManifestError) as raised:
        apply({"setting#edit": {"path": str(place / "file"), **properties}})
    assert f"setting#edit: {said}" in str(raised.value)


def test_null_is_a_value_of_yaml_and_json(apply: Apply, place: Path) -> None:
    path = place / "file"
    edit = {"path": str(path), "create": True, "key": "a.b", "value": None}
    for form, text in (("yaml", "a:\n  b: null\n"), ("json", '{\n  "a": {\n    "b": null\n  }\n}\n')):
        path.unlink(missing_ok=True)
        assert [
            event.state
            for _ in range(2)
            for event in apply({"setting#edit": {**edit, "format": form}}).values()
        ] == ["changed", "stable"]
        assert path.read_text() == text


def test_a_number_that_an_expression_gives_is_its_text(apply: Apply, place: Path) -> None:
    path = place / "file"
    apply({"setting#edit": {"path": str(path), "create": True, **INI, "value": "{{ 8000 + 443 }}"}})
    assert path.read_text() == "[s]\nk = 8443\n"
    (event,) = apply({"setting#edit": {"path": str(path), **INI, "value": "{{ true }}"}}).values()
    assert event.state == "failed"
    assert "value is true, expected text" in event.errors[0]


def test_differences_are_described(apply: Apply, place: Path) -> None:
    path = place / "file"
    path.write_text("[s]\nk = a\nk = v\nl = x\n")
    edits: dict[str, dict[str, Any]] = {
        "setting#again": INI,
        "setting#other": {**INI, "key": "l"},
        "setting#new": {**INI, "key": "m"},
        "setting#gone": {"format": "ini", "section": "s", "key": "l", "ensure": "absent"},
        "setting#long": {**INI, "key": "l", "value": "v" * 500},
        "setting#secret": {**INI, "key": "l", "sensitive": True},
    }
    output = [
        lines(apply({name: {"path": str(path), **edit}}, noop=True)[name].differences)
        for name, edit in edits.items()
    ]
    assert output == [
        ["value 'v' and another value before it → 'v'"],
        ["value 'x' → 'v'"],
        ["ensure absent → present"],
        ["ensure present → absent"],
        [f"value 'x' → '{'v' * 199}…"],
        ["value (sensitive)"],
    ]


def test_settings_of_two_formats_are_written_together(apply: Apply, place: Path) -> None:
    path = place / "file"
    path.write_text("")
    edits = {
        "setting#a": {"path": str(path), "format": "shell", "key": "A", "value": "a b"},
        "setting#b": {"path": str(path), "format": "keyvalue", "separator": "=", "key": "B", "value": "b"},
    }
    for expected in ("changed", "stable"):
        assert {str(event.state) for event in apply(edits).values()} == {expected}
    assert path.read_text() == 'A="a b"\nB=b\n'


def test_continued_value_is_out_of_sync(apply: Apply, place: Path) -> None:
    path = place / "main.cf"
    path.write_text("a = 1\nmynetworks = 127.0.0.0/8\n    10.0.0.0/8\n")
    edit = {
        "path": str(path),
        "format": "keyvalue",
        "separator": " = ",
        "key": "mynetworks",
        "value": "127.0.0.0/8",
    }
    (refused,) = apply({"setting#a": edit}).values()
    assert refused.state == "failed"
    named = {**edit, "continuation": "indent"}
    assert [apply({"setting#a": named})["setting#a"].state for _ in range(2)] == ["changed", "stable"]
    assert path.read_text() == "a = 1\nmynetworks = 127.0.0.0/8\n"
