"""Names that no host can have, in templates of all three engines."""

from collections.abc import Callable

import pytest

Lint = Callable[..., list[str]]

DATA = """\
data:
  port: 80
  tls: {cert: a.pem}
  sites: [{name: shop, port: 1}, {name: blog, port: 2, alias: b}]
  vhosts: {shop: {root: /srv/shop}, blog: {root: /srv/blog, kind: proxy}}
"""


def of_template(name: str, more: str = "") -> str:
    return (
        f"{DATA}resources:\n  - file:\n      - /etc/app: {{template: templates/{name}{more}, mode: '0644'}}\n"
    )


@pytest.fixture
def of_text(find_names: Lint) -> Lint:
    """Return ``of_text('app.j2', text)``: the findings in this template, without its file name."""

    def run(name: str, text: str, **files: str) -> list[str]:
        written = {"manifest.yaml": of_template(name), f"templates/{name}": text, **files}
        return [names.removeprefix(f"web/templates/{name}:") for names in find_names(written)]

    return run


WRONG = {
    "app.j2": {
        "a\nb {{ data.prt }}": "2:11: error: data has no 'prt' on any host (did you mean 'port'?)",
        "{{ data.tls.crt }}": "1:13: error: data.tls has no 'crt'",
        "{{ facts.os.famly }}": "1:13: error: facts.os has no 'famly'",
        "{% for s in data.sites %}{{ s.nme }}{% endfor %}": "s has no 'nme' on any host (did you mean 'name'?)",
        "{% for s in data.sites %}{% endfor %}{{ s }}": "unknown name 's'",
        "{% for n, v in data.vhosts.items() %}{{ v.rot }}{% endfor %}": "v has no 'rot'",
        "{% for n, v in data.vhosts | dictsort %}{{ v.rot }}{% endfor %}": "v has no 'rot'",
        "{% for s in data.sites | sort(attribute='name') %}{{ s.nme }}{% endfor %}": "s has no 'nme'",
        "{% set t = data.tls %}{{ t.crt }}": "t has no 'crt'",
        "{% with t = data.tls %}{{ t.crt }}{% endwith %}": "t has no 'crt'",
        "{% macro m(x) %}{{ x.y }}{{ zz }}{% endmacro %}": "unknown name 'zz'",
        "{% if false %}{{ data.port | uper }}{% endif %}": "unknown filter 'uper'",
        "{% if data.port is nunber %}{% endif %}": "unknown test 'nunber'",
        "{{ raneg(3) }}": "unknown name 'raneg' (did you mean 'range'?) [unknown-function]",
        "{{ write('a', 'b') }}": "unknown name 'write'",
        "{{ data.vhosts[facts.hostname].rot }}": "data.vhosts.* has no 'rot'",
        "{{ lookup('data.tls.crt') }}": "data.tls has no 'crt'",
        "{% include 'templates/' ~ data.prt ignore missing %}": "data has no 'prt'",
        "{{ data.port ~ (data.prt if data.tls else 1) }}": "data has no 'prt'",
        "#jinja2: lstrip_blocks: True\n\n{{ data.prt }}": "3:9: error: data has no 'prt'",
        "{% filter uper %}x{% endfilter %}": "unknown filter 'uper'",
    },
    "app.tmpl": {
        "a\nb {{ .data.prt }}": "2:12: error: data has no 'prt' on any host (did you mean 'port'?)",
        "{{ .dta.port }}": "unknown name 'dta' (did you mean 'data'?)",
        "{{ .Data.prt }}": "has no 'prt'",
        "{{ $.data.tls.crt }}": "data.tls has no 'crt'",
        "{{ range .data.sites }}{{ .nme }}{{ end }}": "data.sites.* has no 'nme' on any host (did you mean 'name'?)",
        "{{ range $i, $s := .data.sites }}{{ $s.nme }}{{ end }}": "data.sites.* has no 'nme'",
        "{{ range $n, $v := .data.vhosts }}{{ $v.rot }}{{ end }}": "data.vhosts.* has no 'rot'",
        "{{ with .data.tls }}{{ .crt }}{{ end }}": "data.tls has no 'crt'",
        "{{ $t := .data.tls }}{{ $t.crt }}": "data.tls has no 'crt'",
        "{{ .data.prt | upper }}": "data has no 'prt'",
        "{{ if eq .data.prt 1 }}{{ end }}": "data has no 'prt'",
        '{{ index .data "prt" }}': "data has no 'prt'",
        '{{ define "x" }}{{ .crt }}{{ end }}{{ template "x" .data.tls }}': "data.tls has no 'crt'",
        "{{ .facts.os.famly }}": "facts.os has no 'famly'",
    },
    "app.jet": {
        "a\nb [[ data.prt ]]": "2:11: error: data has no 'prt' on any host (did you mean 'port'?)",
        "[[ dta.port ]]": "unknown name 'dta' (did you mean 'data'?) [unknown-name]",
        "[[ .data.tls.crt ]]": "data.tls has no 'crt'",
        "[[ range data.sites ]][[ .nme ]][[ end ]]": "data.sites.* has no 'nme'",
        "[[ range i, s := data.sites ]][[ s.nme ]][[ end ]]": "data.sites.* has no 'nme'",
        "[[ t := data.tls ]][[ t.crt ]]": "data.tls has no 'crt'",
        "[[ uper(data.port) ]]": "unknown name 'uper' (did you mean 'upper'?) [unknown-function]",
        "[[ data.port | uper ]]": "unknown name 'uper' (did you mean 'upper'?)",
        "[[ if false ]][[ uper(data.port) ]][[ end ]]": "unknown name 'uper'",
        "[[ if data.prt == 80 ]][[ end ]]": "data has no 'prt'",
        '[[ data["prt"] ]]': "data has no 'prt'",
    },
}
RIGHT = {
    "app.j2": [
        "{{ data.port }}{{ environ.HOME }}{% set a = 1 %}{{ a }}",
        "{% if data.prt is defined %}{{ data.prt.x }}{% endif %}{{ data.prt.y }}",
        "{% for s in data.sites %}{{ loop.index }}{{ s.alias | default('') }}{% endfor %}",
        "{% for s in data.sites if s.alias is defined %}{{ s.alias }}{% endfor %}",
        "{% for v in data.vhosts.values() %}{% if v.kind == 'x' %}{{ v.upstream_of_it }}{% endif %}{% endfor %}",
        "{% macro m(a, b=1) %}{{ a }}{{ b }}{{ varargs }}{{ caller() }}{% endmacro %}{{ m(1) }}",
        "{% set ns = namespace(x=1) %}{% set ns.x = 2 %}{{ ns.x }}",
        "{% call(user) m() %}{{ user }}{% endcall %}{% macro m() %}{% endmacro %}",
        "{% for k in data.vhosts %}{{ k.upper() }}{% endfor %}",
        "{{ data.port.bit_length | default(1) }}{{ facts.mountpoints['/'].size }}",
        "{% for a, b in [(1, 2)] %}{{ a + b }}{% endfor %}{% set x, y = 1, 2 %}{{ x + y }}",
        "{% set l = [] %}{% for i in l %}{{ i.any.thing }}{% endfor %}",
        "{% raw %}{{ data.prt }}{% endraw %}{# {{ data.prt }} #}",
    ],
    "app.tmpl": [
        "{{ .data.port }}{{ .facts.os.family | upper }}{{ .environ.HOME }}",
        "{{ if .data.prt }}{{ .data.prt.x }}{{ end }}",
        "{{ .data.prt | default 80 }}{{ default 80 .data.prt2 }}",
        "{{ with .data.prt }}{{ .x.y }}{{ end }}",
        "{{ range .data.sites }}{{ if .alias }}{{ .alias }}{{ end }}{{ $.data.port }}{{ end }}",
        '{{ if hasKey .data "prt" }}{{ .data.prt }}{{ end }}',
        "{{ if or .data.a .data.b }}{{ .data.a }}{{ end }}",
        "{{ $x := 1 }}{{ range $i, $e := list 1 2 }}{{ $i }}{{ $e }}{{ $x }}{{ end }}",
        '{{ lookup "data.prt" 80 }}{{ (dict "a" 1).a }}',
        "{{/* .data.prt */}}",
    ],
    "app.jet": [
        "[[ data.port ]][[ facts.os.family ]][[ environ.HOME ]]",
        "[[ if isset(data.prt) ]][[ data.prt.x ]][[ end ]]",
        "[[ if data.prt ]][[ data.prt ]][[ end ]]",
        "[[ data.prt ? data.prt : 80 ]]",
        '[[ v, found := data["prt"] ]][[ if found ]][[ v.x ]][[ end ]]',
        "[[ range i, s := data.sites ]][[ i ]][[ s.name ]][[ end ]]",
        "[[ block b(x=1) ]][[ x ]][[ end ]][[ yield b(x=2) ]]",
        "[[ try ]][[ data.port ]][[ catch err ]][[ err.Error() ]][[ end ]]",
        '[[ lookup("data.prt", 80) ]]',
    ],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in WRONG for text in WRONG[name]])
