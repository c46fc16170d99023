"""Lookup errors name file, level and key. The explanation masks only secrets."""

from __future__ import annotations

import pytest

from hiera.errors import HieraError
from hiera.tree.explain import recorder
from hiera.tree.locations import Texts
from hiera.tree.lookup import Tree
from tests.support.rows import each_row

FILES = {
    "/env/hiera.yaml": """\
version: 5
hierarchy:
  - {name: role, path: "%{nowhere}role.yaml"}
  - {name: common, path: common.yaml}
""",
    "/env/data/role.yaml": "uni: [1]\n",
    "/env/data/common.yaml": """\
lookup_options:
  strategy: {merge: nope}
  converted: {convert_to: Integer}
  uni: {merge: unique}
  token: {convert_to: Sensitive}
loop: "%{lookup('loop2')}"
loop2: "to %{lookup('loop')}"
token: "hunter2 %{lookup('loop')}"
list: [x, "y %{alias('loop')}"]
method: {k: ["%{nope('x')}"]}
through: "%{alias('method')}"
strategy: 1
converted: abc
uni: {x: 1}
undefined: "%{nosuch} x"
number: 3
dug: "%{lookup('number.x')}"
""",
}
COMMON = "file: /env/data/common.yaml, level 'common', key "

ERRORS = {
    "loop": f"loop: Recursive lookup detected in [loop, loop2] ({COMMON}'loop')",
    "list": f"expression is equal to the entire string ({COMMON}'list')",
    "method": f"Unknown interpolation method 'nope' ({COMMON}'method')",
    "through": f"through: Unknown interpolation method 'nope' ({COMMON}'method')",
    "strategy": f"Unknown merge strategy: 'nope' ({COMMON}'lookup_options')",
    "converted": f"cannot be converted to Integer ({COMMON}'lookup_options')",
    "uni": f"(file: /env/data/role.yaml, level 'role', key 'uni'; {COMMON}'uni')",
    "dug": f"from key 'number.x' ({COMMON}'number')",
}


def tree(said: list[str] | None = None) -> Tree:
    return Tree(
        {"role": "web"},
        environment="/env",
        documents=Texts(FILES),
        warn=lambda problem: (said if said is not None else []).append(str(problem)),
    )


@each_row("key", ERRORS)
def test_an_error_names_the_file_the_level_and_the_key(key: str) -> None:
    with pytest.raises(HieraError) as error:
        tree().lookup(key)
    assert str(error.value).endswith(ERRORS[key])
    assert str(error.value).count("(file: ") == 1


def test_a_strategy_of_the_caller_is_not_blamed_on_the_data() -> None:
    with pytest.raises(HieraError) as error:
        tree().lookup("strategy", merge="nope")
    assert str(error.value) == "strategy: Unknown merge strategy: 'nope'"


def test_a_warning_of_an_undefined_variable_names_them_too() -> None:
    output: list[str] = []
    assert tree(output).lookup("undefined") == " x"
    assert output == [
        "Undefined variable 'nowhere'; (file: /env/hiera.yaml)",
        f"Undefined variable 'nosuch'; ({COMMON}'undefined')",
    ]


def test_the_explanation_of_a_loop_shows_plain_text() -> None:
    step = recorder()
    with pytest.raises(HieraError):
        tree().lookup("loop", step=step)
    searched = str(step).partition('Searching for "loop"')[2]
    assert "to %{lookup('loop')}" in searched
    assert "Sensitive" not in searched


def test_explanation_of_a_failing_secret_masks_it() -> None:
    step = recorder()
    with pytest.raises(HieraError):
        tree().lookup("token", step=step)
    assert "hunter2" not in str(step)
    assert "hunter2" not in str(step.as_data())
