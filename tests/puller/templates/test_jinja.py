"""Jinja2 template files: the complete language, in a sandbox, and errors with lines."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hiera import limits
from hiera.expressions.expressions import Scope
from hiera.values import Secret
from puller.bundle_paths import BundleFiles
from puller.templates.jinja import JinjaEngine
from puller.templates.rendering import load_engine, render_tree
from puller.templates.scope import TemplateScope
from puller.templates.template_errors import Budget, FunctionError, LimitError, Limits, TemplateError
from tests.support.rows import each_row

CASES = Path(__file__).parents[2] / "cases"
TEMPLATES = yaml.load((CASES / "templates/jinja.yaml").read_text(), yaml.CSafeLoader)
REFUSED = yaml.load((CASES / "hiera/refused.yaml").read_text(), yaml.CSafeLoader)
RUNAWAY = yaml.load((CASES / "hiera/runaway.yaml").read_text(), yaml.CSafeLoader)
SCOPE = Scope(**TEMPLATES["scope"])


def render(text: str, scope: Scope = SCOPE, **options: Any) -> str:
    return JinjaEngine(**options).render("main.j2", text, scope)


@each_row("case", TEMPLATES["cases"], ids=lambda case: case["template"])
def test_a_template_becomes_text_or_an_error_at_its_line(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(TemplateError) as caught:
            render(case["template"], files=case.get("files"))
        assert str(caught.value).startswith(case["error"])
    else:
        assert render(case["template"], files=case.get("files")) == case["text"]


@pytest.mark.attack("input.sandbox")
@pytest.mark.parametrize("expression", [e for e in REFUSED if e not in ("loop.__class__", "super()")])
def test_nothing_but_values_can_be_reached(expression: str) -> None:
    scope = Scope({"x": 1}, {"map": {"b": 1}, "list": [1]}, functions={"hello": lambda: "hello"})
    with pytest.raises(TemplateError):
        render(f"{{{{ {expression} }}}}", scope)


@pytest.mark.attack("input.sandbox")
@pytest.mark.parametrize(
    "text",
    [
        "{% for i in [1] %}{{ loop.__class__ }}{% endfor %}",
        "{% for i in [1] %}{{ loop._iterable }}{% endfor %}",
        "{% macro m() %}{% endmacro %}{{ m.__init__.__globals__ }}",
        "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
        "{% macro m() %}{{ caller.__class__ }}{% endmacro %}{% call m() %}{% endcall %}",
        "{% macro m() %}{{ varargs.__class__ }}{% endmacro %}{{ m() }}",
        "{% block b %}{% endblock %}{{ self.b.__class__ }}",
        "{% block b %}{{ super.__class__ }}{% endblock %}",
        "{% import 'm.j2' as m %}{{ m.__class__ }}",
        "{% import 'm.j2' as m %}{{ m._body_stream }}",
        "{% set ns = namespace() %}{{ ns.__class__ }}",
        "{{ ''['__class__'] }}{{ ''.__class__ }}",
        "{{ ['a'].append('b') }}",
        "{% set x = [] %}{% set _ = x.append(1) %}{{ x }}",
        "{{ facts.update({'a': 1}) }}",
        "{{ 'a'.zfill(10**9) }}",
        "{{ 'a'.ljust(10**9) }}",
    ],
)
def test_nothing_of_jinja_itself_leads_out(text: str) -> None:
    with pytest.raises(TemplateError):
        render(text, files={"m.j2": "x"})


@pytest.mark.attack("input.endless-template")
@pytest.mark.parametrize("expression", RUNAWAY["expressions"])
@pytest.mark.representatives(8)
def test_an_expression_that_would_take_all_memory_is_stopped(expression: str) -> None:
    with pytest.raises(LimitError, match=r"^main.j2:\d:\d+: "):
        render(f"{{{{ {expression} }}}}")


@pytest.mark.attack("input.endless-template")
@pytest.mark.parametrize("text", RUNAWAY["templates"])
@pytest.mark.parametrize(
    "budget",
    [
        pytest.param(limits.BUDGET // 16, id="a part of the budget"),
        pytest.param(limits.BUDGET, id="all of it", marks=pytest.mark.crash),
    ],
)
def test_a_template_that_would_not_end_is_stopped(
    text: str, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Using the whole budget takes seconds, so a plain test run leaves that out."""
    monkeypatch.setattr(limits, "BUDGET", budget)
    with pytest.raises(LimitError, match=r"^main.j2:\d:\d+: "):
        render(text)


@pytest.mark.attack("input.endless-template")
def test_a_template_has_only_so_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TIME_LIMIT", 0.1)
    loop = "{% for i in range(100000) %}"
    with pytest.raises(LimitError, match=r"^main.j2:1:\d+: takes more than 0.1 seconds$"):
        render(f"{loop}{loop}{{% endfor %}}{{% endfor %}}")


