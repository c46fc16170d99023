"""Lookups: layers, modules, interpolation, options, conversion and limits. Only necessary files are read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hiera.errors import HieraError, KeyNotFound, LimitError, LookupFailure
from hiera.tree import interpolation
from hiera.tree.locations import Entry, Files, Kind, Texts
from hiera.tree.lookup import Tree

MakeTree = Callable[..., Tree]
LookUp = Callable[..., Any]


def test_the_first_level_that_has_a_key_wins_and_null_is_a_value(make_tree: MakeTree) -> None:
    tree = make_tree({"data/nodes/web01.yaml": "a: node\nb: ~", "data/common.yaml": "a: common\nb: 1\nc: 2"})
    assert [tree.lookup(key) for key in "abc"] == ["node", None, 2]
    assert tree.lookup("zz", "c") == 2
    assert tree.lookup("zz", default="d") == "d"
    with pytest.raises(KeyNotFound) as caught:
        tree.lookup("zz", "yy")
    assert str(caught.value) == (
        "zz or yy: Function lookup() did not find a value for any of the names ['zz', 'yy']"
    )


def test_overrides_beat_the_data_and_defaults_come_after_it(look_up: LookUp) -> None:
    text = "a: data\nvia: \"%{lookup('a')} %{v}\""
    assert look_up(text, "a", override={"a": "%{not} touched"}) == "%{not} touched"
    assert look_up(text, "via", override={"a": "o"}, default_values={"v": "d"}) == "o d"
    assert look_up(text, "zz", default_values={"zz": 1}) == 1


def test_modules_are_found_where_environment_conf_says(make_tree: MakeTree) -> None:
    files = {
        "environment.conf": "modulepath = site-modules:$basemodulepath\n",
        "site-modules/web/hiera.yaml": "version: 5",
        "site-modules/web/data/common.yaml": "web::port: 80",
        "modules/db/hiera.yaml": "version: 5",
        "modules/db/data/common.yaml": "db::port: 5432",
    }
    tree = make_tree(files)
    assert tree.lookup("web::port") == 80
    with pytest.raises(KeyNotFound):
        tree.lookup("db::port")
    assert make_tree(files, module_path=["/env/modules"]).lookup("db::port") == 5432


def test_a_module_name_cannot_lead_out_of_the_module_path(make_tree: MakeTree) -> None:
    tree = make_tree(
        {"modules/x": "", "evil/hiera.yaml": "version: 5", "evil/data/common.yaml": "'../evil::a': 1"}
    )
    with pytest.raises(KeyNotFound):
        tree.lookup("'../evil::a'")


def test_puppet_warnings_are_reported_once(make_tree: MakeTree) -> None:
    reported: list[str] = []
    tree = make_tree({"data/common.yaml": "a: '%{nope}'\nb: '%{nope}%{foo::bar}'", "data/nodes/web01.yaml": "[]"},
                     warn=lambda problem: reported.append(str(problem)))  # fmt: skip
    assert tree.lookup("a") == tree.lookup("b") == ""
    assert reported == [
        "/env/data/nodes/web01.yaml: file does not contain a valid yaml hash",
        "Undefined variable 'nope'; (file: /env/data/common.yaml, level 'common', key 'a')",
        "Undefined variable 'nope'; (file: /env/data/common.yaml, level 'common', key 'b')",
        "Undefined variable 'foo::bar'; class foo could not be found "
        "(file: /env/data/common.yaml, level 'common', key 'b')",
    ]


class Counting(Texts):
    """Records every file that is read."""

    def __init__(self, files: dict[str, str | bytes]) -> None:
        super().__init__(files)
        self.read_paths: list[str] = []

    def read(self, path: str) -> bytes:
        self.read_paths.append(path)
        return super().read(path)

    def entries(self, path: str) -> list[Entry]:
        raise AssertionError(f"{path}: nobody has to list a directory for this")


def test_only_files_that_the_facts_select_are_read_and_each_once() -> None:
    levels = '{version: 5, hierarchy: [{name: n, path: "%{host}.yaml"}, {name: c, paths: [c.yaml, c.yaml]}]}'
    others = {f"/env/data/other{n}.yaml": "never: read" for n in range(50)}
    documents = Counting(
        {"/env/hiera.yaml": levels, "/env/data/web01.yaml": "a: 1", "/env/data/c.yaml": "b: 2", **others}
    )
    tree = Tree({"host": "web01"}, environment="/env", documents=documents)
    assert [tree.lookup("a"), tree.lookup("b"), tree.lookup("x::y", default=0)] == [1, 2, 0]
    assert documents.read_paths == ["/env/hiera.yaml", "/env/data/web01.yaml", "/env/data/c.yaml"]


class Slow(dict[str, Any]):
    """Facts that record their gathered names."""

    asked: list[str]

    def __getitem__(self, name: str) -> Any:
        self.asked.append(name)
        return super().__getitem__(name)


def test_only_facts_that_are_used_are_asked_for(make_tree: MakeTree) -> None:
    facts = Slow({"name": "web01", "os": {"family": "Debian"}, "disks": "expensive"})
    facts.asked = []
    assert (
        make_tree({"data/common.yaml": "a: '%{facts.os.family} %{os.family}'"}, facts).lookup("a")
        == "Debian Debian"
    )
    assert facts.asked == ["name", "os"]


def test_special_and_broken_files_are_errors_by_name(make_tree: MakeTree) -> None:
    with pytest.raises(LookupFailure) as caught:
        make_tree({"data/common.yaml/x": ""}).lookup("a")
    assert str(caught.value) == "a: /env/data/common.yaml is a directory, expected a file"
    with pytest.raises(
        HieraError, match=r"a: Unable to parse \(/env/data/common.yaml\): .* at line 2 column 4"
    ):
        make_tree({"data/common.yaml": "ok: 1\nb: {c"}).lookup("a")


def test_missing_function_matters_only_with_data_to_read(
    make_tree: MakeTree,
) -> None:
    levels = (
        "{version: 5, hierarchy: [{name: v, lookup_key: vault, path: v.yaml}, {name: c, path: common.yaml}]}"
    )
    files = {"hiera.yaml": levels, "data/common.yaml": "a: 1"}
    assert make_tree(files).lookup("a") == 1
    with pytest.raises(HieraError) as caught:
        make_tree({**files, "data/v.yaml": ""}).lookup("a")
    assert str(caught.value) == (
        "a: Unable to find 'lookup_key' function named 'vault' (file: /env/hiera.yaml, hierarchy entry 'v'): "
        "functions written in Ruby or Puppet are not run"
    )


def test_trusted_facts_without_clientcert_use_the_given_name(make_tree: MakeTree) -> None:
    files = {"data/common.yaml": "a: '%{trusted.certname}|%{trusted.domain}|%{trusted.authenticated}'"}
    assert make_tree(files).lookup("a") == "||local"
    assert make_tree(files, certname="web01.example.com").lookup("a") == "web01.example.com|example.com|local"
    facts = {"name": "x", "clientcert": "db.example.com"}
    assert (
        make_tree(files, facts, certname="web01.example.com").lookup("a")
        == "db.example.com|example.com|local"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{5: {merge: unique}}", "lookup_options: the key 5 is not text. Quote it"),
        ("{k: [merge]}", "the options are [\"merge\"], expected a mapping with 'merge' or 'convert_to'"),
        ("{'^(': {merge: unique}}", "not a regular expression that can be used: /^(/"),
        ("{k: {convert_to: [1]}}", "raised error: 1 is not a type"),
        ("{k: {convert_to: integer}}", "could not parse 'integer'"),
        (
            "{k: {convert_to: [Integer, 10, true, 1]}}",
            "Integer.new() takes 2 arguments beside the value, not 3",
        ),
    ],
)
def test_options_that_make_no_sense_are_errors(look_up: LookUp, options: str, message: str) -> None:
    with pytest.raises(HieraError) as caught:
        look_up(f"lookup_options: {options}\nk: 1", "k")
    assert message in str(caught.value)


def test_null_module_options_remove_environment_options(make_tree: MakeTree) -> None:
    environment = "lookup_options: {'m::k': {merge: unique}}\nm::k: [env]"
    for own, value in (("lookup_options: ~", ["env"]), ("", ["env", "mod"])):
        files = {
            "data/common.yaml": environment,
            "modules/m/hiera.yaml": "version: 5",
            "modules/m/data/common.yaml": f"{own}\nm::k: [mod]",
        }
        assert make_tree(files).lookup("m::k") == value


def test_deep_lookups_work_and_recursion_is_found(look_up: LookUp) -> None:
    chain = {f"k{n}": f"%{{lookup('k{n + 1}')}}" for n in range(150)}
    assert look_up(json.dumps({**chain, "k150": "end"}), "k0") == "end"
    with pytest.raises(LookupFailure, match=r"Recursive lookup detected in \[k0, k1"):
        look_up(json.dumps({**chain, "k150": "%{alias('k3')}"}), "k0")


def nested(value: Any) -> Any:
    for _ in range(99):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {f"k{n}": f"%{{lookup('k{n + 1}')}}" for n in range(1000)},
            "more than 250 lookups inside one another",
        ),
        pytest.param(
            {f"k{n}": f"%{{lookup('k{n + 1}')}}" * 2 for n in range(40)},
            "more than 100000 lookups for one answer",
            marks=pytest.mark.crash,  # a test below uses a lower limit
        ),
        (
            {f"k{n}": nested(f"%{{alias('k{n + 1}')}}") for n in range(20)} | {"k20": "end"},
            "more than 1000 lists and mappings inside one another",
        ),
        ({"k0": "%{lookup('k1')}" * 40, "k1": "x" * 500_000}, "a text of more than 16777216 characters"),
    ],
)
def test_data_that_would_grow_without_end_is_stopped(
    look_up: LookUp, data: dict[str, Any], message: str
) -> None:
    with pytest.raises(LimitError) as caught:
        look_up(json.dumps(data), "k0")
    assert str(caught.value).startswith(f"k0: {message} (file: /env/data/common.yaml, level 'common', key 'k")


@pytest.mark.parametrize(
    "data",
    [
        {f"k{n}": f"%{{lookup('k{n + 1}')}}" * 9 for n in range(40)},
        {f"k{n}": [f"%{{alias('k{n + 1}')}}"] * 9 for n in range(40)},
    ],
    ids=["lookups", "aliases"],
)
def test_lookups_and_aliases_count_as_lookups(
    data: dict[str, Any], look_up: LookUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpolation, "MAX_LOOKUPS", 1000)
    with pytest.raises(
        LimitError, match=r"^k0: more than 1000 lookups for one answer \(file: .*, key 'k39'\)$"
    ):
        look_up(json.dumps(data), "k0")


def test_expressions_in_facts_are_resolved_without_recursion(look_up: LookUp) -> None:
    facts = {"a": "%{b}", "b": "%{c}", "c": "end", "x": "%{x}"}
    assert look_up("k: '%{a}'", "k", facts) == "end"
    with pytest.raises(LookupFailure, match=r"Recursive lookup detected in \[k, scope:x\]"):
        look_up("k: '%{x}'", "k", facts)


texts = st.text(alphabet="ab%{}().':\"|", max_size=12) | st.sampled_from(
    [
        "%{a}",
        "%{lookup('a')}",
        "%{alias('b')}",
        "%{facts.x.y}",
        "%{literal('%')}{a}",
        '%{scope("x")}',
        "%{hiera('c.0')}",
    ]
)
facts_strategy = st.dictionaries(
    st.sampled_from(["x", "a", "name", "trusted", "clientcert", "é"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=6,
    ),
)
data_strategy = st.dictionaries(
    st.sampled_from(["a", "b", "c", "m::d", "lookup_options"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | texts,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                texts | st.sampled_from(["merge", "convert_to", "strategy", "^a"]), inner, max_size=3
            )
        ),
        max_leaves=10,
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    high=data_strategy,
    low=data_strategy,
    facts=facts_strategy,
    key=st.sampled_from(["a", "b.x", "c.0", "m::d", "a.'%'"]) | texts,
    merge=st.sampled_from([None, "first", "unique", "hash", "deep"]),
    path=st.sampled_from(["%{a}.yaml", "%{x.y}.yaml", "n.yaml"]),
)
def test_any_facts_and_any_data_give_a_value_or_an_error_of_ours(
    make_tree: MakeTree, high: Any, low: Any, facts: Any, key: str, merge: str | None, path: str
) -> None:
    levels = {"version": 5, "hierarchy": [{"name": "n", "path": path}, {"name": "c", "path": "common.yaml"}]}
    files = {
        "hiera.yaml": json.dumps(levels),
        "data/n.yaml": json.dumps(high),
        "data/common.yaml": json.dumps(low),
        "modules/m/hiera.yaml": "version: 5",
        "modules/m/data/common.yaml": json.dumps(low),
    }
    tree = make_tree(files, {"name": "n", **facts})
    try:
        value = tree.lookup(key, merge=merge)
    except HieraError as error:
        assert str(error)
    else:
        assert tree.lookup(key, merge=merge) == value or value != value  # NaN


def test_every_key_and_who_holds_it(make_tree: MakeTree) -> None:
    files = {
        "data/nodes/web01.yaml": "a: 1",
        "data/common.yaml": "lookup_options: {}\na: 2\n5: unreachable\nb: 3",
        "modules/m/hiera.yaml": "{version: 5, default_hierarchy: [{name: D, path: d.yaml}]}",
        "modules/m/data/d.yaml": "m::x: 1",
    }
    held = make_tree(files).holders()
    assert {key: [(item.layer, item.level, item.path) for item in held[key]] for key in held} == {
        "a": [
            ("Environment", "node", "/env/data/nodes/web01.yaml"),
            ("Environment", "common", "/env/data/common.yaml"),
        ],
        "b": [("Environment", "common", "/env/data/common.yaml")],
        "m::x": [('Module "m"', "D", "/env/modules/m/data/d.yaml")],
    }


def test_a_real_directory_answers_like_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "hiera.yaml").write_text("version: 5")
    (tmp_path / "data/common.yaml").write_text("a: 1")
    assert Files().kind(str(tmp_path)) is Kind.DIRECTORY
    assert Tree({}, environment=str(tmp_path)).lookup("a") == 1
