"""A 200-line template, rendered again and again by every engine: time a rendering, and the ratio to Jinja2's.

    python tests/benchmarks/bench_templates.py [--rounds 10] [--renderings 100] [--engines jet,go]

* Each engine has the same template in its own language, parsed once; all must give the same text, but for white space.
* The engines take turns (A B C A B C), so that a busy moment of the machine hits all of them.
* Jinja2 is the library as it is, not Puller's sandboxed engine: that is a contender of its own.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import jinja2

from puller.templates.engine import load_engine
from puller.templates.scope import Engine, TemplateScope

SECTIONS = 10

JINJA = """\
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

JET = """\
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

GO = """\
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

TEMPLATES = {"jet": JET, "go": GO, "jinja": JINJA}


@dataclass
class Contender:
    """An engine with its parsed template; ``samples`` are seconds a rendering."""

    name: str
    render: Callable[[], str]
    samples: list[float] = field(default_factory=list)

    @property
    def time(self) -> float:
        return statistics.median(self.samples)


def scope() -> TemplateScope:
    backends = [{"host": f"10.0.0.{n}", "port": 8080 + n, "weight": n} for n in range(1, 9)]
    sites = {
        f"s{n}": {"name": f"Shop{n}", "port": 80 + n, "tls": n % 2 == 0, "backends": backends}
        for n in range(SECTIONS)
    }
    data = {"sites": sites, "tls": {"protocols": "TLSv1.3"}, "limits": {"body": 16}}
    return TemplateScope({"hostname": "web01", "domain": "example.net", "processors": 8}, data, {})


def whole(section: str) -> str:
    """The template: one section after another, each on a site of its own."""
    return "".join(section.replace("NAME", f"s{n}") for n in range(SECTIONS))


def jinja2_itself() -> Contender:
    template = jinja2.Environment(autoescape=False).from_string(whole(JINJA))
    variables = dict(scope())
    return Contender("Jinja2", lambda: template.render(variables))


def contenders(names: list[str]) -> Iterator[Contender]:
    yield jinja2_itself()
    for name in names:
        yield contender(load_engine(name), whole(TEMPLATES[name]))


def contender(engine: Engine, text: str) -> Contender:
    template, dot = engine.compile("site.conf", text), scope()
    return Contender(f"puller {engine.name}", lambda: template.render(dot))


def lines_of(text: str) -> tuple[str, ...]:
    """The lines without their indentation and without blank ones: there the languages differ."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def measure(running: list[Contender], rounds: int, renderings: int) -> None:
    for _ in range(rounds):
        for one in running:
            start = time.perf_counter()
            for _ in range(renderings):
                one.render()
            one.samples.append((time.perf_counter() - start) / renderings)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--renderings", type=int, default=100)
    parser.add_argument("--engines", default=",".join(TEMPLATES))
    options = parser.parse_args()
    running = list(contenders(options.engines.split(",")))
    if len({lines_of(one.render()) for one in running}) != 1:
        raise SystemExit("the engines do not give the same text")
    measure(running, options.rounds, options.renderings)
    print(f"{len(whole(JINJA).splitlines())} lines, {options.rounds} x {options.renderings} renderings")
    for one in running:
        print(f"{one.name:14} {one.time * 1e6:8.0f} µs   {one.time / running[0].time:5.2f} x Jinja2")


if __name__ == "__main__":
    main()
