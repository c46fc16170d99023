"""Values of expressions in manifests and data."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hiera.errors import ExpressionError, HieraError, LimitError, UndefinedError
from hiera.expressions.expressions import Scope, evaluate, has_expression, parse, resolve, resolve_tree
from hiera.expressions.jinja import compile_expression
from hiera.values import Secret
from tests.support.rows import each_row

CASES = Path(__file__).parents[2] / "cases/hiera"
EXPRESSIONS = yaml.load((CASES / "expressions.yaml").read_text(), yaml.CSafeLoader)
FILTERS = yaml.load((CASES / "filters.yaml").read_text(), yaml.CSafeLoader)
REFUSED = yaml.load((CASES / "refused.yaml").read_text(), yaml.CSafeLoader)
RUNAWAY = yaml.load((CASES / "runaway.yaml").read_text(), yaml.CSafeLoader)
SCOPE = Scope(**EXPRESSIONS["scope"])


def hello(name: str = "you") -> str:
    return f"hello {name}"


def same(left: object, right: object) -> bool:
    """Return whether values and types are equal at all levels: 1, 1.0 and true differ."""
    return left == right and json.dumps(left) == json.dumps(right)


@each_row("case", EXPRESSIONS["cases"], ids=lambda case: case["text"])
def test_a_text_becomes_a_value_or_an_error(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(HieraError) as caught:
            resolve(case["text"], SCOPE)
        assert case["error"] in str(caught.value)
    else:
        assert same(resolve(case["text"], SCOPE), case["value"])


@each_row("case", FILTERS, ids=lambda case: case["expression"])
def test_filters_return_expected_values(case: dict[str, Any]) -> None:
    shared = [1]
    facts = {"fqdn": "web01.example.org", "addresses": ["192.0.2.1", "x", "2001:db8::1"]}
    scope = Scope(facts, {"shared": shared})
    if "error" in case:
        with pytest.raises(HieraError) as caught:
            evaluate(case["expression"], scope)
        assert case["error"] in str(caught.value)
    else:
        assert same(evaluate(case["expression"], scope), case["value"])


# -- limits of the language -----------------------------------------------------------------------


@pytest.mark.attack("input.sandbox")
@pytest.mark.parametrize("expression", REFUSED)
def test_nothing_but_values_can_be_reached(expression: str) -> None:
    scope = Scope({"x": 1}, {"map": {"b": 1}, "list": [1]}, functions={"hello": hello})
    with pytest.raises(ExpressionError):
        evaluate(expression, scope)
    with pytest.raises(ExpressionError):
        resolve(f"a {{{{ {expression} }}}}", scope)


@pytest.mark.attack("input.endless-template")
@pytest.mark.parametrize("expression", RUNAWAY["expressions"])
@pytest.mark.representatives(8)
def test_memory_exhaustion_is_stopped(expression: str) -> None:
    with pytest.raises(LimitError):
        evaluate(expression, SCOPE)


@pytest.mark.parametrize(
    "expression", ["(" * 3000 + "1" + ")" * 3000, "[" * 200 + "]" * 200, "not " * 2000 + "1"]
)
def test_deep_expressions_are_refused(expression: str) -> None:
    with pytest.raises(LimitError, match="is nested too deeply"):
        evaluate(expression, SCOPE)


def test_a_very_long_expression_is_refused() -> None:
    with pytest.raises(LimitError, match="is longer than 10000 characters"):
        resolve("{{ " + "x" * 10_001 + " }}", SCOPE)


def test_the_sum_of_many_long_texts_is_refused() -> None:
    with pytest.raises(LimitError, match="makes a text of more than 16777216 characters"):
        resolve("{{ data.x }}" * 20, Scope({}, {"x": "x" * 1_000_000}))


def test_budget_is_reset_for_each_evaluation() -> None:
    for _ in range(20):
        assert evaluate("'x' * 10000000", SCOPE)


# -- names and functions --------------------------------------------------------------------------


def test_functions_come_from_the_caller() -> None:
    scope = Scope({}, functions={"hello": hello})
    assert resolve("{{ hello() }}, {{ hello(name='Bob') }}", scope) == "hello you, hello Bob"
    with pytest.raises(UndefinedError, match=r"unknown name 'helo' \(did you mean 'hello'"):
        resolve("{{ helo('x') }}", scope)


def test_a_function_is_not_found_by_a_path() -> None:
    with pytest.raises(UndefinedError, match="lookup is a function, and no value"):
        resolve("{{ lookup('lookup') }}", SCOPE)


def test_an_error_of_a_function_names_the_expression() -> None:
    def fail() -> NoReturn:
        raise OSError("disk on fire")

    with pytest.raises(
        ExpressionError, match=r"^{{ fail\(\) }}: cannot be evaluated: OSError: disk on fire$"
    ):
        resolve("{{ fail() }}", Scope({}, functions={"fail": fail}))


def test_further_names_and_other_data_make_another_scope() -> None:
    scope = Scope({"a": 1}, {"b": 2}, {"c": "3"})
    inner = scope.with_data({"b": 4}).with_names({"value": 5})
    assert resolve("{{ facts.a }}{{ data.b }}{{ environ.c }}{{ value }}", inner) == "1435"
    assert resolve("{{ data.b }}", scope) == 2


class LazyFacts(Mapping[str, Any]):
    """Facts that record their gathered names."""

    def __init__(self) -> None:
        self.gathered: list[str] = []

    def __getitem__(self, name: str) -> Any:
        if name not in ("os", "memory"):
            raise KeyError(name)
        self.gathered.append(name)
        return {"family": "Debian", "total": 5}

    def __iter__(self) -> Iterator[str]:
        return iter(("os", "memory"))

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(
    "text", ["{{ facts.os.family }}", "{{ facts.os.family | upper }}", "{{ lookup('facts.os.x', 1) }}"]
)
def test_only_the_facts_that_are_asked_for_are_gathered(text: str) -> None:
    facts = LazyFacts()
    resolve(text, Scope(facts))
    assert set(facts.gathered) == {"os"}


def test_a_missing_fact_gathers_nothing() -> None:
    facts = LazyFacts()
    with pytest.raises(UndefinedError, match="unknown key 'o' in facts"):
        resolve("{{ facts.o }}", Scope(facts))
    assert facts.gathered == []


def test_a_lazy_mapping_comes_out_plain() -> None:
    whole = {name: {"family": "Debian", "total": 5} for name in ("os", "memory")}
    assert resolve("{{ facts }}", Scope(LazyFacts())) == whole
    assert json.loads(resolve("{{ facts | to_json }}", Scope(LazyFacts()))) == whole


# -- trees and conditions -------------------------------------------------------------------------


def test_tree_without_expressions_is_shared() -> None:
    tree = {"a": {"b": ["{{ data.port }}", 1]}, "c": ["x", {"d": "y"}], "{{ data.port }}": None}
    resolved = resolve_tree(tree, SCOPE)
    assert resolved == {"a": {"b": [8080, 1]}, "c": ["x", {"d": "y"}], "{{ data.port }}": None}
    assert resolved["c"] is tree["c"]
    assert tree["a"] == {"b": ["{{ data.port }}", 1]}


def test_an_error_in_a_tree_has_its_path() -> None:
    with pytest.raises(UndefinedError) as caught:
        resolve_tree({"a": [{"b": "{{ facts.nope }}"}]}, SCOPE, "web.yaml: resources[3]")
    assert (
        str(caught.value) == "web.yaml: resources[3]: a[0].b: {{ facts.nope }}: unknown key 'nope' in facts"
    )
    assert caught.value.keys == ("a", 0, "b")


@each_row(
    ("condition", "value"),
    [
        ("facts.os.family == 'Debian'", True),
        ("facts.cpus > 2 and not data.disabled", True),
        ("facts.os.family in ['RedHat', 'Suse']", False),
        ("data.disabled", False),
        ("{{ data.disabled }}", False),
        (" lookup('data.nope', true) ", True),
        ("data.nope is defined", False),
    ],
)
def test_a_condition_is_an_expression_without_braces(condition: str, value: bool) -> None:
    assert evaluate(condition, SCOPE) is value


@pytest.mark.parametrize(
    "condition",
    ["", "{{ data.disabled }} x", "x {{ data.disabled }}", "{{ data.disabled }}{{ data.disabled }}", "if x"],
)
def test_a_condition_that_is_no_expression_is_refused(condition: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(condition, SCOPE)


# -- secrets --------------------------------------------------------------------------------------

SECRETS = Scope({}, {"pw": Secret("s3cret"), "db": Secret({"pin": 42}), "users": [{"pw": Secret("s3cret")}]})


@each_row(
    ("text", "inside"),
    [
        ("{{ data.pw }}", "s3cret"),
        ("a{{ data.pw }}b", "as3cretb"),
        ("{{ data.pw | upper }}", "S3CRET"),
        ("{{ data.pw ~ 'x' }}", "s3cretx"),
        ("{{ data.pw + 'x' }}", "s3cretx"),
        ("{{ '%s' % data.pw }}", "s3cret"),
        ("{{ data.pw[0] }}", "s"),
        ("{{ data.get('pw') }}", "s3cret"),
        ("{{ data.db.pin + 1 }}", 43),
        ("{{ data.db.pin }}", 42),
        ("{{ lookup('data.pw') }}", "s3cret"),
        ("{{ lookup('data.' ~ 'pw') }}", "s3cret"),
        ("{{ lookup('data.db.pin') }}", 42),
        ("{{ data.users | map(attribute='pw') | join }}", "s3cret"),
        ("{{ data.users | to_json }}", '[{"pw": "s3cret"}]'),
        ("{{ data.users[0].values() | list }}", ["s3cret"]),
        ("{{ [data.pw, 1] }}", ["s3cret", 1]),
        ("{{ 'x' if data.pw else 'y' }}", "x"),
    ],
)
def test_value_derived_from_a_secret_is_secret(text: str, inside: object) -> None:
    value = resolve(text, SECRETS)
    assert isinstance(value, Secret)
    assert value.reveal() == inside


def test_a_secret_inside_a_value_stays_one() -> None:
    users = resolve("{{ data.users }}", SECRETS)
    assert isinstance(users[0]["pw"], Secret)


def test_a_condition_over_a_secret_is_a_plain_boolean() -> None:
    assert evaluate("data.pw == 's3cret'", SECRETS) is True
    assert evaluate("data.pw is defined", SECRETS) is True


@pytest.mark.parametrize(
    "text", ["{{ data.pw + 1 }}", "{{ data.pw | from_json }}", "{{ data.pw | bool }}x", "x{{ data.db }}"]
)
def test_an_error_does_not_show_a_secret(text: str) -> None:
    with pytest.raises(HieraError) as caught:
        resolve(text, SECRETS)
    shown: BaseException | None = caught.value
    while shown is not None:
        assert "s3cret" not in str(shown)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)


def test_inspected_secret_does_not_taint_the_next_expression() -> None:
    resolve("{{ data.pw | upper }}", SECRETS)
    assert resolve("{{ 'x' | upper }}", SECRETS) == "X"


# -- laws -----------------------------------------------------------------------------------------

NAMES = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,3}\Z")
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.text().filter(lambda text: "{{" not in text))
def test_a_text_without_braces_resolves_to_itself(text: str) -> None:
    assert resolve(text, SCOPE) is text
    assert not has_expression(text)


@given(st.text().filter(lambda text: "{{" not in text), st.text().filter(lambda text: "{{" not in text))
def test_text_around_an_expression_stays(before: str, after: str) -> None:
    if before.endswith("{") or not (before + after).strip(" \t"):
        return
    assert resolve(f"{before}{{{{ facts.hostname }}}}{after}", SCOPE) == f"{before}web01{after}"


@given(
    st.dictionaries(NAMES, TREES, max_size=3),
    st.lists(NAMES | st.sampled_from(["items", "get"]), min_size=1, max_size=3),
)
def test_plain_names_mean_the_same_to_jinja(data: dict[str, Any], keys: list[str]) -> None:
    scope = Scope({}, data)
    name = ".".join(["data", *keys])
    try:
        expected = compile_expression(name)(scope.names)
    except ExpressionError:
        with pytest.raises(ExpressionError):
            resolve(f"{{{{ {name} }}}}", scope)
    else:
        assert same(resolve(f"{{{{ {name} }}}}", scope), expected)


@given(st.text(alphabet="abd.()[]{}'\"|+*-~,: 019_%\\\n", max_size=30))
def test_any_expression_gives_a_value_or_an_error_of_ours(source: str) -> None:
    try:
        resolve(f"{{{{ {source} }}}}", SCOPE)
    except HieraError as error:
        assert str(error)


@pytest.mark.parametrize(
    "text", ["plain", "{{ facts.x }}", "{{ lookup('facts.y', 1) }}", "a{{ '{{' }}b{{ data.z.0 }}"]
)
def test_plain_names_and_lookups_do_not_load_jinja(text: str) -> None:
    program = (
        "import sys; from hiera.expressions.expressions import Scope, resolve;"
        f"resolve({text!r}, Scope({{'x': 1}}, {{'z': ['q']}})); assert 'jinja2' not in sys.modules"
    )
    if "data.z.0" in text:
        program = program.replace("assert 'jinja2' not", "assert 'jinja2'")  # proves that the check can fail
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


ADVICE = {
    "data.list.append(1)": "a list has no 'append': values cannot change. Write list + [item]",
    "data.list.sort()": "a list has no 'sort': values are not changed; a sorted list is list | sort",
    "data.map.update({})": "unknown key 'update': values cannot change. Write a | combine(b)",
    "data.map | bool": "not a mapping; to ask whether there is anything in it, write | length > 0",
    "data.list | bool": "not a list; to ask whether there is anything in it, write | length > 0",
    "'abc'.nope()": "text has no 'nope'",
}


@pytest.mark.parametrize("expression", ADVICE)
def test_unsupported_operations_name_the_replacement(expression: str) -> None:
    with pytest.raises(HieraError) as error:
        evaluate(expression, Scope({}, {"list": [1], "map": {"a": 1}}))
    assert str(error.value).endswith(ADVICE[expression])
    assert evaluate("[1] + [2]", Scope({})) == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "{{ lookup('a}}b') }}",
        "{{ lookup('a', \"}}\") }} {{ x }}",
        "{{ f('it''s') }}",
        "{{ f(')') }} )",
        "{{ f((1)) }}",
        "{{ f('\\'') }}",
        "{{ f({'a': {}}) }}",
        "{{ f('a')('b') }}",
        "{{ f('\n') }}",
        "{{{ a }}",
        "{{ a }}b{{{ c }}",
        "{{ a }}{{ f((b)) }}{{ c }}",
        "{{ a }}{{ b",
    ],
)
def test_fast_search_agrees_on_the_end_of_expressions(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def sources() -> list[str]:
        try:
            return [piece if isinstance(piece, str) else f"={piece.source}" for piece in parse(text)]
        except ExpressionError as error:
            return [str(error)]

    at_once = sources()
    monkeypatch.setattr("hiera.expressions.expressions._SIMPLE", re.compile(r"(?!)"))
    assert sources() == at_once