def test_a_failure_shows_the_line_it_is_in() -> None:
    with pytest.raises(TemplateError) as caught:
        render("a\n  {{ facts.nope }}\n")
    assert caught.value.excerpt() == "  {{ facts.nope }}\n     ^"


def test_delimiters_of_expressions_can_be_changed() -> None:
    assert (
        render("[[ facts.hostname ]] {{ x }}", left_delimiter="[[", right_delimiter="]]") == "web01 {{ x }}"
    )
    with pytest.raises(ValueError, match=r"^delimiters '{%' and '%}'"):
        JinjaEngine("{%", "%}")


# -- places of includes ---------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "parts").mkdir(parents=True)
    (source / "parts/inc.j2").write_text("<{{ facts.hostname }}>\n")
    (tmp_path / "secret").write_text("outside")
    (source / "link").symlink_to("parts/inc.j2")
    (source / "out").symlink_to("../secret")
    (source / "up").symlink_to("..")
    return source


@pytest.mark.parametrize("name", ["parts/inc.j2", "link", "parts/../parts/inc.j2"])
def test_includes_come_from_the_source_directory(source: Path, name: str) -> None:
    assert render(f"a{{% include '{name}' %}}b", root=BundleFiles.of(source)) == "a<web01>\nb"


@pytest.mark.parametrize("name", ["out", "up/secret", "../secret", "/etc/passwd", "parts/../../secret"])
def test_includes_stay_inside_of_the_source_directory(source: Path, name: str) -> None:
    with pytest.raises(TemplateError, match="is outside of the bundle"):
        render(f"{{% include '{name}' %}}", root=BundleFiles.of(source))


