"""Expressions in data are evaluated over the combined data of all sources."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.problems import ProblemCode
from hiera.document.document import Document
from hiera.errors import HieraError
from hiera.tree.locations import Texts
from hiera.tree.lookup import Tree
from hiera.values import Secret, merge_deep, merge_sources
from puller.data.bundle_data import BundleData
from puller.data.sources import DataSource, Origin, Surroundings
from puller.errors import ManifestError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest

if TYPE_CHECKING:
    from tests.support.stories import Execute, Host, Publisher

HERE = Surroundings({"os": "debian"}, {})
NOTHING = "resources: []\n"
URL = """\
data:
  version: "1.0"
  url: "https://example.com/app-{{ data.version }}.tar.gz"
  web: {port: 80, listen: "0.0.0.0:{{ data.web.port }}"}
resources: []
"""

Bundle = Callable[..., Manifest]


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """Return ``bundle(manifest, host, …, file=text)``, which loads a manifest with host documents and other files."""

    def build(manifest: str, *host: str, **files: str) -> Manifest:
        for name, text in {"manifest.yaml": manifest, **files}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(textwrap.dedent(text))
        sources: tuple[DataSource, ...] = ()
        for number, text in enumerate(host):
            sources += (HERE.resolve(text, f"host{number}.yaml", Origin.HOST, sources),)
        return load_manifest(tmp_path / "manifest.yaml", "web/manifest.yaml", Inputs(HERE.facts, {}, sources))

    return build


def data_of(manifest: Manifest) -> dict[str, Any]:
    return dict(manifest.data.all)


def test_a_derived_value_follows_the_host(bundle: Bundle) -> None:
    data = data_of(bundle(URL, "data: {version: '2.0', web: {port: 8080}}"))
    assert data["url"] == "https://example.com/app-2.0.tar.gz"
    assert data["web"] == {"port": 8080, "listen": "0.0.0.0:8080"}


def test_a_chain_of_derived_values_follows_the_host(bundle: Bundle) -> None:
    manifest = """\
    data: {a: "{{ data.b }}!", b: "{{ data.c }}?", c: 1, list: ["{{ data.a }}", {x: "{{ data.b }}"}]}
    resources: []
    """
    data = data_of(bundle(manifest, "data: {c: 2}"))
    assert data == {"a": "2?!", "b": "2?", "c": 2, "list": ["2?!", {"x": "2?"}]}
    assert data_of(bundle(manifest, "data: {b: x}"))["list"] == ["x!", {"x": "x"}]


def test_derived_values_of_the_host_follow_the_bundle(bundle: Bundle) -> None:
    host = "data: {log: '{{ data.base }}/log', base_of_host: '{{ data.log }}'}"
    data = data_of(bundle("data: {base: /srv, log: /var/log}\nresources: []\n", host))
    assert data == {"base": "/srv", "log": "/srv/log", "base_of_host": "/srv/log"}


def test_a_host_value_for_another_bundle_fails_its_readers(bundle: Bundle) -> None:
    host = "data: {log: '{{ data.base }}/log', other: 1}"
    manifest = """\
    data: {own: 1}
    resources:
      - exec: ["echo {{ data.own }}"]
      - exec: [{second: {command: "echo {{ lookup('data.log', 'x') }}"}}]
    """
    loaded = bundle(manifest, host)
    assert [bool(declaration.failures) for declaration in loaded.declarations] == [False, True]
    assert "unknown key 'base' in data" in str(loaded.declarations[1].failures[0].message)
    with pytest.raises(ManifestError, match="unknown key 'base' in data"):
        bundle("data: {log: /var/log}\nresources: []\n", host)


def test_a_replaced_value_is_no_error(bundle: Bundle) -> None:
    manifest = "data: {a: '{{ facts.nope }}', b: '{{ data.a }}'}\nresources: []\n"
    assert data_of(bundle(manifest, "data: {a: 1}")) == {"a": 1, "b": 1}
    with pytest.raises(
        ManifestError, match=r"web/manifest.yaml:1:\d+: data\.a: .*unknown key 'nope' in facts"
    ):
        bundle(manifest)


def test_a_cycle_is_a_problem_with_its_chain(bundle: Bundle) -> None:
    manifest = "data: {a: '{{ data.b }}', b: 1, c: '{{ data.a }}'}\nresources: []\n"
    assert data_of(bundle(manifest))["c"] == 1
    with pytest.raises(ManifestError) as caught:
        bundle(manifest, "data: {b: '{{ data.c }}'}")
    (problem,) = caught.value.problems
    assert problem.code is ProblemCode.DATA_CYCLE
    assert "data.a → data.b → data.c → data.a" in problem.message


TREE = "version: 5\nhierarchy: [{name: all, path: all.yaml}]\n"


def test_lookups_in_a_tree_follow_the_host(bundle: Bundle) -> None:
    files = {
        "hiera.yaml": TREE,
        "data/all.yaml": "version: '1'\nport: 1\nweb: {a: 1}\n"
        "url: \"app-%{lookup('version')}\"\nsame: \"%{alias('web')}\"\n",
    }
    manifest = "data: {derived: '{{ data.url }}/{{ data.port }}'}\nresources: []\n"
    assert data_of(bundle(manifest, **files))["derived"] == "app-1/1"
    loaded = bundle(manifest, "data: {version: '2', port: 2, web: {b: 2}}", **files)
    data = data_of(loaded)
    assert (data["url"], data["derived"]) == ("app-2", "app-2/2")
    assert data["same"] == {"a": 1, "b": 2}
    assert loaded.scope.functions["hiera"]("url") == "app-2"


def test_a_cycle_through_a_tree_is_found(bundle: Bundle) -> None:
    files = {"hiera.yaml": TREE, "data/all.yaml": "k: \"%{lookup('derived')}\"\n"}
    with pytest.raises(ManifestError, match=r"data\.derived → data\.k → data\.derived"):
        bundle("data: {derived: '{{ data.k }}'}\nresources: []\n", **files)


def test_text_of_a_document_is_not_interpolated(bundle: Bundle) -> None:
    files = {"hiera.yaml": TREE, "data/all.yaml": "k: \"<%{lookup('t')}>\"\nt: x\n"}
    assert data_of(bundle(NOTHING, "data: {t: '%{facts.os}'}", **files))["k"] == "<%{facts.os}>"


def test_child_derives_values_from_given_data(bundle: Bundle) -> None:
    parent = "data: {version: '1', port: 1}\nresources: [{apply: [{child.yaml: {HANDED}}]}]\n"
    child = "data: {url: 'app-{{ data.version }}', version: '0', port: 0}\nresources: [{exec: [one]}]\n"
    for handed, expected in (("", "app-1"), ("data: {}", "app-0"), ("data: {version: '3'}", "app-3")):
        loaded = bundle(parent.replace("HANDED", handed), **{"child.yaml": child})
        assert loaded.declarations[0].home.data.all["url"] == expected
        loaded = bundle(parent.replace("HANDED", handed), "data: {version: '9'}", **{"child.yaml": child})
        assert loaded.declarations[0].home.data.all["url"] == "app-9"


def test_a_child_reads_derived_data_of_its_parent(bundle: Bundle) -> None:
    parent = """\
    data: {version: '1', url: 'app-{{ data.version }}'}
    resources: [{apply: [{child.yaml: {}}]}]
    """
    child = "data: {name: '{{ data.url }}.tgz'}\nresources: [{exec: [one]}]\n"
    loaded = bundle(parent, "data: {version: '2'}", **{"child.yaml": child})
    assert loaded.declarations[0].home.data.all["name"] == "app-2.tgz"


def test_loops_and_annotations_see_the_final_value(bundle: Bundle) -> None:
    manifest = """\
    data:
      base: /srv
      # @validate value | length == 2
      paths: ["{{ data.base }}/a", "{{ data.base }}/b"]
      # @require
      name: "{{ data.who }}"
      who: ""
    resources:
      - exec:
          - for: path in data.paths
            "ls {{ path }}": {}
    """
    loaded = bundle(manifest, "data: {base: /home, who: x}")
    assert [str(declaration.reference) for declaration in loaded.declarations] == [
        "exec#ls /home/a",
        "exec#ls /home/b",
    ]
    with pytest.raises(ManifestError, match=r"data\.name is required"):
        bundle(manifest, "data: {base: /home}")


@pytest.mark.parametrize("place", ["bundle", "host"])
def test_a_value_derived_from_a_secret_is_secret(bundle: Bundle, place: str) -> None:
    secret = "data:\n  # @sensitive\n  password: hunter2\n"
    plain = "data: {dsn: 'db://{{ data.password }}', password: none}\n"
    first, second = (secret, plain) if place == "bundle" else (plain, secret)
    loaded = bundle(f"{first}\nresources: []\n", second)
    data = data_of(loaded)
    password = "none" if place == "bundle" else "hunter2"
    assert data == {"password": Secret(password), "dsn": Secret(f"db://{password}")}


@pytest.mark.parametrize("tree", [False, True])
def test_a_host_replaces_a_mapping(bundle: Bundle, tree: bool) -> None:
    own = "data: {web: {ports: {http: 80}, tls: {a: 1}}, all: {x: 1}, seen: '{{ data.web.ports }}'}\n"
    manifest = f"{own}resources: []\n"
    files = {"hiera.yaml": TREE, "data/all.yaml": "web: {ports: {of_tree: 1}}\n"} if tree else {}
    host = "data: {web: {ports: {https: 443}, tls: {b: 2}}, all: {y: '{{ data.web.ports | length }}'}}\n"
    data = data_of(bundle(manifest, f"{host}replace: [web.ports, all]\n", **files))
    assert data["web"] == {"ports": {"https": 443}, "tls": {"a": 1, "b": 2}}
    assert (data["all"], data["seen"]) == ({"y": 1}, {"https": 443})
    above = "data: {web: {ports: {more: 1}}}\n"
    data = data_of(bundle(manifest, f"{host}replace: [web.ports]\n", above, **files))
    assert data["web"]["ports"] == {"https": 443, "more": 1}
    assert data["all"] == {"x": 1, "y": 2}


@pytest.mark.parametrize("replace", ["web", "[web.prots]", "[1]", "['a..b']"])
def test_a_replacement_without_a_value_is_refused(replace: str) -> None:
    with pytest.raises(HieraError, match=r"^host\.yaml:2"):
        HERE.resolve(f"data: {{web: {{ports: 1}}}}\nreplace: {replace}\n", "host.yaml", Origin.HOST)


USERS = """\
data:
  users:
    - name: web
      # @sensitive
      password: PASSWORD
