"""Sources of data in ascending precedence: manifest, Hiera tree, site data, host data, command line."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiera.envelopes import create_key_pair
from hiera.errors import HieraError, UndefinedError
from hiera.expressions.expressions import Scope, evaluate
from hiera.eyaml import encrypt
from hiera.tree.explain import literal
from hiera.tree.locations import Texts
from hiera.tree.lookup import Tree
from hiera.values import Secret, merge_sources
from puller.bundle_paths import BundleFiles
from puller.data.bundle_data import BundleData
from puller.data.lookups import look_up
from puller.data.sources import DataSource, Origin, Surroundings, assigned, merged
from puller.engine.explanation import Uses, explain_key
from puller.errors import ConfigurationError, ManifestError, UsageError
from puller.manifest.loader import load_manifest
from puller.manifest.manifest import Inputs, Manifest
from tests.support.rows import each_row

if TYPE_CHECKING:
    from tests.support.stories import Host, Publisher

HIERARCHY = """\
version: 5
hierarchy:
  - {name: role, path: "roles/%{facts.role}.yaml"}
  - {name: common, path: common.yaml}
"""
COMMON = """\
lookup_options:
  web: {merge: deep}
  "^profile::.*_port$": {convert_to: Integer}
profile::web::port: 80
profile::web::admin_port: "8081"
web: {workers: 2, names: [common]}
"""
DB = """\
profile::web::port: 5432
web: {names: [db]}
"""

Bundle = Callable[..., Manifest]


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """Return ``bundle(manifest, outside…, role=…)``, which loads the manifest of a bundle with a Hiera tree."""

    def build(manifest: str, *outside: Mapping[str, Any], role: str = "db", **files: str) -> Manifest:
        texts = {"hiera.yaml": HIERARCHY, "data/common.yaml": COMMON, "data/roles/db.yaml": DB}
        for path, text in {**texts, **files, "manifest.yaml": textwrap.dedent(manifest)}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        sources = tuple(DataSource(Origin.HOST, "data.yaml", data) for data in outside)
        inputs = Inputs({"role": role}, {}, sources, str(tmp_path / "private.pem"))
        return load_manifest(tmp_path / "manifest.yaml", "web/manifest.yaml", inputs)

    return build


def value(manifest: Manifest, expression: str) -> Any:
    """Return the value of an expression in the manifest."""
    return evaluate(expression, manifest.scope)


NOTHING = "data: {own: 1, web: {tls: false, workers: 1}}\nresources: [exec: [{'true': {command: 'true'}}]]\n"


# --- the tree of a bundle -----------------------------------------------------------------------------------

EXPRESSIONS = {
    "a key of the tree, for this host": ("data['profile::web::port']", 5432),
    "Puppet's lookup": ("hiera('profile::web::port')", 5432),
    "lookup_options convert": ("data['profile::web::admin_port']", 8081),
    "a key of the manifest alone": ("data.own", 1),
    "mappings of both merge, the tree over the manifest": ("data.web.tls", False),
    "lookup_options merge inside the tree": ("data.web.names", ["common", "db"]),
    "a path": ("lookup('data.web.names.0')", "common"),
    "a path with a default": ("lookup('data.web.nope', 7)", 7),
    "digging": ("hiera('web.names.1')", "db"),
    "a default": ("hiera('nope', default='x')", "x"),
    "a default by position": ("hiera('nope', 'x')", "x"),
    "a default of null": ("hiera('nope', default=none) is none", True),
    "a part that is missing has the default": ("hiera('web.nope', default=0)", 0),
    "a strategy over all sources": (
        "hiera('web', merge='hash')",
        {"tls": False, "workers": 2, "names": ["db"]},
    ),
    "a strategy with options": (
        "hiera('web', merge={'strategy': 'deep', 'sort_merged_arrays': true}).names",
        ["common", "db"],
    ),
    "how many keys": ("data | length", 4),
    "the first found": ("hiera('web', merge='first')", {"names": ["db"]}),
}


@pytest.mark.parametrize("case", EXPRESSIONS)
def test_expressions_see_the_tree_of_the_bundle(bundle: Bundle, case: str) -> None:
    expression, desired = EXPRESSIONS[case]
    assert value(bundle(NOTHING), expression) == desired


def test_templates_of_all_engines_have_hiera(bundle: Bundle) -> None:
    templates = {
        "t.j2": "{{ hiera('profile::web::port', default=1) }} {{ hiera('nope', default='d') }}",
        "t.jet": '[[ hiera("profile::web::port") ]] [[ hiera("nope", "d") ]]',
        "t.tmpl": '{{ hiera "profile::web::port" }} {{ hiera "nope" "d" }}',
    }
    manifest = bundle(NOTHING, **templates)
    assert [value(manifest, f"template('{name}')") for name in templates] == ["5432 d"] * 3


def test_hiera_works_without_a_tree(load: Callable[..., Manifest]) -> None:
    manifest = load("data: {a: {b: [1, 2]}, 'x.y': 3}\nresources: []\n", sources=({"a": {"c": 4}},))
    assert value(manifest, "hiera('a')") == {"b": [1, 2], "c": 4}
    assert value(manifest, "hiera('a.b.1')") == 2
    assert value(manifest, """hiera("'x.y'")""") == 3
    assert value(manifest, "hiera('z', default=5)") == 5
    assert isinstance(manifest.scope.data, dict)


FAILURES = {
    "hiera('nope')": "the key 'nope' is missing in all data sources",
    "hiera('profile::web::prot')": "did you mean 'profile::web::port'",
    "hiera(3)": "hiera requires a key such as 'profile::web::port', not a number",
    "hiera('web', merge='no')": "Unknown merge strategy: 'no'",
    "hiera('own.x')": "Got Integer when a hash-like object was expected",
    "data.nope": "unknown key 'nope' in data",
}


@pytest.mark.parametrize("expression", FAILURES)
def test_failed_lookup_states_the_reason(bundle: Bundle, expression: str) -> None:
    with pytest.raises(HieraError) as error:
        value(bundle(NOTHING), expression)
    assert FAILURES[expression] in str(error.value)


def test_outside_sources_are_over_the_tree(bundle: Bundle) -> None:
    manifest = bundle(NOTHING, {"web": {"names": ["site"]}}, {"profile::web::port": 1, "web": {"own": True}})
    assert manifest.scope.data["profile::web::port"] == 1
    assert manifest.scope.data["web"] == {"tls": False, "workers": 2, "names": ["site"], "own": True}
    assert value(manifest, "hiera('profile::web::port')") == 1
    assert dict(manifest.scope.data) == {key: manifest.scope.data[key] for key in manifest.scope.data}


def test_tree_file_is_read_only_when_facts_select_it(bundle: Bundle) -> None:
    manifest = bundle(NOTHING, role="web", **{"data/roles/other.yaml": "not: [yaml"})
    assert manifest.scope.data["profile::web::port"] == 80
    with pytest.raises(ManifestError, match=r"roles/other.yaml"):
        bundle(NOTHING, role="other", **{"data/roles/other.yaml": "not: [yaml"})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("version: 5\nhierarchy: [{name: a, path: x}, {name: a, path: y}]", "hiera.yaml"),
        ("version: 9", "hiera.yaml"),
        ("version: [", "hiera.yaml"),
    ],
)
def test_a_tree_that_is_not_usable_refuses_the_manifest(bundle: Bundle, config: str, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        bundle(NOTHING, **{"hiera.yaml": config})


def test_annotations_apply_to_tree_data(bundle: Bundle) -> None:
    rules = """\
        data:
          # @validate isInt(value)
          profile::web::port: null
          # @sensitive
          web: null
        resources: []
        """
    manifest = bundle(rules)
    assert manifest.scope.data["profile::web::port"] == 5432
    assert manifest.scope.data["web"]["workers"] == Secret(2)
    for expression in ("hiera('web.workers')", "hiera('web', merge='deep').workers"):
        assert value(manifest, expression) == Secret(2)
    with pytest.raises(ManifestError, match=r"profile::web::port.* is 'x', which does not satisfy: isInt"):
        bundle(rules, **{"data/roles/db.yaml": "profile::web::port: x"})


def test_a_child_manifest_sees_the_data_that_it_is_handed(bundle: Bundle) -> None:
    manifest = bundle(
        "resources: [apply: [{child/manifest.yaml: {}}]]\n",
        {"web": {"from": "host"}},
        **{
            "child/manifest.yaml": "resources: [exec: [{\"a {{ hiera('profile::web::port') }} {{ data.web.from }}\": "
            "{command: 'true'}}]]\n"
        },
    )
    assert str(manifest.declarations[0].reference) == "exec#a 5432 host"


def test_encrypted_tree_value_is_secret_and_taints(bundle: Bundle, tmp_path: Path) -> None:
    private, certificate = create_key_pair()
    (tmp_path / "private.pem").write_bytes(private)
    tree = HIERARCHY.replace("{name: common,", "{name: common, lookup_key: eyaml_lookup_key,")
    manifest = bundle(
        """\
        resources:
          - file:
              - /a: {content: "password={{ data.password }}", owner: root, group: root, mode: "0600"}
              - /b: {content: "{{ hiera('password') }}", owner: root, group: root, mode: "0600"}
              - /c: {content: "port {{ data['profile::web::port'] }}", owner: root, group: root, mode: "0600"}
        """,
        **{"hiera.yaml": tree, "data/common.yaml": f"password: {encrypt('hunter2', [certificate])}"},
    )
    assert [declaration.properties.sensitive for declaration in manifest.declarations] == [True, True, False]
    assert "hunter2" in str(manifest.declarations[0].properties)
    assert "hunter2" not in str(dict(manifest.scope.data))


def test_lookup_options_make_values_secret(bundle: Bundle) -> None:
    common = "lookup_options: {token: {convert_to: Sensitive}}\ntoken: hunter2\n"
    manifest = bundle(
        """\
        resources:
          - file: [{/a: {content: "{{ data.token }}", owner: root, group: root, mode: "0600"}}]
        """,
        **{"data/common.yaml": common},
    )
    assert manifest.declarations[0].shown()["content"] == "(sensitive)"
    (source, _) = explain_key(manifest.data, "token")["sources"]
    assert "hunter2" not in str(source)
    assert source["value"] == str(Secret(""))


def test_bundle_with_a_broken_tree_is_held(host: Host, publisher: Publisher) -> None:
    files = {"hiera.yaml": HIERARCHY, "data/common.yaml": "greeting: Hello\n"}
    manifest = """\
