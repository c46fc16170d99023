"""``template()`` and other templates that a template uses: their visible names."""

from pathlib import Path
from typing import Any

import pytest

from hiera.expressions.expressions import Scope, resolve
from hiera.values import Secret
from puller.bundle_paths import BundleFiles
from puller.errors import ResourceError
from puller.templates.functions import bundle_functions
from puller.templates.rendering import Rendered, render_text, render_tree, seen_by

FILES = {
    "x.j2": "{{ x | default('-') }}{{ y | default('-') }}{{ facts.h }}",
    "x.jet": "[[ isset(x) ? x : 0 ]][[ isset(y) ? y.a : 0 ]]",
    "x.tmpl": "{{ .x }}{{ .y.a }}",
    "loop.j2": "{{ loop.index }}",
    "macro.j2": "{{ m(x) }}",
    "more.j2": "<{{ template('x.j2', y=2) }}>",
    "endless.j2": "{{ template('endless.j2') }}",
    "bad.j2": "\n{{ nope }}",
    "file.j2": "{{ file }} {{ read_file('y') }}",
    "y": "Y",
}


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    plain = Scope({"h": "web"}, {"n": 1, "pw": Secret("s3cret")}, {})
    plain = plain.with_names(bundle_functions(BundleFiles.of(tmp_path), plain))
    return plain.with_names({"vhost": {"name": "shop", 80: "http"}})


def render(text: str, scope: Scope, directory: Path, engine: str = "jinja") -> Rendered:
    return render_text("main", text, engine, scope, BundleFiles.of(directory))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ template('x.j2', y=2) }}", "-2web"),
        ("{% for x in [1, 2] %}{{ template('x.j2') }} {% endfor %}", "1-web 2-web "),
        ("{% set x = 1 %}{{ template('x.j2', x=2) }}", "2-web"),
        ("{% macro m(x) %}{{ template('x.j2') }}{% endmacro %}{{ m(3) }}", "3-web"),
        ("{% for x in [1] %}{{ template('more.j2') }}{% endfor %}", "<12web>"),
        ("{% for x in 'ab' %}{{ template('loop.j2') }}{% endfor %}", "12"),
        ("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ template('macro.j2', x=1) }}", "<1>"),
        ("{{ template('{{ \"{{ x + 1 }}\" }}', x=1) }}", "{{ x + 1 }}"),
        ("{% set t %}{% raw %}a {{ x + 1 }}{% endraw %}{% endset %}{{ template(t, x=1) }}", "a 2"),
        ("{% for x in [1, 2] %}{{ template('x.jet', y={'a': 5}) }} {% endfor %}", "15 25 "),
        ("{% for x in [1] %}{{ template('x.tmpl', y={'a': 5}) }}{% endfor %}", "15"),
        ("{{ vhost.name }}{{ template('{{ vhost.name }}') }}", "shopshop"),
        ("{{ template('file.j2', file='/etc/x') }}", "/etc/x Y"),
        ("{% for file in ['/etc/x'] %}{{ template('file.j2') }}{% endfor %}", "/etc/x Y"),
        ("{{ template('{{ template(\"x.j2\") }}', x=1) }}", "1-web"),
    ],
)
def test_called_template_sees_caller_scope_and_arguments(
    text: str, expected: str, scope: Scope, tmp_path: Path
) -> None:
    assert render(text, scope, tmp_path).text == expected


def test_an_expression_of_a_manifest_hands_names_on_too(scope: Scope) -> None:
    assert resolve("{{ template('x.j2', y=vhost.name) }}", scope) == "-shopweb"
    without_secrets = scope.with_data({})
    assert resolve("a {{ template('{{ x }}', x=1) }}", without_secrets) == "a 1"