resources:
  - exec:
      - for: user in data.users
        "add {{ user.name }}": {command: "passwd {{ user.name }} {{ user.password }}"}
"""


@pytest.mark.parametrize("host", [(), ("data: {users: [{name: web, password: hunter2}]}",)])
def test_a_secret_within_a_list_is_masked(bundle: Bundle, host: tuple[str, ...]) -> None:
    loaded = bundle(USERS.replace("PASSWORD", "none" if host else "hunter2"), *host)
    assert data_of(loaded)["users"] == [{"name": "web", "password": Secret("hunter2")}]
    (declaration,) = loaded.declarations
    assert declaration.shown()["command"] == "(sensitive)"
    assert str(declaration.reference) == "exec#add web"


def test_secret_mappings_merge_as_others(bundle: Bundle) -> None:
    manifest = "data:\n  # @sensitive\n  login: {user: web, password: one}\nresources: []\n"
    data = data_of(bundle(manifest, "data: {login: {password: two}}"))
    assert data == {"login": {"user": Secret("web"), "password": Secret("two")}}


def test_explain_shows_expression_inputs_and_sources(
    bundle: Bundle, tmp_path: Path, execute: Execute
) -> None:
    bundle(URL)
    (tmp_path / "over.yaml").write_text("data: {version: '2.0'}\n")
    arguments = ("explain", "url", str(tmp_path), "--data", str(tmp_path / "over.yaml"))
    status, output = execute(*arguments, "--format", "json")
    source = json.loads(output)[0]["sources"][-1]
    assert (status, source["value"]) == (0, "https://example.com/app-2.0.tar.gz")
    assert source["expressions"] == ["https://example.com/app-{{ data.version }}.tar.gz"]
    (used,) = source["inputs"]
    assert (used["name"], used["value"]) == ("data.version", "2.0")
    assert used["from"] == [f"{tmp_path}/over.yaml:1 (data)"]
    assert 'data.version: "2.0"' in execute(*arguments)[1]


CHAIN = """
data:
  version: "1.0"
  site: {host: "files-{{ data.version }}.example.com", other: "{{ data.secret_part }}"}
  # @sensitive
  token: "hunter2-{{ data.secret_part }}"
  secret_part: "{{ data.version }}"
  url: "https://{{ data.site.host }}/?{{ data.token }}"
