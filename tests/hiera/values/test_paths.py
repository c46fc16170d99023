"""Dotted paths into plain values."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hiera.errors import ExpressionError
from hiera.values import MISSING, Secret, find_value, parse_path, path_text
from tests.support.rows import each_row

CASES = yaml.load((Path(__file__).parents[2] / "cases/hiera/paths.yaml").read_text(), yaml.CSafeLoader)
VALUE = {"a": {"b": [{"c": None}, "x"], "80": "text", 81: "number", "#": "sign"}, "l": []}


@each_row("case", CASES, ids=lambda case: case["path"])
def test_a_path_has_steps_or_is_refused(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(ExpressionError, match=case["error"]):
            parse_path(case["path"])
    else:
        assert list(parse_path(case["path"])) == case["steps"]


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_any_key_can_be_written(keys: list[str]) -> None:
    written = ".".join("".join(f"\\{char}" for char in key) for key in keys)
    assert list(parse_path(written)) == keys


@each_row(
    ("path", "value"),
    [
        ("a.b.0.c", None),
        ("a.b.1", "x"),
        ("a.b.#", 2),
        ("l.#", 0),
        (r"a.\#", "sign"),
        ("a.#", "sign"),
        ("a.80", "text"),
        ("a.81", "number"),
        ("a.b.2", MISSING),
        ("a.b.-1", MISSING),
        ("a.b.01", "x"),
        ("a.b.x", MISSING),
        (r"a.b.\#", MISSING),
        ("a.b.1.x", MISSING),
        ("a.b.0.c.x", MISSING),
        ("nope.x", MISSING),
        ("a." + "9" * 5000, MISSING),
        ("a.b." + "9" * 5000, MISSING),
        ("a.b.²", MISSING),
    ],
)
def test_a_path_finds_a_value_or_nothing(path: str, value: object) -> None:
    assert find_value(VALUE, parse_path(path)) is value or find_value(VALUE, parse_path(path)) == value


def test_a_part_of_a_secret_is_a_secret() -> None:
    value = find_value({"db": Secret({"user": ["x"]})}, ("db", "user", "0"))
    assert isinstance(value, Secret)
    assert value.reveal() == "x"


def test_paths_are_shown_with_odd_keys_in_quotes() -> None:
    assert path_text(("data", "web-1", 0, "a.b", 80)) == "data.web-1[0]['a.b'][80]"
