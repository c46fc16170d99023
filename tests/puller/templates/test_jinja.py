"""Template files in Jinja2: the whole language, in a sandbox, with errors at their lines."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hiera import limits
from hiera.expressions.expressions import Scope
from hiera.values.secrets import Secret
from puller.bundle_paths import BundleFiles
from puller.templates.engine import load_engine
from puller.templates.errors import FunctionError, LimitError, TemplateError
from puller.templates.jinja import JinjaEngine
from puller.templates.limits import Budget, Limits
from puller.templates.scope import TemplateScope
from puller.templates.tree import render_tree

CASES = Path(__file__).parents[2] / "cases"
TEMPLATES = yaml.load((CASES / "templates/jinja.yaml").read_text(), yaml.CSafeLoader)
REFUSED = yaml.load((CASES / "hiera/refused.yaml").read_text(), yaml.CSafeLoader)
RUNAWAY = yaml.load((CASES / "hiera/runaway.yaml").read_text(), yaml.CSafeLoader)
SCOPE = Scope(**TEMPLATES["scope"])


def render(text: str, scope: Scope = SCOPE, **options: Any) -> str:
    return JinjaEngine(**options).render("main.j2", text, scope)


@pytest.mark.parametrize("case", TEMPLATES["cases"], ids=lambda case: case["template"])
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
def test_an_expression_that_would_take_all_memory_is_stopped(expression: str) -> None:
    with pytest.raises(LimitError, match=r"^main.j2:\d:1: "):
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
    """To use up all of the budget takes seconds, and is left out of a plain run."""
    monkeypatch.setattr(limits, "BUDGET", budget)
    with pytest.raises(LimitError, match=r"^main.j2:\d:1: "):
        render(text)


@pytest.mark.attack("input.endless-template")
def test_a_template_has_only_so_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TIME_LIMIT", 0.1)
    loop = "{% for i in range(100000) %}"
    with pytest.raises(LimitError, match=r"^main.j2:1:1: takes more than 0.1 seconds$"):
        render(f"{loop}{loop}{{% endfor %}}{{% endfor %}}")


def test_a_failure_shows_the_line_it_is_in() -> None:
    with pytest.raises(TemplateError) as caught:
        render("a\n  {{ facts.nope }}\n")
    assert caught.value.excerpt() == "  {{ facts.nope }}\n^"


def test_delimiters_of_expressions_can_be_changed() -> None:
    assert (
        render("[[ facts.hostname ]] {{ x }}", left_delimiter="[[", right_delimiter="]]") == "web01 {{ x }}"
    )
    with pytest.raises(ValueError, match=r"^delimiters '{%' and '%}'"):
        JinjaEngine("{%", "%}")


# -- where includes come from ---------------------------------------------------------------------


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


def test_a_directory_is_no_template(source: Path) -> None:
    with pytest.raises(TemplateError, match="there is no template 'parts'"):
        render("{% include 'parts' %}", root=BundleFiles.of(source))


def test_a_failure_in_an_included_file_names_that_file(source: Path) -> None:
    (source / "bad.j2").write_text("ok\n{{ nope }}\n")
    with pytest.raises(TemplateError) as caught:
        render("{% include 'bad.j2' %}", root=BundleFiles.of(source))
    assert (caught.value.file, caught.value.line, caught.value.source_line) == ("bad.j2", 2, "{{ nope }}")


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
def test_a_secret_is_rendered_where_it_is_used_and_the_engine_knows(text: str, rendered: str) -> None:
    engine = JinjaEngine()
    scope = Scope({}, {"pw": Secret("s3cret"), "users": [{"pw": Secret("s3cret")}], "x": 1})
    assert engine.render("main.j2", text, scope) == rendered
    assert engine.used_secret
    assert engine.render("main.j2", "{{ data.x }}", scope) == "1"
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


def test_what_a_function_says_is_the_message() -> None:
    def fail() -> str:
        raise FunctionError("no such thing")

    template = load_engine("jinja").compile("x.j2", "a\n{{ fail() }}")
    with pytest.raises(TemplateError, match=r"^x.j2:2:1: no such thing$"):
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