@pytest.mark.parametrize("file", ["x.j2", "x.jet", "x.tmpl"])
def test_a_secret_that_is_handed_on_stays_one(file: str, scope: Scope, tmp_path: Path) -> None:
    assert isinstance(resolve(f"{{{{ template('{file}', x=data.pw, y={{'a': 1}}) }}}}", scope), Secret)
    assert render(f"{{{{ template('{file}', x=data.pw, y={{'a': 1}}) }}}}", scope, tmp_path).is_secret


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "{{ template('x.j2', data={}) }}",
            "template has data of its own: hand the value in by another name",
        ),
        ("{{ template('endless.j2') }}", "templates call one another more than 20 levels deep"),
        ("{{ template('bad.j2') }}", "main:1:4: bad.j2:2:4: unknown name 'nope'"),
        ("{{ template('no.j2') }}", "no.j2 cannot be read: no such file or directory"),
    ],
)
def test_impossible_call_states_the_reason(text: str, sentence: str, scope: Scope, tmp_path: Path) -> None:
    with pytest.raises(ResourceError) as caught:
        render(text, scope, tmp_path)
    assert sentence in str(caught.value)
    assert len(str(caught.value)) < 1000


# -- names of a scope, such as the variables of a loop in the manifest -------------------------------


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("jinja", "{{ vhost.name }} {{ vhost is defined }}"),
        ("jet", "[[ vhost.name ]] [[ isset(vhost) ]]"),
        ("go", "{{ .vhost.name }} {{ if .vhost }}true{{ end }}"),
    ],
)
def test_plain_scope_values_are_top_level_names(engine: str, text: str, scope: Scope, tmp_path: Path) -> None:
    assert render(text, scope, tmp_path, engine).text.lower() == "shop true"


def test_scope_values_precede_functions_after_variables(scope: Scope, tmp_path: Path) -> None:
    named = scope.with_names({"upper": "U", "len": 3})
    assert render("[[ upper ]][[ len ]][[ len := 4 ]][[ len ]]", named, tmp_path, "jet").text == "U34"


def test_a_secret_among_them_makes_the_text_one(scope: Scope, tmp_path: Path) -> None:
    named = Scope({}, {}).with_names({"token": Secret("s3cret")})
    assert render("[[ token ]]", named, tmp_path, "jet") == Rendered("s3cret", True)
    assert render("{{ .token }}", named, tmp_path, "go") == Rendered("s3cret", True)
    assert render("{{ token }}", named, tmp_path) == Rendered("s3cret", True)


@pytest.mark.parametrize(
    ("engine", "top", "partial"),
    [
        ("jinja", "{{ vhost.name }}{{ render('_partials/p', {'x': 1}) }}", "{{ vhost.name }}{{ x }}"),
        ("jet", "[[ vhost.name ]][[ render('_partials/p', vhost) ]]".replace("'", '"'), "[[ .name ]]1"),
        ("go", '{{ .vhost.name }}{{ render "_partials/p" . }}', "{{ .vhost.name }}1"),
    ],
)
def test_a_scaffold_sees_them_too(engine: str, top: str, partial: str, scope: Scope, tmp_path: Path) -> None:
    from puller.templates.rendering import load

    files = {"a": top, "_partials/p": partial}
    seen = seen_by(engine, scope, BundleFiles.of(tmp_path))
    rendered = render_tree(files, load(engine, files=files), seen.dot, functions=seen.functions)
    assert rendered == {"a": "shopshop1"}


def test_jinja_partial_sees_facts_data_and_the_loop(scope: Scope, tmp_path: Path) -> None:
    from puller.templates.rendering import load

    partial = "{{ facts.h | default('-') }}{{ data.n | default('-') }}{{ x | default('-') }}{{ y }}"
    files: dict[str, Any] = {
        "a": "{% for x in [7] %}{{ render('_partials/p', {'y': 8}) }}{% endfor %}",
        "_partials/p": partial,
    }
    seen = seen_by("jinja", scope, BundleFiles.of(tmp_path))
    rendered = render_tree(files, load("jinja", files=files), seen.dot, functions=seen.functions)
    assert rendered == {"a": "web178"}


def test_data_that_is_asked_for_in_a_call_has_no_callers(scope: Scope, tmp_path: Path) -> None:
    """A separate expression does not see the names of the template that requests its value."""

    def ask() -> Any:
        return resolve("{{ x | default('none') }}", Scope({}))

    text = "{% macro m(x) %}{{ ask() }}{% endmacro %}{{ m(1) }}"
    assert render(text, scope.with_names({"ask": ask}), tmp_path).text == "none"
