"""The Jet engine agrees with Jet: recorded cases of the Go implementation, and our own cases."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puller.templates.jet.jet_engine import JetEngine
from puller.templates.rendering import load_engine, render_tree
from puller.templates.scope import TemplateScope
from puller.templates.template_errors import Budget, Limits, TemplateError
from tests.support.rows import each_row

CASES = Path(__file__).parents[2] / "cases" / "templates"
Case = dict[str, Any]


def cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in json.loads((CASES / name).read_text())]


def render(text: str, **data: Any) -> str:
    return JetEngine().compile("out.txt", text).render(TemplateScope(data=data))


@each_row("case", cases("jet.json"))
def test_a_tree_comes_out_as_from_the_go_implementation(case: Case) -> None:
    engine = load_engine(
        "jet",
        left_delimiter=case.get("left_delimiter", ""),
        right_delimiter=case.get("right_delimiter", ""),
    )

    def rendered() -> dict[str, str]:
        return render_tree(
            case["files"], engine, TemplateScope(**case["env"]), skip_empty=case.get("skip_empty", False)
        )

    if "out" in case:
        assert rendered() == case["out"]
        return
    with pytest.raises(TemplateError) as failed:
        rendered()
    assert failed.value.file in case["files"]
    assert 1 <= failed.value.line <= case["files"][failed.value.file].count("\n") + 1


@each_row("case", cases("jet-more.json"))
def test_a_template_comes_out_as_the_rules_of_jet_say(case: Case) -> None:
    template, scope = (
        case["template"],
        TemplateScope(case.get("facts"), case.get("data"), case.get("environ")),
    )
    if "out" in case:
        assert JetEngine().compile("out.txt", template).render(scope) == case["out"]
        return
    with pytest.raises(TemplateError):
        JetEngine().compile("out.txt", template).render(scope)


def test_template_is_parsed_once_and_keeps_no_state() -> None:
    template = JetEngine().compile("t", "[[ n := data.n ]][[ n = n + 1 ]][[ n ]]")
    assert [template.render(TemplateScope(data={"n": n})) for n in (1, 2, 1)] == ["2", "3", "2"]


def test_changes_of_a_template_stay_in_its_scope() -> None:
    data = {"list": [{"n": 1}], "map": {}}
    text = (
        JetEngine()
        .compile("t", "[[ data.map.k = 1 ]][[ data.new = 2 ]][[ data ]]")
        .render(TemplateScope(data=data))
    )
    assert text == "map[list:[map[n:1]] map:map[k:1] new:2]"
    assert data == {"list": [{"n": 1}], "map": {}}


def test_shared_value_stays_shared_in_the_scope() -> None:
    shared: dict[str, Any] = {}
    assert render("[[ data.a.k = 1 ]][[ data.b.k ]]", a=shared, b=shared) == "1"


def test_a_scope_may_hold_a_value_that_holds_itself() -> None:
    loop: dict[str, Any] = {"name": "x"}
    loop["self"] = loop
    assert render("[[ data.loop.self.self.name ]]", loop=loop) == "x"


def test_partial_sees_only_its_arguments() -> None:
    template = JetEngine().compile("p", "[[ .port ]] [[ isset(data) ]]")
    assert template.render({"port": 80}) == "80 false"
    assert JetEngine().compile("p", "<[[ . ]]>").render(None) == "<>"


def test_functions_of_the_caller_come_before_jet_s_own() -> None:
    template = JetEngine().compile("t", '[[ upper("a") ]] [[ lookup("x") ]] [[ 1 | lookup ]]')
    assert (
        template.render(TemplateScope(), {"upper": lambda text: f"my {text}", "lookup": lambda key: key})
        == "my a x 1"
    )


def test_values_of_other_types_print_as_text() -> None:
    class Masked:
        def __str__(self) -> str:
            return "********"

    assert (
        render("[[ data.secret ]] [[ data.all ]]", secret=Masked(), all=[Masked()]) == "******** [********]"
    )
    with pytest.raises(TemplateError):
        render("[[ data.secret.__class__ ]]", secret=Masked())


# Laws


@settings(deadline=None)
@given(st.text().filter(lambda text: "[" not in text and not text.isspace()))
def test_text_without_delimiters_renders_to_itself(text: str) -> None:
    assert render(text) == text


@settings(deadline=None)
@given(st.text(alphabet="[]{}*- \nax"), st.text(alphabet="[]{}*- \nax"))
def test_any_text_around_an_action_fails_cleanly_or_survives(before: str, after: str) -> None:
    try:
        render(f"{before}[[ 1 ]]{after}")
    except TemplateError as error:
        assert str(error).startswith("out.txt:")


@settings(deadline=None)
@given(st.text())
def test_a_string_of_the_data_is_never_evaluated(value: str) -> None:
    assert render("[[ data.v ]]", v=value) == value


FRAGMENTS = [
    *("[[", "]]", "[[-", "- ", " -]]", "{*", "*}", '"', "`", "'", "\\", "\n", " ", "text", "é"),
    *("if", "else", "end", "range", "block", "yield", "content", "try", "catch", "return", "include", "exec"),
    *("data", ".", ".a", "b", "(", ")", "[", "]", ",", ";", ":", ":=", "=", "?", "|", "_"),
    *("+", "-", "*", "/", "%", "==", "!=", "<", ">=", "!", "&&", "||", "nil", "true", "not"),
    *(
        "1",
        "2.5",
        "-3",
        "0x1f",
        '"s"',
        "'c'",
        "ints(0, 3)",
        "map",
        "slice",
        "json",
        "upper",
        "len",
        "isset",
        "dump",
    ),
]


@pytest.mark.attack("input.endless-template")
@settings(deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map(" ".join), st.booleans())
def test_a_hostile_template_ends_and_raises_only_its_own_errors(text: str, wrapped: bool) -> None:
    template = f"[[ {text} ]]" if wrapped else text
    scope = TemplateScope(data={"a": 1, "b": [1, {"k": None}], "m": {"k": "v"}})
    budget = Budget(Limits(seconds=5, characters=100_000))
    try:
        first = JetEngine().compile("t", template).render(scope, budget=budget)
    except TemplateError as error:
        assert error.excerpt().count("\n") == 1
    else:
        assert isinstance(first, str)


@settings(deadline=None)
@given(st.sampled_from(cases("jet.json")))
def test_rendering_is_deterministic(case: Any) -> None:
    (values,) = case.values
    engine = load_engine("jet")

    def rendered() -> object:
        try:
            return render_tree(values["files"], engine, TemplateScope(**values["env"]))
        except TemplateError as error:
            return str(error)

    assert rendered() == rendered()