resources: []
"""


def test_explain_follows_the_inputs_of_inputs(bundle: Bundle, tmp_path: Path, execute: Execute) -> None:
    bundle(CHAIN)
    (tmp_path / "over.yaml").write_text("data: {version: '2.0'}\n")
    arguments = ("explain", "url", str(tmp_path), "--data", str(tmp_path / "over.yaml"))
    output = execute(*arguments, "--format", "json")[1]
    inputs = {used["name"]: used for used in json.loads(output)[0]["sources"][-1]["inputs"]}
    assert inputs.keys() == {"data.site.host", "data.token", "data.version"}
    assert inputs["data.version"]["from"] == [f"{tmp_path}/over.yaml:1 (data)"]
    assert "hunter2" not in output


@pytest.mark.parametrize("way", ["set", "data", "case"])
def test_each_way_of_giving_data_reaches_derived_values(
    bundle: Bundle, tmp_path: Path, execute: Execute, way: str
) -> None:
    bundle(URL.replace("resources: []", "resources: [{exec: ['fetch {{ data.url }}']}]"))
    if way == "case":
        (tmp_path / "tests").mkdir()
        case = (
            "facts: {}\ndata: {version: '2.0'}\nexpect: {exec#fetch https://example.com/app-2.0.tar.gz: {}}\n"
        )
        (tmp_path / "tests/case.yaml").write_text(case)
        status, output = execute("test", str(tmp_path))
        assert status == 0, output
        return
    (tmp_path / "over.yaml").write_text("data: {version: '2.0'}\n")
    options = ("--set", "version='2.0'") if way == "set" else ("--data", str(tmp_path / "over.yaml"))
    assert "app-2.0.tar.gz" in execute("render", str(tmp_path), *options)[1]


def test_derived_data_follow_the_host_over_releases(host: Host, publisher: Publisher) -> None:
    manifest = """\