def test_a_wrong_name_in_a_template_is_an_error(of_text: Lint, name: str, text: str) -> None:
    (result,) = of_text(name, text)
    assert WRONG[name][text] in result


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in RIGHT for text in RIGHT[name]])
def test_valid_template_names_are_no_finding(of_text: Lint, name: str, text: str) -> None:
    assert of_text(name, text) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("app.j2", "{{ data.prt"),
        ("app.tmpl", "{{ .data.prt"),
        ("app.tmpl", "{{ uper .data.prt }}"),
        ("app.jet", "[[ data.prt"),
    ],
)
def test_a_template_that_does_not_parse_is_left_to_others(of_text: Lint, name: str, text: str) -> None:
    assert of_text(name, text) == []


def test_included_template_sees_the_names_of_its_parent(of_text: Lint, find_names: Lint) -> None:
    text = "{% set a = data.tls %}{% include 'templates/inner.j2' %}"
    (result,) = of_text("app.j2", text, **{"templates/inner.j2": "{{ a.cert }}{{ data.port }}{{ a.crt }}"})
    assert result.startswith("web/templates/inner.j2:1:33: error: a has no 'crt'")


def test_a_macro_of_another_file_is_known(of_text: Lint) -> None:
    inner = "{% macro m(x) %}{{ x }}{{ data.prt }}{% endmacro %}"
    text = "{% import 'templates/inner.j2' as lib %}{% from 'templates/inner.j2' import m as k %}"
    text += "{{ lib.m(1) }}{{ k(2) }}"
    (result,) = of_text("app.j2", text, **{"templates/inner.j2": inner})
    assert result.startswith("web/templates/inner.j2:1:")


