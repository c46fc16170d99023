"""``puller lint`` reports literal values that look like expressions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hiera.document.foreign_notation import find_foreign
from tests.support.rows import each_row

if TYPE_CHECKING:
    from tests.support.stories import Execute

MANIFEST = """\
data:
  port: "${ lookup('facts.port') }"
  home: "${HOME}/bin"
hierarchy:
  order: ["role:${ lookup('facts.role') }", "os:${os}"]
overrides:
  role:db: {port: "${Facts.port}"}
resources:
  - exec:
      - "echo ${ Data.port }": {environment: ["PATH=${PATH:-/bin}"]}
  - apply: [{child.yaml: }]
"""
CHILD = """\
pre_message: ${ Data["x"] }
resources:
  - file: [{/a: {content: "${1 + 2} {{ '${literal}' }}", owner: r, group: r, mode: "0644"}}]
"""


def test_lint_warns_wherever_the_notation_of_ccm_stands(execute: Execute, tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(MANIFEST)
    (tmp_path / "child.yaml").write_text(CHILD)
    (tmp_path / "values.yaml").write_text('data: {a: 1, b: "${Environ.HOME}"}\n')
    values = str(tmp_path / "values.yaml")
    status, output = execute("lint", str(tmp_path), "--data", values)
    assert status == 1, output  # no host uses role:db
    for place, message in (
        (
            "manifest.yaml:2",
            "warning: ${ lookup('facts.port') } is ordinary text here: write {{ lookup('facts.port') }}",
        ),
        (
            "manifest.yaml:5",
            "error: ${ lookup('facts.role') } is an expression of CCM: write {{ lookup('facts.role') }}",
        ),
        ("manifest.yaml:5", "error: ${os} is an expression of CCM: write {{ os }}"),
        ("manifest.yaml:7", "warning: ${Facts.port} is ordinary text here: write {{ Facts.port }}"),
        ("manifest.yaml:10", "warning: ${ Data.port } is ordinary text here: write {{ Data.port }}"),
        ("child.yaml:1", 'warning: ${ Data["x"] } is ordinary text here: write {{ Data["x"] }}'),
        ("child.yaml:3", "warning: ${1 + 2} is ordinary text here: write {{ 1 + 2 }}"),
        ("values.yaml:1", "warning: ${Environ.HOME} is ordinary text here: write {{ Environ.HOME }}"),
    ):
        assert re.search(rf"/{place}:\d+: {re.escape(message)}", output)
    assert "HOME}/bin" not in output
    assert " 7 warnings" in output


CONDITIONS = """\
data: {a: 1, l: [1]}
ccm:
  resources:
    - file: [{/a: {owner: r, group: r, mode: "0644", content: "${ Data.a ?? 2 } ${ Data.a > 1 ? 'x' : 'y' }"}}]
    - exec: [{"echo ${ Data?.a }": {}}, {"echo ${ filter(Data.l, # > 1) }": {}}]
"""


def test_lint_translates_conditions_of_ccm(execute: Execute, tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(CONDITIONS)
    output = execute("lint", str(tmp_path))[1]
    for expression, fix in {
        "${ Data.a ?? 2 }": "write {{ Data.a if Data.a is defined and Data.a is not none else 2 }}",
        "${ Data.a > 1 ? 'x' : 'y' }": "write {{ 'x' if Data.a > 1 else 'y' }}",
        "${ Data?.a }": "write {{ lookup('data.a', none) }}",
        "${ filter(Data.l, # > 1) }": "Jinja2 has no equivalent, so use filters such as select, map and length",
    }.items():
        assert f"error: {expression} is an expression of CCM: {fix}" in output


def test_a_manifest_that_is_refused_for_it_is_warned_of_too(execute: Execute, tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(
        "resources:\n  - file: [{/a: {owner: r, group: r, mode: \"${ lookup('data.mode') }\"}}]\n"
    )
    status, output = execute("lint", str(tmp_path))
    assert status == 1
    assert "manifest.yaml:2:45: warning: ${ lookup('data.mode') } is ordinary text here" in output


ORDINARY = [
    "${HOME}", "${1}", "${10}", "${@}", "${#}", "${?}", "${#list[@]}", "${!name}", "${a:-b}", "${a-b c}", "${a##*/}",
    "${a%.*}", "${a/b/c}", "${a^^}", "${a[0]}", "${a:1:2}", "${a@Q}", "${db:Status-Status}", "${}", "${{ data.x }}",
    "${a",
]  # fmt: skip
FOREIGN = [
    "${ x }", "${lookup('a')}", "${Facts.os}", '${Facts["os"]}', "${Data}", "${a.b}", "${1 + 1}", "${'a'}", "${a ?? b}",
    "${ map([1], {# * 2}) }",
]  # fmt: skip


@each_row("text", ORDINARY)
def test_shell_expansions_are_ordinary_text(text: str) -> None:
    assert not list(find_foreign(f"a:\n  - |\n    x {text} y\n"))


@each_row("text", FOREIGN)
def test_text_unknown_to_shells_is_an_expression(text: str) -> None:
    (result,) = find_foreign(f"a:\n  - |\n    x {text} y\n")
    assert (result.line, text.startswith(result.text)) == (2, True)


@pytest.mark.parametrize(
    "expression",
    ["(" * 2000 + "a ?? b" + ")" * 2000, "a ? " * 2000 + "b" + " : c" * 2000, "a ?? " * 100_000 + "b"],
    ids=["brackets", "conditions", "operands"],
)
def test_a_huge_expression_of_ccm_is_found_in_bounded_time(expression: str) -> None:
    (foreign,) = find_foreign(f"overrides: {{}}\nhierarchy:\n  order: ['${{{expression}}}']\n")
    assert (foreign.line, foreign.is_evaluated) == (3, True)