data: {version: "VERSION", text: "app-{{ data.version }}"}
resources:
  - file:
      - defaults: {owner: "{{ facts.uid }}", group: "{{ facts.gid }}", mode: "0755"}
      - "{{ facts.machine }}": {ensure: directory}
      - "{{ facts.machine }}/version": {content: "{{ data.text }}"}
"""
    version = host.machine / "version"
    publisher.publish("1.0.0", manifest.replace("VERSION", "1"))
    assert (host.run().status, version.read_text()) == (0, "app-1")
    (host.configuration.parent / "data.yaml").write_text("data: {version: pinned}\n")
    assert (host.run().status, version.read_text()) == (0, "app-pinned")
    publisher.publish("1.1.0", manifest.replace("VERSION", "2"))
    assert (host.run().status, version.read_text()) == (0, "app-pinned")
    (host.configuration.parent / "data.yaml").unlink()
    assert (host.run().status, version.read_text()) == (0, "app-2")


# --- laws ---------------------------------------------------------------------------------------------------

KEYS = ["k0", "k1", "k2", "k3"]
REFERENCES = st.sampled_from([*(f"data.{key}" for key in KEYS), "data.m.x", "data.m.y", "data.list[0]"])
TEXTS = st.one_of(
    st.sampled_from(["a", "b"]),
    REFERENCES.map(lambda name: f"{{{{ {name} }}}}"),
    st.tuples(REFERENCES, REFERENCES).map(lambda names: f"{{{{ {names[0]} }}}}-{{{{ {names[1]} }}}}"),
)
SECTION = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(KEYS, TEXTS),
        "m": st.fixed_dictionaries({}, optional={"x": TEXTS, "y": TEXTS}),
        "list": st.lists(TEXTS, min_size=1, max_size=2),
    },
)
DOCUMENT = st.fixed_dictionaries(
    {"data": SECTION, "merge": st.sampled_from(["first", "deep"]), "over": st.lists(SECTION, max_size=2)}
)
WHOLE = {**dict.fromkeys(KEYS, "v"), "m": {"x": "v", "y": "v"}, "list": ["v"]}


def document_of(written: Mapping[str, Any]) -> Document:
    names = [f"s{number}" for number in range(len(written["over"]))]
    value = {
        "data": written["data"],
        "hierarchy": {"order": names, "merge": written["merge"]},
        "overrides": dict(zip(names, written["over"], strict=True)),
    }
    return Document.from_value(value, "x", lambda path: (1, 1))


def merged_text(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merged document with unevaluated expressions."""
    if written["merge"] == "deep":
        return reduce(merge_deep, written["over"], dict(written["data"]))
    return {**written["data"], **(written["over"][0] if written["over"] else {})}