def test_templates_that_include_each_other_come_to_an_end(of_text: Lint) -> None:
    inner = "{% set b = 1 %}{% include 'templates/app.j2' %}"
    assert of_text("app.j2", "{% include 'templates/inner.j2' %}", **{"templates/inner.j2": inner}) == []


def test_template_sees_loop_names_and_given_data(find_names: Lint) -> None:
    manifest = f"""{DATA}resources:
  - file:
      - for: name, vhost in data.vhosts
        "/etc/{{{{ name }}}}": {{template: templates/vhost.j2, mode: "0644"}}
      - /etc/own: {{template: templates/own.j2, data: {{size: 1}}, mode: "0644"}}
"""
    files = {
        "manifest.yaml": manifest,
        "templates/vhost.j2": "{{ name }} {{ vhost.root }} {{ vhost.rot }} {{ vhst }}",
        "templates/own.j2": "{{ data.size }} {{ data.port }}",
    }
    results = [message.partition("error: ")[2] for message in find_names(files)]
    assert results[0].startswith("data has no 'port' on any host (known: size)")
    assert results[1].startswith("vhost has no 'rot' on any host (did you mean 'root'?)")
    assert results[2].startswith("unknown name 'vhst' (did you mean 'vhost'?)")


def test_a_template_that_expressions_name_is_followed(find_names: Lint) -> None:
    manifest = of_template("{{ 'a' if data.port else 'b' }}.j2").replace(
        "templates/{{ 'a' if data.port else 'b' }}.j2", "\"{{ 'templates/a.j2' if data.port else None }}\""
    )
    assert len(find_names({"manifest.yaml": manifest, "templates/a.j2": "{{ data.prt }}"})) == 1
    files = {
        "manifest.yaml": of_template("x.j2").replace("templates/x.j2", '"templates/{{ facts.os.family }}.j2"')
    }
    assert (
        len(find_names({**files, "templates/Debian.j2": "{{ data.prt }}", "templates/sub/x.j2": "{{ zz }}"}))
        == 2
    )


