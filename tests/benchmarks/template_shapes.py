"""Templates for benchmarks: each shape in every language that supports it, with the same values.

All languages render the same text for a shape, except for white space between lines. The benchmark checks this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SECTIONS: Final = 10
UNITS: Final = 300


@dataclass(frozen=True)
class Shape:
    """The main feature that a template uses. ``files``: included or imported files, by the names in the template."""

    name: str
    jinja: str
    go: str
    jet: str | None
    files: Mapping[str, str] = field(default_factory=dict)


def facts() -> dict[str, Any]:
    return {"hostname": "web01", "domain": "example.net", "processors": 8}


def data() -> dict[str, Any]:
    backends = [{"host": f"10.0.0.{n}", "port": 8080 + n, "weight": n} for n in range(1, 9)]
    sites = {
        f"s{n}": {"name": f"Shop{n}", "port": 80 + n, "tls": n % 2 == 0, "backends": backends}
        for n in range(SECTIONS)
    }
    units = [
        {
            "name": f"Unit-a{n}",
            "n": n % 7 + 1,
            "on": n % 3 == 0,
            "kind": ("file", "service", "user")[n % 3],
            "deep": {"er": {"est": n}},
        }
        for n in range(UNITS)
    ]
    return {
        "sites": sites,
        "tls": {"protocols": "TLSv1.3"},
        "limits": {"body": 16},
        "numbers": list(range(UNITS)),
        "units": units,
        "table": {f"key{n:03}": {"a": n, "b": f"value {n}", "on": n % 2 == 0} for n in range(UNITS)},
    }


def _sections(section: str) -> str:
    """Return sections, each for another site."""
    return "".join(section.replace("NAME", f"s{n}") for n in range(SECTIONS))


_PAGE_JINJA: Final = """\
# site {{ data.sites.NAME.name }} on {{ facts.hostname }}
server {
    listen {{ data.sites.NAME.port }};
    server_name {{ data.sites.NAME.name }}.{{ facts.domain }};
    root /srv/{{ data.sites.NAME.name }}/htdocs;
    {% if data.sites.NAME.tls %}
    ssl_certificate /etc/ssl/{{ data.sites.NAME.name }}.pem;
    ssl_protocols {{ data.tls.protocols }};
    {% else %}
    # no certificate
    {% endif %}
    {% for backend in data.sites.NAME.backends %}
    upstream {{ backend.host }}:{{ backend.port }} weight={{ backend.weight }};
    {% endfor %}
    access_log /var/log/nginx/{{ data.sites.NAME.name | lower }}.log main;
    client_max_body_size {{ data.limits.body }}m;
    add_header X-Served-By "{{ facts.hostname | upper }}";
    keepalive_timeout 65;
    worker_connections {{ facts.processors * 256 }};
}
"""

_PAGE_JET: Final = """\
# site [[ data.sites.NAME.name ]] on [[ facts.hostname ]]
server {
    listen [[ data.sites.NAME.port ]];
    server_name [[ data.sites.NAME.name ]].[[ facts.domain ]];
    root /srv/[[ data.sites.NAME.name ]]/htdocs;
    [[ if data.sites.NAME.tls ]]
    ssl_certificate /etc/ssl/[[ data.sites.NAME.name ]].pem;
    ssl_protocols [[ data.tls.protocols ]];
    [[ else ]]
    # no certificate
    [[ end ]]
    [[ range data.sites.NAME.backends ]]
    upstream [[ .host ]]:[[ .port ]] weight=[[ .weight ]];
    [[ end ]]
    access_log /var/log/nginx/[[ data.sites.NAME.name | lower ]].log main;
    client_max_body_size [[ data.limits.body ]]m;
    add_header X-Served-By "[[ facts.hostname | upper ]]";
    keepalive_timeout 65;
    worker_connections [[ facts.processors * 256 ]];
}
"""

_PAGE_GO: Final = """\
# site {{ .data.sites.NAME.name }} on {{ .facts.hostname }}
server {
    listen {{ .data.sites.NAME.port }};
    server_name {{ .data.sites.NAME.name }}.{{ .facts.domain }};
    root /srv/{{ .data.sites.NAME.name }}/htdocs;
    {{ if .data.sites.NAME.tls }}
    ssl_certificate /etc/ssl/{{ .data.sites.NAME.name }}.pem;
    ssl_protocols {{ .data.tls.protocols }};
    {{ else }}
    # no certificate
    {{ end }}
    {{ range .data.sites.NAME.backends }}
    upstream {{ .host }}:{{ .port }} weight={{ .weight }};
    {{ end }}
    access_log /var/log/nginx/{{ .data.sites.NAME.name | lower }}.log main;
    client_max_body_size {{ .data.limits.body }}m;
    add_header X-Served-By "{{ .facts.hostname | upper }}";
    keepalive_timeout 65;
    worker_connections {{ mul .facts.processors 256 }};
}
"""

SHAPES: Final = (
    Shape("page", _sections(_PAGE_JINJA), _sections(_PAGE_GO), _sections(_PAGE_JET)),
    Shape(
        "arithmetic",
        "{% for n in data.numbers %}\n"
        "{% if n % 3 == 0 %}third {{ n * 2 + 1 }}{% elif n > 150 %}{{ n - 150 }}{% else %}{{ n }}{% endif %}\n\n"
        "{% endfor %}",
        "{{ range $n := .data.numbers }}"
        "{{ if eq (mod $n 3) 0 }}third {{ add (mul $n 2) 1 }}{{ else if gt $n 150 }}{{ sub $n 150 }}"
        "{{ else }}{{ $n }}{{ end }}\n{{ end }}",
        "[[ range i, n := data.numbers ]]"
        "[[ if n % 3 == 0 ]]third [[ n * 2 + 1 ]][[ else if n > 150 ]][[ n - 150 ]][[ else ]][[ n ]][[ end ]]\n"
        "[[ end ]]",
    ),
    Shape(
        "conditions",
        "{% for item in data.units %}\n"
        "{% if item.on and item.kind == 'file' or not item.on and item.n < 4 %}\n"
        "{{ item.kind }}{% elif item.kind == 'user' %}\nuser {{ item.name }}{% else %}\n{{ item.n }}{% endif %}\n\n"
        "{% endfor %}",
        '{{ range .data.units }}{{ if or (and .on (eq .kind "file")) (and (not .on) (lt .n 4)) }}'
        '{{ .kind }}{{ else if eq .kind "user" }}user {{ .name }}{{ else }}{{ .n }}{{ end }}\n{{ end }}',
        '[[ range data.units ]][[ if (.on && .kind == "file") || (!.on && .n < 4) ]]'
        '[[ .kind ]][[ else if .kind == "user" ]]user [[ .name ]][[ else ]][[ .n ]][[ end ]]\n[[ end ]]',
    ),
    Shape(
        "functions",
        "{% for item in data.units %}\n"
        "{{ item.name | upper | trim }} {{ item.name | replace('a', 'b') | lower }} {{ 'x' * item.n }} "
        "{{ item.name | length }}\n{% endfor %}",
        '{{ range .data.units }}{{ .name | upper | trim }} {{ .name | replace "a" "b" | lower }} '
        '{{ repeat .n "x" }} {{ len .name }}\n{{ end }}',
        '[[ range data.units ]][[ .name | upper | trimSpace ]] [[ replace(.name, "a", "b", -1) | lower ]] '
        '[[ repeat("x", .n) ]] [[ len(.name) ]]\n[[ end ]]',
    ),
    Shape(
        "deep names",
        "{% for item in data.units %}\n{{ item.deep.er.est }} {{ data.sites.s1.name }} {{ facts.hostname }}\n"
        "{% endfor %}",
        "{{ range .data.units }}{{ .deep.er.est }} {{ $.data.sites.s1.name }} {{ $.facts.hostname }}\n{{ end }}",
        "[[ range data.units ]][[ .deep.er.est ]] [[ data.sites.s1.name ]] [[ facts.hostname ]]\n[[ end ]]",
    ),
    Shape(
        "maps",
        "{% for key, value in data.table | dictsort %}\n{{ key }}={{ value.a }},{{ value['b'] }}"
        "{% if value.on %} on{% endif %}\n\n{% endfor %}",
        '{{ range $key, $value := .data.table }}{{ $key }}={{ $value.a }},{{ index $value "b" }}'
        "{{ if $value.on }} on{{ end }}\n{{ end }}",
        '[[ range key, value := data.table ]][[ key ]]=[[ value.a ]],[[ value["b"] ]]'
        "[[ if value.on ]] on[[ end ]]\n[[ end ]]",
    ),
    Shape(
        "variables",
        "{% for item in data.units %}\n{% set name = item.name %}{% set n = item.n %}"
        "{% set both = name ~ '.' ~ item.kind %}{{ both }} {{ n }} {{ name }}\n{% endfor %}",
        '{{ range .data.units }}{{ $name := .name }}{{ $n := .n }}{{ $both := print $name "." .kind }}'
        "{{ $both }} {{ $n }} {{ $name }}\n{{ end }}",
        '[[ range data.units ]][[ name := .name ]][[ n := .n ]][[ both := name + "." + .kind ]]'
        "[[ both ]] [[ n ]] [[ name ]]\n[[ end ]]",
    ),
    Shape(
        "text grows",
        "{% set all = namespace(line='') %}{% for item in data.units %}"
        "{% set all.line = all.line ~ item.name ~ ',' %}{% endfor %}{{ all.line }}\n",
        '{{ $line := "" }}{{ range .data.units }}{{ $line = print $line .name "," }}{{ end }}{{ $line }}\n',
        '[[ line := "" ]][[ range data.units ]][[ line = line + .name + "," ]][[ end ]][[ line ]]\n',
    ),
    Shape(
        "short texts",
        "{% for n in data.numbers -%}\n<{{ n }}>{{ n }};{{- n -}},{{ n }}.\n{%- endfor %}\n",
        "{{ range $n := .data.numbers -}}\n<{{ $n }}>{{ $n }};{{- $n -}},{{ $n }}.\n{{- end }}\n",
        "[[ range i, n := data.numbers -]]\n<[[ n ]]>[[ n ]];[[- n -]],[[ n ]].\n[[- end ]]\n",
    ),
    Shape(
        "blocks",
        "{% macro line(name, n) %}{{ name }} = {{ n }};{% endmacro %}"
        "{% for item in data.units %}\n{{ line(item.name, item.n) }}\n{% endfor %}",
        '{{ define "line" }}{{ .name }} = {{ .n }};{{ end }}'
        '{{ range .data.units }}{{ template "line" . }}\n{{ end }}',
        '[[ import "lib.jet" ]][[ range data.units ]][[ yield line(name=.name, n=.n) ]]\n[[ end ]]',
        {"lib.jet": "[[ block line(name, n) ]][[ name ]] = [[ n ]];[[ end ]]"},
    ),
    Shape(
        "includes",
        "{% for item in data.units %}\n{% include 'item.j2' %}\n\n{% endfor %}",
        '{{ define "item" }}{{ .name }} is {{ .kind }}{{ end }}'
        '{{ range .data.units }}{{ template "item" . }}\n{{ end }}',
        '[[ range data.units ]][[ include "item.jet" . ]]\n[[ end ]]',
        {"item.j2": "{{ item.name }} is {{ item.kind }}", "item.jet": "[[ .name ]] is [[ .kind ]]"},
    ),
    Shape(
        "lookup",
        "{% for item in data.units %}\n{{ lookup('data.sites.s1.name') }} {{ lookup('facts.domain') }}\n"
        "{% endfor %}",
        '{{ range .data.units }}{{ lookup "data.sites.s1.name" }} {{ lookup "facts.domain" }}\n{{ end }}',
        '[[ range data.units ]][[ lookup("data.sites.s1.name") ]] [[ lookup("facts.domain") ]]\n[[ end ]]',
    ),
    Shape(
        "printf",
        "{% for item in data.units %}\n{{ '%-12s|%5d|%s' | format(item.name, item.n, item.kind) }}\n{% endfor %}",
        '{{ range .data.units }}{{ printf "%-12s|%5d|%s" .name .n .kind }}\n{{ end }}',
        None,
    ),
)

EXPRESSIONS: Final = (
    "data.limits.body * 2",
    "data.units | length",
    "facts.hostname ~ '.' ~ facts.domain",
    "facts.processors > 4 and data.sites.s1.tls",
    "'web' in facts.hostname",
    "data.sites.s1.port if data.sites.s1.tls else 80",
    "data.tls.protocols | lower",
    "data.sites['s1'].name | replace('S', 's')",
    "data.sites.s1.backends[0].host",
    "data.sites.s1.backends | map(attribute='port') | join(',')",
    "[facts.hostname, facts.domain] | join('.')",
    "data.sites.s2.name.nope is not defined",
    "{'a': facts.hostname, 'b': [1, 2]}",
    "data.sites.s1.backends | selectattr('weight', 'gt', 4) | list",
)
"""Expressions of manifests and data that all need Jinja2."""