class Circle(Exception):
    """A value depends on itself."""


def evaluated(data: Mapping[str, Any]) -> Any:
    """Evaluate data in a simple way: replace references by their values until all are replaced."""

    def at(name: str, active: tuple[str, ...]) -> Any:
        value: Any = data
        for step in re.findall(r"[a-z]+\d?|\d", name.removeprefix("data.")):
            value = value[int(step) if isinstance(value, list) else step]
        # A list is always evaluated completely.
        return (
            of(data["list"], (*active, "data.list"))[0]
            if name == "data.list[0]"
            else of(value, (*active, name))
        )

    def of(value: Any, active: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {key: of(item, active) for key, item in value.items()}
        if isinstance(value, list):
            return [of(item, active) for item in value]
        return re.sub(r"\{\{ (.*?) \}\}", lambda match: step(match[1], active), value)

    def step(name: str, active: tuple[str, ...]) -> str:
        if ("data.list" if "list" in name else name) in active:
            raise Circle
        return str(at(name, active))

    def top(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: of(item, (f"data.{key}.{name}",)) for name, item in value.items()}
        return of(value, (f"data.{key}",))

    return {key: top(key, value) for key, value in data.items()}


@given(DOCUMENT, st.lists(DOCUMENT, max_size=3), st.booleans())
def test_the_result_is_plain_evaluation_after_merging(
    own: dict[str, Any], over: list[dict[str, Any]], has_tree: bool
) -> None:
    own = {**own, "data": merge_sources(WHOLE, own["data"])}
    sources = tuple(
        HERE.choose(document_of(written), f"{number}", Origin.SITE) for number, written in enumerate(over)
    )
    tree = Tree({}, environment="/", documents=Texts({"hiera.yaml": TREE, "data/all.yaml": "{}"}))
    nothing = DataSource(Origin.MANIFEST, "", {})
    above = BundleData(nothing, tree if has_tree else None, sources)
    text = reduce(merge_sources, (merged_text(written) for written in (own, *over)))
    try:
        expected = evaluated(text)
    except (Circle, KeyError):
        with pytest.raises(HieraError, match=r"refers to itself|unknown key"):
            above.over(HERE.choose(document_of(own), "own", Origin.MANIFEST), (), HERE)
        return
    data = above.over(HERE.choose(document_of(own), "own", Origin.MANIFEST), (), HERE)
    assert dict(data.all) == expected
    assert {key: data.all[key] for key in data.all} == expected