def test_include_finds_a_file_beside_its_template(source: Path) -> None:
    for name in ("a.j2", "b.j2", "parts/a.j2", "parts/deep/c.j2"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(f"[{name}]")
    (source / "parts/b.j2").write_text("{% include 'deep/c.j2' %}{% include 'a.j2' %}")
    (source / "parts/d.j2").write_text("{% include 'e.j2' %}")
    (source / "parts/e.j2").write_text("beside")
    files = BundleFiles.of(source)
    # A file relative to the manifest has precedence.
    assert render("{% include 'parts/b.j2' %}", root=files) == "[parts/deep/c.j2][a.j2]"
    assert render("{% include 'parts/d.j2' %}", root=files) == "beside"
    engine = JinjaEngine(root=files)
    assert engine.render("parts/main.j2", "{% include 'e.j2' %}", Scope({})) == "beside"
    with pytest.raises(TemplateError, match=r"unknown template 'e\.j2'"):
        engine.render("main.j2", "{% include 'e.j2' %}", Scope({}))
    (source / "parts/f.j2").write_text("{% include '../../secret' %}")
    with pytest.raises(TemplateError, match="is outside of the bundle"):
        render("{% include 'parts/f.j2' %}", root=files)


def test_a_directory_is_no_template(source: Path) -> None:
    with pytest.raises(TemplateError, match="unknown template 'parts'"):
        render("{% include 'parts' %}", root=BundleFiles.of(source))


def test_a_failure_in_an_included_file_names_that_file(source: Path) -> None:
    (source / "bad.j2").write_text("ok\n{{ nope }}\n")
    with pytest.raises(TemplateError) as caught:
        render("{% include 'bad.j2' %}", root=BundleFiles.of(source))
    assert (caught.value.file, caught.value.line, caught.value.source_line) == ("bad.j2", 2, "{{ nope }}")


@pytest.mark.attack("input.endless-template")
@pytest.mark.parametrize(
    "text",
    [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% set x = i + j * 3 % 7 %}{% endfor %}{% endfor %}",
        "{% set n = namespace(x=3) %}{% for i in range(100000) %}{% set n.x = n.x * 3 %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}{{ n.x }}",
        "{% set x = 'x' * 9999999 %}{% for i in range(1000) %}{{ x }}{% endfor %}",
        "{% set x = 'x' * 9999999 %}{% for i in range(1000) %}{{ x }}-{{ x }}{% endfor %}",
        "{% set x = 'x' * 9999999 %}" + "{{ x }}-" * 1000,
        "{% set x = ['x' * 999] * 9999 %}" + "{{ x }}-" * 1000,
        "{% set x = 'x' * 999 %}{% for i in range(100000) %}" + "{{ x }}-" * 60 + "{% endfor %}",
        "{% macro m() %}{% for i in range(100000) %}"
        + "{{ 'x' * 999 }}-" * 60
        + "{% endfor %}{% endmacro %}{{ m() }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(90) }}",
        "{% for i in [1] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    ],
)
@pytest.mark.representatives(3)
def test_excessive_template_is_stopped_in_little_memory(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TIME_LIMIT", 1.0)
    template = JinjaEngine().compile("main.j2", text)
    tracemalloc.start()
    try:
        with pytest.raises(LimitError, match=r"^main.j2:\d:\d+: "):
            template.render(TemplateScope())
        assert tracemalloc.get_traced_memory()[1] < 300 << 20
    finally:
        tracemalloc.stop()


def test_a_loop_is_paid_for_to_the_last_round() -> None:
    assert render("{% for i in range(99999) %}{% if loop.last %}{{ i }}{% endif %}{% endfor %}") == "99998"
    halves = limits.BUDGET // 2
    with pytest.raises(LimitError):
        render("{% for i in x * 20 %}{% endfor %}" * 2, Scope({}, functions={"x": [0] * (halves // 20 - 99)}))


@pytest.mark.parametrize("operator", ["+", "*", "%", "-", "~"])
def test_a_long_chain_of_operators_is_no_problem(operator: str) -> None:
    assert render("{{ data.n" + f" {operator} 1" * 150 + " }}", Scope({}, {"n": 7}))


@each_row("value", [0, -7, 7, 2**29, 2**30, -(2**30), 2**62, 2**63, 2**70, True, 1.5, "x", [1]])
@each_row("operator", ["+", "*", "%"])
def test_a_constant_is_calculated_with_as_any_number(operator: str, value: Any) -> None:
    def outcome(right: str) -> str:
        try:
            return render(f"{{{{ data.value {operator} {right} }}}}", Scope({}, {"value": value, "three": 3}))
        except TemplateError as error:
            return error.message

    assert outcome("3") == outcome("data.three")


# -- secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("p={{ data.pw }}", "p=s3cret"),
        ("{{ data.users }}", "[{'pw': 's3cret'}]"),
        ("{% for u in data.users %}{{ u.pw }}{% endfor %}", "s3cret"),
        ("{% for k, v in data.items() if k == 'pw' %}{{ v }}{{ v == 's3cret' }}{% endfor %}", "s3cretTrue"),
        ("{% set p = data.pw %}{{ p ~ '!' }}", "s3cret!"),
        ("{{ data.pw.upper() }}", "S3CRET"),
    ],
)
def test_secret_is_rendered_and_tracked(text: str, rendered: str) -> None:
    engine = JinjaEngine()
    scope = Scope({}, {"pw": Secret("s3cret"), "users": [{"pw": Secret("s3cret")}], "x": 1})
    assert engine.render("main.j2", text, scope) == rendered
    assert engine.used_secret
    assert engine.render("main.j2", "{{ data.x }}", scope) == "1"
    assert not engine.used_secret


@each_row(
    ("text", "rendered"),
    [
        ("{{ data.map == {'pw': 's3cret'} }}", "True"),
        ("{{ [data.map] == [{'pw': 's3cret'}] }}", "True"),
        ("{{ {'pw': 's3cret'} in data.users }}", "True"),
        ("{{ 's3cret' in data.words }}{{ 's3cret' not in data.words[:1] }}", "TrueFalse"),
        ("{{ data.map == data.users[0] == {'pw': 's3cret'} }}", "True"),
        ("{{ (data.map or 1) == {'pw': 's3cret'} }}", "True"),
        ("{{ 1 if {'pw': 's3cret'} == (data.map if 1 else 0) }}", "1"),
        ("{% set m = data.map %}{{ m }}{{ m | to_json }}", "{'pw': 's3cret'}" + '{"pw": "s3cret"}'),
        ("{% for m in data.users %}{{ m.items() | list }}{% endfor %}", "[('pw', 's3cret')]"),
        ("{% for k, v in data.map | dictsort %}{{ v ~ '' }}{% endfor %}", "s3cret"),
        ("{% for k, v in {'a': data.words} | dictsort(by='value') %}{{ v[0] }}{% endfor %}", "s3cret"),
        ("{{ data.words | first }}{{ data.words | last | upper }}", "s3cretS3CRET"),
        ("{% macro m(words) %}{{ words[0] + '!' }}{% endmacro %}{{ m(words=data.words) }}", "s3cret!"),
        ("{% set n = namespace(w=data.words) %}{{ n.w | join('+') }}", "s3cret+s3cret"),
        ("{{ dict(w=data.words).w[0] }}", "s3cret"),
        ("{% for w in data.words %}{{ loop.last or loop.nextitem | length }}{% endfor %}", "6True"),
        ("{{ (data.nope | default(data.words))[0] }}", "s3cret"),
        ("{{ data.db.deep.pin + 1 }}{{ data['db']['deep']['pin'] * 2 }}", "4384"),
    ],
)
def test_wherever_a_collection_is_used_its_secrets_are_revealed(text: str, rendered: str) -> None:
    secret = Secret("s3cret")
    data = {"map": {"pw": secret}, "users": [{"pw": secret}], "words": [secret, secret]}
    engine = JinjaEngine()
    scope = Scope({}, {**data, "db": Secret({"deep": {"pin": 42}})})
    assert engine.render("main.j2", text, scope) == rendered
    assert engine.used_secret


@pytest.mark.parametrize(
    "text",
    [
        "{{ data.site.name | upper }}",
        "{% for one in data.list %}{{ one.name }}{% endfor %}",
        "{{ data.list | length }}{{ data.site is defined }}{{ (data.list | first).name }}",
        "{{ 'name' in data.site }}{{ data.site.get('name') }}",
        "{{ data.site.name == 'a' }}{{ data.list[0]['name'] }}",
    ],
)
def test_unvisited_siblings_are_not_evaluated(text: str) -> None:
    site = {"name": "a", "pw": Secret("s3cret")}
    engine = JinjaEngine()
    assert "s3cret" not in engine.render("main.j2", text, Scope({}, {"site": site, "list": [site]}))
    assert not engine.used_secret


@pytest.mark.parametrize(
    "expression", ["data.pw + 1", "data.pw | from_json", "data.map[data.pw]", "lookup(data.pw)"]
)
def test_a_failure_does_not_show_a_secret(expression: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render(f"{{{{ {expression} }}}}", Scope({}, {"pw": Secret("s3cret"), "map": {}}))
    assert "s3cret" not in f"{caught.value} {caught.value.excerpt()}"


# -- trees ----------------------------------------------------------------------------------------


def test_a_tree_is_rendered_with_its_functions() -> None:
    names = "{{ data.n }}{{ Data.n }} {{ lookup('data.nope', 'd') }}"
    files = {
        "a.conf": names + " {{ render('_partials/p', {'x': 2}) }}{{ write('b', 'B') }}",
        "_partials/p": "[{{ x }} {{ value.x }}]",
    }
    scope = TemplateScope(facts={"hostname": "web01"}, data={"n": 1})
    assert render_tree(files, load_engine("jinja"), scope) == {"a.conf": "11 d [2 2]", "b": "B"}


def test_message_of_a_function_is_the_error() -> None:
    def fail() -> str:
        raise FunctionError("no such thing")

    template = load_engine("jinja").compile("x.j2", "a\n{{ fail() }}")
    with pytest.raises(TemplateError, match=r"^x.j2:2:4: no such thing$"):
        template.render(TemplateScope(), {"fail": fail})


def test_a_partial_without_end_and_a_text_too_large_are_stopped() -> None:
    with pytest.raises(LimitError, match="call one another more than 100 levels deep"):
        render_tree({"a": "{{ render('a', 1) }}"}, load_engine("jinja"), TemplateScope())
    template = load_engine("jinja").compile("x.j2", "{{ 'x' * 100 }}")
    with pytest.raises(LimitError, match="makes more than 50 characters"):
        template.render(TemplateScope(), budget=Budget(Limits(characters=50)))


# -- laws -----------------------------------------------------------------------------------------


@given(st.text().filter(lambda text: not any(mark in text for mark in ("{{", "{%", "{#", "\r"))))
def test_text_without_marks_is_rendered_as_it_is(text: str) -> None:
    assert render(text) == text


@given(st.text(alphabet="{}%#- \nifoendras.x|'\"()", max_size=40))
def test_any_text_renders_or_is_a_template_error(text: str) -> None:
    try:
        render(text)
    except TemplateError as error:
        assert str(error).startswith("main.j2:")


@each_row(
    ("template", "said"),
    [
        ("{{ data.m | items }}", "one by one"),
        ("{{ data.n | map('string') }}", "one by one"),
        ("{{ data.n | select | string }}", "one by one"),
        ("{{ data.m | items | replace('a', 'b') }}", "one by one"),
        ("{{ 'x%s' % (data.m | items) }}", "one by one"),
        ("{{ 'x%s' | format(data.m | items) }}", "one by one"),
        ("{{ [data.n | map('string')] }}", "one by one"),
        ("{{ data.m.get | safe }}", "a function cannot be printed"),
        ("{{ [data.m.get] }}", "a function cannot be printed"),
        ("{{ {'a': lookup} }}", "a function cannot be printed"),
        ("{{ [lookup] | join }}", "a function cannot be printed"),
        ("{{ cycler(1, 2) }}", "an object of Jinja2"),
    ],
)
def test_value_without_text_is_not_written(template: str, said: str) -> None:
    """Python would write the object's address, which differs in each run, so the file would never be in sync."""
    with pytest.raises(TemplateError, match=said):
        render(template, Scope({}, {"m": {"a": 1}, "n": [1, 2]}))
