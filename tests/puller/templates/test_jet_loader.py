"""Jet templates that use other templates: include, extends, import, exec."""

from collections.abc import Mapping
from typing import Any

import pytest

from puller.templates.jet.jet_engine import JetEngine
from puller.templates.scope import TemplateScope
from puller.templates.template_errors import TemplateError
from tests.support.rows import each_row


def render(files: Mapping[str, str], name: str = "main.jet", **data: Any) -> str:
    engine = JetEngine(loader=files.get)
    return engine.compile(name, files[name]).render(TemplateScope(data=data))


@each_row(
    ("files", "text"),
    [
        ({"main.jet": '<[[ include "x.jet" ]]>', "x.jet": "X[[ data.a ]]"}, "<X1>"),
        ({"main.jet": '[[ include "x" ]]', "x.html.jet": "by ending"}, "by ending"),
        ({"main.jet": '[[ include "lib/x.jet" data.m ]]', "lib/x.jet": "[[ .k ]]"}, "v"),
        (
            {"main.jet": '[[ include "lib/x.jet" ]]', "lib/x.jet": '[[ include "y.jet" ]]', "lib/y.jet": "Y"},
            "Y",
        ),
        (
            {"main.jet": '[[ include "lib/x.jet" ]]', "lib/x.jet": '[[ include "../y.jet" ]]', "y.jet": "Y"},
            "Y",
        ),
        ({"main.jet": '[[ include "/lib/x.jet" ]]', "lib/x.jet": "X"}, "X"),
        (
            {
                "main.jet": '[[ v := 1 ]][[ include "x.jet" ]][[ v ]]',
                "x.jet": "[[ v ]][[ v = 2 ]][[ w := 3 ]]",
            },
            "12",
        ),
        ({"main.jet": '[[ range data.l ]][[ include "x.jet" ]][[ end ]]', "x.jet": "<[[ . ]]>"}, "<a><b>"),
        (
            {"main.jet": '[[ block b() ]]mine[[ end ]][[ include "x.jet" ]]', "x.jet": "[[ yield b() ]]"},
            "minemine",
        ),
        (
            {
                "main.jet": '[[ block b() ]]M[[ end ]][[ include "x.jet" ]]',
                "x.jet": "[[ block b() ]]X[[ end ]]",
            },
            "MX",
        ),
    ],
)
def test_include(files: Mapping[str, str], text: str) -> None:
    assert render(files, a=1, m={"k": "v"}, l=["a", "b"]) == text


def test_extends_runs_the_layout_with_the_blocks_of_the_page() -> None:
    files = {
        "main.jet": '[[ extends "layout.jet" ]] dropped [[ block body() ]]page[[ end ]]',
        "layout.jet": "<[[ block title() ]]no title[[ end ]]|[[ yield body() ]]>",
    }
    assert render(files) == "<no title|page>"


def test_extends_in_several_steps() -> None:
    files = {
        "main.jet": '[[ extends "middle.jet" ]][[ block a() ]]A2[[ end ]]',
        "middle.jet": '[[ extends "base.jet" ]][[ block b() ]]B1[[ end ]]',
        "base.jet": "[[ block a() ]]A0[[ end ]][[ block b() ]]B0[[ end ]][[ block c() ]]C0[[ end ]]",
    }
    assert render(files) == "A2B1C0"


def test_import_brings_blocks_and_prints_nothing() -> None:
    files = {
        "main.jet": '[[ import "lib.jet" ]]\n\n[[ yield b(x=data.n) ]]',
        "lib.jet": "text [[ block b(x=0) ]]<[[ x ]]>[[ end ]]",
    }
    assert render(files, n=5) == "<5>"


def test_own_blocks_override_imported_and_extended_blocks() -> None:
    files = {
        "main.jet": '[[ extends "e.jet" ]][[ import "i.jet" ]][[ block a() ]]own[[ end ]]',
        "e.jet": "[[ block a() ]]e[[ end ]],[[ block b() ]]e[[ end ]],[[ block c() ]]e[[ end ]]",
        "i.jet": "[[ block a() ]]i[[ end ]][[ block b() ]]i[[ end ]]",
    }
    assert render(files) == "own,i,e"


def test_exec_returns_the_value_of_the_other_template() -> None:
    files = {
        "main.jet": '[[ x := exec("sum.jet", data.l) ]]sum=[[ x ]] [[ isset(exec("none.jet")) ]]',
        "sum.jet": "noise [[ s := 0 ]][[ range i, v := . ]][[ s = s + v ]][[ end ]][[ return s ]] more noise",
        "none.jet": "",
    }
    assert render(files, l=[1, 2, 3]) == "sum=6 true"


def test_return_in_an_included_template_ends_the_loop_around_it() -> None:
    files = {
        "main.jet": '[[ range ints(0, 9) ]][[ . ]][[ include "r.jet" ]][[ end ]]',
        "r.jet": "[[ return 1 ]]",
    }
    assert render(files) == "0"