def test_called_template_sees_its_arguments(find_names: Lint) -> None:
    manifest = f"{DATA}resources:\n  - file:\n"
    manifest += "      - /a: {content: \"{{ template('t.j2', size=1) }}\", mode: '0644'}\n"
    (result,) = find_names({"manifest.yaml": manifest, "t.j2": "{{ size }} {{ sise }} {{ data.port }}"})
    assert "unknown name 'sise' (did you mean 'size'?)" in result


TREES = {
    "jinja": (
        "{{ render('_partials/p', data.tls) }}{{ write('a', 'b') }}{{ data.prt }}",
        "{{ cert }}{{ crt }}",
    ),
    "go": ('{{ render "_partials/p" .data.tls }}{{ .data.prt }}', "{{ .cert }}{{ .crt }}"),
    "jet": ('[[ render("_partials/p", data.tls) ]][[ data.prt ]]', "[[ .cert ]][[ .crt ]]"),
}


@pytest.mark.parametrize("engine", TREES)
def test_files_of_scaffolds_and_their_partials_are_followed(find_names: Lint, engine: str) -> None:
    item, partial = TREES[engine]
    manifest = f"{DATA}resources:\n  - scaffold:\n      - /etc/app: {{source: tree, engine: {engine}}}\n"
    names = find_names({"manifest.yaml": manifest, "tree/one": item, "tree/_partials/p": partial})
    assert "'crt'" in names[0]
    assert names[0].startswith("web/tree/_partials/p:1:")
    assert "data has no 'prt'" in names[1]
    assert names[1].startswith("web/tree/one:1:")
    assert len(names) == 2


def test_delimiters_of_a_scaffold_are_heeded(find_names: Lint) -> None:
    additional = 'left_delimiter: "<<", right_delimiter: ">>"'
    manifest = (
        f"{DATA}resources:\n  - scaffold:\n      - /etc/app: {{source: tree, engine: jinja, {additional}}}\n"
    )
    (result,) = find_names({"manifest.yaml": manifest, "tree/one": "{{ data.nothing }} << data.prt >>"})
    assert result.startswith("web/tree/one:1:")
    assert "'prt'" in result


def test_resources_of_a_template_are_followed(find_names: Lint) -> None:
    manifest = f"{DATA}resources_template: list.j2\n"
    (result,) = find_names({"manifest.yaml": manifest, "list.j2": "- package: [{{ data.prt }}]\n"})
    assert result.startswith("web/list.j2:1:")


def test_a_library_without_a_bundle_that_uses_it_says_nothing(find_names: Lint) -> None:
    assert find_names({"library.yaml": "", "vhost.yaml": "resources:\n  - package: ['{{ data.x }}']\n"}) == []


def test_unreferenced_template_is_followed_where_possible(find_names: Lint) -> None:
    files = {"manifest.yaml": f"{DATA}resources: []\n", "templates/app.j2": "{{ anything }} {{ data.prt }}"}
    (result,) = find_names({**files, "tests/case.j2": "{{ data.prt }}"})
    assert result.startswith("web/templates/app.j2:1:24: error: data has no 'prt'")
