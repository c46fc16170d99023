"""The Go engine agrees with Go and Sprig: recorded cases, our own cases, and invariants."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puller.templates.gotemplate.go_engine import GoEngine
from puller.templates.rendering import load_engine, render_tree
from puller.templates.scope import TemplateScope
from puller.templates.template_errors import Budget, FunctionError, Limits, TemplateError
from tests.support.rows import each_row

CASES = Path(__file__).parents[2] / "cases" / "templates"
Case = dict[str, Any]


def cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in json.loads((CASES / name).read_text())]


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the time zone to UTC, as on the machine that recorded the cases."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def render(text: str, dot: Any = None, **functions: Any) -> str:
    return GoEngine().compile("case.txt", text).render(dot, functions)


@each_row("case", cases("go.json"))
def test_a_tree_comes_out_as_from_the_go_implementation(case: Case) -> None:
    engine = load_engine(
        "go",
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


@each_row("case", [*cases("go_more.json"), *cases("go_printf.json")])
def test_a_template_comes_out_as_the_rules_of_go_and_sprig_say(case: Case) -> None:
    scope = TemplateScope({}, case.get("data"), {"HOME": "/root"})
    if "out" in case:
        assert render(case["template"], scope) == case["out"]
        return
    with pytest.raises(TemplateError) as failed:
        render(case["template"], scope)
    assert case["error"] in str(failed.value)


@pytest.mark.parametrize(
    "engine_call", ['{{ render "_partials/p" nil }}', '{{ render "_partials/p" .data.nul }}']
)
def test_a_partial_without_data_has_fields_without_value(engine_call: str) -> None:
    files = {"out": engine_call, "_partials/p": "{{ . }} {{ .x }} {{ $.x.y }} {{ .x | default 3 }}"}
    tree = render_tree(files, GoEngine(), TemplateScope({}, {"nul": None}, {}))
    assert tree == {"out": "<no value> <no value> <no value> 3"}


@pytest.mark.parametrize("value", [".data", ".data.list", '(list "a")'])
def test_an_address_is_not_printed(value: str) -> None:
    with pytest.raises(TemplateError, match="%p is an address, which would be another one in each run"):
        render(f'{{{{ printf "%p" {value} }}}}', TemplateScope(data={"list": [1]}))


def test_duration_is_printed_as_a_number_on_request() -> None:
    text = (
        '{{ $d := (toDate "2006" "2021").Sub (toDate "2006" "2020") }}{{ printf "%v %d %x %t" $d $d 255 $d }}'
    )
    assert render(text) == "8784h0m0s 31622400000000000 ff %!t(time.Duration=31622400000000000)"


def test_template_is_parsed_once_and_keeps_no_state() -> None:
    template = GoEngine().compile("t", "{{ $n := .data.n }}{{ $n = add $n 1 }}{{ $n }}")
    assert [template.render(TemplateScope(data={"n": n})) for n in (1, 2, 1)] == ["2", "3", "2"]


def test_environment_is_the_given_one_in_partials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "of the process")
    files = {
        "a": '{{ env "SECRET" }}|{{ env "TIER" }}|{{ render "_partials/p" 5 }}',
        "_partials/p": '{{ env "TIER" }}',
    }
    assert render_tree(files, GoEngine(), TemplateScope(environ={"TIER": "prod"})) == {"a": "|prod|prod"}
    assert render('{{ env "TIER" }}') == ""


def test_a_file_can_call_itself_by_its_own_name() -> None:
    files = {"etc/a.conf": '{{ if kindIs "map" . }}{{ template "a.conf" 2 }}{{ else }}<{{ . }}>{{ end }}'}
    assert render_tree(files, GoEngine(), TemplateScope()) == {"etc/a.conf": "<2>"}


def test_host_functions_receive_template_arguments() -> None:
    def lookup(path: str, *default: Any) -> Any:
        return [path, *default]

    assert render('{{ lookup "a.b" 80 }} {{ lookup "c" }}', lookup=lookup) == "[a.b 80] [c]"
    assert render('{{ readFile "x" }}{{ file "y" }}', readFile=str.upper) == "XY"


def test_missing_host_function_is_an_error_when_called() -> None:
    assert render('{{ if false }}{{ write "x" "y" }}{{ end }}ok') == "ok"
    with pytest.raises(
        TemplateError, match=r"^case.txt:1:4: error calling write: write is not available here$"
    ):
        render('{{ write "x" "y" }}')


def test_errors_of_host_functions_name_the_location() -> None:
    def lookup(path: str) -> Any:
        raise FunctionError(f"there is no {path}")

    with pytest.raises(TemplateError, match=r"^case.txt:2:5: error calling lookup: there is no a\.b$"):
        render('\n  {{lookup "a.b"}}', lookup=lookup)


# Laws ----------------------------------------------------------------------------------------------------------------


@given(st.text())
def test_text_without_delimiters_renders_to_itself(text: str) -> None:
    text = text.replace("{{", "{")
    assert render(text) == text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)


@given(VALUES)
def test_rendering_is_deterministic_and_maps_are_sorted(value: Any) -> None:
    text = "{{ .data.v }} {{ toJson .data.v }} {{ range $k, $v := .data.m }}{{ $k }}{{ $v }}{{ end }}"
    template = GoEngine().compile("t", text)
    forwards = {"v": value, "m": {"a": value, "b": 2}}
    backwards = {"m": {"b": 2, "a": value}, "v": value}
    assert template.render(TemplateScope(data=forwards)) == template.render(TemplateScope(data=backwards))


@given(VALUES.filter(lambda value: value == value))
def test_json_that_is_written_reads_back_as_the_same_text(value: Any) -> None:
    once = render("{{ toJson .data.v }}", TemplateScope(data={"v": value}))
    if once:  # infinities and NaN have no JSON
        assert render("{{ fromJson .data.j | toJson }}", TemplateScope(data={"j": once})) == render(
            "{{ fromJson .data.j | toJson | fromJson | toJson }}", TemplateScope(data={"j": once})
        )


FRAGMENTS = st.sampled_from(
    [
        *("{{", "}}", "{{-", " -}}", " ", "if ", "range ", "with ", "else", "else if ", "else with ", "end"),
        *(
            'define "t"',
            'template "t" ',
            'block "b" .',
            "break",
            "continue",
            "/*",
            "*/",
            "text",
            "\n",
            "\0",
            "é",
        ),
        *("$x", "$", " := ", " = ", ".", ".a", ".a.b", "..", "(", ")", "|", ",", '"', "'", "`", "\\"),
        *('"s"', "`r`", "'c'", "1", "0x", "-", "1.5", "1i", "nil", "true"),
        *("upper ", "add ", "dict ", "list ", 'printf "%v" ', "index ", "eq ", "and ", "len ", 'split "," '),
    ]
)


@given(st.lists(FRAGMENTS, max_size=30).map("".join), VALUES)
@settings(max_examples=2 * settings().max_examples)
def test_broken_template_ends_soon_with_a_template_error(text: str, value: Any) -> None:
    budget = Budget(Limits(seconds=2))
    try:
        GoEngine().compile("t", text).render(TemplateScope(data={"a": value}), budget=budget)
    except TemplateError as error:
        assert error.file == "t"
        assert 1 <= error.line <= text.count("\n") + 1
        assert error.column >= 1