def test_an_included_template_leaves_everything_as_it_was() -> None:
    files = {
        "main.jet": '[[ v := 1 ]][[ block b() ]]main[[ end ]]|[[ include "x.jet" data.m ]]|[[ yield b() ]]'
        "[[ v ]][[ isset(w) ]][[ isset(i) ]]",
        "x.jet": "[[ w := 2 ]][[ v = v + 1 ]][[ range i, v := data.l ]][[ v ]][[ end ]]"
        "[[ block b() ]]x[[ end ]][[ yield b() ]][[ .k ]]",
    }
    assert render(files, l=["a", "b"], m={"k": "v"}) == "main|abxxv|main2falsefalse"


def test_failure_below_an_include_changes_nothing() -> None:
    files = {
        "main.jet": "[[ block b() ]]main[[ end ]][[ range data.l ]]"
        '[[ try ]][[ include "x.jet" data.m ]][[ catch e ]]<[[ . ]]>[[ end ]][[ . ]][[ yield b() ]];[[ end ]]',
        "x.jet": '[[ block b() ]]x[[ end ]][[ include "y.jet" 1 ]]',
        "y.jet": "[[ block b() ]]y[[ end ]][[ range i, v := data.l ]][[ nope ]][[ end ]]",
    }
    assert render(files, l=["a", "b"], m={"k": "v"}) == "main<a>amain;<b>bmain;"


def test_a_path_means_another_template_in_another_directory() -> None:
    files = {
        "main.jet": '[[ range ints(0, 2) ]][[ include "a/x.jet" ]][[ include "b/x.jet" ]][[ end ]]',
        "a/x.jet": '[[ include "y.jet" ]]',
        "b/x.jet": '[[ include "y.jet" ]]',
        "a/y.jet": "A",
        "b/y.jet": "B",
    }
    assert render(files) == "ABAB"


def test_include_if_exists() -> None:
    files = {
        "main.jet": '[[ includeIfExists("x.jet", "c") ]][[ if includeIfExists("no.jet") ]]y[[ else ]]n[[ end ]]',
        "x.jet": "<[[ . ]]>",
    }
    assert render(files) == "<c>n"


@each_row(
    ("files", "message"),
    [
        ({"main.jet": '[[ include "x.jet" ]]'}, "main.jet:1:4: unknown template x.jet"),
        ({"main.jet": '\n[[ extends "x.jet" ]]'}, "main.jet:2:12: unknown template x.jet"),
        ({"main.jet": '[[ exec("x.jet") ]]'}, "main.jet:1:4: exec: unknown template x.jet"),
        ({"main.jet": '[[ include "x.jet" ]]', "x.jet": "\n[[ nope ]]"}, "x.jet:2:4: nope is not defined"),
        ({"main.jet": '[[ include "x.jet" ]]', "x.jet": "[[ if ]]"}, "x.jet:1:7: found ]], expected a value"),
        ({"main.jet": '[[ import "x.jet" ]]', "x.jet": "[[ if ]]"}, "x.jet:1:7: found ]], expected a value"),
        (
            {
                "main.jet": '[[ import "x.jet" ]][[ yield b() ]]',
                "x.jet": "\n[[ block b() ]][[ nope ]][[ end ]]",
            },
            "x.jet:2:19: nope is not defined",
        ),
        (
            {"main.jet": '[[ exec("x.jet") ]]', "x.jet": "[[ nope ]]"},
            "main.jet:1:4: exec: x.jet:1:4: nope is not defined",
        ),
        (
            {"main.jet": '[[ include "../../etc/passwd" ]]'},
            "main.jet:1:4: unknown template ../../etc/passwd",
        ),
        (
            {
                "main.jet": '[[ import "a.jet" ]]',
                "a.jet": '[[ import "b.jet" ]]',
                "b.jet": '[[ import "a.jet" ]]',
            },
            "a.jet:1:11: /a.jet extends or imports itself",
        ),
        (
            {
                "main.jet": '[[ import "a.jet" ]][[ import "b.jet" ]][[ extends "a.jet" ]]',
                "a.jet": "",
                "b.jet": "",
            },
            "main.jet:1:41: extends must be the first action, and the only extends",
        ),
    ],
)
def test_a_failure_names_the_template_it_is_in(files: Mapping[str, str], message: str) -> None:
    with pytest.raises(TemplateError) as failed:
        render(files)
    assert str(failed.value) == message


def test_a_template_that_includes_itself_stops() -> None:
    with pytest.raises(TemplateError, match="levels deep"):
        render({"main.jet": '[[ include "main.jet" ]]'})


def test_a_path_outside_is_never_asked_for() -> None:
    requested: list[str] = []

    def loader(path: str) -> None:
        requested.append(path)

    for path in ("../../etc/passwd", "/../x", "a/../../x", "//x"):
        with pytest.raises(TemplateError):
            JetEngine(loader=loader).compile("d/main.jet", f'[[ include "{path}" ]]').render(TemplateScope())
    assert requested
    assert not [path for path in requested if path.startswith(("/", ".."))]