resources:
  - file:
      - "{{ facts.machine }}": {ensure: directory, mode: "0755", owner: "{{ facts.uid }}", group: "{{ facts.gid }}"}
"""
    publisher.publish("1.0.0", manifest, files={path: text.encode() for path, text in files.items()})
    assert host.run().status == 0
    files["data/common.yaml"] = "greeting: [Hello\n"
    publisher.publish("1.1.0", manifest, files={path: text.encode() for path, text in files.items()})
    outcome = host.run()
    assert outcome.status == 13
    assert "data/common.yaml" in outcome.output
    assert host.enforced == "1.0.0"


def test_without_the_key_only_encrypted_values_fail(bundle: Bundle) -> None:
    _, certificate = create_key_pair()
    tree = HIERARCHY.replace("{name: common,", "{name: common, lookup_key: eyaml_lookup_key,")
    manifest = bundle(
        """\
        resources:
          - file:
              - /a: {content: "{{ data.password }}", owner: root, group: root, mode: "0600"}
              - /c: {content: "port {{ data['profile::web::port'] }}", owner: root, group: root, mode: "0600"}
        """,
        **{"hiera.yaml": tree, "data/common.yaml": f"password: {encrypt('hunter2', [certificate])}"},
    )
    assert "private.pem: No such file or directory" in manifest.declarations[0].failure
    assert manifest.declarations[1].failure == ""


# --- the command line ---------------------------------------------------------------------------------------


@each_row(
    ("pair", "wanted"),
    [
        ("port=8080", {"port": 8080}),
        ("web.port=8080", {"web": {"port": 8080}}),
        ("port='8080'", {"port": "8080"}),
        ("name=a=b", {"name": "a=b"}),
        ("users=[a, b]", {"users": ["a", "b"]}),
        ("web={tls: yes}", {"web": {"tls": True}}),
        ("empty=", {"empty": None}),
        ("profile::web::port=1", {"profile::web::port": 1}),
        (r"a\.b=1", {"a.b": 1}),
        ("text={{ facts.x }}", None),
        ("text='{{ facts.x }}'", {"text": "{{ facts.x }}"}),
    ],
)
def test_set_reads_a_value_as_a_data_file_does(pair: str, wanted: dict[str, Any] | None) -> None:
    if wanted is None:
        with pytest.raises(UsageError, match="--set text:1:"):
            list(assigned([pair]))
    else:
        assert merged(assigned([pair])) == wanted


@pytest.mark.parametrize("pair", ["port", "=1", "a..b=1", "a=[", "a=b: {"])
def test_source_without_settings_is_an_error(pair: str) -> None:
    with pytest.raises(UsageError):
        list(assigned([pair]))


def test_a_document_sees_the_data_below_it(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("data: {web: {port: 80}}")
    second.write_text("data: {web: {url: 'http://x:{{ data.web.port }}/'}}")
    sources = Surroundings({}, {}).load([first, second], Origin.COMMAND_LINE)
    assert merged(sources) == {"web": {"port": 80, "url": "http://x:80/"}}
    second.write_text("data: {a: '{{ facts.nope }}'}")
    with pytest.raises(ConfigurationError, match=r"b\.yaml:1:8: data\.a: .* unknown key 'nope' in facts"):
        Surroundings({}, {}).load([first, second], Origin.COMMAND_LINE)
    second.write_text("data: {a: '{{ data.of_a_bundle }}'}")
    assert merged(Surroundings({}, {}).load([first, second], Origin.COMMAND_LINE)) == {"web": {"port": 80}}
    with pytest.raises(UndefinedError, match=r"b\.yaml:1:8: data\.a: .* unknown key 'of_a_bundle' in data"):
        Surroundings({}, {}).resolve(second.read_text(), "b.yaml", Origin.SITE)


# --- laws ---------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "web", "x.y", "m::k"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "text", "%{facts.role}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
DATA = st.dictionaries(NAMES, VALUES, max_size=4)
LEVELS = "version: 5\nhierarchy: [{name: one, path: one.json, data_hash: json_data}]"


def bundle_data(own: dict[str, Any], tree: dict[str, Any] | None, *outside: dict[str, Any]) -> BundleData:
    files = {"hiera.yaml": LEVELS, "data/one.json": json.dumps(tree)}
    opened = Tree({"role": "db"}, environment="/", documents=Texts(files)) if tree is not None else None
    sources = tuple(DataSource(Origin.HOST, str(number), data) for number, data in enumerate(outside))
    return BundleData(DataSource(Origin.MANIFEST, "manifest", own), opened, sources)


def without_interpolation(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_interpolation(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_interpolation(item) for item in value]
    return "db" if value == "%{facts.role}" else value


@given(DATA, DATA, DATA, DATA)
def test_the_lazy_mapping_is_the_merge_of_all_sources(
    own: dict[str, Any], tree: dict[str, Any], site: dict[str, Any], host: dict[str, Any]
) -> None:
    before = copy.deepcopy((own, site, host))
    result = bundle_data(own, tree, site, host).all
    desired = functools.reduce(merge_sources, (own, without_interpolation(tree), site, host))
    assert {key: result[key] for key in result} == desired
    assert len(result) == len(desired)
    assert before == (own, site, host)


@given(DATA, DATA)
def test_an_empty_tree_changes_nothing(own: dict[str, Any], host: dict[str, Any]) -> None:
    assert dict(bundle_data(own, {}, host).all) == bundle_data(own, None, host).all


@given(st.lists(DATA, min_size=1, max_size=4))
def test_last_source_wins(sources: list[dict[str, Any]]) -> None:
    whole = merged(DataSource(Origin.HOST, "x", data) for data in sources)
    assert merge_sources(whole, sources[-1]) == whole
    for key, item in sources[-1].items():
        assert isinstance(item, dict) or whole[key] == item


@given(DATA, DATA, NAMES, st.sampled_from([None, "first", "unique", "hash", "deep"]))
def test_any_question_has_an_answer_or_an_error_of_ours(
    own: dict[str, Any], tree: dict[str, Any], key: str, merge: str | None
) -> None:
    data = bundle_data(own, tree, {})
    for name in itertools.chain([key], [f"{key}.0", f"'{key}'.a"]):
        try:
            look_up(data, name, merge=merge)
        except UndefinedError as error:
            assert name in str(error)
        except HieraError as error:
            assert str(error)


@given(DATA, DATA, DATA, NAMES)
def test_explanation_equals_the_value_of_expressions(
    own: dict[str, Any], tree: dict[str, Any], host: dict[str, Any], key: str
) -> None:
    data = bundle_data(own, tree, host)
    explained = explain_key(data, literal(key))
    assert explained["found"] == (key in data.all)
    having = [source for source in explained["sources"] if source["found"]]
    if explained["found"]:
        assert explained["value"] == data.all[key]
        assert isinstance(explained["value"], dict) or having[0]["value"] == explained["value"]
    else:
        assert having == []


@given(DATA, DATA, st.lists(NAMES.map(lambda name: name.replace(".", "_")), min_size=1, max_size=3))
def test_recording_inputs_changes_no_value(
    own: dict[str, Any], tree: dict[str, Any], steps: list[str]
) -> None:
    data = bundle_data(own, tree)
    scope = Scope({}, data.all, {}, {"hiera": functools.partial(look_up, data)})
    uses = Uses()
    recording = uses.scope(scope, BundleFiles.of("/"))
    path = ".".join(["data", *steps])
    for expression in (f"lookup('{path}', 'nothing')", f"data['{steps[0]}'] | default('x') | to_json"):
        assert evaluate(expression, recording) == evaluate(expression, scope)
    assert all(way[:2] == ("data", steps[0]) for way in uses.values)
    assert uses.values
